"""Cut a file of events into parts of whole events, as it is read, so that memory does not grow with the file.

NDJSON, JSON (an array or an object), CSV with a header row, Parquet; gzip and zstd. The first bytes tell compression
and Parquet, the name tells CSV, and anything else is JSON.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import PurePath
from typing import IO, Any

import orjson
import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.formats.registry import by_name
from alluvia.formats.values import SentBody
from alluvia.ingest.values import Limits
from alluvia.query.plain import plain_values

PART_BYTES = 4 << 20
VALUE_BYTES_MAX = 16 << 20
"""The longest JSON value or row of CSV that goes over several lines; a file up to this length is read in one go."""
KINDS = ("json", "csv", "parquet")
_PARQUET_ROWS = 5_000
_CHUNK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_GZIP, _ZSTD, _PARQUET = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1"
_SPACE = " \t\r\n"
_ONE_LINE = str.maketrans("\r\n", "  ")
_TABS = (".tsv", ".tab")


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some events of a file, and where the first of them is among all.

    `media_type` says how `data` is read; CSV comes with its header row. `key` stands for the file up to the part's end.
    """

    data: bytes
    media_type: str
    position: int
    key: str


def parts(stream: IO[bytes], name: str, kind: str | None = None) -> Iterator[FilePart]:
    """Yield a file's events. `kind` is one of `KINDS`; None if the file tells.

    Raises `Invalid`, naming the file, for one that has none or is damaged, after what came before the damage.
    """
    source: io.BufferedReader[Any] = io.BufferedReader(_Kept(stream), _CHUNK_BYTES)
    digest, position = blake2b(digest_size=16), 0
    try:
        media_type, pieces = _pieces(source, name, kind)
        for data, events in pieces:
            digest.update(data)
            yield FilePart(data, media_type, position, digest.hexdigest())
            position += events
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise Invalid(f"{name}: the gzip data is damaged ({error}); what came before is ingested") from error
    except (OSError, pa.ArrowException) as error:
        raise Invalid(f"{name}: the file is damaged ({error}); what came before is ingested") from error
    if not position:
        raise Invalid(f"{name} contains no events")


class _Kept(io.RawIOBase):
    """A stream that stays open when those who read it are done, as its owner asks it how far they are."""

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


Pieces = Iterator[tuple[bytes, int]]
"""The bytes of some events, and how many there are."""


def _pieces(source: io.BufferedReader[Any], name: str, kind: str | None) -> tuple[str, Pieces]:
    start = source.peek(4)[:4]
    if kind == "parquet" or (kind is None and start == _PARQUET):
        return "application/x-ndjson", _parquet(source, name)
    if start[:2] == _GZIP:
        source = gzip.GzipFile(fileobj=source)  # type: ignore[assignment]
    elif start == _ZSTD:
        inflated = pa.CompressedInputStream(source, "zstd")
        source = io.BufferedReader(inflated, _CHUNK_BYTES)
    endings = [each.lower() for each in PurePath(name).suffixes]
    tabs = any(ending in _TABS for ending in endings)
    if kind == "csv" or (kind is None and (tabs or ".csv" in endings)):
        media_type = "text/tab-separated-values" if tabs else "text/csv"
        return media_type, _csv(source, name, media_type)
    return "application/x-ndjson", _json(source, name)


def _flushing(rows: Iterable[bytes], header: bytes = b"") -> Pieces:
    """Gather rows or lines into pieces; those before a damage come before its error."""
    gathered: list[bytes] = []
    size = count = 0
    failure: Exception | None = None
    source = iter(rows)
    while True:
        try:
            row = next(source, None)
        except (Invalid, EOFError, OSError, zlib.error, pa.ArrowException) as error:
            failure, row = error, None
        if row is not None:
            gathered.append(row)
            size += len(row)
            count += not row.isspace()
        if gathered and (row is None or size >= PART_BYTES):
            if count:
                yield header + b"".join(gathered), count
            gathered, size, count = [], 0, 0
        if failure is not None:
            raise failure
        if row is None:
            return


