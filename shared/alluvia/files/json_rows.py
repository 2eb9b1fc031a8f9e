"""JSON objects, one a line or in an array, as tables of a schema. Pure, but for the stream."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from alluvia.events.ingest.convert import column
from alluvia.events.ingest.envelope import split, split_ndjson
from alluvia.events.ingest.values import UNLIMITED
from alluvia.files.event_files import NDJSON, json_pieces
from alluvia.files.json_types import JsonType, by_name
from alluvia.files.misfit import Misfit, misfit
from alluvia.files.names import FileNames

Values = list[dict[str, object]]


class JsonRows:
    """The rows of a file, which `open_text` opens anew for each pass. A column that an object lacks is null in its row.

    Raises `Misfit`.
    """

    names: list[str] | None = None
    """Each line names its columns."""

    def __init__(self, open_text: Callable[[], io.BufferedReader[Any]], names_max: int) -> None:
        self._open_text = open_text
        self._names_max = names_max

    def schema(self, known: Mapping[str, pa.DataType]) -> pa.Schema:
        """Return the columns that any object has, in their order: of types that are known, else ones that lose nothing.

        Raises `Misfit` for a column that no type can hold exactly.
        """
        found: dict[str, JsonType] = {}
        names = FileNames(self._names_max)
        for start, rows in self._rows():
            for name, (places, values) in by_name(rows).items():
                kind = found.get(name)
                if kind is None:
                    names.take_column(name, _number(start, places, 0))
                    kind = found[name] = JsonType(name, names)
                if name not in known:
                    kind.see(values, partial(_number, start, places))
        if not found:
            raise Misfit("the file has no rows, so its columns are not known: declare a schema")
        return pa.schema([(name, known[name] if name in known else kind.kind()) for name, kind in found.items()])

    def tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows in columns of a schema. Raises `Misfit` for a column that it lacks."""
        names = set(schema.names)
        for start, rows in self._rows():
            for at, row in enumerate(rows):
                if not names.issuperset(row):
                    other = next(name for name in row if name not in names)
                    raise misfit(start + at + 1, f"{other!r:.100}", "the table has no such column")
            columns = []
            for field in schema:
                values = [row.get(field.name) for row in rows]
                array, reasons = column(field, values)
                if reasons:
                    at = min(reasons)
                    reason = reasons[at].removeprefix(f"{field.name}: ")
                    raise misfit(start + at + 1, field.name, reason)
                columns.append(array)
            yield pa.Table.from_arrays(columns, schema=schema)

    def _rows(self) -> Iterator[tuple[int, Values]]:
        """Yield objects, with the number of rows before them."""
        start = 0
        for piece, _ in json_pieces(self._open_text()):
            rows = _objects(piece, start)
            if rows:
                yield start, rows
            start += len(rows)


def _number(start: int, places: Sequence[int], at: int) -> int:
    """Return the number of a value's row, from 1: the rows' `places` follow the first `start`."""
    return start + places[at] + 1


def _objects(piece: bytes, start: int) -> Values:
    if start:
        found = split_ndjson(piece, UNLIMITED)
    else:
        found = split(piece, content_type=NDJSON, content_encoding=None, limits=UNLIMITED)
    if found.rejects:
        reject = found.rejects[0]
        raise Misfit(f"row {start + reject.position + 1}: {reject.reason}")
    return [event.value for event in found.events]
