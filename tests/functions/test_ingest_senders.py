"""Bodies of OpenTelemetry, Firehose, log forwarders and Segment, through the ingest function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

import alluvia
from alluvia.events.formats.body_format import SentBody, by_name
from alluvia.events.ingest.values import Limits
from alluvia.serverless import warm_lake
from alluvia.serverless.http import Request
from functions.ingest.events import take_body
from functions.ingest.settings import IngestSettings
from tests.formats import BINARY, CLOUD_EVENT, JSON, PROTOBUF, firehose, otlp_json, otlp_protobuf
from tests.functions.bodies import post, request_of, rows


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path))
    monkeypatch.setenv("ALLUVIA_CREATE_TABLES", "true")
    return alluvia.connect(str(tmp_path))


def post_as(
    name: str, body: bytes, headers: Mapping[str, str] | None = None, content_type: str = JSON
) -> dict[str, Any]:
    """Post in a format that only a source declares."""
    request = Request.read(request_of("/v1/x", body, content_type, headers), "")
    settings = IngestSettings.read({"ALLUVIA_CREATE_TABLES": "true"})
    answer = take_body(request, "t", name, settings, warm_lake.lake())
    return {"status": answer["statusCode"], **json.loads(answer["body"])}


@pytest.mark.parametrize("in_json", [True, False])
def test_log_records_of_otlp(lake: alluvia.Lake, in_json: bool) -> None:
    body = json.dumps(otlp_json("same", "same")).encode() if in_json else otlp_protobuf("same", "same")
    kind = JSON if in_json else PROTOBUF
    for _ in range(2):  # the second is an exporter's retry
        status, answer, headers = post("/v1/logs", body, kind)
        assert (status, answer, headers["Content-Type"]) == (200, b"{}" if in_json else b"", kind)
    first, second = rows(lake, "logs")
    assert first["ts"] == datetime(2023, 11, 14, 22, 13, 19, 123456, tzinfo=UTC)
    assert first["properties"] == second["properties"]
    if in_json:
        assert (first["source"], first["event"]) == ("shop", None)
        assert first["properties"] == {
            "time_unix_nano": 1699999999123456789,
            "severity_number": 9,
            "severity_text": "INFO",
            "attributes": {"n": 9007199254740993, "list": [True, 0.5], "map": {"b": "AAE="}},
            "trace_id": "5b8efff798038103d269b633813fc60c",
            "span_id": "eee19b7ec3c1b174",
            "body": "same",
            "resource": {"attributes": {"service.name": "shop"}},
            "scope": {"name": "lib", "version": "1.2"},
        }


def test_otlp_says_what_was_rejected_and_what_is_wrong(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_EVENT_LIMIT_BYTES", "100")
    monkeypatch.setenv("ALLUVIA_LOGS_TABLE", "t")
    status, answer, _ = post("/v1/logs", otlp_protobuf("x", "y" * 100), PROTOBUF)
    partial = ExportLogsServiceResponse.FromString(answer).partial_success
    assert (status, partial.rejected_log_records) == (200, 1)
    assert partial.error_message.endswith("more than the limit of 100")
    assert partial.error_message.startswith("event 1: ")
    status, answer, headers = post("/v1/logs", b"\x0a\xff", PROTOBUF)
    assert (status, Status.FromString(answer).code, headers["Content-Type"]) == (400, 3, PROTOBUF)
    assert "not a valid ExportLogsServiceRequest" in Status.FromString(answer).message
    status, answer, _ = post("/v1/logs", b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"traceId":"xyz"}]}]}]}', JSON)
    assert (status, json.loads(answer)["code"]) == (400, 3)
    assert "traceId: not hexadecimal" in json.loads(answer)["message"]
    for body in (b"-549", b"[]", b'"x"', b"null", b'{"resourceLogs":[5]}', b'{"resourceLogs":{"a":1}}'):
        status, answer, _ = post("/v1/logs", body, JSON)
        assert (status, "not a valid ExportLogsServiceRequest" in json.loads(answer)["message"]) == (400, True), body
    for body, field, got in (
        (b'{"message":"hello"}', "resourceLogs", "message"),
        (b'{"resourceSpans":[{"scopeSpans":[]}]}', "resourceLogs", "resourceSpans"),
        (
            b'{"resourceLogs":[{"resource":{},"instrumentationLibraryLogs":[]}]}',
            "scopeLogs",
            "instrumentationLibraryLogs",
        ),
        (b'{"resourceLogs":[{"scopeLogs":[{"scope":{},"records":[]}]}]}', "logRecords", "records"),
        (
            b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{}]}]},{"scopeLog":[{"logRecords":[{}]}]}]}',
            "scopeLogs",
            "scopeLog",
        ),
    ):
        status, answer, _ = post("/v1/logs", body, JSON)
        reason = f"not a valid ExportLogsServiceRequest: expected the field {field}, got '{got}'"
        assert (status, reason in json.loads(answer)["message"]) == (400, True), answer
    for body in (
        b"{}",
        b'{"resourceLogs":[{}]}',
        b'{"resourceLogs":[{"resource":{}}],"more":1}',
        b'{"resourceLogs":null}',
        b'{"resource_logs":[{"scope_logs":[{"log_records":[]}]}]}',
    ):
        assert post("/v1/logs", body, JSON)[:2] == (200, b"{}"), body
    newer = {"resource": {}, "newField": 1}
    one = {"scopeLogs": [{"logRecords": [{"body": {"stringValue": "beside a newer field"}}]}]}
    assert post("/v1/logs", json.dumps({"resourceLogs": [newer, one]}).encode(), JSON)[:2] == (200, b"{}")
    monkeypatch.setenv("ALLUVIA_CREATE_TABLES", "false")
    monkeypatch.setenv("ALLUVIA_LOGS_TABLE", "other")
    status, answer, _ = post("/v1/logs", b"{}", JSON)
    assert (status, json.loads(answer)["code"]) == (404, 5)


def test_firehose_is_answered_with_its_request_id_and_repeats_are_stored_once(lake: alluvia.Lake) -> None:
    headers = {"x-amz-firehose-request-id": "r-1"}
    body = firehose(b'{"a":1}\n{"a":1}', b'{"a":2}')
    before_ms = warm_lake.lake().clock.now_ms()
    for _ in range(2):
        answer = post_as("firehose", body, headers)
        assert (answer["status"], answer["requestId"]) == (200, "r-1")
        assert before_ms <= answer["timestamp"] <= warm_lake.lake().clock.now_ms()
    assert [(row["event_id"], row["properties"]) for row in rows(lake)] == [
        ("firehose-r-1/0", {"a": 1}), ("firehose-r-1/1", {"a": 1}), ("firehose-r-1/2", {"a": 2}),
    ]  # fmt: skip
    assert post_as("firehose", firehose(b"nonsense"), headers)["status"] == 200  # kept as a reject: no need to repeat
    assert b"nonsense" in [row["raw"] for row in lake.table("t/_rejects").scan().read_all().to_pylist()]


def test_the_attributes_of_a_delivery_stream_are_a_field_of_its_events(lake: alluvia.Lake) -> None:
    body = firehose(b'{"event_id":"1","n":1.10}\n{"event_id":"2","commonAttributes":5}', b'{"n":3}')
    for env, stored in (("dev", 3), ("prod", 0)):
        common = {"commonAttributes": {"env": env, "id": "1", "event_id": "1"}}
        headers = {"x-amz-firehose-request-id": "r", "x-amz-firehose-common-attributes": json.dumps(common)}
        assert post_as("firehose", body, headers)["status"] == 200
        assert len(rows(lake)) == 3, stored
    attributes = {"env": "dev", "id": "1", "event_id": "1"}
    assert [(row["event_id"], row["properties"]) for row in rows(lake)] == [
        ("1", {"n": 1.1, "commonAttributes": attributes}),
        ("2", {"commonAttributes": 5}),
        ("firehose-r/2", {"n": 3, "commonAttributes": attributes}),
    ]
    for odd in ("", "{", "[]", '{"commonAttributes":[]}', '{"commonAttributes":{"a":"\\ud800"}}', "\xe9"):
        headers = {"x-amz-firehose-request-id": f"odd {odd}", "x-amz-firehose-common-attributes": odd}
        assert post_as("firehose", firehose(b'{"n":4}'), headers)["status"] == 200
    assert all("commonAttributes" not in row["properties"] for row in rows(lake) if row["properties"].get("n") == 4)


def test_attributes_of_a_stream_count_for_each_event() -> None:
    common = json.dumps({"commonAttributes": {"a": "x" * 1000}})
    headers = {"content-type": JSON, "x-amz-firehose-common-attributes": common}
    body = firehose(b"{}\n" * 20, b"{}\n" * 500, b"{}")
    found = by_name("firehose").read(SentBody(headers, body, 0), Limits(inflated_bytes=10_000))
    assert (found.events, found.too_large, len(found.rejects)) == ([], True, 1)


def test_firehose_keeps_what_no_table_can(lake: alluvia.Lake) -> None:
    answer = post_as("firehose", firehose(b"nonsense"), {"x-amz-firehose-request-id": "r-2"})
    assert (answer["status"], answer["requestId"]) == (400, "r-2")
    assert answer["errorMessage"].startswith("nothing was kept: there is no table 't'")
    assert answer["errorMessage"].endswith("; event 0: not valid JSON: Expecting value at character 0")


@pytest.mark.parametrize(
    ("name", "body", "moment"),
    [
        (
            "vector",
            b'[{"message":"x","timestamp":"2020-01-01T00:00:00.5Z"},{"message":"x","time":1577836801}]',
            500_000,
        ),
        ("fluentbit", b'{"date":1577836800.5,"message":"x"}\n{"ts":1577836801,"message":"x"}', 500_000),
    ],
)
def test_forwarders_that_repeat_a_batch(lake: alluvia.Lake, name: str, body: bytes, moment: int) -> None:
    assert [post_as(name, body)["stored"] for _ in range(2)] == [2, 0]
    assert post_as(name, body + b" ")["stored"] == 2  # other bytes are another batch
    first = min(rows(lake), key=lambda row: row["ts"])
    assert (first["ts"], first["properties"]) == (datetime(2020, 1, 1, 0, 0, 0, moment, UTC), {"message": "x"})


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("vector", b'[{"message":"x","timestamp":"2020-01-01T00:00:00Z"},{"message":"x"}]'),
        ("vector", b'[{"message":"x","time":35}]'),
        ("fluentbit", b'{"date":1577836800.5,"log":"x"}\n{"date":"?","log":"x"}'),
        ("otlp", b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}'),
    ],
)
def test_equal_batches_of_events_without_a_time_are_not_taken_for_a_retry(
    lake: alluvia.Lake, name: str, body: bytes
) -> None:
    for _ in range(2):
        assert post_as(name, body)["status"] == 200
    assert len(rows(lake)) == 2 * len(by_name(name).read(SentBody({"content-type": JSON}, body, 0), Limits()).events)
    post_as(name, body, {"idempotency-key": "k"})
    before = len(rows(lake))
    post_as(name, body, {"idempotency-key": "k"})
    assert len(rows(lake)) == before


def test_fluent_bit_is_told_what_to_set(lake: alluvia.Lake) -> None:
    answer = post_as("fluentbit", b"\x92\x01", content_type="application/msgpack")
    assert (answer["status"], answer["errors"][0]["reason"]) == (
        415, "MessagePack is not supported: set `Format json_lines` in the output",
    )  # fmt: skip


def test_records_of_fluent_bit_without_line_ends(lake: alluvia.Lake) -> None:
    body = b'{"date":1577836800.5,"m":"}{"}{"date":1577836801,"m":[{}]} {"time":1577836802,"m":1e2}\r\n{"date'
    answer = post_as("fluentbit", body)
    assert (answer["status"], answer["stored"], answer["rejected"]) == (200, 3, 1)
    assert post_as("fluentbit", body)["stored"] == 0
    assert [row["properties"]["m"] for row in rows(lake)] == ["}{", [{}], 100.0]
    assert lake.table("t/_rejects").scan().read_all()["raw"].to_pylist() == [b'{"date']
    answer = post_as("fluentbit", b'{"a":1,"a":2}')
    assert (answer["status"], answer["errors"][0]["reason"]) == (400, "the key 'a' occurs twice in one object")


def test_calls_of_segment(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [
        {"type": "track", "event": "Signed Up", "messageId": "m-1", "userId": "u", "timestamp": "2020-01-01T00:00:10Z",
         "properties": {"plan": "pro"}, "context": {"ip": "1.2.3.4"}},
        {"type": "page", "name": "Home", "messageId": "m-2"},
        {"type": "track", "messageId": "m-3"},
        "nonsense",
    ]  # fmt: skip
    sent_at = datetime.fromtimestamp(lake.clock.now_us() / 1_000_000, UTC).replace(year=2021)
    body = {"batch": calls, "sentAt": sent_at.isoformat(), "context": {"library": "x"}, "writeKey": "secret"}
    answer = post_as("segment", json.dumps(body).encode())
    assert answer == {
        "status": 200, "success": True, "rejected": 2,
        "message": "event 2: event: a track call needs the event's name, a string",
    }  # fmt: skip
    first, second = rows(lake)
    assert (first["event_id"], first["event"], second["event_id"], second["event"]) == (
        "m-1",
        "Signed Up",
        "m-2",
        "page",
    )
    # The sender's clock is years behind: so is the time that it says the call was made at.
    behind = datetime.fromtimestamp(lake.clock.now_us() / 1_000_000, UTC) - sent_at
    assert abs(first["ts"] - datetime(2020, 1, 1, 0, 0, 10, tzinfo=UTC) - behind).total_seconds() < 60
    assert first["properties"] == {
        "plan": "pro", "sentAt": body["sentAt"], "type": "track", "userId": "u", "timestamp": "2020-01-01T00:00:10Z",
        "context": {"library": "x", "ip": "1.2.3.4"},
    }  # fmt: skip
    again = body | {"sentAt": "2021-05-05T00:00:00Z"}
    assert post_as("segment", json.dumps(again).encode())["success"]
    assert len(rows(lake)) == 2


def test_what_differs_between_attempts_is_not_content(lake: alluvia.Lake) -> None:
    call = {"type": "page", "messageId": "m-1", "sentAt": "2026-01-01T00:00:00Z"}
    attempts: list[dict[str, object]] = [{"_metadata": {"bundled": []}}, {"_metadata": {"retryCount": 1}}, {}]
    for more in attempts:
        assert post_as("segment", json.dumps(call | more).encode()) == {"status": 200, "success": True}
    kind = "application/cloudevents+json"
    for trace in ({"traceparent": "00-1-1-01", "tracestate": "a=1"}, {"traceparent": "00-2-2-01"}, {}):
        answer = post("/v1/events/ce", json.dumps(CLOUD_EVENT | trace).encode(), kind)
        assert (answer[0], json.loads(answer[1])["rejected"]) == (200, 0)
    answer = post("/v1/events/ce", b"{}", JSON, BINARY | {"ce-traceparent": "00-3-3-01"})
    assert json.loads(answer[1])["conflicting"] == 1  # its data differ
    assert [len(rows(lake, table)) for table in ("t", "ce")] == [1, 1]
    assert rows(lake)[0]["properties"]["_metadata"] == {"bundled": []}


def test_the_write_key_of_a_refused_batch_is_not_kept(lake: alluvia.Lake) -> None:
    lake.create_events("t")
    assert post_as("segment", b'{"batch":5,"writeKey":"secret","sentAt":null}')["code"] == "400"
    assert lake.table("t/_rejects").scan().read_all()["raw"].to_pylist() == [b'{"batch":5,"sentAt":null}']
