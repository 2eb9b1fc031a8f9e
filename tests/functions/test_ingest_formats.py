"""Bodies in formats of their own, through the ingest function: rows in a lake, and answers as clients expect them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.rpc.status_pb2 import Status
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

import alluvia
from alluvia.events.formats.body_format import SentBody, by_name
from alluvia.events.formats.csv_format import delimiter_of
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import Limits, RawEvent, Reject
from alluvia.serverless import warm_lake
from alluvia.serverless.http import Request
from functions.ingest.events import take_body
from functions.ingest.handler import handler
from functions.ingest.settings import IngestSettings
from tests.formats import (
    BINARY,
    CLOUD_EVENT,
    IDS,
    JSON,
    PROTOBUF,
    SAMPLES,
    damaged,
    firehose,
    odd_nodes,
    otlp_json,
    otlp_protobuf,
)
from tests.samples import payload
from tests.webhooks import NOW_US

TEXTS = pa.list_(pa.string())


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path))
    monkeypatch.setenv("ALLUVIA_CREATE_TABLES", "true")
    return alluvia.connect(str(tmp_path))


def request_of(path: str, body: bytes, content_type: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    event = payload("ingest_api_gateway") | {"rawPath": path, "isBase64Encoded": True}
    event["requestContext"]["http"]["path"] = path
    event["headers"] = {"content-type": content_type, **(headers or {})}
    return event | {"body": base64.b64encode(body).decode()}


def post(
    path: str, body: bytes, content_type: str, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes, dict[str, str]]:
    answer = handler(request_of(path, body, content_type, headers), None)
    text = answer["body"]
    return (
        answer["statusCode"],
        base64.b64decode(text) if answer["isBase64Encoded"] else text.encode(),
        answer["headers"],
    )


def post_as(
    name: str, body: bytes, headers: Mapping[str, str] | None = None, content_type: str = JSON
) -> dict[str, Any]:
    """Post in a format that only a source declares."""
    request = Request.read(request_of("/v1/x", body, content_type, headers), "")
    settings = IngestSettings.read({"ALLUVIA_CREATE_TABLES": "true"})
    answer = take_body(request, "t", name, settings, warm_lake.lake())
    return {"status": answer["statusCode"], **json.loads(answer["body"])}


def rows(lake: alluvia.Lake, table: str = "t") -> list[dict[str, Any]]:
    found = lake.table(table).scan().read_all().to_pylist()
    for row in found:
        row["properties"] = json.loads(row["properties"]) if row["properties"] else {}
    return sorted(found, key=lambda row: str(row["event_id"]))


def test_csv_fills_typed_columns(lake: alluvia.Lake) -> None:
    types = {"n": pa.int64(), "price": pa.float64(), "paid": pa.bool_(), "name": pa.string(), "tags": TEXTS}
    lake.create_events("t", pa.schema(list(types.items())))
    body = (
        b"event_id,ts,n,price,paid,name,tags,rest\r\n"
        b'a,2020-01-01T00:00:00Z,7,1.5,true,0042,"[""x"",""y""]","a, b"\r\n'
        b"b,1577836800,,,,,,\n"
        b"c,,seven,,,,,\n"
    )
    status, answer, _ = post("/v1/events/t", body, "text/csv; charset=utf-8")
    assert (status, json.loads(answer)["accepted"], json.loads(answer)["rejected"]) == (200, 2, 1)
    assert json.loads(answer)["errors"] == [{"position": 2, "reason": "n: expected a number (long), got a string"}]
    first, second = rows(lake)
    new_year = datetime(2020, 1, 1, tzinfo=UTC)
    assert [first[name] for name in ("ts", *types)] == [new_year, 7, 1.5, True, "0042", ["x", "y"]]
    assert first["properties"] == {"rest": "a, b"}
    assert [second[name] for name in ("ts", *types)] == [new_year, None, None, None, None, None]
    assert json.loads(post("/v1/events/t", body, "text/csv")[1])["duplicates"] == 2


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b'event_id,ts,n\n"","","1"\n', "text/csv"), (b"event_id=&ts=&n=1", "application/x-www-form-urlencoded")],
    ids=["csv", "form"],
)
def test_an_empty_id_and_an_empty_time_say_nothing(lake: alluvia.Lake, body: bytes, kind: str) -> None:
    lake.create_events("t", pa.schema([("n", pa.int64())]))
    assert json.loads(post("/v1/events/t", body, kind)[1])["accepted"] == 1
    [row] = rows(lake)
    assert (bool(row["event_id"]), row["ts"] == row["received_at"], row["properties"]) == (True, True, {})
    assert row["n"] == 1


@pytest.mark.parametrize(("kind", "by"), [("text/csv", ","), ("text/csv", "|"), ("text/tab-separated-values", "\t")])
def test_an_empty_cell_within_quotes_is_the_empty_text(lake: alluvia.Lake, kind: str, by: str) -> None:
    lake.create_events("t", pa.schema([("n", pa.int64()), ("name", pa.string())]))
    cells = [
        ("event_id", "n", "name", "rest", "more"),
        ("a", '""', '""', '""', '""'),
        ("b", "", '""', "", '""'),
        ("c", '""', "", '""', ""),
        ("d", "", "", f'"""{by}{by}"""', "é"),
        ('"e"', "1", '""""', '"x\ny"', '""'),
    ]
    body = "\n".join(map(by.join, cells)).encode()
    assert json.loads(post("/v1/events/t", body, kind)[1])["accepted"] == 5
    assert [(row["event_id"], row["n"], row["name"], row["properties"]) for row in rows(lake)] == [
        ("a", None, "", {"rest": "", "more": ""}),
        ("b", None, "", {"more": ""}),
        ("c", None, None, {"rest": ""}),
        ("d", None, None, {"rest": f'"{by}{by}"', "more": "é"}),
        ("e", 1, '"', {"rest": "x\ny", "more": ""}),
    ]


