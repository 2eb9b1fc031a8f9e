"""Check the place of a local lake, and explain common mistakes."""

from __future__ import annotations

import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

from alluvia.errors import Invalid


def folder_of(uri: str) -> Path | None:
    """Return the folder of a local lake; None for other lakes."""
    if uri.startswith("file:/"):
        return Path(unquote(urlsplit(uri).path))
    return Path(uri).expanduser() if uri and "://" not in uri else None


def check_folder(folder: Path, uri: str, *, new: bool) -> None:
    """Raise `Invalid`, saying what to type, where no lake is in a folder; a new one may be where nothing is."""
    if folder.is_dir():
        if (folder / "_delta_log").is_dir():
            msg = f"{uri} is a table, not a lake: the lake is the folder that contains it; try --lake {_parent(folder)}"
            raise Invalid(msg)
        return
    if folder.exists():
        raise Invalid(f"{uri} is a file, not a folder: --lake must be a folder, which is created if it does not exist")
    file = next((each for each in folder.parents if each.exists() and not each.is_dir()), None)
    if file is not None:
        raise Invalid(f"{uri} cannot be a lake: {file} is a file, not a folder")
    if not new:
        raise Invalid(f"there is no lake at {uri} yet: {how_to_begin(uri)}")


def is_empty(folder: Path) -> bool:
    """Whether a folder holds no table, dropped or not. Asked before the library is loaded, which takes longer."""
    logs = ("_delta_log", "_rejects/_delta_log")
    return not any((each / log).is_dir() for each in folder.iterdir() for log in logs)


def how_to_begin(uri: str) -> str:
    """Return what to type for a first table."""
    lake = "" if uri == "./lake" else f" --lake {shlex.quote(uri)}"
    make = f"`alluvia create{lake} TABLE` or `alluvia ingest{lake} TABLE FILE`"
    return f"{make} creates a table; `alluvia demo{lake}` fills a lake"


def _parent(folder: Path) -> str:
    return shlex.quote(str(folder.absolute().parent))
