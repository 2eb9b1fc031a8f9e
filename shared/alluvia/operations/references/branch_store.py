"""A branch's storage: what the branch has written, in front of its lake as it was at the branch's moment.

Nothing is copied. The branch's objects have the keys that they would have in the lake, below a folder of its own, and
a missing object falls through:

- Of a table's log, versions up to the *base* are the lake's, and later ones are the branch's. The base is the version
  that the branch's moment means; the first commit on the branch, which takes the version after it, settles it.
- Whatever gets a name of its own when it is written (data files, deletion vectors, change files, id files) has a UUID
  in its name. The branch's clock gives out UUIDs with the branch's mark, so the name tells where an object lies, and a
  log has the same relative paths on the branch as in the lake after the branch is published.
- Views, and what says of which tables there are rollups, fall through as of the branch's moment. Tokens, sources of
  webhooks and published queries are the lake's, as they are now.
- Results of queries and parts of uploads are put into the lake, whose clean-up and erasures look there. The names of
  both are the branch's own.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TypeVar

from alluvia.clock import Clock
from alluvia.commit.commit_records import DECISIONS
from alluvia.commit.event_window.index import index_version
from alluvia.delta.log.checkpoints.putting import parse_last_checkpoint
from alluvia.delta.log.paths import LAST_CHECKPOINT, LOG_FOLDER, CheckpointFile, CommitFile, is_absolute, parse_name
from alluvia.delta.refs import BRANCH, list_keepers
from alluvia.errors import CommitUnknown, Invalid, ObjectNotFound, Unavailable
from alluvia.operations.results.results import RESULTS
from alluvia.operations.results.upload_parts import UPLOADS
from alluvia.store import Address, ListedPage, ObjectInfo, OldVersion, PutResult, Store, Wrapper
from alluvia.store.base import content_tag
from alluvia.table_names import TABLE_OR_REJECTS

T = TypeVar("T")
BRANCHES = "_alluvia/branches/"
"""Start of the keys of what branches have written, from the lake's root; the branch's id and a slash follow."""
NOT_THERE = -1
"""The base of a table that the lake did not have at the branch's moment."""
_LAKES = ("_alluvia/tokens/", "_alluvia/sources.toml", "_alluvia/queries/")
"""Keys of what a lake has for all its branches: a branch reads them, and cannot write them."""
_SHARED = (RESULTS, UPLOADS, "_alluvia/pipelines/")
"""Keys of what branches read and write in the lake: clean-up and erasures delete it there, and links lead to it; the
marks of tables of pipelines are valid on the lake once these are published."""
_FALL_THROUGH = ("_alluvia/views/", "_alluvia/schemas/", "_alluvia/rollups/", "_alluvia/dropped/", *_LAKES)
"""Starts of the keys of what a branch has from its lake, besides tables."""
_OF_TABLE = re.compile(rf"(?P<table>{TABLE_OR_REJECTS.pattern})/(?P<rest>(?!_rejects/).*)", re.DOTALL)
_NAMED_BY_LOG = (LOG_FOLDER, "_alluvia/")
_MARK_DIGITS = 12


def branch_folder(branch_id: str) -> str:
    """Return the start of the keys of what a branch has written, from the lake's root."""
    return f"{BRANCHES}{branch_id}/"


def delete_folder(store: Store, branch_id: str) -> None:
    """Delete all that a branch has written. One LIST and one DELETE for 1,000 objects."""
    for page in store.list_pages(branch_folder(branch_id)):
        store.delete(page.keys.to_pylist())


def delete_left(store: Store) -> None:
    """Delete what was written on branches that are gone, by who did not know it. One LIST if there are no branches.

    Who writes on a branch has put its keeper before, so a folder that was listed earlier than all keepers has none.
    """
    if folders := list(store.list_folders(BRANCHES)):
        alive = {keeper.id for keeper in list_keepers(store, None, BRANCH)}
        for branch_id in folders:
            if branch_id not in alive:
                delete_folder(store, branch_id)


def branch_mark(branch_id: str) -> str:
    """Return the last part of all UUIDs that are given out on a branch, by the id of the branch, a UUID itself."""
    return branch_id.replace("-", "")[-_MARK_DIGITS:]


