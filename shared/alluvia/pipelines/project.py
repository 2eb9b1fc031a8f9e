"""The declarations in a folder: `*.sql` and `*.py`, in the order of their names, without those below it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from alluvia.errors import Invalid
from alluvia.pipelines.declarations.conditions import check_conditions
from alluvia.pipelines.declarations.declaration import Declaration
from alluvia.pipelines.declarations.grammar import read_declarations
from alluvia.pipelines.declarations.python_files import declarations_in
from alluvia.pipelines.graph import in_order

FOLDER = "pipelines"


def read_project(path: str | os.PathLike[str]) -> list[Declaration]:
    """Return the declarations in a folder, or in one file, each after those whose tables it reads.

    Python files run in this process. Raises `Invalid`, with the file and the line.
    """
    place = Path(path)
    if not place.exists():
        raise Invalid(f"there is no folder {place}: `alluvia pipeline init` makes one with an example")
    declarations = [each for file in _files(place) for each in _read(file, place)]
    if not declarations:
        raise Invalid(f"{place} declares no table: write CREATE OR REFRESH TABLE … AS SELECT … into a file *.sql there")
    for each in declarations:
        check_conditions(each)
    return in_order(declarations)


def read_text(file: Path, shown: str) -> str:
    """Return the text of a file. Raises `Invalid` for one that is not UTF-8."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(f"{shown} is not text in UTF-8 ({error})") from error


def _files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    yield from sorted(file for file in place.iterdir() if file.suffix in (".sql", ".py") and file.is_file())


def _read(file: Path, place: Path) -> Iterator[Declaration]:
    shown = file.name if file == place else f"{place.name}/{file.name}"
    if file.suffix == ".py":
        yield from declarations_in(file, shown)
        return
    yield from read_declarations(read_text(file, shown), shown)
