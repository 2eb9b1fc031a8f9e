"""OTLP/HTTP logs, in protobuf and JSON: each log record is an event (OTLP 1.x, "OTLP/HTTP"). Pure.

Ids are in hexadecimal, bytes in base64. A double that JSON cannot write is the text `NaN`, `Infinity` or `-Infinity`,
as in protobuf's JSON. A key that a list of attributes repeats is `key#2` the second time.

Records have no id. An exporter repeats a request byte for byte, so a record is known by the bytes of its request and
its position there, if each record has a time: a retry is stored once, and two equal lines are two.
"""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from typing import TYPE_CHECKING

from alluvia.errors import Invalid
from alluvia.events.formats.body_format import BodyFormat, ClientReply, RequestOutcome, SentBody
from alluvia.events.formats.events import Events, body_key
from alluvia.events.ingest.compression import TooLarge
from alluvia.events.ingest.envelope import refused
from alluvia.events.ingest.values import TOO_MANY_EVENTS, Given
from alluvia.extras import needing
from alluvia.json_values.jsontext import decode, split_array, split_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs

    from alluvia.events.ingest.values import Limits, Split


def record_value(record: LogRecord, shared: dict[str, object]) -> dict[str, object]:
    """Return a log record with what it shares with others."""
    value: dict[str, object] = {
        "time_unix_nano": record.time_unix_nano,
        "observed_time_unix_nano": record.observed_time_unix_nano,
        "severity_number": record.severity_number,
        "severity_text": record.severity_text,
        "attributes": _object(record.attributes),
        "dropped_attributes_count": record.dropped_attributes_count,
        "flags": record.flags,
        "trace_id": record.trace_id.hex(),
        "span_id": record.span_id.hex(),
        "event_name": record.event_name,
    }
    body = _value(record.body)
    return _filled(value) | ({} if body is None else {"body": body}) | shared


def resource_value(logs: ResourceLogs) -> dict[str, object]:
    """Return what the records of a resource share."""
    value: dict[str, object] = {
        "attributes": _object(logs.resource.attributes),
        "dropped_attributes_count": logs.resource.dropped_attributes_count,
        "schema_url": logs.schema_url,
    }
    return _filled({"resource": _filled(value)})


def scope_value(logs: ScopeLogs) -> dict[str, object]:
    """Return what the records of a scope share."""
    value: dict[str, object] = {
        "name": logs.scope.name,
        "version": logs.scope.version,
        "attributes": _object(logs.scope.attributes),
        "dropped_attributes_count": logs.scope.dropped_attributes_count,
        "schema_url": logs.schema_url,
    }
    return _filled({"scope": _filled(value)})


def _filled(value: dict[str, object]) -> dict[str, object]:
    return {name: item for name, item in value.items() if item}


def _object(pairs: Iterable[KeyValue]) -> dict[str, object]:
    fields: dict[str, object] = {}
    again: Counter[str] = Counter()
    for pair in pairs:
        name = pair.key
        while name in fields:
            again[pair.key] += 1
            name = f"{pair.key}#{again[pair.key] + 1}"
        fields[name] = _value(pair.value)
    return fields


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    match kind:
        case "string_value" | "bool_value" | "int_value":
            return getattr(value, kind)
        case "double_value":
            return _double(value.double_value)
        case "array_value":
            return [_value(item) for item in value.array_value.values]
        case "kvlist_value":
            return _object(value.kvlist_value.values)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case _:
            return None


def _double(number: float) -> object:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


with needing("aws", "OTLP"):
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
        ExportLogsServiceRequest,
        ExportLogsServiceResponse,
    )


PROTOBUF = "application/x-protobuf"
JSON = "application/json"
_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 413: 3, 415: 3, 429: 8, 503: 14}
"""The codes of google.rpc for HTTP statuses; 2 (unknown) for others."""
_IDS = ("traceId", "spanId")
_LISTS = (("resourceLogs", "resource_logs"), ("scopeLogs", "scope_logs"), ("logRecords", "log_records"))
"""The lists that lead to the log records, in both spellings of protobuf."""
_OTHERS: tuple[set[str], ...] = (set(), {"resource", "schemaUrl"}, {"scope", "schemaUrl"})
"""The fields that an item has besides the next list."""
_FAULTS = (DecodeError, json_format.ParseError, Invalid)
_INVALID = "not a valid ExportLogsServiceRequest: {}"


def read(sent: SentBody, limits: Limits) -> Split:
    """Take the log records of a request. A request that cannot be read is one reject."""
    if sent.media_type not in (PROTOBUF, JSON):
        reason = f"Content-Type: {sent.media_type!r:.100} is not supported: send {PROTOBUF} or {JSON}"
        return refused(sent.body, reason, unsupported=True)
    events, in_json = Events(sent, limits), sent.media_type == JSON
    try:
        _add(events, _from_json(sent.body, limits) if in_json else _from_protobuf(sent.body, limits))
    except TooLarge as error:
        return refused(sent.body, str(error), too_large=True)
    except _FAULTS as error:
        if not (in_json and _add_each(events, sent.body, limits)):
            return refused(sent.body, _INVALID.format(error))
    return events.split()


def _add(events: Events, request: ExportLogsServiceRequest) -> None:
    for resource_logs in request.resource_logs:
        resource, service = resource_value(resource_logs), _service(resource_logs)
        for scope_logs in resource_logs.scope_logs:
            shared = resource | scope_value(scope_logs)
            for record in scope_logs.log_records:
                events.add(record_value(record, shared), _given(record, service))
                if events.full:
                    return


