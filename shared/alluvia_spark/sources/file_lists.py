"""Lists of files, which spare millions of files a listing: an S3 Inventory, or a file that names them.

An inventory is named by its `manifest.json` (S3 user guide, "Locating your inventory list"): its data files are CSV or
Parquet. Any other list is a text, plain or compressed: a URI a line, or CSV with a bucket and a key in each row, and
after them the size in bytes and the etag where they are known. A size that is not known costs a request.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import unquote, unquote_plus

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.errors import Invalid, ObjectNotFound
from alluvia.events.ingest.values import RawEvent
from alluvia.files.file_text import Damaged, buffered, text_pieces
from alluvia.json_values.convert import read_text
from alluvia.json_values.instants import TIMESTAMP
from alluvia.json_values.jsontext import encode
from alluvia.store import ObjectInfo, Store
from alluvia_spark.sources.files import MISSING_ETAG, SourceFile, fetch, is_readable
from alluvia_spark.sources.places import Found, SourceUri, Stores, parse

_NULL = "__HIVE_DEFAULT_PARTITION__"


def folder_fields(key: str, schema: pa.Schema) -> dict[str, object]:
    """Return the fields that a file's folders name: what the table's columns take for their texts, else texts."""
    values: dict[str, object] = {}
    for folder in key.split("/")[:-1]:
        name, equals, text = folder.partition("=")
        if equals and name and text != _NULL:
            kind = schema.field(name).type if name in schema.names else pa.string()
            given = unquote(text)
            # a timestamp is an hour, such as 2026112013
            values[unquote(name)] = given if kind == TIMESTAMP else read_text(kind, given)
    return values


def added_to_lines(lines: Sequence[bytes], fields: Mapping[str, object]) -> list[bytes]:
    """Return lines of JSON with fields at the end of each object that lacks them. Other lines stay as they are."""
    if not fields:
        return list(lines)
    names, text = [orjson.dumps(name) for name in fields], _members(fields)

    def added(line: bytes) -> bytes:
        if not (line.startswith(b"{") and line.endswith(b"}")):
            return line
        members = text
        if b"\\" in line or any(name in line for name in names):  # it may have one of the fields
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError:
                return line
            members = _members({name: each for name, each in fields.items() if name not in value})
        start = line[:-1].rstrip()
        return b"%b%b%b}" % (start, b"," if members and start != b"{" else b"", members)

    return list(map(added, lines))


def added_to_events(events: Sequence[RawEvent], fields: Mapping[str, object]) -> Sequence[RawEvent]:
    """Return events with the fields that they do not have."""
    if not fields:
        return events
    widened = []
    for event in events:
        value = {**event.value, **{name: each for name, each in fields.items() if name not in event.value}}
        widened.append(event._replace(value=value, raw=None if event.raw is None else encode(value)))
    return widened


def _members(fields: Mapping[str, object]) -> bytes:
    return encode(dict(fields))[1:-1]


PAGE_FILES = 1000
_COLUMNS = ("bucket", "key", "size", "etag")
_ARN = "arn:aws:s3:::"
_UNKNOWN = -1
_MISSING_SIZE = 1
"""The size of a missing file: it has to be read to be found missing."""
_ACCEPTED = (
    "A list has a URI or an absolute path in each line, or CSV with bucket,key,size,etag (the last two may be left "
    "out); or it is the manifest.json of an S3 Inventory"
)
Row = tuple[str, str, int, str]
"""The URI of a store, a key, the size in bytes or -1, and the etag or ""."""


def listed_files(stores: Stores, where: SourceUri) -> Iterator[Found]:
    """Yield the files that a list names, in its order. Raises `Invalid` for a list that cannot be read."""
    store, name = stores.open(where.root), SourceFile(where.root, where.path, 0).name
    try:
        rows = (
            _inventory(stores, store, where.path) if where.path.endswith(".json") else _named(_text(store, where.path))
        )
        while page := list(islice(rows, PAGE_FILES)):
            yield Found(*map(list, zip(*_sized(stores, page), strict=True)))
    except ObjectNotFound as error:
        raise Invalid(f"the list of files {name} needs {error}, which is missing") from error
    except (Damaged, ValueError, KeyError, TypeError, csv.Error, pa.ArrowException, OSError) as error:
        raise Invalid(f"{name} is not a list of files: {error}. {_ACCEPTED}") from error


def _text(store: Store, key: str) -> io.TextIOWrapper:
    info = store.head(key)
    if info is None:
        raise ObjectNotFound(key)
    pieces = fetch(store, SourceFile(store.uri, key, info.size, info.etag), 0, info.size)
    return io.TextIOWrapper(buffered(text_pieces(pieces)), "utf-8-sig", newline="")


def _named(text: io.TextIOWrapper) -> Iterator[Row]:
    """Yield the files of a text: of URIs, if its first line is one, else of CSV, with a header or without."""
    lines = _Lines(text)
    first = next(lines, None)
    if first is None:
        raise ValueError("it is empty")
    try:
        yield from _of_uris(first, lines) if _is_place(first.partition(",")[0]) else _of_csv(first, lines)
    except (Invalid, ValueError, csv.Error) as error:
        raise ValueError(f"line {lines.number}, {lines.line.strip()!r:.300}: {error}") from error


class _Lines:
    """The lines of a text that are not blank. `number` and `line` are those of the last one, the number from 1."""

    def __init__(self, text: Iterable[str]) -> None:
        self._lines = enumerate(text, 1)
        self.number = 0
        self.line = ""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while (numbered := next(self._lines))[1].isspace():
            pass
        self.number, self.line = numbered
        return self.line


def _is_place(text: str) -> bool:
    return "://" in text or text.startswith(("/", "file:/"))


def _of_uris(first: str, lines: Iterable[str]) -> Iterator[Row]:
    for line in _with(first, lines):
        if not _is_place(line):
            raise ValueError("it is neither a URI nor an absolute path")
        place = parse(line.rstrip("\r\n"))
        yield place.root, place.path, _UNKNOWN, ""


def _of_csv(first: str, lines: Iterable[str]) -> Iterator[Row]:
    names = [name.strip().lower() for name in next(csv.reader([first]), [])]
    header = names if "bucket" in names else None
    for cells in csv.reader(lines if header else _with(first, lines)):
        row = dict(zip(header or _COLUMNS, cells, strict=False))
        if not row.get("bucket") or not row.get("key"):
            raise ValueError("it has no bucket and key")
        yield f"s3://{row['bucket']}", row["key"], _size(row.get("size")), _etag(row.get("etag"))


def _with(first: str, lines: Iterable[str]) -> Iterator[str]:
    yield first
    yield from lines


def _inventory(stores: Stores, store: Store, key: str) -> Iterator[Row]:
    """Yield the current files of an S3 Inventory."""
    body = orjson.loads(store.get(key))
    if not isinstance(body, dict) or "fileFormat" not in body:
        raise ValueError("its name ends in .json, but it is not the manifest.json of an S3 Inventory")
    bucket = str(body["destinationBucket"]).removeprefix(_ARN)
    data, form = stores.open(f"s3://{bucket}"), body["fileFormat"]
    readers = {"CSV": _inventory_csv, "Parquet": _inventory_parquet}
    if form not in readers:
        raise ValueError(f"its format is {form}: configure the inventory as CSV or Parquet")
    names = [name.strip().lower().replace("_", "") for name in str(body["fileSchema"]).split(",")]
    for part in body["files"]:
        for row in readers[form](data, part["key"], names):
            if str(row.get("islatest", "true")).lower() == "true" and str(row.get("isdeletemarker")).lower() != "true":
                yield f"s3://{row['bucket']}", row["key"], _size(row.get("size")), _etag(row.get("etag"))


def _inventory_csv(store: Store, key: str, names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a part in CSV, whose keys are URL-encoded."""
    for cells in csv.reader(_text(store, key)):
        row: dict[str, Any] = dict(zip(names, cells, strict=True))
        yield {**row, "key": unquote_plus(row["key"])}


