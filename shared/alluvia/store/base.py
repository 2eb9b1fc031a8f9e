"""The object store contract: what a lake requires of its storage.

Keys are text, relative to the store's root, with `/` between parts and none in front. Every store guarantees:

* **Atomic visibility.** An object is visible completely or not at all: a reader never sees half of a put.
* **Mutual exclusion.** Of any number of `put_if_absent` calls on a key, in any number of processes, at most one
  takes effect, and no later one replaces what it wrote.
* **New objects stay.** `put_new` and its like never replace an object of other content: an object that exists has to be
  what an earlier attempt of the same write left.
* **Exact replacement.** `put_if_same` replaces only the content that it is told. In a directory it looks and writes in
  two steps, so a delete between them is undone.
* **Consistent reads.** Once a put has returned, every get, head and list sees it; likewise for a delete.
* **Ordered listing.** `list` gives keys in the order of their UTF-8 bytes.
* **Durability.** What a returned put wrote survives a crash of the process and of the machine (except in the memory
  store).
* **Confinement.** A key or prefix that could lead out of the root (`..`, a leading `/`) is refused with `Invalid`.

No key may be the folder of another (`a` and `a/b`): a directory cannot hold both.

An I/O failure is an exception; a lost race is a value (`PutResult.EXISTS`).

Ask for many objects at once (`get_many`, `put_new_many`, `get_files`, `prefetch`; `map` and `map_ahead` for other
requests): the store decides how many requests run at the same time, and starts no thread if `parallel` is false. Stores
and wrappers change the methods for one object; those for many are made of them.
"""

from __future__ import annotations

import enum
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.errors import Invalid, KeyTaken, ObjectNotFound, Unavailable
from alluvia.lazy_dataclasses import dataclass
from alluvia.store.requests import REQUESTS_AT_ONCE, each, fetched_ahead, one_ahead
from alluvia.store.uris import key_below

T = TypeVar("T")
R = TypeVar("R")
LINK = "link"
"""The etag, in a listing, of a symbolic link that is not followed: it cannot be read."""
PAGE_KEYS = 1000
"""Objects of a page of a listing, and of a bulk delete: as many as S3 takes."""