def _json(source: io.BufferedReader[Any], name: str) -> Pieces:
    """Yield the lines; or everything if it is one value over several lines, an array's elements if it is too long."""
    first = b""
    while not first.strip(b" \t\r\n" + _BOM):
        line = source.readline(VALUE_BYTES_MAX)
        if not line:
            return
        first = line
    if first.lstrip(_BOM).lstrip().startswith((b"[", b"{")) and not _complete(first):
        start = first + source.read(VALUE_BYTES_MAX)
        if len(start) < VALUE_BYTES_MAX:
            yield start, 1
        else:
            yield from _flushing(_elements(start, source, name))
        return

    def lines() -> Iterator[bytes]:
        yield first
        yield from source

    yield from _flushing(lines())


def _complete(line: bytes) -> bool:
    try:
        orjson.loads(line.removeprefix(_BOM))
    except orjson.JSONDecodeError:
        return False
    return True


def _elements(start: bytes, source: io.BufferedReader[Any], name: str) -> Iterator[bytes]:
    """Yield the elements of a JSON array, one a line."""
    decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
    scan = json.JSONDecoder(strict=False, parse_int=str, parse_float=str).raw_decode
    held = decode(start).removeprefix("\ufeff")
    at, number = _after_space(held, 0) + 1, 0
    wrong = f"{name}: expected one JSON object per line, or an array with elements of at most 16 MB; "
    if held[at - 1] != "[":
        raise Invalid(f"{wrong}the file begins with a longer object")
    while True:
        found = _element(scan, held, at)
        if found is None:
            chunk = decode(source.read(max(_CHUNK_BYTES, len(held) - at)))
            if not chunk or len(held) - at > VALUE_BYTES_MAX:
                raise Invalid(f"{wrong}element {number} is not one; what came before is ingested")
            held, at = held[at:] + chunk, 0
            continue
        begin, end, after = found
        yield held[begin:end].translate(_ONE_LINE).encode("utf-8", "surrogateescape") + b"\n"
        at, number = after + 1, number + 1
        if held[after] != ",":
            if held[after] != "]" or held[at:].strip(_SPACE) or source.read(_CHUNK_BYTES).strip():
                raise Invalid(f"{wrong}more follows element {number - 1}; what came before is ingested")
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
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _csv(source: io.BufferedReader[Any], name: str, media_type: str) -> Pieces:
    rows = (row for row in _rows(source, name) if not row.isspace())
    header = next(rows, b"")
    refused = by_name("csv").read(SentBody({"content-type": media_type}, header, 0), Limits()).rejects
    if refused:
        raise Invalid(f"{name}: {refused[0].reason}")
    return _flushing(rows, header if header.endswith(b"\n") else header + b"\n")


def _rows(source: io.BufferedReader[Any], name: str) -> Iterator[bytes]:
    """Yield the rows of CSV, which may go over several lines within quotes."""
    row: list[bytes] = []
    size = quotes = number = 0
    for line in source:
        row.append(line)
        size, quotes = size + len(line), quotes + line.count(b'"')
        if quotes % 2 == 0:
            yield b"".join(row)
            row, size, quotes, number = [], 0, 0, number + 1
        elif size > VALUE_BYTES_MAX:
            raise Invalid(f"{name}: a quote in row {number} is not closed within 16 MB; what came before is ingested")
    if row:
        yield b"".join(row)


def _parquet(source: io.BufferedReader[Any], name: str) -> Pieces:
    """Yield rows as JSON objects, one a line."""
    import pyarrow.parquet as pq

    if not source.seekable():
        raise Invalid(f"{name}: Parquet cannot be read from a pipe: give the file's name")
    for batch in pq.ParquetFile(source).iter_batches(_PARQUET_ROWS):
        columns = [plain_values(column) for column in batch.columns]
        names = batch.schema.names
        rows = (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))
        yield b"".join(orjson.dumps(row) + b"\n" for row in rows), len(batch)
