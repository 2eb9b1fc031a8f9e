"""A file in a reading process: what `sent.SentFile` asks, by the same names. Each method yields replies."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from alluvia.files.event_files import parts
from alluvia.files.rows import UploadedRows, content_digest, open_text, rows_of

Replies = Iterator[tuple[dict[str, Any], pa.Buffer | bytes]]


class FileSession:
    """The file at a path, or in some bytes."""

    def __init__(self, kind: str, bytes_max: int, names_max: int, path: str | None = None, data: bytes = b"") -> None:
        self._kind = kind
        self._bytes_max = bytes_max
        self._names_max = names_max
        self._path = path
        self._data = data
        self._rows: UploadedRows | None = None

    def _open(self) -> IO[bytes]:
        return io.BytesIO(self._data) if self._path is None else Path(self._path).open("rb")

    def digest(self) -> Replies:
        """Tell a hash of the content."""
        yield {"digest": content_digest(self._open, self._kind, self._bytes_max)}, b""

    def rows(self) -> Replies:
        """Open the file's rows, and tell its columns."""
        self._rows = rows_of(self._open, self._kind, self._bytes_max, self._names_max)
        yield {"names": self._rows.names}, b""

    def schema(self, rows: bytes) -> Replies:
        """Tell the columns, of types that are known (an Arrow schema), else of types that hold all values."""
        known = pa.ipc.read_schema(pa.BufferReader(rows))
        found = self._opened.schema({field.name: field.type for field in known})
        yield {}, found.serialize()

    def check(self, rows: bytes) -> Replies:
        """Read the rows into columns of an Arrow schema, and send none."""
        for _ in self._opened.tables(pa.ipc.read_schema(pa.BufferReader(rows))):
            pass
        yield {}, b""

    def tables(self, rows: bytes) -> Replies:
        """Send the rows in columns of an Arrow schema."""
        schema = pa.ipc.read_schema(pa.BufferReader(rows))
        for table in self._opened.tables(schema):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            yield {}, sink.getvalue()

    def parts(self, name: str) -> Replies:
        """Send the events in parts; errors name the file."""
        if self._kind == "parquet":
            found = parts(self._open(), name, "parquet", self._bytes_max)
        else:
            found = parts(open_text(self._open, self._bytes_max), name, "json" if self._kind == "ndjson" else "csv")
        for part in found:
            yield {"media_type": part.media_type, "position": part.position, "key": part.key}, part.data

    @property
    def _opened(self) -> UploadedRows:
        if self._rows is None:
            raise ValueError("the rows are not open")
        return self._rows
