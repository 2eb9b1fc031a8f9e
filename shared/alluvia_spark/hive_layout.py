"""Whether Spark finds the partition values of files in their paths, as it does for a directory of Hive's. Pure.

In Delta the log has the values, and paths mean nothing. But most writers name folders after the values, and where all
of them are what Spark would read out of the paths, it need not be told them row by row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from alluvia.log.actions import AddFile
from alluvia.log.paths import is_absolute
from alluvia.table.partitioning.partition import NULL_FOLDER

_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_FORMS = (
    (pa.types.is_string, re.compile(r"(?s).+")),
    (pa.types.is_integer, re.compile(r"-?\d{1,18}", re.ASCII)),
    (pa.types.is_boolean, re.compile(r"true|false")),
    (pa.types.is_date, re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)),
)
"""The types, and their texts in the log, that Spark reads out of a path as we do."""


def in_paths(files: Sequence[AddFile], columns: Sequence[pa.Field], others: Sequence[str]) -> bool:
    """Whether Spark reads the values of all partition columns of files, and nothing else that counts, in their paths.

    `columns` have the names that they have in the log, `others` are the names of the other columns.
    """
    forms = {field.name: _form(field.type) for field in columns}
    taken = {name.lower() for name in others}
    names = _folders(files[0].path)
    keys = [name for name, _ in names]
    if None in forms.values() or not set(forms) <= set(keys) or len(set(keys)) < len(keys):
        return False
    if any(key.lower() in taken or _ESCAPE.search(key) for key in keys):
        return False
    return all(_agrees(file, keys, forms) for file in files)


def _form(kind: pa.DataType) -> re.Pattern[str] | None:
    return next((form for matches, form in _FORMS if matches(kind)), None)


def _agrees(file: AddFile, keys: Sequence[str], forms: dict[str, re.Pattern[str] | None]) -> bool:
    folders = _folders(file.path)
    if is_absolute(file.path) or [name for name, _ in folders] != keys:
        return False
    for name, text in folders:
        form = forms.get(name)
        if form is None:
            continue
        value = file.partition_values.get(name) or None
        read = None if text == NULL_FOLDER else _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
        if read != value or (value is not None and not form.fullmatch(value)):
            return False
    return True


def _folders(path: str) -> list[tuple[str, str]]:
    """Return the names and values of a path's folders; an empty name for a folder that is not of that form."""
    parts = (part.partition("=") for part in path.split("/")[:-1])
    return [(name if equals else "", value) for name, equals, value in parts]
