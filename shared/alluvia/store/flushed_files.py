"""Files that survive a power failure, in whole or not at all: temporary ones, flushed before they get a name."""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from alluvia.errors import AlluviaError, Invalid, StoreRefused, Unavailable

FOLDER_TRIES = 5
"""A sweep removes a folder at most once while a file is begun in it; several may run."""
TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp$")
"""The end of the names of temporary files."""
_NAMES = (errno.EEXIST, errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR)
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTSUP)


@contextmanager
def flushed_file(path: Path, fill: Callable[[BinaryIO], object], like: Path | None = None) -> Iterator[Path]:
    """Yield a flushed temporary file next to an object's, to be renamed to it. Raises ours for an `OSError`.

    It is a link to the file `like` if there can be one, else it is filled.
    """
    temporary = path.parent / f"{path.name[:50]}.{uuid.uuid4().hex}.tmp"
    try:
        linked, opened = _opened(path, temporary, like)
        with opened as file:
            if not linked:
                fill(file)
                file.flush()
            os.fsync(file.fileno())
        yield temporary
    except OSError as error:
        raise _unwritten(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _opened(path: Path, temporary: Path, like: Path | None) -> tuple[bool, BinaryIO]:
    """Return whether a new temporary file is a link to `like`, and the file, opened: to be filled, unless it is."""
    for _ in range(FOLDER_TRIES):
        _make_folder(path)
        linked = like is not None and _linked(like, temporary)
        with suppress(FileNotFoundError):  # a sweep has removed the folder, which was still empty
            return linked, temporary.open("rb" if linked else "xb")
    raise FileNotFoundError(errno.ENOENT, "its folder was removed at each attempt", str(path.parent))


def _linked(path: Path, link: Path) -> bool:
    """Give a file another name, if both are on one file system that has hard links."""
    try:
        os.link(path, link)
    except OSError:
        return False
    return True


def same_bytes(one: Path, other: Path) -> bool:
    """Whether two files hold the same bytes."""
    with one.open("rb") as first, other.open("rb") as second:
        while (data := first.read(1 << 20)) == second.read(1 << 20):
            if not data:
                return True
    return False


def _make_folder(path: Path) -> None:
    """Make an object's folder, and flush the names of those that were missing."""
    missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unwritten(path: Path, error: OSError) -> AlluviaError:
    kind = Invalid if error.errno in _NAMES else StoreRefused if error.errno in _REFUSALS else Unavailable
    return kind(f"cannot write {path.name}: {error.strerror or error}")
