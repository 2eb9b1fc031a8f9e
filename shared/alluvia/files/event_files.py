"""Cut a file of events into parts of whole events, as it is read, so that memory does not grow with the file.

NDJSON, JSON (an array or an object), CSV with a header row, Parquet; gzip and zstd. The first bytes tell compression,
encoding and Parquet, the name tells CSV, and anything else is JSON. Pure, but for the stream that it is given.
"""

from __future__ import annotations

import codecs
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from hashlib import blake2b
from itertools import chain
from pathlib import PurePath
from typing import IO, Any

import orjson
import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.events.formats.csv_text import TABS, CsvText, RowTooLong, name_of_two
from alluvia.files.file_text import MARK, Damaged, buffered, is_parquet, text_pieces
from alluvia.files.limits import Misfit
from alluvia.files.reading_options import DEFAULT, ReadingOptions
from alluvia.json_values.plain import plain_values
from alluvia.lazy_dataclasses import dataclass

PART_BYTES = 4 << 20
VALUE_BYTES_MAX = 16 << 20
"""The longest JSON value or row of CSV that goes over several lines; a file up to this length is read in one go."""
PARQUET_ROWS = 5_000
_CHUNK_BYTES = 1 << 20
_SPACE = b" \t\r\n"
_SPACES = _SPACE.decode()
_ONE_LINE = str.maketrans("\r\n", "  ")
_TAB_ENDINGS = (".tsv", ".tab")


class NoEvents(Invalid):
    """A file is whole, but empty."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some events of a file, and where the first of them is among all.

    `media_type` says how `data` is read; CSV comes with its header row. `key` stands for the file up to the part's end.
    """

    data: bytes
    media_type: str
    position: int
    key: str
    options: ReadingOptions = DEFAULT


def parts(
    stream: IO[bytes],
    name: str,
    kind: str | None = None,
    bytes_max: int | None = None,
    options: ReadingOptions = DEFAULT,
) -> Iterator[FilePart]:
    """Yield a file's events. `kind`: "json", "csv", "parquet"; None if the file tells. `bytes_max` is of Parquet alone.

    Raises `NoEvents`, `Invalid` for a damaged file after what came before the damage, and `TooLarge`; all but the last
    name the file.
    """
    source: io.BufferedReader[Any] = io.BufferedReader(_Kept(stream), _CHUNK_BYTES)
    digest, position = blake2b(digest_size=16), 0
    try:
        media_type, pieces = _pieces(source, name, kind, bytes_max, options)
        for data, events in pieces:
            digest.update(data)
            yield FilePart(data, media_type, position, digest.hexdigest(), options.of_parts())
            position += events
    except (Damaged, Misfit, OSError, pa.ArrowException) as error:
        what = str(error) if isinstance(error, Invalid) else f"the file is damaged ({error})"
        kind_of = Misfit if isinstance(error, Misfit) else Invalid
        raise kind_of(f"{name}: {what}{'; the events before it were ingested' if position else ''}") from error
    if not position:
        raise NoEvents(f"{name} contains no events")


