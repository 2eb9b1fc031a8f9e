"""A query's rows as bytes, in one of the forms of `formats`.

The whole result is written before an answer begins, so that a query that fails on its last row is still an error: in
memory, or, where it is larger than that should hold, in parts that go elsewhere. Pure, except for reading the rows.
"""

from __future__ import annotations

import io
import math
from abc import ABC, abstractmethod
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from alluvia.engine.duck.failures import ResultTooLarge
from alluvia.errors import Invalid
from alluvia.json_values.plain import plain_values
from alluvia.lazy_dataclasses import dataclass
from alluvia.query.formats import ARROW, CSV, JSON, NDJSON, PARQUET, SAFE_CSV, TSV, Format

CHUNK_ROWS = 2048
ROW_GROUP_ROWS = 32 * CHUNK_ROWS
PART_BYTES = 4 << 20


class RenderedRows(NamedTuple):
    """Rows as bytes, and how many they are."""

    body: bytes
    rows: int


@dataclass(frozen=True, slots=True)
class Overflow:
    """Where a result goes that has more than some bytes: `send` takes it in parts, all but the last."""

    after_bytes: int
    send: Callable[[bytes], object]


def render(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    form: Format,
    limit_bytes: int,
    overflow: Overflow | None = None,
) -> RenderedRows:
    """Return the rows in a form, or the last part of them where there is an overflow.

    Raises `ResultTooLarge` beyond the limit, and what reading the rows raises.
    """
    writer = _csv_writer(schema, limit_bytes, form) or _WRITERS[form.name](schema, limit_bytes)
    rows, most = 0, limit_bytes if overflow is None else overflow.after_bytes
    for batch in batches:
        rows += batch.num_rows
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            writer.write(batch.slice(start, CHUNK_ROWS))
            if overflow is not None and writer.waiting_bytes > most:
                overflow.send(writer.take())
                most = PART_BYTES
    body = writer.finish()
    if overflow is not None and len(body) > most:
        overflow.send(body)
        body = b""
    return RenderedRows(body, rows)


class _Output(io.BytesIO):
    """Bytes that were written and not yet taken. Positions count all bytes, taken or not."""

    taken_bytes = 0

    def tell(self) -> int:
        return self.taken_bytes + super().tell()

    def take(self) -> bytes:
        data = self.getvalue()
        self.taken_bytes += len(data)
        self.seek(0)
        self.truncate()
        return data


class _Writer(ABC):
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._out = _Output()

    @property
    def waiting_bytes(self) -> int:
        """Return how many bytes were written and not taken."""
        return self._out.tell() - self._out.taken_bytes

    def take(self) -> bytes:
        """Return what was written since the last time."""
        return self._out.take()

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""

    def finish(self) -> bytes:
        """Write what stands after the rows, and return everything."""
        self._check()
        return self._out.take()

    def _check(self) -> None:
        if self._out.tell() > self._limit_bytes:
            raise ResultTooLarge(
                f"the result is larger than the limit of {self._limit_bytes} bytes: "
                "add a LIMIT, select fewer columns, or aggregate"
            )


