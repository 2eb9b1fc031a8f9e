"""Untrusted files, of uploads and foreign tables: read in a reading process, under limits."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from alluvia.events.ingest.compression import TooLarge
from alluvia.files.event_files import FilePart, parts
from alluvia.files.file_rows import UploadedRows, content_digest, open_text, rows_of
from alluvia.files.limits import FileLimits, Misfit
from alluvia.files.reading_options import DEFAULT, ReadingOptions, as_json, reading_options
from alluvia.lazy_dataclasses import dataclass
from alluvia.processes.pool import Cancelled, OutOfMemory, OutOfTime
from alluvia.processes.reading import Crashed, ReadingSession

Replies = Iterator[tuple[dict[str, Any], pa.Buffer | bytes]]


class FileSession:
    """The file at a path, or in some bytes."""

    def __init__(
        self,
        kind: str,
        bytes_max: int,
        names_max: int,
        options: Mapping[str, Any],
        path: str | None = None,
        data: bytes = b"",
    ) -> None:
        self._kind = kind
        self._options = reading_options(**options)
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
        """Open the file's rows, and tell its columns, with notes."""
        self._rows = rows_of(self._open, self._kind, self._bytes_max, self._names_max, self._options)
        yield {"names": self._rows.names, "notes": self._rows.notes}, b""

    def schema(self, rows: bytes) -> Replies:
        """Tell the columns, of types that are known (an Arrow schema), else of types that hold all values."""
        known = pa.ipc.read_schema(pa.BufferReader(rows))
        schema = self._opened.schema({field.name: field.type for field in known})
        yield {"notes": self._opened.notes}, schema.serialize()

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
            file_parts = parts(self._open(), name, "parquet", self._bytes_max, self._options)
        else:
            text = open_text(self._open, self._bytes_max, self._options.encoding)
            kind = "json" if self._kind == "ndjson" else "csv"
            file_parts = parts(text, name, kind, options=replace(self._options, encoding=""))
        for part in file_parts:
            yield {"media_type": part.media_type, "position": part.position, "key": part.key}, part.data

    @property
    def _opened(self) -> UploadedRows:
        if self._rows is None:
            raise ValueError("the rows are not open")
        return self._rows


class SenderDisconnected(Misfit):
    """The sender has disconnected, so no answer is needed."""


@dataclass(frozen=True, slots=True)
class SentFile:
    """A file, or its bytes, of one of `limits.FORMATS`, and what reading it may take.

    All methods raise `Misfit`, `TooLarge`, and `SenderDisconnected`.
    """

    source: bytes | Path
    kind: str
    limits: FileLimits = FileLimits()
    options: ReadingOptions = DEFAULT

    def begun(self) -> SentFile:
        """Return the file with the time running that reading it may take."""
        return replace(self, limits=self.limits.begun())

    def digest(self) -> str:
        """Return a hash of the content, whichever way it is compressed."""
        with self._session() as session:
            return str(session.ask("digest")[0]["digest"])

    @contextmanager
    def rows(self) -> Iterator[SentRows]:
        """Open the file's rows."""
        with self._session() as session:
            reply = session.ask("rows")[0]
            yield SentRows(session, reply["names"], reply["notes"])

    def parts(self, name: str) -> Iterator[FilePart]:
        """Yield the events of the file, whose name is for errors and tells TSV from CSV."""
        with self._session() as session:
            for reply, data in session.stream("parts", name=name):
                yield FilePart(
                    bytes(data), reply["media_type"], reply["position"], reply["key"], self.options.of_parts()
                )

    @contextmanager
    def _session(self) -> Iterator[ReadingSession]:
        limits = self.limits.begun()
        given: dict[str, Any] = {"kind": self.kind, "options": as_json(self.options)}
        given |= {"bytes_max": limits.bytes_max, "names_max": limits.names_max}
        data = self.source if isinstance(self.source, bytes) else None
        path = {} if isinstance(self.source, bytes) else {"path": str(self.source.absolute())}
        try:
            with ReadingSession(FileSession, limits.watch(), data, **given, **path) as session:
                yield session
        except Crashed as error:
            raise Misfit(f"the file is damaged or too large: the process that read it crashed ({error})") from None
        except OutOfTime:
            raise TooLarge(
                f"the file takes more than the limit of {limits.seconds:g} seconds to read: cut it into several files"
            ) from None
        except OutOfMemory:
            most = "there is" if limits.memory_bytes is None else f"the limit of {limits.memory_bytes} bytes"
            raise TooLarge(
                f"reading the file takes more memory than {most}: cut it into several files, or write it with smaller "
                "row groups"
            ) from None
        except Cancelled:
            raise SenderDisconnected("the sender disconnected, so the file was not stored") from None


class SentRows:
    """The rows of a file in a reading process. notes: those of `UploadedRows`."""

    def __init__(self, session: ReadingSession, names: list[str] | None, notes: list[str]) -> None:
        self._session = session
        self.names = names
        self.notes = notes

    def schema(self, known: Mapping[str, pa.DataType]) -> pa.Schema:
        """Return the file's columns, as `UploadedRows` has them."""
        given = pa.schema(list(known.items())).serialize().to_pybytes()
        reply, data = self._session.ask("schema", given)
        self.notes = reply["notes"]
        return pa.ipc.read_schema(data)

    def check(self, schema: pa.Schema) -> None:
        """Read all rows into columns of a schema, for the errors."""
        self._session.ask("check", schema.serialize().to_pybytes())

    def tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows in columns of a schema."""
        for _, data in self._session.stream("tables", schema.serialize().to_pybytes()):
            yield pa.ipc.open_stream(data).read_all()
