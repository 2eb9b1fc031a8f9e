"""A query's rows as bytes, in the form that the caller accepts.

The whole result is written before an answer begins, so that a query that fails on its last row is still an error: in
memory, or, where it is larger than that should hold, in parts that go elsewhere. Pure, except for reading the rows.
"""

from __future__ import annotations

import io
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from alluvia.engine.duck.failures import ResultTooLarge
from alluvia.errors import Invalid
from alluvia.json_values.plain import plain_values
from alluvia.lazy_dataclasses import dataclass

CHUNK_ROWS = 2048
ROW_GROUP_ROWS = 32 * CHUNK_ROWS
PART_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Format:
    """A form of results: the media types that ask for it, whether it is text, and compressed as it is."""

    name: str
    media_types: tuple[str, ...]
    content_type: str
    is_text: bool = True
    is_compressed: bool = False


NDJSON = Format("NDJSON", ("application/x-ndjson", "application/ndjson", "application/jsonl"), "application/x-ndjson")
JSON = Format("JSON", ("application/json",), "application/json")
CSV = Format("CSV", ("text/csv",), "text/csv; charset=utf-8")
ARROW = Format(
    "Arrow",
    ("application/vnd.apache.arrow.stream",),
    "application/vnd.apache.arrow.stream",
    is_text=False,
)
PARQUET = Format(
    "Parquet", ("application/vnd.apache.parquet",), "application/vnd.apache.parquet", is_text=False, is_compressed=True
)
TSV = Format("TSV", ("text/tab-separated-values",), "text/tab-separated-values; charset=utf-8")
SAFE_CSV = Format("SafeCSV", (), CSV.content_type)
"""CSV for spreadsheets, which take a text for a formula if it begins as one. Not exact, so it must be asked by name."""
FORMATS = (NDJSON, JSON, CSV, ARROW, PARQUET, TSV, SAFE_CSV)


class NotAcceptable(Invalid):
    """None of the forms that the caller accepts is one that results come in."""


def choose_format(accept: str | None) -> Format:
    """Return the form that an Accept header asks for; NDJSON where it leaves the choice. Raises `NotAcceptable`."""
    ranges = accepted(accept or "*/*")
    best: tuple[float, Format] = (0.0, NDJSON)
    for one in FORMATS:
        quality = max((_quality(media_type, ranges) for media_type in one.media_types), default=0.0)
        if quality > best[0]:
            best = (quality, one)
    if best[0] <= 0:
        offered = ", ".join(one.media_types[0] for one in FORMATS if one.media_types)
        raise NotAcceptable(f"Accept: results are available as {offered}")
    return best[1]


def format_named(name: str) -> Format:
    """Return the form of a name, which is also a file's suffix. Raises `Invalid`."""
    form = next((one for one in FORMATS if one.name.lower() == name.lower()), None)
    if form is None:
        raise Invalid(f"format: {name[:100]!r} must be one of {', '.join(one.name.lower() for one in FORMATS)}")
    return form


def accepted(accept: str) -> dict[str, float]:
    """Return the qualities of the names in a header such as Accept; `*/*` where it names nothing."""
    qualities: dict[str, float] = {}
    for part in accept.split(","):
        media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                quality = _number(value)
        if media_type:
            qualities[media_type] = max(quality, qualities.get(media_type, 0.0))
    return qualities or {"*/*": 1.0}


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return min(1.0, number) if math.isfinite(number) else 0.0


def _quality(media_type: str, ranges: dict[str, float]) -> float:
    """Return the quality of the most specific range that a media type falls into."""
    family = media_type.partition("/")[0]
    for name in (media_type, f"{family}/*", "*/*"):
        if name in ranges:
            return ranges[name]
    return 0.0


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
    writer = _WRITERS[form.name](schema, limit_bytes)
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


class _CsvWriter(_LineWriter):
    """RFC 4180: a null is nothing, an empty text a pair of quotes; lists and structs are JSON text."""

    def _line(self, values: Iterable[Any]) -> None:
        self._out.write((",".join(_csv_field(value) for value in values) + "\r\n").encode())


class _SafeCsvWriter(_LineWriter):
    """CSV in which no text, and no name of a column, is a formula: a quote precedes those that begin as one does."""

    def _line(self, values: Iterable[Any]) -> None:
        self._out.write((",".join(_safe_field(value) for value in values) + "\r\n").encode())


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
        import pyarrow.parquet as pq  # which other forms do not need

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
    import pyarrow.parquet as pq

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
    CSV.name: _CsvWriter,
    ARROW.name: _ArrowWriter,
    PARQUET.name: _ParquetWriter,
    TSV.name: _TsvWriter,
    SAFE_CSV.name: _SafeCsvWriter,
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


def _csv_field(value: Any) -> str:
    if value is None:
        return ""
    text = _text(value)
    if isinstance(value, str | dict | list) and (not text or any(character in text for character in ',"\r\n')):
        return _quoted(text)
    return text


FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20", "|", "%")
"""How cells begin that spreadsheets compute or that run something, the full-width signs of some of them included.
Source: OWASP, "CSV Injection"."""


def _safe_field(value: Any) -> str:
    """Return a field that no spreadsheet computes. Numbers stay: they are no text."""
    if isinstance(value, str) and value.lstrip(" ").startswith(FORMULA_STARTS):
        return _quoted(f"'{value}")
    return _quoted(value) if isinstance(value, str) else _csv_field(value)


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
