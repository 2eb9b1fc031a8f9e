"""Rows as Flight carries them: the messages of an Arrow stream (IPC), one in each FlightData. Pure."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.flight.messages import Message, new

MESSAGE_BYTES_MAX = 4 << 20
"""Clients take messages of 16 MiB, as Go's driver does, or of 4 MiB, which is gRPC's default."""
_BATCH_BYTES_MAX = MESSAGE_BYTES_MAX * 3 // 4
_CONTINUATION = b"\xff\xff\xff\xff"
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3


def schema_bytes(schema: pa.Schema) -> bytes:
    """Return columns as the messages of Flight have them."""
    return bytes(schema.serialize())


def sent(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[Message]:
    """Yield rows as FlightData, with the columns first."""
    yield from _messages(schema, None)
    for batch in batches:
        for piece in _pieces(batch):
            yield from _messages(schema, piece)


def _messages(schema: pa.Schema, batch: pa.RecordBatch | None) -> Iterator[Message]:
    """Yield what a stream of one batch holds: its columns, or, with a batch, all that comes after them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        if batch is not None:
            writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    for at, message in enumerate(reader):
        if (at == 0) is (batch is None):
            body = b"" if message.body is None else message.body.to_pybytes()
            yield new("FlightData", data_header=message.metadata.to_pybytes(), data_body=body)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces that fit into a message, as far as rows do."""
    if batch.nbytes <= _BATCH_BYTES_MAX or batch.num_rows < 2:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half))
    yield from _pieces(batch.slice(half))


def received(parts: Iterable[Message], bytes_max: int) -> pa.Table | None:
    """Return the rows of FlightData that came in; None if there are none. Raises `Invalid`."""
    stream = bytearray()
    for part in parts:
        stream += _checked(part)
        if len(stream) > bytes_max:
            raise Invalid(f"the values take more than {bytes_max} bytes: send fewer rows at a time")
    if not stream:
        return None
    try:
        rows = pa.ipc.open_stream(bytes(stream)).read_all()
        rows.validate(full=True)
    except (pa.ArrowException, OSError, ValueError):
        raise Invalid("the values are not a stream of Arrow") from None
    return rows


class _Stream(io.RawIOBase):
    """The bytes of the Arrow stream that parts are of, as they come."""

    def __init__(self, parts: Iterable[Message]) -> None:
        self._parts = iter(parts)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        """Return that it is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as one message goes."""
        while not self._left:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._left = memoryview(_checked(part))
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count


def reader_of(parts: Iterable[Message]) -> pa.RecordBatchReader:
    """Return rows of FlightData as they come in. Raises `Invalid`."""
    try:
        return pa.ipc.open_stream(pa.PythonFile(io.BufferedReader(_Stream(parts)), mode="r"))
    except (pa.ArrowException, OSError):
        raise Invalid("the rows are not a stream of Arrow") from None


def _checked(part: Message) -> bytes:
    """Return a message as a stream has it. Raises `Invalid` for one that is compressed."""
    if not part.data_header:
        return b""
    if _is_compressed(part.data_header):
        raise Invalid("the values are compressed: send them as they are")
    return _encapsulated(part.data_header, part.data_body)


def _is_compressed(header: bytes) -> bool:
    """Whether a message has a compressed body, whose size nobody knows before it is there. Raises `Invalid`.

    A header is a flatbuffer: a `Message` of Arrow's Message.fbs, whose `header` is a `RecordBatch`, or a
    `DictionaryBatch` with one as its `data`. Arrow checks all of it afterwards.
    """
    try:
        table = _field(header, 0)
        kind = header[_place(header, table, 1)] if _place(header, table, 1) else 0
        body = _field(header, _place(header, table, 2))
        if kind == _DICTIONARY_BATCH:
            body = _field(header, _place(header, body, 1))
        return kind in (_RECORD_BATCH, _DICTIONARY_BATCH) and _place(header, body, 3) != 0
    except (struct.error, IndexError):
        raise Invalid("the values are not a stream of Arrow") from None


def _field(data: bytes, at: int) -> int:
    """Return where a table is to which the offset at a place leads."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _place(data: bytes, table: int, number: int) -> int:
    """Return where a field of a table is; 0 if it is left out."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0:
        raise IndexError(vtable)
    size = struct.unpack_from("<H", data, vtable)[0]
    offset = struct.unpack_from("<H", data, vtable + 4 + 2 * number)[0] if size > 4 + 2 * number else 0
    return table + offset if offset else 0


def _encapsulated(header: bytes, body: bytes) -> bytes:
    padding = -len(header) % 8
    return b"".join((_CONTINUATION, struct.pack("<i", len(header) + padding), header, bytes(padding), body))
