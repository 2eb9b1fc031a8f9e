"""OTLP/HTTP logs, in protobuf and JSON: each log record is an event (OTLP 1.x, "OTLP/HTTP"). Pure.

Records have no id. An exporter repeats a request byte for byte, so a record is known by the bytes of its request and
its position there: a retry is stored once, and two equal lines are two.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

from alluvia.errors import Invalid
from alluvia.extras import needing
from alluvia.formats.events import Events, body_key
from alluvia.formats.otlp_records import record_value, resource_value, scope_value
from alluvia.formats.values import BodyFormat, ClientReply, RequestOutcome, SentBody
from alluvia.ingest.envelope import refused
from alluvia.ingest.inflate import TooLarge
from alluvia.ingest.jsontext import decode
from alluvia.ingest.values import TOO_MANY_EVENTS, Given

with needing("aws", "OTLP"):
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
        ExportLogsServiceRequest,
        ExportLogsServiceResponse,
    )

if TYPE_CHECKING:
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs

    from alluvia.ingest.values import Limits, Split

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
_CODES = {400: 3, 401: 16, 403: 7, 404: 5, 405: 12, 413: 3, 415: 3, 429: 8, 503: 14}
"""The codes of google.rpc for HTTP statuses; 2 (unknown) for others."""
_IDS = ("traceId", "spanId")
_LISTS: tuple[tuple[str, set[str]], ...] = (
    ("resourceLogs", set()),
    ("scopeLogs", {"resource", "schemaUrl"}),
    ("logRecords", {"scope", "schemaUrl"}),
)
"""The lists that lead to the log records, and the fields that each item has beside the next list."""


def read(sent: SentBody, limits: Limits) -> Split:
    """Take the log records of a request. A request that cannot be read is one reject."""
    if sent.media_type not in (PROTOBUF, JSON):
        reason = f"Content-Type: {sent.media_type!r:.100} is not supported: send {PROTOBUF} or {JSON}"
        return refused(sent.body, reason, unsupported=True)
    try:
        in_json = sent.media_type == JSON
        request = _from_json(sent.body, limits) if in_json else ExportLogsServiceRequest.FromString(sent.body)
    except TooLarge as error:
        return refused(sent.body, str(error), too_large=True)
    except (DecodeError, json_format.ParseError, Invalid) as error:
        return refused(sent.body, f"not a valid ExportLogsServiceRequest: {error}")
    events = Events(sent, limits)
    for resource_logs in events.within(request.resource_logs):
        resource, service = resource_value(resource_logs), _service(resource_logs)
        for scope_logs in events.within(resource_logs.scope_logs):
            shared = resource | scope_value(scope_logs)
            for record in scope_logs.log_records:
                events.add(record_value(record, shared), _given(record, service))
                if events.full:
                    return events.split()
    return events.split()


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


def _from_json(body: bytes, limits: Limits) -> ExportLogsServiceRequest:
    """Read a request in OTLP's JSON: protobuf's, but with the ids of traces and spans in hexadecimal."""
    decode(body)  # raises Invalid for what the next line would take, such as equal keys
    request = json.loads(body)
    if not isinstance(request, dict):
        raise Invalid("send a JSON object")
    for record in _records(request, limits):
        for name in _IDS:
            text = record.get(name)
            if isinstance(text, str):
                record[name] = base64.b64encode(_unhex(text, name)).decode()
    return json_format.ParseDict(request, ExportLogsServiceRequest(), ignore_unknown_fields=True)


def _records(request: dict[str, object], limits: Limits) -> list[dict[str, object]]:
    """Return the log records of a request.

    Unknown fields are ignored, as OTLP says. But an object that has some in place of the list that makes it one of logs
    is another message, such as one of traces, if they hold objects or no record is found elsewhere. It raises Invalid,
    so that nobody takes it for stored. Raises TooLarge for a list of more than may be events.
    """
    found, missing = [request], ""
    for name, others in _LISTS:
        spellings = (name, re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name))  # both are protobuf's
        for each in found:
            unknown = each.keys() - others
            if unknown and unknown.isdisjoint(spellings):
                missing = missing or f"expected the field {name}, got {min(unknown)!r:.100}"
                if any(isinstance(item, dict) for other in unknown for item in _list(each[other])):
                    raise Invalid(missing)
        items = [item for each in found for spelling in spellings for item in _list(each.get(spelling))]
        if len(items) > limits.events:
            raise TooLarge(TOO_MANY_EVENTS.format(f"{limits.events} events"))
        found = [item for item in items if isinstance(item, dict)]
    if missing and not found:
        raise Invalid(missing)
    return found


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
