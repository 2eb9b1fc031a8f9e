"""The rows of an uploaded file, whichever format it has."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import blake2b
from typing import IO, Any, Protocol

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.errors import Invalid
from alluvia.events.ingest.compression import TooLarge, unread_compression
from alluvia.files.file_text import MARK, Damaged, buffered, is_parquet, text_pieces, text_start
from alluvia.files.limits import FORMATS, FileNames, Misfit
from alluvia.files.reading_options import DEFAULT, ReadingOptions
from alluvia.nearest_name import did_you_mean

_CHUNK_BYTES = 1 << 20
_TYPES = {
    "text/csv": "csv",
    "application/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/x-ndjson": "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/x-jsonlines": "ndjson",
    "application/jsonlines": "ndjson",
    "application/json": "ndjson",
    "application/vnd.apache.parquet": "parquet",
    "application/parquet": "parquet",
    "application/x-parquet": "parquet",
}
_NAMES = {"json": "ndjson", "jsonl": "ndjson", "jsoneachrow": "ndjson", "csvwithnames": "csv", "tab": "tsv"}
"""Other names of formats: endings of files, and ClickHouse's."""
FORMAT_BYTES = 256 << 10
"""zstd compresses blocks of 128 KiB, and inflates no part of one."""
_UNKNOWN = "unknown format: set format to csv, tsv, ndjson or parquet, or send such a Content-Type"
OpenFile = Callable[[], IO[bytes]]


class UploadedRows(Protocol):
    """The rows of a file. All raise `Misfit` for what does not fit."""

    @property
    def names(self) -> list[str] | None:
        """Return the file's columns; None where each line names its own."""
        ...

    @property
    def notes(self) -> list[str]:
        """Return what `schema` found: columns that are text because an option is missing."""
        ...

    def schema(self, known: Mapping[str, pa.DataType]) -> pa.Schema:
        """Return the file's columns: of types that are known, else of types that hold all of its values exactly."""
        ...

    def tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows in columns of a schema."""
        ...


def rows_of(
    open_file: OpenFile, kind: str, bytes_max: int, names_max: int, options: ReadingOptions = DEFAULT
) -> UploadedRows:
    """Return the rows of a file of one of `FORMATS`, of at most `bytes_max` bytes inflated and `names_max` names.

    Raises `Invalid` for an option that does not apply to the format.
    """
    options.check(kind)
    rows = _rows_of(open_file, kind, bytes_max, names_max, options)
    return RenamedRows(rows, options.rename) if options.rename else rows


def _rows_of(open_file: OpenFile, kind: str, bytes_max: int, names_max: int, options: ReadingOptions) -> UploadedRows:
    if kind == "parquet":
        from alluvia.files.parquet_rows import ParquetRows

        return ParquetRows(open_file, bytes_max, FileNames(names_max))
    text = partial(open_text, open_file, bytes_max, options.encoding)
    if kind == "ndjson":
        from alluvia.files.json_rows import JsonRows

        return JsonRows(text, names_max, options)
    from alluvia.files.csv_rows import CsvRows

    return CsvRows(text, "text/tab-separated-values" if kind == "tsv" else "text/csv", names_max, options)


class RenamedRows:
    """The rows of a file, some of whose columns have other names in the table. Errors about cells have the file's."""

    def __init__(self, rows: UploadedRows, names: Mapping[str, str]) -> None:
        self._rows = rows
        self._new = names
        self._old = {new: old for old, new in names.items()}
        own = rows.names
        for old in names:
            if own is not None and old not in own:
                near = did_you_mean(old, own) or f"it has {', '.join(own)}"
                raise Misfit(f"rename: the file has no column {old!r:.100}: {near:.300}")
        self.names = None if own is None else [names.get(name, name) for name in own]
        self._check(self.names or list(names.values()))

    @property
    def notes(self) -> list[str]:
        """Return what was found of the columns, under their names in the file."""
        return self._rows.notes

    def schema(self, known: Mapping[str, pa.DataType]) -> pa.Schema:
        """Return the columns under their names in the table."""
        found = self._rows.schema({self._old.get(name, name): kind for name, kind in known.items()
                                   if name not in self._new or name in self._old})  # fmt: skip
        named = pa.schema([field.with_name(self._new.get(field.name, field.name)) for field in found])
        self._check(named.names)
        return named

    def tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows in columns of a schema, without those that only have a name that the file's has no more."""
        own = [field for field in schema if field.name not in self._new or field.name in self._old]
        wanted = pa.schema([field.with_name(self._old.get(field.name, field.name)) for field in own])
        for table in self._rows.tables(wanted):
            yield table.rename_columns([self._new.get(name, name) for name in table.column_names])

    @staticmethod
    def _check(names: list[str]) -> None:
        if len({fold(name) for name in names}) < len(names):
            twice = next(name for name in names if sum(fold(name) == fold(other) for other in names) > 1)
            raise Misfit(f"rename: two columns would be called {twice!r:.100}")


def open_text(open_file: OpenFile, bytes_max: int, encoding: str = "") -> io.BufferedReader[Any]:
    """Return a file's text in UTF-8, inflated. Reading raises `TooLarge` beyond a number of bytes, and `Misfit`."""
    stream = open_file()

    def pieces() -> Iterator[bytes]:
        size = 0
        try:
            for piece in text_pieces(iter(partial(stream.read, _CHUNK_BYTES), b""), encoding):
                size += len(piece)
                if size > bytes_max:
                    raise TooLarge(f"the file inflates to more than the limit of {bytes_max} bytes")
                yield piece
        except Damaged as error:
            raise Misfit(str(error)) from None

    return buffered(pieces())


def content_digest(open_file: OpenFile, kind: str, bytes_max: int) -> str:
    """Return a hash of a file's content, whichever way it is compressed. Raises `Misfit` and `TooLarge`."""
    stream = open_file() if kind == "parquet" else open_text(open_file, bytes_max)
    digest = blake2b(digest_size=16)
    while piece := stream.read(_CHUNK_BYTES):
        digest.update(piece)
    return digest.hexdigest()


def format_of(asked: str | None, media_type: str, name: str, start: bytes, unknown: str = _UNKNOWN) -> str:
    """Return the format of a file: what was asked for, what its first bytes, its type or its name say.

    `start` is its first `FORMAT_BYTES`, or all of a shorter one; of a compressed file, those of its text count.
    Raises `Invalid` where nothing says it, with `unknown` as its message.
    """
    if asked is not None:
        chosen = _named(asked.lower())
        if chosen is None:
            raise Invalid(f"format: {asked!r:.100} is not a format: use one of {', '.join(FORMATS)}")
        return chosen
    if is_parquet(start):
        return "parquet"
    endings = [each for each in map(_named, reversed(name.lower().split(".")[1:])) if each is not None]
    chosen = _TYPES.get(media_type) or (endings[0] if endings else None)
    if chosen is not None:
        return chosen
    if text_start(start).removeprefix(MARK).lstrip()[:1] in (b"{", b"["):
        return "ndjson"
    raise Invalid(unread_compression(start) or unknown)


def _named(name: str) -> str | None:
    name_of_format = _NAMES.get(name, name)
    return name_of_format if name_of_format in FORMATS else None
