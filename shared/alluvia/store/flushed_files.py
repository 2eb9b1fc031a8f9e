"""Files that survive a power failure, in whole or not at all: temporary ones, flushed before they get a name."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from alluvia.errors import AlluviaError, Invalid, StoreRefused, Unavailable
from alluvia.store.uris import real_path

FOLDER_TRIES = 5
"""A sweep removes a folder at most once while a file is begun in it; several may run."""
TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp$")
"""The end of the names of temporary files."""
_NAME_CHARS_MAX = 50
"""Length of a file's name within the temporary name; file systems allow 255 bytes."""
_NAMES = (errno.EEXIST, errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR)
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTSUP)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


class FlushedFile:
    """A flushed temporary file in the folder of its final name. The folder is held open, so it cannot be swapped."""

    def __init__(self, folder: int, path: str) -> None:
        self.folder = folder
        self.path = path
        self.name = path.rpartition("/")[2]
        self.temporary = f"{self.name[:_NAME_CHARS_MAX]}.{os.urandom(16).hex()}.tmp"

    def begin(self, like: Path | None) -> BinaryIO:
        """Open the temporary file: a hard link to the file `like` if possible, otherwise a new file to fill."""
        if like is not None and self._linked(like):
            return self._opened(self.temporary)
        return os.fdopen(os.open(self.temporary, _NEW, 0o666, dir_fd=self.folder), "wb")

    def _linked(self, like: Path) -> bool:
        """Give a file another name if both names are on one file system with hard links."""
        try:
            os.link(like, self.temporary, dst_dir_fd=self.folder)
        except OSError:
            return False
        return True

    def _opened(self, name: str) -> BinaryIO:
        return os.fdopen(os.open(name, os.O_RDONLY, dir_fd=self.folder), "rb")

    def link(self) -> bool:
        """Give the file its name; return False if another file has it. Raises `OSError` if a folder has it."""
        try:
            os.link(self.temporary, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        except FileExistsError:
            if Path(self.path).is_dir():
                raise
            return False
        return True

    def replace(self) -> None:
        """Give the file its name. It replaces another file of that name."""
        os.replace(self.temporary, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)

    def is_same(self) -> bool:
        """Whether the existing file of that name holds the same bytes."""
        with self._opened(self.temporary) as first, self._opened(self.name) as second:
            while (data := first.read(1 << 20)) == second.read(1 << 20):
                if not data:
                    return True
        return False

    def sync_name(self) -> None:
        """Remove the temporary name, and flush the folder to the disk."""
        self.drop()
        os.fsync(self.folder)

    def drop(self) -> None:
        """Remove the temporary name."""
        if self.temporary:
            with suppress(OSError):
                os.unlink(self.temporary, dir_fd=self.folder)
        self.temporary = ""


@contextmanager
def flushed_file(
    path: str, fill: Callable[[BinaryIO], object], judge: Callable[[str], object], like: Path | None = None
) -> Iterator[FlushedFile]:
    """Yield a flushed temporary file in the folder of an object's file. Raises our errors in place of `OSError`.

    A missing folder is made. `judge` sees the real path before that, and the path of the opened folder after it.
    """
    try:
        file, opened = _begun(path, judge, like)
        try:
            with opened:
                if opened.writable():
                    fill(opened)
                    opened.flush()
                os.fsync(opened.fileno())
            yield file
        finally:
            _close(file)
    except OSError as error:
        raise _unwritten(path, error) from error


def _begun(path: str, judge: Callable[[str], object], like: Path | None) -> tuple[FlushedFile, BinaryIO]:
    folder = path.rpartition("/")[0]
    for _ in range(FOLDER_TRIES):
        with suppress(FileNotFoundError):  # a sweep has removed the folder, which was still empty
            file = FlushedFile(_opened(folder, judge), path)
            try:
                judge(real_path(folder, file.folder) or folder)
                return file, file.begin(like)
            except BaseException:
                _close(file)
                raise
    raise FileNotFoundError(errno.ENOENT, "its folder was removed at every attempt", folder)


def _opened(folder: str, judge: Callable[[str], object]) -> int:
    """Open a folder, which is made if it is missing."""
    try:
        return os.open(folder, _FOLDER)
    except FileNotFoundError:
        judge(os.path.realpath(folder))
        _make_folder(Path(folder))
        return os.open(folder, _FOLDER)


def _close(file: FlushedFile) -> None:
    file.drop()
    os.close(file.folder)


def _make_folder(path: Path) -> None:
    """Make a folder, and flush the names of all folders that were missing."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritten(path: str, error: OSError) -> AlluviaError:
    kind = Invalid if error.errno in _NAMES else StoreRefused if error.errno in _REFUSALS else Unavailable
    return kind(f"cannot write {path.rpartition('/')[2]}: {error.strerror or error}")