def _inventory_parquet(store: Store, key: str, names: list[str]) -> Iterator[dict[str, Any]]:  # noqa: ARG001
    file = pq.ParquetFile(pa.BufferReader(store.get(key)))
    for batch in file.iter_batches(PAGE_FILES):
        for row in batch.to_pylist():
            yield {name.lower().replace("_", ""): value for name, value in row.items()}


def _size(value: object) -> int:
    text = "" if value is None else str(value)
    if text and not text.isdecimal():
        raise ValueError(
            f"the size {text!r} is not a number (a data file of an S3 Inventory is named by manifest.json)"
        )
    return int(text) if text else _UNKNOWN


def _etag(value: object) -> str:
    """Return an etag as a conditional request sends it: in quotes."""
    text = str(value or "").strip('"')
    return f'"{text}"' if text else ""


def _head(store: Store, key: str) -> ObjectInfo | None:
    return store.head(key) if is_readable(key) else None


def _sized(stores: Stores, page: list[Row]) -> list[Row]:
    """Return files with their sizes, of those that have none as the store says, with their etags."""
    sized = list(page)
    unknown = [at for at, row in enumerate(page) if row[2] == _UNKNOWN]
    for root in {page[at][0] for at in unknown}:
        ours = [at for at in unknown if page[at][0] == root]
        store = stores.open(root)
        for at, info in zip(ours, store.map(partial(_head, store), [page[at][1] for at in ours]), strict=True):
            size, etag = (_MISSING_SIZE, MISSING_ETAG) if info is None else (info.size, info.etag)
            sized[at] = (root, page[at][1], size, etag)
    return sized