class PutResult(enum.Enum):
    """The outcome of a conditional put."""

    CREATED = "created"
    EXISTS = "exists"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a listing. `size` is in bytes, `modified_ms` in milliseconds since the Unix epoch.

    `etag` stands for its content, for `get_same`; an object that is written again gets another one.
    """

    key: str
    size: int
    modified_ms: int
    etag: str = ""


@dataclass(frozen=True, slots=True)
class OldVersion:
    """A version of an object, replaced or deleted since, that the store still keeps: what `ObjectInfo` has, and its id.

    `modified_ms` is when it was written.
    """

    key: str
    version_id: str
    size: int
    modified_ms: int


class ListedPage(NamedTuple):
    """Some objects of a listing, in order, as Arrow columns without nulls: texts, and numbers of 64 bits.

    They are keys, sizes in bytes, times in ms since the Unix epoch, and etags.
    """

    keys: pa.Array
    sizes: pa.Array
    modified_ms: pa.Array
    etags: pa.Array

    @classmethod
    def of(cls, infos: Sequence[ObjectInfo]) -> ListedPage:
        """Return some objects as columns. Raises `Invalid` for the name of a file that is not UTF-8."""
        try:
            keys = pa.array([info.key for info in infos], pa.string())
        except UnicodeEncodeError as error:
            raise Invalid(f"{error.object!r:.200}: the name of this file is not UTF-8: rename or delete it") from None
        return cls(
            keys,
            pa.array([info.size for info in infos], pa.int64()),
            pa.array([info.modified_ms for info in infos], pa.int64()),
            pa.array([info.etag for info in infos], pa.string()),
        )

    def moved(self, start: str, to: str) -> ListedPage:
        """Return the page with another start of all keys, which they have in common."""
        return self._replace(keys=restarted(self.keys, start, to)) if start != to else self

    def infos(self) -> Iterator[ObjectInfo]:
        """Yield the objects one by one."""
        return map(ObjectInfo, *(column.to_pylist() for column in self))


def restarted(keys: pa.Array, start: str, to: str) -> pa.Array:
    """Return keys with another start; `start` is what all of them start with."""
    moved = pc.binary_replace_slice(keys.view(pa.binary()), 0, len(start.encode()), to.encode())
    return moved.view(pa.string())


class ByteRange(NamedTuple):
    """What to read of an object, as `Store.get` takes it: all of it unless said otherwise."""

    key: str
    start: int = 0
    end: int | None = None


class Address(NamedTuple):
    """Where another process of ours finds an object: `open_store`'s URI and options, and the object's key there.

    The options can hold credentials: never log them. With an `etag`, it is that object as long as it has this ETag.
    """

    uri: str
    options: Mapping[str, str]
    key: str
    etag: str = ""


class Store(ABC):
    """An object store, rooted somewhere. See the module's text for what it guarantees."""

    uri: str
    is_branch: bool = False
    """Whether it shows a lake as it was. Its commits say what they rest on, since a publish judges them once more."""
    is_wide: bool = False
    """Whether a log's paths may lead anywhere: its user has opened one table, and may read all that is around it."""
    parallel: bool = False
    """Whether several requests at once are faster than one after another (a network lies between)."""

    @abstractmethod
    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes [start, end) of an object; a negative `start` counts from the end, and goes without `end`.

        Raises `ObjectNotFound` when there is none, `Unavailable` when the store does not answer.
        """

    @abstractmethod
    def get_same(self, key: str, etag: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Return the same as `get` if the object is still the one that a listing gave `etag` for; else None."""

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Write an object, over an older one if there is one. Only small records that say how far something is do this.

        The roles of functions may do it to `_last_checkpoint` and below `_alluvia/` alone (infra/storage.py).
        """

    @abstractmethod
    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        """Write an object unless the key is taken.

        `EXISTS` can be this caller's own earlier write, when an answer was lost on the way: who must know reads the
        key back. Raises `AnswerLost` when it is unknown whether the write took effect.
        """

    def put_new(self, key: str, data: bytes) -> None:
        """Write an object under a key of its own, such as one with a UUID. It is tried again, as `put` is.

        If the key is taken by these very bytes, all is well: an earlier attempt has written them. Raises `KeyTaken` if
        it is taken by others.
        """
        if self.put_if_absent(key, data) is PutResult.EXISTS and self.get(key) != data:
            raise KeyTaken(key)

    def get_tagged(self, key: str) -> tuple[bytes, str]:
        """Return an object's bytes, and a tag that other content of its key does not have. Raises as `get` does."""
        data = self.get(key)
        return data, content_tag(data)

    @abstractmethod
    def put_if_same(self, key: str, data: bytes, tag: str) -> bool:
        """Write over the content that has an ETag. Returns False, and writes nothing, if it has changed or gone.

        False can follow this caller's own write, when an answer was lost on the way: who must know reads the key again.
        """

    @abstractmethod
    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects whose key starts with `prefix` and is greater than `start_after`, in key order."""

    def list_pages(self, prefix: str, start_after: str | None = None) -> Iterator[ListedPage]:
        """Yield the same objects as columns, some thousand at once: cheaper where there are millions."""
        objects = self.list(prefix, start_after)
        while page := list(islice(objects, PAGE_KEYS)):
            yield ListedPage.of(page)

    @abstractmethod
    def list_folders(self, prefix: str) -> Iterator[str]:
        """Names of the folders directly below `prefix` (empty, or ending in `/`), in the order of their keys."""

    def old_versions(self, prefix: str) -> Iterator[OldVersion]:  # noqa: ARG002 - most stores keep none
        """Yield versions of objects below `prefix` that were replaced or deleted, and that the store still keeps.

        Raises `Invalid` where it may not say, and `Unavailable`.
        """
        return iter(())

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, in bulk where the store can. A key that is absent is fine.

        Raises `NotDeleted` with the keys that the store would not delete, when all others are deleted, and
        `Unavailable` when it does not answer.
        """

    @abstractmethod
    def head(self, key: str) -> ObjectInfo | None:
        """Size and time of an object, or None."""

    @abstractmethod
    def url(self, key: str) -> str | None:
        """Where other software finds the object: a file's absolute path or an s3:// URL; None if it cannot."""

    def address(self, key: str) -> Address | None:  # noqa: ARG002
        """Return where a query's process finds the object; None where that reads it by `url`, or not at all."""
        return None

    def locate(self, path: str) -> str | None:
        """Key of the object at an absolute path or URI (decoded), if it is below the root; None otherwise."""
        return key_below(path, self.uri)

    def reach(self, uri: str) -> str:
        """Let a place at an absolute path or URI be read; return what its keys begin with, without a `/` at the end.

        Nothing can be written outside the root. Raises `Invalid` for a place that a store cannot read, and `Forbidden`
        for one that it may not.
        """
        key = self.locate(uri)
        if key is None:
            raise Invalid(f"{uri!r} is outside the lake {self.uri}, where this library does not read")
        return key

    def check_lasts(self) -> None:  # noqa: B027 - most stores last
        """Raise `BranchGone` if what was just written is lost, since the whole store was given up meanwhile.

        A writer asks this after its commit, or when there is nothing to commit. On a branch it costs one GET,
        else nothing.
        """

    def signed_url(self, method: str, key: str, seconds: int) -> str | None:  # noqa: ARG002
        """Return a URL at which anyone may GET or PUT one object for a while; None if the store has no such URLs.

        No request is sent. Never log it. S3's ends earlier where the keys that sign it do.
        """
        return None

    def local_path(self, key: str) -> Path | None:  # noqa: ARG002
        """Where an object lies as a file that may be read in place; None if it is not on this machine.

        Raises `ObjectNotFound`. It replaces a get of the whole object.
        """
        return None

    def sweep(self, prefix: str, before_ms: int) -> None:  # noqa: B027 - most stores have nothing to sweep
        """Delete what writers that died before a moment left behind below `prefix`, where a store leaves anything."""

    def get_file(self, key: str, path: Path) -> None:
        """Copy an object into a local file."""
        path.write_bytes(self.get(key))

    def put_new_file(self, key: str, path: Path) -> None:
        """Write a local file as an object, as `put_new` does.

        The file may be deleted afterwards, but not be written again.
        """
        self.put_new(key, path.read_bytes())

    @abstractmethod
    def put_parts(self, key: str, parts: Iterable[bytes], headers: Mapping[str, str]) -> None:
        """Write an object of any size, as its parts come, a few of which are held in memory.

        Errors of the parts are raised from here, and then nothing was written. Downloads by `signed_url` have
        `headers` (Content-Type, Content-Encoding); other stores do without. It is not tried again as a whole.
        """

    def copy(self, source: str, key: str) -> None:
        """Write an object with the bytes of another, of up to 5 GiB, which S3 copies itself.

        Its time is that of the copy, also if an earlier copy was there. Raises `ObjectNotFound` where there is nothing
        to copy, `KeyTaken` if the key is taken by other bytes, and `Unavailable` if it was changed meanwhile.
        """
        data = self.get(source)
        if self.put_if_absent(key, data) is PutResult.EXISTS:
            self._renew(key, data)

    def _renew(self, key: str, data: bytes) -> None:
        """Write an object again, whose bytes must be `data`, for its time to be that of now."""
        stored, tag = self.get_tagged(key)
        if stored != data:
            raise KeyTaken(key)
        if not self.put_if_same(key, data, tag):
            raise Unavailable(f"{key} was changed while it was copied: try again")

    def map(self, work: Callable[[T], R], items: Iterable[T], at_once: int = REQUESTS_AT_ONCE) -> Sequence[R]:
        """Return what `work` returns for each item, in order. It makes requests: several run at once if that is faster.

        If several fail, the error of the first item in order is raised; work that has not started never does.
        """
        return each(work, items, parallel=self.parallel, at_once=at_once)

    def map_ahead(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield what `work` returns for each item, in order. While one is used, the request for the next is sent."""
        return one_ahead(work, items, parallel=self.parallel)

    def get_many(self, ranges: Iterable[ByteRange]) -> Sequence[bytes]:
        """Return the bytes of each range, in order. Raises as `get` does, for the first that fails."""
        return self.map(lambda wanted: self.get(*wanted), ranges)

    def put_new_many(self, objects: Mapping[str, bytes]) -> None:
        """Write objects as `put_new` does. Any of them may have been written when one fails."""
        self.map(lambda item: self.put_new(*item), objects.items())

    def get_files(self, files: Mapping[str, Path]) -> None:
        """Copy objects into local files."""
        self.map(lambda item: self.get_file(*item), files.items())

    def prefetch(self, objects: Iterable[tuple[str, int]]) -> Iterator[Path | None]:
        """Yield objects, keys with about their sizes in bytes, as local files in order; None for one that is missing.

        A file is the object's own (`local_path`), or a copy that is deleted when the next is asked for. Meanwhile the
        next ones are fetched if that is faster: a few, of at most some hundred MB together.
        """

        def fetch(key: str, copy: Path) -> Path | None:
            try:
                path = self.local_path(key)
                if path is None:
                    self.get_file(key, copy)
                    path = copy
            except ObjectNotFound:
                return None
            return path

        return fetched_ahead(fetch, objects, parallel=self.parallel)


def content_tag(data: bytes) -> str:
    """Return a tag of an object's bytes, for stores that have none of their own."""
    return blake2b(data, digest_size=16).hexdigest()


_DOTS = re.compile(r"(^|/)\.{1,2}(/|$)")


def check_key(key: str) -> str:
    """Return the key if it is safe below a root; raise `Invalid` if it could escape it."""
    bad = not key or key.startswith("/") or key.endswith("/") or "\0" in key or "//" in key
    dotted = "/." in key or key.startswith(".")  # else the expression, which takes longer, finds nothing
    if bad or (dotted and _DOTS.search(key)):
        raise Invalid(f"the object key {key!r} is not a relative path without '..'")
    return key


def check_prefix(prefix: str) -> str:
    """Return the prefix of keys if it stays below the root; raise `Invalid` if not."""
    check_key(f"{prefix}x")
    return prefix


def check_range(start: int, end: int | None) -> None:
    """Raise `Invalid` for a range that not every store can serve."""
    if start < 0 and end is not None:
        raise Invalid(f"a range that counts from the end ({start}) takes no end ({end})")
