"""A store in a directory of the local file system.

A put writes a temporary file in the object's own folder, flushes it to the disk, and gives it its name: by rename for
`put`, by hard link for `put_if_absent`, since link(2) fails when the name is taken and so decides a race in one step.
The folder is flushed after that, so that the name survives a power cut as well as the bytes do.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from alluvia.errors import Invalid, ObjectNotFound, Unavailable
from alluvia.store.base import ObjectInfo, PutResult, Store, check_key

_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp$")


class DirectoryStore(Store):
    """Objects as files below one directory, shared by any number of processes on one file system."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.uri = self.root.as_uri()

    def _path(self, key: str) -> Path:
        path = self.root / check_key(key)
        if _TEMPORARY.search(path.name):
            msg = f"the object key {key!r} has the form of this store's temporary files"
            raise Invalid(msg)
        return path

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes [start, end) of an object."""
        try:
            with self._path(key).open("rb") as file:
                if start < 0:
                    start = max(0, os.fstat(file.fileno()).st_size + start)
                file.seek(start)
                return file.read(-1 if end is None else max(0, end - start))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise ObjectNotFound(key) from error

    def put(self, key: str, data: bytes) -> None:
        """Write an object: temporary file, flush, rename, flush of the folder."""
        path = self._path(key)
        temporary = self._write_temporary(path, data)
        temporary.replace(path)
        _sync_folder(path.parent)

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        """Write an object unless the key is taken: temporary file, flush, hard link, flush of the folder."""
        path = self._path(key)
        if path.exists():
            return PutResult.EXISTS
        temporary = self._write_temporary(path, data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return PutResult.EXISTS
        finally:
            temporary.unlink()
        _sync_folder(path.parent)
        return PutResult.CREATED

    def get_file(self, key: str, path: Path) -> None:
        """Copy an object into a local file."""
        try:
            shutil.copyfile(self._path(key), path)
        except FileNotFoundError as error:
            raise ObjectNotFound(key) from error

    def put_file(self, key: str, path: Path) -> None:
        """Write a local file as an object, without reading it whole."""
        target = self._path(key)
        temporary = _temporary_beside(target)
        try:
            with path.open("rb") as source, temporary.open("xb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _unavailable(target, error) from error
        temporary.replace(target)
        _sync_folder(target.parent)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects below a prefix, in key order."""
        folder, _, _ = prefix.rpartition("/")
        for key, path in self._walk(self.root / folder, f"{folder}/" if folder else ""):
            if key.startswith(prefix) and (start_after is None or key > start_after):
                with suppress(FileNotFoundError):  # deleted since the folder was read: as if listed later
                    stat = path.stat()
                    yield ObjectInfo(key, stat.st_size, stat.st_mtime_ns // 1_000_000)

    def _walk(self, folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        # A folder sorts as its name with a slash, as it does among the keys of an object store.
        entries.sort(key=lambda entry: entry.name + ("/" if entry.is_dir() else ""))
        for entry in entries:
            if entry.is_dir():
                yield from self._walk(Path(entry.path), f"{prefix}{entry.name}/")
            elif not _TEMPORARY.search(entry.name):
                yield prefix + entry.name, Path(entry.path)

    def list_folders(self, prefix: str) -> Iterator[str]:
        """Names of the folders directly below a prefix that hold an object somewhere."""
        folder = self.root / prefix
        if not folder.is_dir():
            return
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.is_dir() and next(self._walk(Path(entry.path), ""), None) is not None:
                yield entry.name

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. Folders stay, since removing one would race with a put into it."""
        for key in keys:
            with suppress(NotADirectoryError):
                self._path(key).unlink(missing_ok=True)

    def head(self, key: str) -> ObjectInfo | None:
        """Size and time of an object."""
        try:
            stat = self._path(key).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return ObjectInfo(key, stat.st_size, stat.st_mtime_ns // 1_000_000)

    def url(self, key: str) -> str | None:
        """Return the file's absolute path."""
        return str(self._path(key))

    def _write_temporary(self, path: Path, data: bytes) -> Path:
        temporary = _temporary_beside(path)
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise _unavailable(path, error) from error
        return temporary


def _temporary_beside(path: Path) -> Path:
    """Name a temporary file in the object's folder, which is made (and its name flushed) if it is missing."""
    missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        _sync_folder(folder.parent)
    return path.parent / f"{path.name[:200]}.{uuid.uuid4().hex}.tmp"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unavailable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"cannot write {path.name}: {error.strerror or error}")