class BranchClock(Clock):
    """A lake's clock, for a branch: its UUIDs are of version 8 (RFC 9562), whose last 48 bits are the branch's mark."""

    def __init__(self, inner: Clock, mark: str) -> None:
        self._inner = inner
        self._mark = int(mark, 16)

    def now_us(self) -> int:
        return self._inner.now_us()

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)

    def new_id(self) -> str:
        number = uuid.UUID(self._inner.new_id()).int
        number = number >> 48 << 48 | self._mark
        return str(uuid.UUID(int=number & ~(0xF << 76) | 8 << 76))

    def uniform(self) -> float:
        return self._inner.uniform()


class BranchStore(Wrapper):
    """The objects of a branch, by the keys that they would have in its lake `main`.

    `base_of` tells the version of a table that the branch's moment means, `NOT_THERE` if there was no table.
    `moment_ms` returns the moment itself, by the store's clock. `check_there` raises unless the branch is there. A base
    is looked up once: two LISTs, of the branch's own log and of the lake's. `list` gives what the branch shows,
    `list_pages` only what it has written itself, which is what vacuum may delete.
    """

    def __init__(
        self,
        main: Store,
        branch_id: str,
        base_of: Callable[[str], int],
        moment_ms: Callable[[], int],
        check_there: Callable[[], None],
    ) -> None:
        super().__init__(main)
        self.is_branch = True
        self.folder = branch_folder(branch_id)
        self.uri = f"{main.uri.rstrip('/')}/{self.folder.rstrip('/')}"
        self._base_of = base_of
        self._moment_ms = moment_ms
        self._check_there = check_there
        self._marked = re.compile(rf"[0-9a-f]{{8}}-[0-9a-f]{{4}}-8[0-9a-f]{{3}}-[0-9a-f]{{4}}-{branch_mark(branch_id)}")
        self._bases: dict[str, int] = {}
        self._lock = Lock()

    @property
    def moment_ms(self) -> int:
        """Return the moment that the branch shows, in ms by the store's clock. The first call may cost a request."""
        return self._moment_ms()

    def owns(self, key: str) -> bool:
        """Whether an object that the branch shows lies in the branch's own folder."""
        return self.place(key).startswith(self.folder)

    def base(self, table: str) -> int:
        """Return the newest version of a table that is the lake's; `NOT_THERE` if it is the branch's from the start."""
        with self._lock:
            known = self._bases.get(table)
        if known is None:
            first = self.first_own(table)
            known = self._base_of(table) if first is None else first - 1
            with self._lock:
                self._bases[table] = known
        return known

    def first_own(self, table: str) -> int | None:
        """Return the first version of a table that was committed on the branch; None for none. One LIST."""
        start = f"{self.folder}{table}/"
        for info in self.inner.list(start + LOG_FOLDER):
            file = _log_file(info.key[len(start) :])
            if isinstance(file, CommitFile):
                return file.version
        return None

    def written(self) -> list[str]:
        """Return the names of the tables that have a log on the branch, with those of rejects. One LIST a table."""
        names = [name for name in self.inner.list_folders(self.folder) if TABLE_OR_REJECTS.fullmatch(name)]
        each = [(name, *(f"{name}/{each}" for each in self.inner.list_folders(f"{self.folder}{name}/")))
                for name in names]  # fmt: skip
        tables = [name for group in each for name in group if TABLE_OR_REJECTS.fullmatch(name)]
        forked = self.map(self.first_own, tables)
        return [name for name, first in zip(tables, forked, strict=True) if first is not None]

    def place(self, key: str) -> str:
        """Return the key in the lake's store of an object that the branch shows."""
        return self._places(key)[0]

    def _places(self, key: str) -> tuple[str, ...]:
        """Return where an object may be, as keys in the lake's store: the first that is there counts."""
        own, both = self.folder + key, (self.folder + key, key)
        if is_absolute(key):
            return (key,)
        match = _OF_TABLE.fullmatch(key)
        if match is None:
            if key.startswith((*_LAKES, *_SHARED, BRANCHES)):
                return (key,)
            return both if key.startswith(_FALL_THROUGH) else (own,)
        table, rest = match["table"], match["rest"]
        version = _version(rest)
        if version is not None:
            return (key,) if version <= self.base(table) else (own,)
        if self._marked.search(rest):
            return (own,)
        if rest == LAST_CHECKPOINT or rest.startswith(DECISIONS):
            return both
        return (own,) if rest.startswith("_alluvia/") and not rest.startswith("_alluvia/window/") else (key,)

    def _own(self, key: str) -> str:
        """Return where the branch writes an object. Raises `Invalid` for an object of the lake."""
        if is_absolute(key):
            raise Invalid(f"{key} is outside the lake, where a branch cannot write")
        if key.startswith(_LAKES):
            raise Invalid("tokens, sources and published queries belong to the lake: change them there")
        if key.startswith(_SHARED):
            return key
        match = _OF_TABLE.fullmatch(key)
        if match is not None and not match["rest"].startswith(_NAMED_BY_LOG) and not self._marked.search(match["rest"]):
            raise Invalid(f"{key}: its writer does not know of the branch; open the table with lake.on_branch(…)")
        return self.folder + key

    def _lake_shows(self, key: str) -> bool:
        """Whether the lake had an object by the moment that the branch has not written: a hint, or a decision."""
        match = _OF_TABLE.fullmatch(key)
        if match is not None and match["rest"] == LAST_CHECKPOINT:
            hint = parse_last_checkpoint(self.inner.get(key))
            return hint is not None and hint.version <= self.base(match["table"])
        if match is not None:  # a transaction is in what the branch shows if it was decided by then
            info = self.inner.head(key)
            return info is not None and info.modified_ms <= self._moment_ms()
        return True

    def _read(self, key: str, send: Callable[[str], T]) -> T:
        first, *others = self._places(key)
        try:
            return send(first)
        except ObjectNotFound:
            if not others or not self._lake_shows(key):
                raise
        return send(key)

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        return self._read(key, lambda place: self.inner.get(place, start, end))

    def get_same(self, key: str, etag: str, start: int = 0, end: int | None = None) -> bytes | None:
        return self._read(key, lambda place: self.inner.get_same(place, etag, start, end))

    def get_tagged(self, key: str) -> tuple[bytes, str]:
        """Return an object's bytes and their tag, which says nothing of where the object lies."""
        data = self.get(key)
        return data, content_tag(data)

    def put_if_same(self, key: str, data: bytes, tag: str) -> bool:
        """Write over the content that has an ETag; the first time, in front of the lake's object."""
        own = self._own(key)
        try:
            known, own_tag = self.inner.get_tagged(own)
        except ObjectNotFound:
            with suppress(ObjectNotFound):
                return content_tag(self.get(key)) == tag and self.inner.put_if_absent(own, data) is PutResult.CREATED
            return False
        return content_tag(known) == tag and self.inner.put_if_same(own, data, own_tag)

    def head(self, key: str) -> ObjectInfo | None:
        first, *others = self._places(key)
        info = self.inner.head(first)
        with suppress(ObjectNotFound):
            if info is None and others and self._lake_shows(key):
                info = self.inner.head(key)
        return None if info is None else replace(info, key=key)

    def put(self, key: str, data: bytes) -> None:
        self.inner.put(self._own(key), data)

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        return self.inner.put_if_absent(self._own(key), data)

    def check_lasts(self) -> None:
        try:
            self._check_there()
        except Unavailable as error:
            raise CommitUnknown(f"it is unknown whether the branch still holds what was written: {error}") from error

    def put_new(self, key: str, data: bytes) -> None:
        self.inner.put_new(self._own(key), data)

    def put_new_file(self, key: str, path: Path) -> None:
        self.inner.put_new_file(self._own(key), path)

    def copy(self, source: str, key: str) -> None:
        self.inner.copy(self.place(source), self._own(key))

    def put_parts(self, key: str, parts: Iterable[bytes], headers: Mapping[str, str]) -> None:
        self.inner.put_parts(self._own(key), parts, headers)

    def get_file(self, key: str, path: Path) -> None:
        self._read(key, lambda place: self.inner.get_file(place, path))

    def local_path(self, key: str) -> Path | None:
        return self._read(key, self.inner.local_path)

    def url(self, key: str) -> str | None:
        return self.inner.url(self.place(key))

    def address(self, key: str) -> Address | None:
        return self.inner.address(self.place(key))

    def signed_url(self, method: str, key: str, seconds: int) -> str | None:
        return self.inner.signed_url(method, self.place(key), seconds)

    def locate(self, path: str) -> str | None:
        key = self.inner.locate(path)
        return key[len(self.folder) :] if key is not None and key.startswith(self.folder) else key

    def delete(self, keys: Iterable[str]) -> None:
        """Delete what the branch has written, but no commit: its log is short, and says where the branch begins."""
        gone = [key if key.startswith(_SHARED) else self.folder + key for key in keys if not _is_commit(key)]
        if gone:
            self.inner.delete(gone)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects of the branch, its own and those that it shows of the lake, in key order; outside it, all."""
        if is_absolute(prefix) or prefix.startswith(_SHARED):  # a table is attached from there, or all share it
            return self.inner.list(prefix, start_after)
        own = {info.key: info for info in self._list_own(prefix, start_after)}
        objects = {info.key: info for info in self._list_theirs(prefix, start_after)} | own
        return iter([objects[key] for key in sorted(objects, key=str.encode)])

    def _list_own(self, prefix: str, start_after: str | None) -> Iterator[ObjectInfo]:
        after = None if start_after is None else self.folder + start_after
        for info in self.inner.list(self.folder + prefix, after):
            key = info.key[len(self.folder) :]
            if self.place(key) == info.key:
                yield replace(info, key=key)

    def _list_theirs(self, prefix: str, start_after: str | None) -> Iterator[ObjectInfo]:
        if not _falls_through(prefix):
            return
        match = _OF_TABLE.match(prefix)
        if match is not None and self.base(match["table"]) == NOT_THERE:
            return
        for info in self.inner.list(prefix, start_after):
            of_log = _version(info.key.removeprefix("" if match is None else f"{match['table']}/")) is not None
            newer = not of_log and not info.key.startswith(_LAKES) and info.modified_ms > self._moment_ms()
            if not newer and info.key in self._places(info.key):
                yield info

    def list_pages(self, prefix: str, start_after: str | None = None) -> Iterator[ListedPage]:
        """Yield what the branch has written itself, as columns."""
        if is_absolute(prefix):
            return
        after = None if start_after is None else self.folder + start_after
        for page in self.inner.list_pages(self.folder + prefix, after):
            yield page.moved(self.folder, "")

    def list_folders(self, prefix: str) -> Iterator[str]:
        """Names of folders, also of tables that the lake did not have at the moment: `base` tells."""
        if is_absolute(prefix):
            return self.inner.list_folders(prefix)
        folders = {*self.inner.list_folders(self.folder + prefix)}
        if not prefix or _falls_through(prefix):
            folders |= {*self.inner.list_folders(prefix)}
        return iter(sorted(folders, key=lambda name: f"{name}/".encode()))

    def old_versions(self, prefix: str) -> Iterator[OldVersion]:
        for version in self.inner.old_versions(self.folder + prefix):
            yield replace(version, key=version.key[len(self.folder) :])

    def sweep(self, prefix: str, before_ms: int) -> None:
        self.inner.sweep(self.folder + prefix, before_ms)


def _falls_through(prefix: str) -> bool:
    return _OF_TABLE.match(prefix) is not None or prefix.startswith(_FALL_THROUGH)


def _version(rest: str) -> int | None:
    """Return the version that an object belongs to, by its path below the table's root; None for another object."""
    file = _log_file(rest)
    return index_version(rest) if file is None else file.version


def _log_file(rest: str) -> CommitFile | CheckpointFile | None:
    return parse_name(rest.removeprefix(LOG_FOLDER)) if rest.startswith(LOG_FOLDER) else None


def _is_commit(key: str) -> bool:
    match = _OF_TABLE.fullmatch(key)
    return match is not None and isinstance(_log_file(match["rest"]), CommitFile)
