"""Whether Spark finds the partition values of files in their paths, as it does for a directory of Hive's. Pure.

In Delta the log has the values, and paths mean nothing. But most writers name folders after the values, and where all
of them are what Spark would read out of the paths, it need not be told them row by row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.paths import is_absolute
from alluvia.delta.partitioning.partition import NULL_FOLDER

_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_FORMS = (
    (pa.types.is_integer, re.compile(r"-?\d{1,18}", re.ASCII)),
    (pa.types.is_boolean, re.compile(r"true|false")),
    (pa.types.is_date, re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)),
)
"""The types, and their texts in the log, that Spark reads out of a path as we do."""


@dataclass(frozen=True, slots=True)
class FolderTexts:
    """What Spark reads in the paths of files as one column. `as_text` says that it must read texts.

    `others` are texts that are not the value in the log, each with a file that has it: all of them, if texts are read.
    """

    others: Mapping[str | None, AddFile]
    as_text: bool


def folder_texts(
    files: Sequence[AddFile], columns: Sequence[pa.Field], others: Sequence[str]
) -> Mapping[str, FolderTexts] | None:
    """Return what Spark reads in paths as each partition column; None where it does not find all of them there.

    `columns` have the names that they have in the log, `others` are the names of the other columns.
    """
    names = {field.name for field in columns}
    taken = {name.lower() for name in others}
    keys = [name for name, _ in _folders(files[0].path)]
    if not names <= set(keys) or len(set(keys)) < len(keys):
        return None
    if any(key.lower() in taken or _ESCAPE.search(key) for key in keys):
        return None
    found: dict[str, dict[str | None, AddFile]] = {name: {} for name in names}
    for file in files:
        folders = _folders(file.path)
        if is_absolute(file.path) or [name for name, _ in folders] != keys:
            return None
        if any(bool(name) != bool(text) for name, text in folders):  # `p=` and `=v`, at which Spark fails
            return None
        for name, text in folders:
            if name in names:
                read = None if text == NULL_FOLDER else _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
                if _value(found[name].setdefault(read, file), name) != _value(file, name):
                    return None
    return {field.name: _texts(field, found[field.name]) for field in columns}


def _value(file: AddFile, name: str) -> str | None:
    return file.partition_values.get(name) or None


def _texts(field: pa.Field, files: Mapping[str | None, AddFile]) -> FolderTexts:
    differ = {text: file for text, file in files.items() if text != _value(file, field.name)}
    form = next((form for matches, form in _FORMS if matches(field.type)), None)
    if pa.types.is_string(field.type):
        return FolderTexts(differ, as_text=False)
    if form is None or differ or not all(text is None or form.fullmatch(text) for text in files):
        return FolderTexts(files, as_text=True)
    return FolderTexts({}, as_text=False)


def _folders(path: str) -> list[tuple[str, str]]:
    """Return the names and values of a path's folders; an empty name for a folder that is not of that form."""
    parts = (part.partition("=") for part in path.split("/")[:-1])
    return [(name if equals else "", value) for name, equals, value in parts]
