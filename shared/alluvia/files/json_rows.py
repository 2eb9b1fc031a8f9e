"""JSON objects, one a line or in an array, as tables of a schema. Pure, but for the stream.

Lines with the same keys are read as columns, like lines of events. If a file has an error, it is read again line by
line, so that the error is the same as without columns.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.events.ingest.columnar_batch import ColumnarBatch, EventParts
from alluvia.events.ingest.columnar_rows import fitting
from alluvia.events.ingest.envelope import split, split_ndjson
from alluvia.events.ingest.values import UNLIMITED, RawEvent
from alluvia.files.event_files import NDJSON, json_pieces
from alluvia.files.json_types import JsonType, Row, by_name, listed
from alluvia.files.limits import FileNames, Misfit, misfit
from alluvia.files.reading_options import DEFAULT, ReadingOptions
from alluvia.json_values.convert import column, of_json

Objects = list[dict[str, object]]
KEPT_BYTES = 64 << 20
"""How much of a file's rows is kept from one pass to the next, which does not read it again."""
OBJECT_BYTES = 10
"""About how many bytes an object takes for each byte of its line."""


class _Part(NamedTuple):
    """Consecutive rows after the first `start`: those at `places` as columns, those at `others` as objects."""

    start: int
    columns: Mapping[str, pa.Array]
    places: Sequence[int]
    objects: Objects
    others: Sequence[int]

    @classmethod
    def of(cls, start: int, events: Sequence[RawEvent]) -> _Part:
        if isinstance(events, ColumnarBatch) and all(len(path) == 1 for path in events.columns.columns):
            columns = {name: values for (name,), values in events.columns.columns.items()}
            return cls(start, columns, events.places, [each.value for each in events.odd.values()], list(events.odd))
        return cls(start, {}, (), [event.value for event in events], range(len(events)))

    def fields(self) -> list[tuple[str, pa.Array | list[object], Row]]:
        """Return the values by name, ordered by the first row with a value of that name."""
        row = partial(_number, self.start, self.places)
        found: list[tuple[str, pa.Array | list[object], Row]] = [(*each, row) for each in self.columns.items()]
        for name, (places, values) in by_name(self.objects).items():
            found.append((name, values, partial(_number, self.start, [self.others[at] for at in places])))
        return sorted(found, key=lambda each: each[2](0))

    def nbytes(self, line_bytes: int) -> int:
        """Return about how much memory it takes, by the bytes of one line."""
        return sum(values.nbytes for values in self.columns.values()) + len(self.objects) * line_bytes * OBJECT_BYTES


