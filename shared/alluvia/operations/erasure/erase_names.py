"""Names of a table and its columns that repeat a value of a condition: an erasure cannot remove them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa

from alluvia.delta.schema.former_names import former_names
from alluvia.delta.snapshot import Snapshot
from alluvia.operations.erasure.erase_words import word_pattern
from alluvia.table_names import REJECTS


def names_with(table: str, snapshot: Snapshot, words: Collection[str]) -> Iterator[str]:
    """Say which names of a table and its columns, former ones on record included, have one of some words."""
    pattern = word_pattern(words)
    if pattern is None or table.endswith(f"/{REJECTS}"):  # named like its table, with columns of its own
        return
    columns = set(_names(snapshot.schema))
    if pattern.search(table):
        yield "the name of the table contains a value of the condition: rename it or drop it"
    for name in sorted(filter(pattern.search, columns)):
        yield f"the name of column {name!r} contains a value of the condition: rename it or drop it"
    on_record = {each for name, names in former_names(snapshot.properties).items() for each in (name, *names)}
    for name in sorted(filter(pattern.search, on_record - columns)):
        yield f"the former name {name!r} of a column contains a value of the condition: copy the rows to a new table"


def _names(fields: Iterable[pa.Field], above: str = "") -> Iterator[str]:
    """Yield the names of columns and, in structs, of their fields, as paths."""
    for each in fields:
        yield above + each.name
        if pa.types.is_struct(each.type):
            yield from _names(each.type, f"{above}{each.name}.")
