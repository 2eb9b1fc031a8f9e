"""Which fields of a table's events could be columns: names, types and coverage, by a sample of the newest events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice

import pyarrow as pa

from alluvia.errors import Invalid, TableNotFound
from alluvia.ingest.convert import column
from alluvia.ingest.jsontext import decode_all, describe, encode
from alluvia.ingest.tables import find_events
from alluvia.ingest.timestamps import TIMESTAMP
from alluvia.lazy_dataclasses import dataclass
from alluvia.log.actions import AddFile
from alluvia.operations.catalog import Catalog
from alluvia.table.event_window.content import EVENT_ID, SOURCE, identity_columns
from alluvia.table.handle import TableHandle
from alluvia.table.reader import read_file
from alluvia.table.schema.names import fold
from alluvia.table.schema.serialization import schema_string
from alluvia.table.schema.type_names import type_name
from alluvia.table_names import REJECTS

SAMPLE = 10_000
FIELDS_MAX = 1000
"""Fields that are counted: events whose fields have names like ids would fill the memory."""
_FILES = 8
_BYTES_MAX = 256 << 20
_EXAMPLE_CHARS = 60
_TYPES: dict[str, tuple[pa.DataType, ...]] = {
    "true or false": (pa.bool_(),),
    "a number": (pa.int64(), pa.float64()),
    "a string": (pa.date32(), TIMESTAMP, pa.string()),
}
"""The types that are tried for values of a kind, in order: a column gets the first that all of them fit exactly."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A field without a column. type: that of a column which takes all values of the sample; None if there is none.

    coverage: the share of the sampled events that have the field. example: one of its values, as JSON.
    """

    field: str
    type: str | None
    coverage: float
    example: str
    note: str | None = None


def suggest(catalog: Catalog, name: str, sample: int = SAMPLE) -> list[Suggestion]:
    """Return the fields without a column of a table's newest events and newest rejects, frequent ones first.

    A table that knows its events by their ids alone cannot get a column `source`. Reads at most 8 files of the table
    and of its rejects. Raises `TableNotFound`.
    """
    table = find_events(catalog, name)
    if table is None:
        raise TableNotFound(f"there is no table {name!r}")
    schema = table.newest().schema
    columns = {fold(column) for column in schema.names}
    texts = _newest(table, "properties", sample) if "properties" in columns else iter(())
    rejected: Iterator[bytes] = iter(())
    place = catalog.handle(f"{name}/{REJECTS}")
    with suppress(TableNotFound):
        rejected = _newest(place, "raw", max(1, sample // 10))
    events, found = 0, _Fields(columns, {SOURCE} if identity_columns(schema) == (EVENT_ID,) else set())
    for value in decode_all([*texts, *rejected]):
        events += 1
        if isinstance(value, dict):
            found.add(value)
    return found.suggestions(events)


def _newest(table: TableHandle, name: str, rows: int) -> Iterator[bytes]:
    """Return texts of a column, from several of the newest files; of a null, an empty object."""
    snapshot = table.newest()
    newest = sorted(snapshot.files, key=lambda file: (-file.modification_time, file.path))[:_FILES]
    files: list[AddFile] = []
    read = 0
    for file in newest:
        if not files or read + file.size <= _BYTES_MAX:
            files.append(file)
            read += file.size
    schema = pa.schema([snapshot.schema.field(name)])
    share = -(-rows // max(1, len(files)))

    def values() -> Iterator[bytes]:
        for file in files:
            batches = read_file(snapshot, table.store, file, schema)
            own: Iterable[object] = (value for batch in batches for value in batch.column(0).to_pylist())
            for value in islice(own, share):
                yield value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else b"{}"

    return islice(values(), rows)


class _Fields:
    """The values of each field that has no column, but for those that cannot become one."""

    def __init__(self, columns: set[str], left_out: set[str]) -> None:
        self._columns = columns
        self._left_out = left_out
        self._values: dict[str, list[object]] = {}

    def add(self, event: Mapping[str, object]) -> None:
        for name, value in event.items():
            if value is None or fold(name) in self._columns or name in self._left_out:
                continue
            if name in self._values or len(self._values) < FIELDS_MAX:
                self._values.setdefault(name, []).append(value)

    def suggestions(self, events: int) -> list[Suggestion]:
        spelled = Counter(map(fold, self._values))
        found = [self._suggestion(name, values, events, spelled) for name, values in self._values.items()]
        return sorted(found, key=lambda each: (-each.coverage, each.field))

    def _suggestion(self, name: str, values: list[object], events: int, spelled: Counter[str]) -> Suggestion:
        example = encode(values[0]).decode(errors="replace")
        shown = example if len(example) <= _EXAMPLE_CHARS else f"{example[: _EXAMPLE_CHARS - 1]}…"
        coverage = round(len(values) / events, 4)
        if spelled[fold(name)] > 1:
            return Suggestion(name, None, coverage, shown, "fields whose names differ only in case cannot be columns")
        try:
            schema_string(pa.schema([pa.field(name, pa.string())]))
        except Invalid as error:
            return Suggestion(name, None, coverage, shown, str(error))
        kinds = Counter(map(describe, values))
        if len(kinds) > 1:
            return Suggestion(name, None, coverage, shown, "its values are " + ", ".join(sorted(kinds)))
        for kind in _TYPES.get(next(iter(kinds)), ()):
            if not column(pa.field(name, kind), values)[1]:
                return Suggestion(name, type_name(kind), coverage, shown)
        return Suggestion(name, None, coverage, shown, f"no type of a column fits {next(iter(kinds))} like these")