class _Kept(io.RawIOBase):
    """A stream that stays open when its readers are done, because its owner asks it how far they are."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._stream.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def readinto(self, buffer: Any, /) -> int:
        data = self._read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


NDJSON = "application/x-ndjson"
Pieces = Iterator[tuple[bytes, int]]
"""The bytes of some events, and how many there are."""


def _pieces(
    source: io.BufferedReader[Any], name: str, kind: str | None, bytes_max: int | None, options: ReadingOptions
) -> tuple[str, Pieces]:
    if kind == "parquet" or (kind is None and is_parquet(source.peek(4))):
        if not source.seekable():
            raise Invalid(f"{name}: Parquet cannot be read from a pipe: give the file's name")
        options.check("parquet")
        return NDJSON, parquet_parts(lambda: io.BufferedReader(_Kept(source)), bytes_max)
    text = buffered(text_pieces(iter(partial(source.read1, _CHUNK_BYTES), b""), options.encoding))
    media_type = csv_type(name, kind)
    options.check("ndjson" if media_type is None else "csv")
    if media_type is None:
        return NDJSON, json_pieces(text)
    return media_type, csv_parts(text, media_type, options)


def csv_type(name: str, kind: str | None) -> str | None:
    """Return the media type of a file of CSV, by its name unless `kind` says what it is; None for another file."""
    endings = [each.lower() for each in PurePath(name).suffixes]
    tabs = any(ending in _TAB_ENDINGS for ending in endings)
    if kind == "csv" or (kind is None and (tabs or ".csv" in endings)):
        return TABS if tabs else "text/csv"
    return None


def _flushing(rows: Iterable[bytes], header: bytes = b"", count_max: float = math.inf) -> Pieces:
    """Gather rows after a header, or lines, into pieces; those before a damage come before its error.

    Every row counts as an event, but no blank line.
    """
    gathered: list[bytes] = []
    size = count = 0
    failure: Exception | None = None
    source = iter(rows)
    while True:
        try:
            row = next(source, None)
        except (Invalid, OSError, pa.ArrowException) as error:
            failure, row = error, None
        if row is not None:
            gathered.append(row)
            size += len(row)
            count += bool(header) or not row.isspace()
        if gathered and (row is None or size >= PART_BYTES or count >= count_max):
            if count:
                yield header + b"".join(gathered), count
            gathered, size, count = [], 0, 0
        if failure is not None:
            raise failure
        if row is None:
            return


def count_lines(text: bytes) -> int:
    """Return the number of lines that are not blank."""
    lines = text.split(b"\n")
    return len(lines) - lines.count(b"") - sum(map(bytes.isspace, lines))


def json_pieces(source: io.BufferedReader[Any], count: Callable[[bytes], int] = count_lines) -> Pieces:
    """Yield the lines; or everything if it is one value over several lines, an array's elements if it is too long.

    `count` is how lines are counted; a piece in which it finds none is left out.
    """
    value, start = value_parts(source)
    yield from _line_pieces(start, source, count) if value is None else value


def _line_pieces(start: bytes, source: io.BufferedReader[Any], count: Callable[[bytes], int]) -> Pieces:
    """Cut lines into pieces as `_flushing` does, without an object for each line. `start` is how the text begins."""
    gathered, size = [start], len(start)
    failure: Exception | None = None
    while gathered:
        more = b""
        try:
            more = source.read1(_CHUNK_BYTES)  # one read at a time, so that a failure loses nothing before it
        except (Invalid, OSError) as error:
            failure = error
        gathered.append(more)
        size += len(more)
        if more and (size < PART_BYTES or b"\n" not in more):
            continue
        text, gathered, size = b"".join(gathered), [], 0
        if failure is not None:
            text = text[: text.rfind(b"\n") + 1]
        for piece, is_whole in _cut_lines(text):
            if more and not is_whole:
                gathered, size = [piece], len(piece)
            elif lines := count(piece):
                yield piece, lines
        if more and not gathered:
            gathered = [b""]
    if failure is not None:
        raise failure


def _cut_lines(text: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield pieces of whole lines, and whether each has the full length of a piece."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + PART_BYTES - 1) + 1
        yield text[start : end or len(text)], bool(end)
        start = end or len(text)


def value_parts(source: io.BufferedReader[Any]) -> tuple[Pieces | None, bytes]:
    """Return the parts of a text that is one value, or nearly one, over several lines; or None and its first lines.

    An array on the only line is such a value, too. Raises `Damaged` for an object that is too long.
    """
    start = first = source.readline(VALUE_BYTES_MAX)
    while first and not first.strip(_SPACE + MARK):
        first = source.readline(VALUE_BYTES_MAX)
        start += first
    opening = first.strip(_SPACE + MARK)[:1]
    if opening not in (b"[", b"{"):
        return None, start
    if is_complete(first):
        more = b"" if opening == b"{" else source.read(_CHUNK_BYTES)
        alone = opening == b"[" and not more.strip()
        return (iter([(start, 1)]), b"") if alone else (None, start + more)
    start += source.read(VALUE_BYTES_MAX)
    ended = len(start) < VALUE_BYTES_MAX
    if opening == b"{" and not (ended and is_complete(start)) and has_lines(start):
        return None, start
    return (iter([(start, 1)]) if ended else _flushing(_elements(start, source))), b""


def has_lines(text: bytes) -> bool:
    """Whether one of the lines after the first is an object."""
    return any(line.startswith(b"{") and is_complete(line) for line in text.split(b"\n")[1:])


def is_complete(text: bytes) -> bool:
    """Whether a text is one JSON value."""
    try:
        orjson.loads(text.removeprefix(MARK))
    except orjson.JSONDecodeError:
        return False
    return True


def _elements(start: bytes, source: io.BufferedReader[Any]) -> Iterator[bytes]:
    """Yield the elements of a JSON array, one a line."""
    decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
    scan = json.JSONDecoder(strict=False, parse_int=str, parse_float=str).raw_decode
    held = decode(start).removeprefix("\ufeff")
    at, number = _after_space(held, 0) + 1, 0
    wrong = "expected one JSON object per line, or an array with elements of at most 16 MB; "
    if held[at - 1] != "[":
        raise Damaged(f"{wrong}the file begins with a longer object")
    while True:
        element = _element(scan, held, at)
        if element is None:
            chunk = decode(source.read(max(_CHUNK_BYTES, len(held) - at)))
            if not chunk or len(held) - at > VALUE_BYTES_MAX:
                raise Damaged(f"{wrong}element {number} is not one")
            held, at = held[at:] + chunk, 0
            continue
        begin, end, after = element
        yield held[begin:end].translate(_ONE_LINE).encode("utf-8", "surrogateescape") + b"\n"
        at, number = after + 1, number + 1
        if held[after] != ",":
            if held[after] != "]" or held[at:].strip(_SPACES) or source.read(_CHUNK_BYTES).strip():
                raise Damaged(f"{wrong}more follows element {number - 1}")
            return


def _element(scan: Callable[[str, int], tuple[object, int]], held: str, at: int) -> tuple[int, int, int] | None:
    """Return where the next element begins and ends, and what follows it stands; None if the text ends before."""
    begin = _after_space(held, at)
    try:
        end = scan(held, begin)[1]
    except (ValueError, RecursionError):
        return None
    after = _after_space(held, end)
    return (begin, end, after) if after < len(held) else None


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACES:
        at += 1
    return at


def csv_parts(source: io.BufferedReader[Any], media_type: str, options: ReadingOptions = DEFAULT) -> Pieces:
    """Yield rows, each part with the header. Raises `Damaged` for a header that names nothing or something twice."""
    try:
        text = CsvText(
            source,
            media_type,
            options.delimiter,
            VALUE_BYTES_MAX,
            decimal_comma=options.has_decimal_comma,
            skip=options.skip,
        )
    except RowTooLong as error:
        raise Damaged(str(error)) from None
    if fault := text.header_fault():
        raise Damaged(fault)
    return _flushing(_csv_rows(text), text.start_of_parts())


def _csv_rows(text: CsvText) -> Iterator[bytes]:
    try:
        yield from text.rows
    except RowTooLong as error:
        raise Damaged(str(error)) from None


def parquet_parts(open_file: Callable[[], IO[bytes]], bytes_max: int | None = None) -> Pieces:
    """Yield rows as JSON objects, one a line. Raises `Damaged` for a name that stands for two columns or fields.

    `open_file` and `bytes_max` are those of `ParquetRows`.
    """
    from alluvia.files.parquet_rows import ParquetRows

    rows = ParquetRows(open_file, bytes_max)
    twice = _name_of_two(list(rows.as_written))
    if twice is not None:
        raise Damaged(f"it has the column or field {twice!r:.100} twice")
    return row_pieces(rows.batches())


def _name_of_two(fields: Sequence[pa.Field]) -> str | None:
    twice = name_of_two([field.name for field in fields])
    if twice is not None:
        return twice
    return next(filter(None, (_name_of_two(_inner(field.type)) for field in fields)), None)


def _inner(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(at) for at in range(kind.num_fields)]


def row_pieces(batches: Iterable[pa.RecordBatch]) -> Pieces:
    """Yield rows as JSON objects, one a line, in pieces that only the rows decide: events' ids depend on them."""
    return _flushing(chain.from_iterable(map(_json_lines, batches)), count_max=PARQUET_ROWS)


def _json_lines(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield rows as JSON objects; NaN and the infinities, which JSON lacks, as these words."""
    columns = [
        _worded(plain_values(column)) if _has_floats(column.type) else plain_values(column) for column in batch.columns
    ]
    names = batch.schema.names
    rows = (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))
    return (orjson.dumps(row) + b"\n" for row in rows)


def _has_floats(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_floating(kind) or any(_has_floats(each.type) for each in _inner(kind))


def _worded(value: Any) -> Any:
    """Return a value with words for the numbers that JSON lacks: events that have one become rejects."""
    if isinstance(value, float):
        return value if math.isfinite(value) else orjson.Fragment(json.dumps(value))
    if isinstance(value, list):
        return [_worded(each) for each in value]
    return {name: _worded(each) for name, each in value.items()} if isinstance(value, dict) else value
