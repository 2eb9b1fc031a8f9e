"""A store in a directory of the local file system.

A put writes a temporary file in the object's folder, flushes it to disk (`flushed_files.py`), and then names it: by
rename for `put`, by hard link for `put_if_absent` and `put_new`, because link(2) fails if the name is taken and so
decides a race in one step. Then the folder is flushed, so that the name survives a power failure as well as the bytes.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from io import BufferedReader, FileIO
from pathlib import Path
from typing import BinaryIO

from alluvia.errors import (
    AlluviaError,
    AnswerLost,
    Invalid,
    KeyTaken,
    NotDeleted,
    ObjectNotFound,
    Unavailable,
    Unsupported,
)
from alluvia.store.base import LINK, Address, ObjectInfo, PutResult, Store, check_key, check_prefix, check_range
from alluvia.store.flushed_files import TEMPORARY, FlushedFile, flushed_file
from alluvia.store.uris import Links, canonical_path, is_loop, key_below, real_path, refuse

_ABSENT = (errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG)


class DirectoryStore(Store):
    """Objects as files below one directory, shared by any number of processes on one file system.

    `links` says how far symbolic links may lead. Reading or writing an object behind one that leads farther raises
    `Unsupported`; in a listing, such a link is an object itself.
    """

    def __init__(self, root: Path, links: Links = Links.OF_FOLDERS) -> None:
        self.root = root.absolute()
        self._start = f"{str(self.root).rstrip('/')}/"
        self.uri = self.root.as_uri()
        self._links = links

    def _path(self, key: str) -> Path:
        return self.root / self._checked(key)

    def _home(self, key: str) -> str:
        """Return the real path of the folder that no link may lead out of, for a key or a prefix of keys."""
        folder, slash, _ = key.partition("/")
        real = os.path.realpath(self.root)
        if not slash or self._links is Links.ANYWHERE:
            return real
        return os.path.realpath(f"{real}/{folder}") if self._links is Links.OF_FOLDERS else f"{real}/{folder}"

    def _judge(self, key: str, real: str | None) -> None:
        """Raise `Unsupported` unless the real path of a key's file is below the folder that the key is of."""
        if real is None or real == f"{self.root}/{key}" or self._links is Links.ANYWHERE:
            return
        if not real.startswith(f"{self._home(key).rstrip('/')}/"):
            refuse(key)

    def _judged(self, key: str) -> str:
        """Return a key's path, for reading by others; the real one where there are links. Raises `Unsupported`."""
        path = f"{self._start}{self._checked(key)}"  # a query asks for thousands of files: a Path takes longer
        real = real_path(path)
        self._judge(key, real)
        return path if real is None or self._links is Links.ANYWHERE else real

    def _writable(self, key: str) -> Path:
        path = self._path(key)
        self._judge(key, f"{os.path.realpath(path.parent)}/{path.name}")
        return path

    def _checked(self, key: str) -> str:
        if TEMPORARY.search(check_key(key)):
            raise Invalid(f"the object key {key!r} is reserved for temporary files")
        return key

    def _open(self, key: str) -> FileIO:
        """Open a file, and judge what was opened: a link may have changed since anybody looked."""
        # A log without a checkpoint is thousands of small files: for each, a Path takes longer than the reading.
        path = f"{self.root}/{self._checked(key)}"
        try:
            file = FileIO(path)
        except OSError as error:
            self._judge(key, real_path(path))
            raise _unread(key, error) from error
        try:
            self._judge(key, real_path(path, file.fileno()))
        except BaseException:
            file.close()
            raise
        return file

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        check_range(start, end)
        try:
            with self._open(key) as file:
                return _read(file, start, end)
        except OSError as error:
            raise _unread(key, error) from error

    def get_same(self, key: str, etag: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Look at the file before and after reading, as it may be written in place."""
        check_range(start, end)
        try:
            with self._open(key) as file:
                part = _read(file, start, end) if _info(key, os.fstat(file.fileno())).etag == etag else None
                return part if _info(key, os.fstat(file.fileno())).etag == etag else None
        except OSError as error:
            raise _unread(key, error) from error

    def put(self, key: str, data: bytes) -> None:
        """Write an object: temporary file, flush, rename, flush of the folder."""
        self._replace(key, lambda file: file.write(data))

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        """Write an object unless the key is taken: temporary file, flush, hard link, flush of the folder."""
        if _stat(f"{self.root}/{self._checked(key)}") is not None:
            self._writable(key)
            return PutResult.EXISTS
        with self._flushed(key, lambda file: file.write(data)) as new:
            if not new.link():
                return PutResult.EXISTS
            try:
                new.sync_name()
            except OSError as error:
                msg = f"{key} was written, but its folder could not be flushed to the disk: {error.strerror}"
                raise AnswerLost(msg) from error
        return PutResult.CREATED

    def put_new(self, key: str, data: bytes) -> None:
        """Write an object as `put_if_absent` does, and compare the object if the key is taken."""
        self._create(key, lambda file: file.write(data))

    def put_if_same(self, key: str, data: bytes, tag: str) -> bool:
        try:
            same = self.get_tagged(key)[1] == tag
        except ObjectNotFound:
            return False
        if same:
            self.put(key, data)
        return same

    def locate(self, path: str) -> str | None:
        """Key of the file at an absolute path, if it is below the root, by its own name or by its real one."""
        plain = os.path.normpath(canonical_path(path))
        roots = (self.root, self.root.resolve())
        return next((key for root in roots if (key := key_below(plain, root.as_uri())) is not None), None)

    def local_path(self, key: str) -> Path | None:
        path = Path(self._judged(key))
        if not path.is_file():
            raise ObjectNotFound(key)
        return path

    def address(self, key: str) -> Address | None:
        """Return where others find a file that no link may lead to, so that they judge what they open, too."""
        if self._links is Links.INSIDE:
            self._judged(key)
        return Address(self.uri, self._links.options, key) if self._links is Links.INSIDE else None

    def get_file(self, key: str, path: Path) -> None:
        with self._open(key) as source, path.open("wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)

    def put_new_file(self, key: str, path: Path) -> None:
        """Write a local file as an object: by a hard link if it is on the same file system, else by a copy."""
        with path.open("rb") as source:
            self._create(key, lambda file: shutil.copyfileobj(source, file, 1 << 20), path)

    def copy(self, source: str, key: str) -> None:
        with self._open(source) as file:  # a link would have the time of the other
            self._create(key, lambda copy: shutil.copyfileobj(file, copy, 1 << 20), renew=True)

    def put_parts(self, key: str, parts: Iterable[bytes], headers: Mapping[str, str]) -> None:  # noqa: ARG002
        self._replace(key, lambda file: file.writelines(parts))

    def _replace(self, key: str, fill: Callable[[BinaryIO], object]) -> None:
        with self._flushed(key, fill) as new:
            new.replace()
            new.sync_name()

    def _create(
        self, key: str, fill: Callable[[BinaryIO], object], like: Path | None = None, *, renew: bool = False
    ) -> None:
        """Write an object whose key is free or has the same bytes; with `renew`, these are written again."""
        with self._flushed(key, fill, like) as new:
            if not new.link():
                if not new.is_same():
                    raise KeyTaken(key)
                if renew:
                    new.replace()
            new.sync_name()

    def _flushed(
        self, key: str, fill: Callable[[BinaryIO], object], like: Path | None = None
    ) -> AbstractContextManager[FlushedFile]:
        path = f"{self.root}/{self._checked(key)}"
        name = path.rpartition("/")[2]
        return flushed_file(path, fill, lambda folder: self._judge(key, f"{folder}/{name}"), like)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        folder, _, start = check_prefix(prefix).rpartition("/")
        for key, entry, follow in self._walk(folder, start):
            if key.startswith(prefix) and (start_after is None or key > start_after):
                with suppress(FileNotFoundError):  # deleted since the folder was read: as if listed later
                    yield _info(key, entry.stat(follow_symlinks=follow))

    def _walk(self, folder: str, start: str = "") -> Iterator[tuple[str, os.DirEntry[str], bool]]:
        """Yield the files below a folder by key, in order; False with a link that must not be followed.

        Entries of the folder itself are left out unless their names begin with `start`.
        Raises `Unsupported` for a folder behind such a link.
        """
        try:
            entries = [entry for entry in os.scandir(self.root / folder) if entry.name.startswith(start)]
        except (FileNotFoundError, NotADirectoryError):
            return
        prefix = f"{folder}/" if folder else ""
        self._judge(f"{prefix}x", f"{os.path.realpath(self.root / folder)}/x")
        known = {entry.name: self._kind(prefix + entry.name, entry) for entry in entries}
        # A folder sorts as its name with a slash, as it does among the keys of an object store.
        entries.sort(key=lambda entry: entry.name + ("/" if known[entry.name][0] else ""))
        for entry in entries:
            is_folder, follow = known[entry.name]
            if is_folder:
                yield from self._walk(prefix + entry.name)
            elif follow is not None and not TEMPORARY.search(entry.name):
                yield prefix + entry.name, entry, follow

    def _kind(self, key: str, entry: os.DirEntry[str]) -> tuple[bool, bool | None]:
        """Return whether an entry is a folder, and whether its link may be followed: None for a link to nothing."""
        if not entry.is_symlink():
            return entry.is_dir(), True
        if is_loop(entry.path):
            return False, None
        try:
            self._judge(f"{key}/x" if entry.is_dir() else key, f"{os.path.realpath(entry.path)}{'/x' * entry.is_dir()}")
        except Unsupported:
            return False, False
        return entry.is_dir(), True

    def list_folders(self, prefix: str) -> Iterator[str]:
        """Names of the folders directly below a prefix that hold an object somewhere."""
        folder = self.root / check_prefix(prefix)
        if not folder.is_dir():
            return
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name + "/"):
            key = prefix + entry.name
            if self._kind(key, entry)[0] and next(self._walk(key), None) is not None:
                yield entry.name

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. Their folders stay until `sweep`."""
        failed: dict[str, OSError] = {}
        for key in keys:
            try:
                self._writable(key).unlink()
            except OSError as error:
                if error.errno not in _ABSENT:
                    failed[key] = error
        if failed:
            first = next(iter(failed.values()))
            raise NotDeleted(list(failed), first.strerror or str(first)) from first

    def sweep(self, prefix: str, before_ms: int) -> None:
        """Delete the temporary files of writers that died before a moment, and folders that hold nothing.

        A writer whose new folder is gone makes it again.
        """
        self._writable(f"{check_prefix(prefix)}x")
        top = self.root / prefix
        for folder, _, names in os.walk(top, topdown=False):
            if not names and Path(folder) != top:
                with suppress(OSError):  # it holds folders, or something has come
                    Path(folder).rmdir()
            for name in filter(TEMPORARY.search, names):
                path = Path(folder, name)
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime_ns // 1_000_000 < before_ms:
                        path.unlink()

    def head(self, key: str) -> ObjectInfo | None:
        path = self._path(key)
        status = _stat(path)
        if status is not None:
            self._judge(key, real_path(path))
        return None if status is None else _info(key, status)

    def url(self, key: str) -> str | None:
        return self._judged(key)


def _read(file: FileIO, start: int, end: int | None) -> bytes:
    if not start and end is None:
        return file.readall()
    if start < 0:
        start = max(0, os.fstat(file.fileno()).st_size + start)
    file.seek(start)
    reader = BufferedReader(file)
    data = reader.read(-1 if end is None else max(0, end - start))
    reader.detach()  # which otherwise closes the file
    return data


def _info(key: str, status: os.stat_result) -> ObjectInfo:
    etag = LINK if stat.S_ISLNK(status.st_mode) else f"{status.st_size:x}-{status.st_mtime_ns:x}-{status.st_ino:x}"
    return ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000, etag)


def _stat(path: str | Path) -> os.stat_result | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path takes longer
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise _unread(Path(path).name, error) from error
    return status if stat.S_ISREG(status.st_mode) else None


def _unread(key: str, error: OSError) -> AlluviaError:
    if error.errno in _ABSENT:
        return ObjectNotFound(key)
    return Unavailable(f"cannot read {key}: {error.strerror or error}")
