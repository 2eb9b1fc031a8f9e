"""Requests in each format: what clients send, and damaged versions of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from alluvia.events.formats.body_format import SentBody, by_name
from alluvia.events.ingest.values import Limits, Split

ARRIVAL_US = 1_700_000_000_000_000  # 2023-11-14T22:13:20Z
JSON = "application/json"
PROTOBUF = "application/x-protobuf"


def otlp_json(*lines: str) -> dict[str, object]:
    records = [
        {
            "timeUnixNano": "1699999999123456789",
            "severityNumber": 9,
            "severityText": "INFO",
            "body": {"stringValue": line},
            "traceId": "5b8efff798038103d269b633813fc60c",
            "spanId": "eee19b7ec3c1b174",
            "attributes": [
                {"key": "n", "value": {"intValue": "9007199254740993"}},
                {"key": "list", "value": {"arrayValue": {"values": [{"boolValue": True}, {"doubleValue": 0.5}]}}},
                {"key": "map", "value": {"kvlistValue": {"values": [{"key": "b", "value": {"bytesValue": "AAE="}}]}}},
            ],
        }
        for line in lines
    ]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    scope = {"name": "lib", "version": "1.2"}
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": scope, "logRecords": records}]}]}


def otlp_protobuf(*lines: str) -> bytes:
    request = ExportLogsServiceRequest()
    logs = request.resource_logs.add()
    for line in lines:
        record = logs.scope_logs.add().log_records.add(time_unix_nano=1_699_999_999_123_456_789)
        record.body.string_value = line
    return request.SerializeToString()


def firehose(*records: bytes) -> bytes:
    sent = [{"data": base64.b64encode(record).decode()} for record in records]
    return json.dumps({"requestId": "r-1", "timestamp": 1_700_000_000_000, "records": sent}).encode()


SEGMENT = {
    "batch": [
        {"type": "track", "event": "Signed Up", "messageId": "m-1", "timestamp": "2023-11-14T22:13:10.000Z"},
        {"type": "identify", "userId": "u-1", "messageId": "m-2"},
    ],
    "sentAt": "2023-11-14T22:13:15.000Z",
    "writeKey": "key",
}
CLOUD_EVENT = {"specversion": "1.0", "id": "A1", "source": "/shop", "type": "order.placed", "data": {"total": 5}}
BINARY = {"ce-specversion": "1.0", "ce-id": "A1", "ce-source": "/shop", "ce-type": "order.placed"}
SAMPLES: list[tuple[str, bytes, str, Mapping[str, str]]] = [
    ("json", b'{"event_id":"a","n":1}\n{"event_id":"b"}', "application/x-ndjson", {}),
    ("cloudevents", json.dumps(CLOUD_EVENT).encode(), "application/cloudevents+json", {}),
    ("cloudevents", json.dumps([CLOUD_EVENT]).encode(), "application/cloudevents-batch+json", {}),
    ("cloudevents", b'{"total":5}', JSON, BINARY),
    ("csv", b'event_id,n,note\r\na,1,"x\ny"\r\nb,2,z\r\n', "text/csv", {}),
    ("form", b"event_id=a&n=1&tag=x&tag=y", "application/x-www-form-urlencoded", {}),
    ("segment", json.dumps(SEGMENT).encode(), JSON, {}),
    ("vector", b'[{"message":"x","timestamp":"2023-11-14T22:13:10.123456789Z"}]', JSON, {}),
    ("fluentbit", b'[{"date":1699999990.5,"log":"x"}]', JSON, {}),
    ("fluentbit", b'{"date":1699999990.5,"log":"x"}{"date":1699999991,"log":"y"}', JSON, {}),
    ("firehose", firehose(b'{"a":1}', b'{"b":2}\n{"c":3}'), JSON, {"x-amz-firehose-request-id": "r-1"}),
    ("otlp", otlp_protobuf("x", "y"), PROTOBUF, {}),
    ("otlp", json.dumps(otlp_json("x", "y")).encode(), JSON, {}),
]
IDS = [f"{name}-{at}" for at, (name, *_) in enumerate(SAMPLES)]


def sent(body: bytes, content_type: str, headers: Mapping[str, str] | None = None, path: str = "") -> SentBody:
    return SentBody({"content-type": content_type, **(headers or {})}, body, ARRIVAL_US, path)


def read(
    name: str, body: bytes, content_type: str = JSON, headers: Mapping[str, str] | None = None, path: str = ""
) -> Split:
    return by_name(name).read(sent(body, content_type, headers, path), Limits())


@st.composite
def damaged(draw: st.DrawFn, body: bytes) -> bytes:
    """Return a body with some of its bytes replaced, cut out or doubled."""
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(body)))
        end = draw(st.integers(at, min(len(body), at + 12)))
        put = draw(st.one_of(st.binary(max_size=4), st.just(body[at:end] * 2), st.sampled_from(_NASTY)))
        body = body[:at] + put + body[end:]
    return body


def odd_nodes(body: bytes) -> Iterator[bytes]:
    """Yield a body of JSON with each of its nodes replaced by each odd value, or left out; nothing of another body."""
    try:
        value = json.loads(body)
    except ValueError:
        return
    for path in _paths(value):
        for odd in (*ODD_VALUES, _LEFT_OUT):
            yield json.dumps(_replaced(value, path, odd)).encode()


def _paths(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for name, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _paths(item, (*path, name))


def _replaced(value: Any, path: tuple[Any, ...], odd: object) -> Any:
    if not path:
        return None if odd is _LEFT_OUT else odd
    copy = list(value) if isinstance(value, list) else dict(value)
    if len(path) == 1 and odd is _LEFT_OUT:
        del copy[path[0]]
    else:
        copy[path[0]] = _replaced(value[path[0]], path[1:], odd)
    return copy


_LEFT_OUT = object()
ODD_VALUES: list[object] = [
    None, True, 0, -1, 5, 1.5, 1e300, 2**63, 2**200, float("nan"), "", "x", "\u00e9", "\0", "\ud800",
    "2020-02-30T00:00:00Z", "9" * 30, "a" * 3000, [], {}, [[]], [None], [5], [{}], {"a": 1}, {"": None},
    [[1], {"a": []}], {"kvlistValue": {"values": 5}}, {"stringValue": 5}, {"intValue": "x"}, {"arrayValue": []},
    {"bytesValue": "!"}, {"doubleValue": "NaN"},
]  # fmt: skip
_NASTY = [b"null", b'"', b"[[", b"{}", b"1e999", b"NaN", b"\xff", b"\\ud800", b"\r", b",,", b"%zz", b"-1", b"9" * 30]