@pytest.mark.parametrize(
    ("header", "media_type", "delimiter"),
    [
        ("a,b", "text/csv", ","),
        ("a", "text/csv", ","),
        ("", "text/csv", ","),
        ("a;b", "text/csv", ";"),
        ('"a";"b,c"', "text/csv", ";"),
        ('"a";"b"\r\n', "text/csv", ";"),
        ("a\tb\n", "text/csv", "\t"),
        ("a|b;c|d", "text/csv", "|"),
        ("a;b,c;d", "text/csv", ","),
        ('"a;b"', "text/csv", ","),
        ('a,"b;c', "text/csv", ","),
        ('"a;b;c', "text/csv", ","),
        ("a;b", "text/tab-separated-values", "\t"),
    ],
)
def test_the_header_shows_the_delimiter(header: str, media_type: str, delimiter: str) -> None:
    assert delimiter_of(header, media_type) == delimiter


def test_csv_that_says_it_has_no_header_is_refused(lake: alluvia.Lake) -> None:
    lake.create_events("t")
    status, answer, _ = post("/v1/events/t", b"7,1\n8,2\n", "text/csv; charset=utf-8; header=absent")
    reason = "the first row must name the fields: header=absent is not supported"
    assert (status, json.loads(answer)["errors"]) == (400, [{"position": 0, "reason": reason}])
    assert post("/v1/events/t", b"sku,n\n8,2\n", "text/csv; header=present")[0] == 200


@pytest.mark.parametrize("body", [b"sku,priceA,1", b"sku,price", b"\xef\xbb\xbfsku,price\r\n\r\n", b'sku,"pr\nice"\n'])
def test_csv_without_rows_is_refused_and_kept(lake: alluvia.Lake, body: bytes) -> None:
    lake.create_events("t")
    status, answer, _ = post("/v1/events/t", body, "text/csv")
    assert (status, json.loads(answer)["accepted"]) == (400, 0)
    assert json.loads(answer)["errors"][0]["reason"] == (
        "the CSV has a header and no rows: send a row per line (curl -d strips line ends, --data-binary keeps them)"
    )
    assert lake.table("t/_rejects").scan().read_all()["raw"].to_pylist() == [body]


