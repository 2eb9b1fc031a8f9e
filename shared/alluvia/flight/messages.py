"""The messages of Flight SQL, and Arrow's frames, as bytes on the wire. Pure.

Names, numbers and types are those of Flight.proto and FlightSql.proto of Apache Arrow, which say what each means. No
package that is kept up ships them for Python (decision 0041), so they are described here, and `protobuf` reads them.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from alluvia.errors import Invalid

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
    """Return a message in the form of a stream. Raises `Invalid` for one that is compressed."""
    if not part.data_header:
        return b""
    if _is_compressed(part.data_header):
        raise Invalid("the values are compressed: send them as they are")
    return _encapsulated(part.data_header, part.data_body)


def _is_compressed(header: bytes) -> bool:
    """Whether a message has a compressed body, whose size is unknown before it is inflated. Raises `Invalid`.

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


Message = Any
_PACKAGE = "arrow.flight.protocol.sql"
_SQL = f"type.googleapis.com/{_PACKAGE}."
_KEYS = ("optional string catalog 1", "optional string db_schema 2", "string table 3")
_MESSAGES: dict[str, tuple[str, ...]] = {
    "Any": ("string type_url 1", "bytes value 2"),
    # Flight
    "Action": ("string type 1", "bytes body 2"),
    "ActionType": ("string type 1", "string description 2"),
    "CancelFlightInfoRequest": ("FlightInfo info 1",),
    "CancelFlightInfoResult": ("int32 status 1",),
    "FlightData": (
        *("FlightDescriptor flight_descriptor 1", "bytes data_header 2", "bytes app_metadata 3"),
        "bytes data_body 1000",
    ),
    "FlightDescriptor": ("int32 type 1", "bytes cmd 2", "repeated string path 3"),
    "FlightEndpoint": ("Ticket ticket 1",),
    "FlightInfo": (
        *("bytes schema 1", "FlightDescriptor flight_descriptor 2", "repeated FlightEndpoint endpoint 3"),
        *("int64 total_records 4", "int64 total_bytes 5", "bool ordered 6"),
    ),
    "HandshakeResponse": ("uint64 protocol_version 1", "bytes payload 2"),
    "PutResult": ("bytes app_metadata 1",),
    "Result": ("bytes body 1",),
    "SchemaResult": ("bytes schema 1",),
    "Ticket": ("bytes ticket 1",),
    # Flight SQL: what a descriptor or a ticket holds
    "CommandGetCatalogs": (),
    "CommandGetCrossReference": (),
    "CommandGetDbSchemas": ("optional string catalog 1", "optional string db_schema_filter_pattern 2"),
    "CommandGetExportedKeys": _KEYS,
    "CommandGetImportedKeys": _KEYS,
    "CommandGetPrimaryKeys": _KEYS,
    "CommandGetSqlInfo": ("repeated uint32 info 1",),
    "CommandGetTableTypes": (),
    "CommandGetTables": (
        *("optional string catalog 1", "optional string db_schema_filter_pattern 2"),
        *("optional string table_name_filter_pattern 3", "repeated string table_types 4", "bool include_schema 5"),
    ),
    "CommandGetXdbcTypeInfo": ("optional int32 data_type 1",),
    "CommandPreparedStatementQuery": ("bytes prepared_statement_handle 1",),
    "CommandPreparedStatementUpdate": ("bytes prepared_statement_handle 1",),
    "CommandStatementIngest": (
        *("TableDefinitionOptions table_definition_options 1", "string table 2", "optional string schema 3"),
        *("optional string catalog 4", "bool temporary 5", "optional bytes transaction_id 6"),
    ),
    "CommandStatementQuery": ("string query 1", "optional bytes transaction_id 2"),
    "CommandStatementUpdate": ("string query 1", "optional bytes transaction_id 2"),
    "TableDefinitionOptions": ("int32 if_not_exist 1", "int32 if_exists 2"),
    "TicketStatementQuery": ("bytes statement_handle 1",),
    # Flight SQL: bodies of actions, and what is answered
    "ActionBeginTransactionRequest": (),
    "ActionBeginTransactionResult": ("bytes transaction_id 1",),
    "ActionCancelQueryRequest": ("bytes info 1",),
    "ActionCancelQueryResult": ("int32 result 1",),
    "ActionClosePreparedStatementRequest": ("bytes prepared_statement_handle 1",),
    "ActionCreatePreparedStatementRequest": ("string query 1", "optional bytes transaction_id 2"),
    "ActionCreatePreparedStatementResult": (
        *("bytes prepared_statement_handle 1", "bytes dataset_schema 2", "bytes parameter_schema 3"),
    ),
    "ActionEndTransactionRequest": ("bytes transaction_id 1", "int32 action 2"),
    "DoPutPreparedStatementResult": ("optional bytes prepared_statement_handle 1",),
    "DoPutUpdateResult": ("int64 record_count 1",),
}
_SCALARS = {
    name: getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in ("bool", "bytes", "int32", "int64", "string", "uint32", "uint64")
}


def _described() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="alluvia/flight.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields:
            *label, kind, field_name, number = text.split()
            field = message.field.add(name=field_name, number=int(number))
            field.label = field.LABEL_REPEATED if label == ["repeated"] else field.LABEL_OPTIONAL
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
            else:
                field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
            if label == ["optional"]:  # which proto3 keeps as a group of one
                field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field_name}")
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_described())


def new(name: str, **fields: Any) -> Message:
    """Return a message by its name."""
    kind = message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
    return kind(**fields)


def read(name: str, data: bytes) -> Message:
    """Return the message that some bytes are. Raises `Invalid`."""
    message = new(name)
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise Invalid(f"the request is not a {name} of Arrow Flight SQL") from None
    return message


def packed(name: str, **fields: Any) -> bytes:
    """Return a message of Flight SQL as the bytes that stand for one of any kind."""
    body = new(name, **fields).SerializeToString()
    message: bytes = new("Any", type_url=_SQL + name, value=body).SerializeToString()
    return message


def unpacked(data: bytes) -> tuple[str, Message]:
    """Return the name and the message of Flight SQL that some bytes stand for. Raises `Invalid`."""
    outer = read("Any", data)
    name = str(outer.type_url).rpartition(".")[2]
    if outer.type_url != _SQL + name or name not in _MESSAGES:
        what = repr(outer.type_url[:200]) if outer.type_url else "bytes"
        raise Invalid(f"this server takes commands of Arrow Flight SQL, and does not know {what}")
    return name, read(name, outer.value)
