"""The rows of an uploaded file, whichever format it has."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from hashlib import blake2b
from typing import IO, Any, Protocol

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.events.ingest.compression import TooLarge
from alluvia.files.file_text import MARK, Damaged, buffered, is_parquet, text_pieces
from alluvia.files.limits import FORMATS, FileNames, Misfit

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
_UNKNOWN = "unknown format: set format to csv, tsv, ndjson or parquet, or send such a Content-Type"
OpenFile = Callable[[], IO[bytes]]


class UploadedRows(Protocol):
    """The rows of a file. All raise `Misfit` for what does not fit."""

    @property
    def names(self) -> list[str] | None:
        """Return the file's columns; None where each line names its own."""
        ...

    def schema(self, known: Mapping[str, pa.DataType]) -> pa.Schema:
        """Return the file's columns: of types that are known, else of types that hold all of its values exactly."""
        ...

    def tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows in columns of a schema."""
        ...


def rows_of(open_file: OpenFile, kind: str, bytes_max: int, names_max: int) -> UploadedRows:
    """Return the rows of a file of one of `FORMATS`, of at most `bytes_max` bytes inflated and `names_max` names."""
    if kind == "parquet":
        from alluvia.files.parquet_rows import ParquetRows

        return ParquetRows(open_file, bytes_max, FileNames(names_max))
    text = partial(open_text, open_file, bytes_max)
    if kind == "ndjson":
        from alluvia.files.json_rows import JsonRows

        return JsonRows(text, names_max)
    from alluvia.files.csv_rows import CsvRows

    return CsvRows(text, "text/tab-separated-values" if kind == "tsv" else "text/csv", names_max)


def open_text(open_file: OpenFile, bytes_max: int) -> io.BufferedReader[Any]:
    """Return a file's text in UTF-8, inflated. Reading raises `TooLarge` beyond a number of bytes, and `Misfit`."""
    stream = open_file()

    def pieces() -> Iterator[bytes]:
        size = 0
        try:
            for piece in text_pieces(iter(partial(stream.read, _CHUNK_BYTES), b"")):
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
    if start.removeprefix(MARK).lstrip()[:1] in (b"{", b"["):
        return "ndjson"
    raise Invalid(unknown)


def _named(name: str) -> str | None:
    name_of_format = _NAMES.get(name, name)
    return name_of_format if name_of_format in FORMATS else None