class _NdjsonWriter(_Writer):
    def __init__(self, schema: pa.Schema, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self._names = _distinct(schema.names)

    def write(self, batch: pa.RecordBatch) -> None:
        for row in _rows(batch):
            self._out.write(orjson.dumps(dict(zip(self._names, row, strict=True)), option=orjson.OPT_APPEND_NEWLINE))
        self._check()


class _JsonWriter(_Writer):
    def __init__(self, schema: pa.Schema, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self._names = _distinct(schema.names)
        self._separator = b"["

    def write(self, batch: pa.RecordBatch) -> None:
        for row in _rows(batch):
            self._out.write(self._separator + orjson.dumps(dict(zip(self._names, row, strict=True))))
            self._separator = b",\n"
        self._check()

    def finish(self) -> bytes:
        self._out.write(b"[]\n" if self._separator == b"[" else b"]\n")
        return super().finish()


class _LineWriter(_Writer, ABC):
    """A line of names, then one for each row."""

    def __init__(self, schema: pa.Schema, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self._line(schema.names)

    def write(self, batch: pa.RecordBatch) -> None:
        for row in _rows(batch):
            self._line(row)
        self._check()

    @abstractmethod
    def _line(self, values: Iterable[Any]) -> None:
        """Write one line."""


class _CsvWriter(_Writer):
    """RFC 4180: a null is nothing, an empty text a pair of quotes; lists and structs are JSON text."""

    def __init__(self, schema: pa.Schema, limit_bytes: int, form: Format) -> None:
        super().__init__(limit_bytes)
        self._by = form.delimiter
        self._quoted_for = f'{form.delimiter}"\r\n'
        has_comma = form.decimal_separator == ","
        self._with_commas = [has_comma and _has_decimals(field.type) for field in schema]
        if form.bom:
            self._out.write(BOM_UTF8)
        self._line(schema.names)

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [
            list(map(_with_comma, values)) if comma else values
            for comma, values in zip(self._with_commas, map(plain_values, batch.columns), strict=True)
        ]
        for row in zip(*columns, strict=True):
            self._line(row)
        self._check()

    def _line(self, values: Iterable[Any]) -> None:
        self._out.write((self._by.join([self._field(value) for value in values]) + "\r\n").encode())

    def _field(self, value: Any) -> str:
        return _csv_field(value, self._quoted_for)


class _SafeCsvWriter(_CsvWriter):
    """CSV in which no text, and no name of a column, is a formula: a quote precedes those that begin as one does."""

    def _field(self, value: Any) -> str:
        return _safe_field(value, self._quoted_for)


class _Number(str):
    """The text of a number, which needs no quotes."""

    __slots__ = ()


def _has_decimals(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _with_comma(value: Any) -> _Number | None:
    return None if value is None else _Number(_text(value).replace(".", ","))


def _csv_writer(schema: pa.Schema, limit_bytes: int, form: Format) -> _CsvWriter | None:
    """Return the writer of a form of CSV; None for another form."""
    kind = {CSV.suffix: _CsvWriter, SAFE_CSV.suffix: _SafeCsvWriter}.get(form.suffix)
    return None if kind is None else kind(schema, limit_bytes, form)


class _ArrowWriter(_Writer):
    def __init__(self, schema: pa.Schema, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self._stream = pa.ipc.new_stream(self._out, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._stream.write_batch(batch)
        self._check()

    def finish(self) -> bytes:
        self._stream.close()
        return super().finish()


class _TsvWriter(_LineWriter):
    r"""As ClickHouse has TabSeparatedWithNames: a null is `\N`, and a backslash stands before what would not fit."""

    def _line(self, values: Iterable[Any]) -> None:
        self._out.write(("\t".join(_tsv_field(value) for value in values) + "\n").encode())


class _ParquetWriter(_Writer):
    def __init__(self, schema: pa.Schema, limit_bytes: int) -> None:
        from alluvia.arrow_parquet import pq  # loaded late: other formats do not need it

        super().__init__(limit_bytes)
        self._schema = pa.schema(
            [field.with_name(name) for field, name in zip(schema, _distinct(schema.names), strict=True)]
        )
        try:
            self._file = pq.ParquetWriter(self._out, self._schema, compression="zstd")
        except pa.ArrowNotImplementedError:
            _refuse_by_name(schema)
            raise
        self._waiting: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(pa.RecordBatch.from_arrays(batch.columns, schema=self._schema))
        if sum(each.num_rows for each in self._waiting) >= ROW_GROUP_ROWS:
            self._write_waiting()
            self._check()

    def finish(self) -> bytes:
        self._write_waiting()
        self._file.close()
        return super().finish()

    def _write_waiting(self) -> None:
        self._file.write_table(pa.Table.from_batches(self._waiting, self._schema))
        self._waiting = []


def _refuse_by_name(schema: pa.Schema) -> None:
    """Raise `Invalid` for the first column whose type Parquet lacks, such as INTERVAL."""
    from alluvia.arrow_parquet import pq

    for field in schema:
        try:
            pq.ParquetWriter(io.BytesIO(), pa.schema([field])).close()
        except pa.ArrowNotImplementedError:
            shown = str(field.type).replace("month_day_nano_interval", "INTERVAL")
            raise Invalid(
                f"Parquet cannot hold the type of the column {field.name:.100} ({shown:.100}): select "
                "CAST(… AS VARCHAR) for it, or ask for another format"
            ) from None


_WRITERS: dict[str, Callable[[pa.Schema, int], _Writer]] = {
    NDJSON.name: _NdjsonWriter,
    JSON.name: _JsonWriter,
    ARROW.name: _ArrowWriter,
    PARQUET.name: _ParquetWriter,
    TSV.name: _TsvWriter,
}


def _rows(batch: pa.RecordBatch) -> Iterable[tuple[Any, ...]]:
    return zip(*(plain_values(column) for column in batch.columns), strict=True)


def _distinct(names: list[str]) -> list[str]:
    """Return names of which none is repeated, so that no column of an object hides another."""
    given, numbers = frozenset(names), dict[str, int]()  # each name used, and the number to try for it next
    for name in names:
        shown, number = name, numbers.get(name, 1)
        while shown in numbers or (number > 1 and shown in given):
            shown, number = f"{name}_{number}", number + 1
        numbers[name] = number
        numbers.setdefault(shown, 1)
    return list(numbers)


def _csv_field(value: Any, quoted_for: str) -> str:
    """Return a field, in quotes if it is empty or has one of some characters."""
    if value is None:
        return ""
    text = _text(value)
    if isinstance(value, str | dict | list) and (not text or any(character in text for character in quoted_for)):
        return _quoted(text)
    return text


FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20", "|", "%")
"""How cells begin that spreadsheets compute or that run something, the full-width signs of some of them included.
Source: OWASP, "CSV Injection"."""


def _safe_field(value: Any, quoted_for: str) -> str:
    """Return a field that no spreadsheet computes. Numbers stay: they are no text."""
    if isinstance(value, _Number):
        return value
    if isinstance(value, str) and value.lstrip(" ").startswith(FORMULA_STARTS):
        return _quoted(f"'{value}")
    return _quoted(value) if isinstance(value, str) else _csv_field(value, quoted_for)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


_TSV_ESCAPED = {"\\": "\\", "\t": "t", "\n": "n", "\r": "r", "\b": "b", "\f": "f", "\0": "0"}
_TSV_ESCAPES = str.maketrans({sign: f"\\{letter}" for sign, letter in _TSV_ESCAPED.items()})


def _tsv_field(value: Any) -> str:
    return "\\N" if value is None else _text(value).translate(_TSV_ESCAPES)


def _text(value: Any) -> str:
    """Return a value, not null, as a field of text: lists and structs are JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else ("NaN" if math.isnan(value) else _infinity(value))
    return orjson.dumps(value).decode()


def _infinity(value: float) -> str:
    return "Infinity" if value > 0 else "-Infinity"
