"""The messages of Arrow Flight and Flight SQL that the server takes and sends.

Names, numbers and types are those of Flight.proto and FlightSql.proto of Apache Arrow, which say what each means. No
package that is kept up ships them for Python (decision 0041), so they are described here, and `protobuf` reads them.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from alluvia.errors import Invalid

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
    found: bytes = new("Any", type_url=_SQL + name, value=body).SerializeToString()
    return found


def unpacked(data: bytes) -> tuple[str, Message]:
    """Return the name and the message of Flight SQL that some bytes stand for. Raises `Invalid`."""
    outer = read("Any", data)
    name = str(outer.type_url).rpartition(".")[2]
    if outer.type_url != _SQL + name or name not in _MESSAGES:
        what = repr(outer.type_url[:200]) if outer.type_url else "bytes"
        raise Invalid(f"this server takes commands of Arrow Flight SQL, and does not know {what}")
    return name, read(name, outer.value)