@pytest.mark.parametrize("content_type", ["text/csv", JSON, "application/x-ndjson"])
@pytest.mark.parametrize("body", [b"", b" \r\n\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_body_without_anything_is_empty_in_every_format(lake: alluvia.Lake, body: bytes, content_type: str) -> None:
    lake.create_events("t")
    status, answer, _ = post("/v1/events/t", body, content_type)
    reason = "the body is empty: send a JSON object, an array of them, or one per line"
    assert (status, json.loads(answer)) == (400, {"error": reason})


def test_rows_of_csv_may_end_in_carriage_returns_alone(lake: alluvia.Lake) -> None:
    lake.create_events("t", pa.schema([("n", pa.int64()), ("note", pa.string())]))
    assert post("/v1/events/t", b'event_id,n,note\ra,1,"x\ry\nz"\r\rb,2,\r\nc,3,w', "text/csv")[0] == 200
    assert [(row["n"], row["note"]) for row in rows(lake)] == [(1, "x\ry\nz"), (2, None), (3, "w")]
    status, answer, _ = post("/v1/events/t", b'event_id,"no\rte"\nd,x\ry\n', "text/csv")
    assert (status, json.loads(answer)["errors"][0]["reason"]) == (
        400, "not valid CSV: a carriage return (\\r) stands outside quotes",
    )  # fmt: skip


def test_a_form_is_an_event_and_json_of_curl_stays_json(lake: alluvia.Lake) -> None:
    lake.create_events("t", pa.schema([("n", pa.int64()), ("tag", TEXTS)]))
    form = "application/x-www-form-urlencoded"
    assert post("/v1/events/t", b"event_id=a&n=%20+7&x=%C3%A4&x=", form)[0] == 200
    assert post("/v1/events/t", b' {"event_id":"b","n":8}', form)[0] == 200
    assert post("/v1/events/t", b"nonsense", form)[0] == 400
    assert [(row["n"], row["properties"]) for row in rows(lake)] == [(7, {"x": ["ä", ""]}), (8, {})]


@pytest.mark.parametrize("mode", ["structured", "batch", "binary"])
def test_cloudevents_in_every_mode_make_the_same_row(lake: alluvia.Lake, mode: str) -> None:
    said = CLOUD_EVENT | {"time": "2020-01-01T00:00:00Z", "datacontenttype": "application/json"}
    body, kind, headers = {
        "structured": (said, "application/cloudevents+json; charset=utf-8", {}),
        "batch": ([said], "application/cloudevents-batch+json", {}),
        "binary": ({"total": 5}, "application/json", BINARY | {"ce-time": "2020-01-01T00:00:00Z"}),
    }[mode]
    for stored in (1, 0):
        status, answer, _ = post("/v1/events/t", json.dumps(body).encode(), kind, headers)
        assert (status, json.loads(answer)["stored"]) == (200, stored)
    [row] = rows(lake)
    assert (row["event_id"], row["source"], row["event"]) == ("A1", "/shop", "order.placed")
    assert row["ts"] == datetime(2020, 1, 1, tzinfo=UTC)
    assert row["properties"] == {
        "specversion": "1.0", "type": "order.placed", "datacontenttype": "application/json", "data": {"total": 5},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "content_type", "data"),
    [
        (b'{"a":1.10}', "application/json", {"data": {"a": 1.1}}),
        (b"[1]", "application/vnd.x+json", {"data": [1]}),
        ("ä".encode(), "text/plain", {"data": "ä"}),
        ("ä".encode("latin-1"), "text/plain; charset=iso-8859-1", {"data": "ä"}),
        (b"\xff", "text/plain", {"data_base64": "/w=="}),
        (b"\x00\x01", "application/octet-stream", {"data_base64": "AAE="}),
        (b"", "application/json", {}),
    ],
)
def test_the_data_of_a_binary_cloudevent(
    lake: alluvia.Lake, body: bytes, content_type: str, data: dict[str, object]
) -> None:
    headers = BINARY | {"ce-subject": '"Euro%20%E2%82%AC \\"x\\""', "ce-id": "%41"}
    assert post("/v1/events/t", body, content_type, headers)[0] == 200
    [row] = rows(lake)
    assert row["event_id"] == "A"
    said = {"specversion": "1.0", "type": "order.placed", "subject": 'Euro € "x"', "datacontenttype": content_type}
    assert row["properties"] == said | data


def test_broken_cloudevents_are_rejects(lake: alluvia.Lake) -> None:
    lake.create_events("t")
    for body, kind, headers, reason in (
        (
            b'{"id":"1","source":"/s","specversion":"1.0"}',
            "application/cloudevents+json",
            {},
            "type: a CloudEvent needs",
        ),
        (b"{", JSON, BINARY, "data: not valid JSON"),
        (b"<x/>", "application/cloudevents+xml", {}, "is not supported: send CloudEvents as JSON"),
    ):
        status, answer, _ = post("/v1/events/t", body, kind, headers)
        assert status == (415 if "is not supported" in reason else 400)
        assert reason in json.loads(answer)["errors"][0]["reason"]
    raws = [row["raw"] for row in lake.table("t/_rejects").scan().read_all().to_pylist()]
    assert b"<x/>" in raws
    assert any(b'"data_base64":"ew=="' in raw and b'"id":"A1"' in raw for raw in raws)


@pytest.mark.parametrize("body", [b"{", b"{}"])
@pytest.mark.parametrize("odd", [{"ce-specversion": "\ud800"}, {"ce-a": "\udfff"}, {"ce-\ud800": "a"}])
def test_half_a_character_in_a_header_is_a_question_mark(lake: alluvia.Lake, odd: dict[str, str], body: bytes) -> None:
    lake.create_events("t")
    assert post("/v1/events/t", body, JSON, BINARY | odd)[0] == (200 if body == b"{}" else 400)
    kept = lake.table("t" if body == b"{}" else "t/_rejects").to_arrow().to_pylist()
    assert "?" in str(kept[0]["properties"] if body == b"{}" else kept[0]["raw"])


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


@pytest.mark.parametrize(
    ("path", "body", "content_type", "encoding", "reason"),
    [
        ("/v1/events/t", b"\x82\x01", "application/x-msgpack", "", "MessagePack is not supported: send JSON"),
        (
            "/v1/events/t",
            b'--x\r\nContent-Disposition: form-data; name="data"\r\n\r\n{}\r\n--x--',
            "multipart/form-data; boundary=x",
            "",
            "multipart/form-data is not supported here: send events as JSON, and files to POST /v1/upload/{table}",
        ),
        ("/v1/events/t", b"{}", JSON, "snappy", "Content-Encoding 'snappy' is not supported"),
        ("/v1/logs", b"{}", JSON, "snappy", "Content-Encoding 'snappy' is not supported"),
        ("/v1/logs", b"{}", "text/plain", "", "Content-Type: 'text/plain' is not supported: send application"),
        (
            "/v1/upload/t",
            b"a\n1\n",
            "text/csv",
            "snappy",
            "Content-Encoding 'snappy' is not supported",
        ),
    ],
)
def test_what_is_never_read_is_answered_so(
    lake: alluvia.Lake, path: str, body: bytes, content_type: str, encoding: str, reason: str
) -> None:
    for name in ("t", "logs"):
        lake.create_events(name)
    status, answer, _ = post(path, body, content_type, {"content-encoding": encoding})
    assert status == 415
    assert reason.encode() in answer
    if path == "/v1/events/t":
        assert lake.table("t/_rejects").scan().read_all()["raw"].to_pylist() == [body]
        assert post(path, b'{"n":1}', content_type)[0] == 200  # the body decides


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


@pytest.mark.parametrize(
    ("name", "body", "content_type", "headers"),
    [pytest.param(*each, id=name) for each, name in zip(SAMPLES, IDS, strict=True) if any(odd_nodes(each[1]))],
)
def test_no_odd_value_in_any_place_is_the_functions_fault(
    lake: alluvia.Lake, name: str, body: bytes, content_type: str, headers: Mapping[str, str]
) -> None:
    """Each body is read; those that become events go on to rows, all at once."""
    form = by_name(name)
    events: list[RawEvent] = []
    rejects: list[Reject] = []
    for odd in odd_nodes(body):
        sent = SentBody({"content-type": content_type, **headers}, odd, NOW_US)
        found = form.read(sent, Limits())
        form.key(sent, found)
        events += [event._replace(position=at) for at, event in enumerate(found.events, len(events))]
        rejects += found.rejects
    done = ingest_batch(lake.catalog, "t", events, rejects, arrival_us=NOW_US, create=True)
    assert done.accepted > 0
    assert done.accepted + done.rejected == len(events) + len(rejects)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_comes_is_never_the_functions_fault(lake: alluvia.Lake, data: st.DataObject) -> None:
    name, body, content_type, headers = data.draw(st.sampled_from(SAMPLES))
    text = data.draw(st.one_of(damaged(body), st.binary(max_size=40)))
    header = data.draw(st.sampled_from(["content-type", "content-encoding", "idempotency-key", "ce-id", "ce-time"]))
    odd = {header: data.draw(st.text(st.characters(codec="latin-1"), max_size=12))} if data.draw(st.booleans()) else {}
    request = Request.read(request_of("/v1/x", text, content_type, {**headers, **odd}), "")
    settings = IngestSettings.read({"ALLUVIA_CREATE_TABLES": "true"})
    answer = take_body(request, "t", name, settings, warm_lake.lake())
    assert answer["statusCode"] < 500
