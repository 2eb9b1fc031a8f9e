"""Symbolic links in directories, and how far they may lead: a writer of a table's folder can make one."""

from __future__ import annotations

import enum
import os
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from alluvia.errors import Unsupported

_DELETED = " (deleted)"


class Links(enum.Enum):
    """What links in a directory may do."""

    ANYWHERE = "anywhere"
    OF_FOLDERS = "of folders"
    """The folders directly below the root, which are tables, may be links. None below them leads out of its table."""
    INSIDE = "inside"
    """As before, and the folders directly below the root are no links."""

    @property
    def options(self) -> dict[str, str]:
        """Return the options with which `open_store` opens a directory so."""
        return {"links": self.value}


def real_path(path: str | Path, descriptor: int | None = None) -> str | None:
    """Return the path of a file without links, None if there is none; of a descriptor, of what was opened."""
    if not _HAS_DESCRIPTORS:
        return os.path.realpath(path) if os.path.lexists(path) else None
    opened = None
    try:
        if descriptor is None:
            opened = descriptor = os.open(path, os.O_PATH)
        return os.readlink(f"/proc/self/fd/{descriptor}").removesuffix(_DELETED)  # noqa: PTH115 - a Path takes longer
    except OSError:
        return os.path.realpath(path) if os.path.lexists(path) else None
    finally:
        if opened is not None:
            os.close(opened)


def is_loop(link: str) -> bool:
    """Whether a link leads to nothing, to itself, or to a folder that it lies in, whose listing would never end.

    A folder that it lies in may be one by way of another link.
    """
    with suppress(OSError, RuntimeError):  # the latter before Python 3.13
        there = Path(link).resolve(strict=True)
        return any(parent.resolve().is_relative_to(there) for parent in Path(link).parents)
    return True


def refuse(key: str) -> NoReturn:
    """Raise `Unsupported` for a file behind a link that leads too far."""
    raise Unsupported(
        f"{key} is a symbolic link out of its table's folder, or lies behind one, and such links are not followed: "
        "replace it by a copy"
    )


_HAS_DESCRIPTORS = hasattr(os, "O_PATH") and Path("/proc/self/fd").is_dir()