def _add_each(events: Events, body: bytes, limits: Limits) -> bool:
    """Take each log record of a request in JSON by itself, as some are not valid. False if they cannot be told apart.

    A record that is not valid becomes a reject: a request of its own, with the resource and the scope that it has.
    """
    try:
        _records(json.loads(body.decode("utf-8", "surrogateescape")), limits)
    except (ValueError, RecursionError, Invalid):
        return False
    for text in _requests(body):
        try:
            _add(events, _from_json(text, limits))
        except _FAULTS as error:
            events.reject(_INVALID.format(error), text)
        if events.full:
            break
    return len(events) > 0


def _requests(text: bytes, lists: Sequence[tuple[str, str]] = _LISTS) -> Iterator[bytes]:
    """Yield requests of one log record each, or of what stands where one should, with all else that is said of it."""
    members = split_object(text) if lists else None
    if members is None:
        yield text
        return
    others = [_member(key, raw) for key, raw in members if key not in lists[0]]
    for key, raw in members:
        if key in lists[0]:
            items = split_array(raw)
            inner = (b"[%b]" % each for item in items or [] for each in _requests(item, lists[1:]))
            for one in inner if items is not None else [raw]:
                yield b"{%b}" % b",".join([*others, _member(key, one)])


def _member(key: str, raw: bytes) -> bytes:
    return json.dumps(key).encode() + b":" + raw


def reply(sent: SentBody, outcome: RequestOutcome) -> ClientReply:
    """Answer in the encoding of the request. Rejected records make it a partial success, not an error."""
    in_json = sent.media_type == JSON
    kind = JSON if in_json else PROTOBUF
    if outcome.status < 300:
        response = ExportLogsServiceResponse()
        if outcome.rejected:
            response.partial_success.rejected_log_records = outcome.rejected
            response.partial_success.error_message = outcome.reason
        text = json_format.MessageToJson(response, indent=None).encode() if in_json else response.SerializeToString()
        return ClientReply(200, text, kind)
    code = _CODES.get(outcome.status, 2)
    return ClientReply(outcome.status, _status(code, outcome.reason, in_json=in_json), kind)


def _check_count(count: int, limits: Limits) -> None:
    """Raise TooLarge for more resources, scopes or records than may be events."""
    if count > limits.events:
        raise TooLarge(TOO_MANY_EVENTS.format(f"{limits.events} events"))


def _from_protobuf(body: bytes, limits: Limits) -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest.FromString(body)
    _check_count(len(request.resource_logs), limits)
    _check_count(sum(len(each.scope_logs) for each in request.resource_logs), limits)
    return request


def _from_json(body: bytes, limits: Limits) -> ExportLogsServiceRequest:
    """Read a request in OTLP's JSON: protobuf's, but with the ids of traces and spans in hexadecimal."""
    decode(body)  # raises Invalid for what the next line would take, such as equal keys
    request = json.loads(body)
    for record in _records(request, limits):
        for name in _IDS:
            text = record.get(name)
            if isinstance(text, str):
                record[name] = base64.b64encode(_unhex(text, name)).decode()
    return json_format.ParseDict(request, ExportLogsServiceRequest(), ignore_unknown_fields=True)


def _records(request: object, limits: Limits) -> list[dict[str, object]]:
    """Return the log records of a request.

    Unknown fields are ignored, as OTLP says. But an object that has some in place of the list that makes it one of logs
    is another message, such as one of traces, if they hold objects or no record is found elsewhere. It raises Invalid,
    so that its sender does not take it for stored. Raises TooLarge for a list of more than may be events.
    """
    if not isinstance(request, dict):
        raise Invalid("send a JSON object")
    records: list[dict[str, object]] = [request]
    missing = ""
    for spellings, others in zip(_LISTS, _OTHERS, strict=True):
        for each in records:
            unknown = each.keys() - others
            if unknown and unknown.isdisjoint(spellings):
                missing = missing or f"expected the field {spellings[0]}, got {min(unknown)!r:.100}"
                if any(isinstance(item, dict) for other in unknown for item in _list(each[other])):
                    raise Invalid(missing)
        items = [item for each in records for spelling in spellings for item in _list(each.get(spelling))]
        _check_count(len(items), limits)
        records = [item for item in items if isinstance(item, dict)]
    if missing and not records:
        raise Invalid(missing)
    return records


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _unhex(text: str, name: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise Invalid(f"{name}: not hexadecimal") from None


def _service(resource_logs: ResourceLogs) -> str:
    pairs = resource_logs.resource.attributes
    return next((pair.value.string_value for pair in pairs if pair.key == "service.name"), "")


def _given(record: LogRecord, service: str) -> Given:
    moment_ns = record.time_unix_nano or record.observed_time_unix_nano
    return Given(ts_us=moment_ns // 1000 or None, event=record.event_name, source=service)


def _status(code: int, message: str, *, in_json: bool) -> bytes:
    """Return a google.rpc.Status: field 1 is its code, field 2 its message."""
    if in_json:
        return json.dumps({"code": code, "message": message}).encode()
    text = message.encode("utf-8", "replace")
    return bytes((0x08, code, 0x12)) + _varint(len(text)) + text


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


FORMAT = BodyFormat(read, body_key, reply, takes_empty=True)
