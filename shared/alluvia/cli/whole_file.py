"""Write a file completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from alluvia.errors import Invalid

_NAME_CHARS_MAX = 100
"""Of a file's name, in that of the temporary file: file systems take 255 bytes."""


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a file that takes the place of `path` when the block ends without an error.

    It is written next to `path` and renamed, so that readers see the old file or the new one. A symbolic link stays,
    and the file that it names is replaced. A device or a pipe is written to as it is. Raises `Invalid`
    before the block runs where nothing can be written.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise Invalid(f"{path}: it is a folder; give the name of a file in it")
    if (target.exists() and not target.is_file()) or path.is_relative_to("/dev") or path.is_relative_to("/proc"):
        with target.open("wb") as device:
            yield device
        return
    kept = target.stat().st_mode & 0o7777 if target.exists() else None
    if kept is not None and not os.access(target, os.W_OK):
        raise Invalid(f"{path}: the file may not be written to; give another name")
    name = f".{target.name[:_NAME_CHARS_MAX]}.{os.urandom(6).hex()}.tmp"
    temporary = target.with_name(name)
    try:
        file = os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb")
    except OSError as error:
        raise Invalid(f"{path}: {error.strerror or error} in the folder {target.parent}") from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if kept is not None:
            temporary.chmod(kept)
        temporary.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