class JsonRows:
    """The rows of a file, which `open_text` opens anew for each pass. A column that an object lacks is null in its row.

    Raises `Misfit`.
    """

    names: list[str] | None = None
    """Each line names its columns."""

    def __init__(
        self, open_text: Callable[[], io.BufferedReader[Any]], names_max: int, options: ReadingOptions = DEFAULT
    ) -> None:
        self._open_text = open_text
        self._options = options
        self.notes: list[str] = []
        self._names_max = names_max
        self._kept: list[tuple[list[_Part], int]] = []
        self._spare = KEPT_BYTES

    def schema(self, known: Mapping[str, pa.DataType]) -> pa.Schema:
        """Return the columns that any object has, in their order: of types that are known, else ones that lose nothing.

        Raises `Misfit` for a column that no type can hold exactly.
        """
        try:
            return self._schema(known, one_by_one=False)
        except Misfit:
            return self._schema(known, one_by_one=True)  # finds the first error in any lines

    def _schema(self, known: Mapping[str, pa.DataType], *, one_by_one: bool) -> pa.Schema:
        kinds: dict[str, JsonType] = {}
        names = FileNames(self._names_max)

        for part in self._parts(one_by_one=one_by_one):
            for name, values, row in part.fields():
                if name not in kinds:
                    names.take_column(name, row(0))
                    kinds[name] = JsonType(name, names, options=self._options)
                if name in known:
                    continue
                if isinstance(values, pa.Array):
                    kinds[name].see_column(values, row)
                else:
                    kinds[name].see(values, row)
        if not kinds:
            raise Misfit("the file has no rows, so its columns are not known: declare a schema")
        return pa.schema([(name, known[name] if name in known else kind.kind()) for name, kind in kinds.items()])

    def tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows in columns of a schema. Raises `Misfit` for a column that it lacks."""
        try:
            yield from self._tables(schema, one_by_one=False)
        except Misfit:
            for _ in self._tables(schema, one_by_one=True):  # finds the first error of the file
                pass
            raise

    def _tables(self, schema: pa.Schema, *, one_by_one: bool) -> Iterator[pa.Table]:
        known = {*schema.names}
        for part in self._parts(one_by_one=one_by_one):
            tables = []
            if part.columns:
                tables.append(self._of_columns(part, schema, known))
            if part.objects:
                tables.append(self._of_objects(part, schema, known))
            table = pa.concat_tables(tables)
            if len(tables) > 1:
                table = table.take(pc.array_sort_indices(pa.array([*part.places, *part.others])))
            yield table

    def _of_columns(self, part: _Part, schema: pa.Schema, known: Collection[str]) -> pa.Table:
        row = partial(_number, part.start, part.places)
        _check_known(part.columns, known, row(0))
        arrays = []
        for field in schema:
            sent = part.columns.get(field.name)
            if sent is None:
                sent = pa.nulls(len(part.places), pa.string())
            array = None if self._options.format_of(field.type) else as_sent(sent, field)
            arrays.append(self._column(field, listed(sent), row) if array is None else array)
        return pa.Table.from_arrays(arrays, schema=schema)

    def _of_objects(self, part: _Part, schema: pa.Schema, known: Collection[str]) -> pa.Table:
        row = partial(_number, part.start, part.others)
        for at, each in enumerate(part.objects):
            _check_known(each, known, row(at))
        arrays = [self._column(field, [each.get(field.name) for each in part.objects], row) for field in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _column(self, field: pa.Field, values: list[object], row: Row) -> pa.Array:
        array, reasons = column(field, self._plain(values, field.type))
        if reasons:
            at = min(reasons)
            reason = of_json(reasons[at].removeprefix(f"{field.name}: "), rejects=False)
            if isinstance(text := values[at], str):
                reason = self._options.refusal(reason, text, field.type)
            raise misfit(row(at), field.name, reason)
        return array

    def _plain(self, values: list[object], kind: pa.DataType) -> list[object]:
        if not self._options.format_of(kind):
            return values
        return [self._options.plain_text(value, kind) if isinstance(value, str) else value for value in values]

    def _parts(self, *, one_by_one: bool) -> Iterator[_Part]:
        """Yield the rows. Pieces that the first pass has kept are not read again."""
        start = 0
        for number, (piece, _) in enumerate(json_pieces(self._open_text(), _has_lines)):
            if one_by_one or number >= len(self._kept):
                parts, end = _parts_of(piece, start, one_by_one=one_by_one)
                if not one_by_one and number == len(self._kept):
                    self._keep(parts, end, len(piece) // max(1, end - start))
            else:
                parts, end = self._kept[number]
            yield from parts
            start = end

    def _keep(self, parts: list[_Part], end: int, line_bytes: int) -> None:
        size = sum(part.nbytes(line_bytes) for part in parts)
        self._spare -= size
        if self._spare >= 0:
            self._kept.append((parts, end))


def _check_known(names: Iterable[str], known: Collection[str], row: int) -> None:
    other = next((name for name in names if name not in known), None)
    if other is not None:
        raise misfit(row, f"{other!r:.100}", "the table has no such column")


def as_sent(values: pa.Array, field: pa.Field) -> pa.Array | None:
    """Return a column of `JsonColumns` as one of a field; None where a value may not fit it, or needs a look."""
    array = fitting(values, field.type)
    if array.type != field.type or array.null_count != values.null_count:
        return None
    return None if array.null_count and not field.nullable else array


def _has_lines(text: bytes) -> int:
    return not text.isspace()


def _parts_of(piece: bytes, start: int, *, one_by_one: bool) -> tuple[list[_Part], int]:
    """Return the rows of a piece that follows the first `start` of them, and how many there are with them."""
    events = _events(piece, start)
    if one_by_one:
        events = list(events)
    parts = []
    for part in events.parts if isinstance(events, EventParts) else [events]:
        if part:
            parts.append(_Part.of(start, part))
        start += len(part)
    return parts, start


def _number(start: int, places: Sequence[int], at: int) -> int:
    """Return the number of a value's row, from 1: the rows' `places` follow the first `start`."""
    return start + places[at] + 1


def _events(piece: bytes, start: int) -> Sequence[RawEvent]:
    if start:
        lines = split_ndjson(piece, UNLIMITED)
    else:
        lines = split(piece, content_type=NDJSON, content_encoding=None, limits=UNLIMITED)
    if lines.rejects:
        reject = lines.rejects[0]
        raise Misfit(f"row {start + reject.position + 1}: {reject.reason}")
    return lines.events
