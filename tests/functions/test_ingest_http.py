"""The ingest function over HTTP, direct mode: real payloads in, rows in a lake out."""

from __future__ import annotations

import base64
import gzip
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.clock import SystemClock
from alluvia.errors import Invalid
from alluvia.events.ingest.values import REJECTS_MAX
from alluvia.serverless import warm_lake
from functions.ingest.handler import handler
from functions.ingest.settings import EVENTS_MAX
from tests.s3server import CREDENTIALS, REGION, S3Server
from tests.samples import EVENTS, payload


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path))
    monkeypatch.setenv("ALLUVIA_CREATE_TABLES", "true")
    return alluvia.connect(str(tmp_path))


def call(event: dict[str, Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
    answer = handler(event, None)
    return answer["statusCode"], json.loads(answer["body"]), answer["headers"]


def post(
    body: bytes | str, table: str = "clicks", *, plain: bool = False, **headers: str
) -> tuple[int, dict[str, Any], dict[str, str]]:
    event = payload("ingest_api_gateway")
    event["rawPath"] = event["requestContext"]["http"]["path"] = f"/v1/events/{table}"
    event["headers"] = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = body if isinstance(body, bytes) else body.encode()
    event["body"] = raw.decode() if plain else base64.b64encode(raw).decode()
    event["isBase64Encoded"] = not plain
    return call(event)


def ids(lake: alluvia.Lake, table: str = "clicks") -> list[str]:
    return sorted(lake.table(table).scan(["event_id"]).read_all()["event_id"].to_pylist())


def test_a_request_of_api_gateway(lake: alluvia.Lake) -> None:
    status, body, headers = call(payload("ingest_api_gateway"))
    assert (status, headers["Content-Type"], headers["Alluvia-Table"]) == (200, "application/json", "access_log")
    assert body == {
        "accepted": 3, "stored": 3, "duplicates": 0, "rejected": 0, "conflicting": 0, "version": 1, "errors": [],
    }  # fmt: skip
    assert ids(lake, "access_log") == ["al-00000", "al-00001", "al-00002"]
    assert call(payload("ingest_api_gateway"))[1] == body | {"stored": 0, "duplicates": 3}


def test_a_request_of_a_function_url_with_gzip_and_a_key(lake: alluvia.Lake) -> None:
    event = payload("ingest_function_url")
    status, body, _ = call(event)
    assert (status, body["accepted"]) == (200, 3)
    key = event["headers"]["idempotency-key"]
    assert ids(lake, "github_webhooks") == [f"{key}/{position}" for position in range(3)]
    assert call(event)[1]["duplicates"] == 3


@pytest.mark.parametrize(
    "event",
    [[], None, "x", {}, {"tables": ["a"]}, {"requestContext": None}, {"requestContext": {"httpMethod": "POST"}}],
)
def test_an_event_that_is_no_request(lake: alluvia.Lake, event: Any) -> None:
    with pytest.raises(Invalid, match=r"must be a request of API Gateway or a function URL, payload 2.*SQS"):
        handler(event, None)
    assert lake.tables() == []


@pytest.mark.parametrize("headers", [{"authorization": None}, {"x": 7}, {"authorization": ["a"]}, ["a"], "a"])
def test_headers_that_are_no_texts(lake: alluvia.Lake, headers: Any) -> None:
    with pytest.raises(Invalid, match="headers: expected an object of texts"):
        handler(payload("ingest_api_gateway") | {"headers": headers}, None)
    assert lake.tables() == []


@pytest.mark.parametrize("body", [7, {"event": "a"}, ["a"], True])
def test_a_body_that_is_no_text(lake: alluvia.Lake, body: Any) -> None:
    status, answer, _ = call(payload("ingest_api_gateway") | {"body": body})
    assert (status, answer["error"]) == (400, "body: expected a text, as API Gateway sends it")


def test_a_stage_in_the_path(lake: alluvia.Lake) -> None:
    event = payload("ingest_api_gateway")
    event["requestContext"]["stage"] = "prod"
    event["rawPath"] = "/prod/v1/events/access_log"
    event["requestContext"]["http"]["path"] = event["rawPath"]
    assert call(event)[0] == 200
    assert len(ids(lake, "access_log")) == 3


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/healthz", 200, None),
        ("HEAD", "/healthz", 200, None),
        ("POST", "/healthz", 405, "GET, HEAD"),
        ("GET", "/v1/events/clicks", 405, "POST"),
        ("OPTIONS", "/v1/events/clicks", 405, "POST"),
        ("POST", "/v1/events", 404, None),
        ("POST", "/v1/events/", 404, None),
        ("POST", "/v1/events/clicks/_rejects", 404, None),
        ("GET", "/", 404, None),
    ],
)
def test_routes(lake: alluvia.Lake, method: str, path: str, status: int, allow: str | None) -> None:
    event = payload("ingest_function_url")
    event["rawPath"] = event["requestContext"]["http"]["path"] = path
    event["requestContext"]["http"]["method"] = method
    found, body, headers = call(event)
    assert (found, headers.get("Allow")) == (status, allow)
    assert body == {"status": "ok"} if status == 200 else "error" in body
    assert lake.tables() == []


def test_good_and_bad_events_together(lake: alluvia.Lake) -> None:
    status, body, _ = post(
        '{"event_id":"a"}\n{"event_id":"b","event":5}\nnonsense\n{"event_id":"c"}', Content_Type="application/x-ndjson"
    )
    assert status == 200
    assert (body["accepted"], body["duplicates"], body["rejected"]) == (2, 0, 2)
    assert body["errors"] == [
        {"position": 1, "reason": "event: expected a string, got a number"},
        {"position": 2, "reason": "not valid JSON: Expecting value at character 0"},
    ]
    raws = lake.table("clicks/_rejects").scan(["raw"]).read_all()["raw"].to_pylist()
    assert sorted(raws) == [b"nonsense", b'{"event_id":"b","event":5}']


@pytest.mark.parametrize(
    "body", ['{"event_id":', "[1,2]", '{"event_id":"a","event":5}', '{"a":1,"a":2}', "\x1f\x8b\x08garbage"]
)
def test_nothing_but_bad_events(lake: alluvia.Lake, body: str) -> None:
    status, answer, _ = post(body.encode("latin-1"))
    assert (status, answer["accepted"]) == (400, 0)
    assert answer["error"] == (
        "nothing was kept: there is no table 'clicks', and events that are all rejected create none"
    )
    assert lake.tables(rejects=True) == []
    lake.create_events("clicks")
    status, answer, _ = post(body.encode("latin-1"))
    assert "error" not in answer
    assert (status, answer["accepted"], answer["version"]) == (400, 0, None)
    assert answer["rejected"] == len(answer["errors"]) == lake.table("clicks/_rejects").scan().read_all().num_rows


def test_bodies_without_events(lake: alluvia.Lake) -> None:
    for body in ("", " \n"):
        status, answer, _ = post(body)
        assert (status, list(answer)) == (400, ["error"])
    status, answer, _ = post("[]")
    assert (status, answer["accepted"], answer["rejected"], answer["errors"]) == (200, 0, 0, [])
    assert lake.tables() == []
    event = payload("ingest_api_gateway")
    del event["body"]
    assert call(event)[0] == 400


def test_too_large_a_body_is_kept_and_refused(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_BODY_LIMIT_BYTES", "1000")
    monkeypatch.setenv("ALLUVIA_INFLATED_LIMIT_BYTES", "5000")
    lake.create_events("clicks")
    long, bomb = b'{"event_id":"a"}' + b" " * 1000, gzip.compress(b" " * 5001)
    for body in (long, bomb):
        status, answer, _ = post(body)
        assert (status, answer["accepted"], answer["rejected"]) == (413, 0, 1)
        assert "limit" in answer["errors"][0]["reason"]
    assert set(lake.table("clicks/_rejects").scan(["raw"]).read_all()["raw"].to_pylist()) == {long, bomb}


def test_too_many_events_are_kept_and_refused(lake: alluvia.Lake) -> None:
    lake.create_events("clicks")
    body = b"{}\n" * (EVENTS_MAX + 1)
    status, answer, _ = post(gzip.compress(body))
    assert (status, answer["accepted"], answer["rejected"]) == (413, 0, 1)
    assert lake.table("clicks/_rejects").scan(["raw"]).read_all()["raw"].to_pylist() == [body.strip()]


def test_an_event_over_the_limit(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_EVENT_LIMIT_BYTES", "100")
    status, answer, _ = post('[{"event_id":"a"},{"event_id":"b","x":"' + "y" * 100 + '"}]')
    assert (status, answer["accepted"], answer["rejected"]) == (200, 1, 1)
    assert ids(lake) == ["a"]


def test_only_the_first_errors_are_listed(lake: alluvia.Lake) -> None:
    _, answer, _ = post("\n".join(["{}", *["5"] * (REJECTS_MAX + 20)]))
    assert (answer["rejected"], len(answer["errors"]), answer["errors_left_out"]) == (REJECTS_MAX + 20, REJECTS_MAX, 20)
    assert lake.table("clicks/_rejects").scan().read_all().num_rows == REJECTS_MAX + 20


def test_an_answer_is_small_whatever_was_sent(lake: alluvia.Lake) -> None:
    name = json.dumps("\u0001" * 10_000)
    body = gzip.compress(b"\n".join([b"{}", *[f"{{{name}:{at},{name}:1}}".encode() for at in range(110)]]))
    assert len(body) < 200_000
    event = payload("ingest_api_gateway") | {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}
    for _ in range(2):
        answer = handler(event, None)
        assert (answer["statusCode"], json.loads(answer["body"])["rejected"]) == (200, 110)
        assert len(answer["body"]) < 150_000
    reasons = lake.table("access_log/_rejects").scan(["reason"]).read_all()["reason"].to_pylist()
    assert max(map(len, reasons)) <= 200
    for path in ("/" + "x" * 100_000, "/v1/events/" + "x" * 100_000):
        event["rawPath"] = event["requestContext"]["http"]["path"] = path
        status, refused, _ = call(event)
        assert (status in (400, 404), len(refused["error"]) <= 1000) == (True, True)


def test_times_that_cannot_be_read_are_told(lake: alluvia.Lake, capsys: pytest.CaptureFixture[str]) -> None:
    events = [
        {"event_id": "a", "ts": "gestern"},
        {"event_id": "b", "ts": "morgen"},
        {"event_id": "c", "ts": "2999-01-01"},
    ]
    _, body, headers = post(json.dumps(events))
    assert body["unreadable_times"] == {"events": 2, "field": "ts", "value": "gestern"}
    assert body["future_times"] == {"events": 1, "field": "ts", "value": "2999-01-01"}
    assert headers["Alluvia-Events"].endswith("conflicting=0, unreadable_times=2, future_times=1")
    assert "gestern" not in capsys.readouterr().out  # no log line has a value of an event
    _, body, _ = post('{"event_id": "d"}')
    assert "unreadable_times" not in body


def test_conflicting_events_are_told_apart(lake: alluvia.Lake) -> None:
    assert post('{"event_id":"a","n":1}')[1]["stored"] == 1
    status, answer, _ = post('[{"event_id":"a","n":2},{"event_id":"b"},{"n":1,"event_id":"a"}]')
    counts = ("accepted", "stored", "duplicates", "rejected", "conflicting")
    assert (status, [answer[name] for name in counts]) == (200, [2, 1, 1, 1, 1])
    assert answer["errors"] == [
        {"position": 0, "reason": "the content differs: another event with event_id 'a' came first"}
    ]
    status, answer, _ = post('{"event_id":"a","n":2}')
    assert (status, [answer[name] for name in counts], answer["version"]) == (400, [0, 0, 0, 1, 1], None)
    assert lake.table("clicks/_rejects").scan(["raw"]).read_all()["raw"].to_pylist() == [b'{"event_id":"a","n":2}']


def test_posts_create_no_more_tables_than_allowed(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_CREATE_TABLES_MAX", "2")
    assert [post("{}", table=name)[0] for name in ("a", "b", "c", "a")] == [200, 200, 404, 200]
    assert "ALLUVIA_CREATE_TABLES_MAX" in post("{}", table="c")[1]["error"]
    assert lake.tables() == ["a", "b"]
    lake.create_events("c")
    assert post("{}", table="c")[0] == 200


def test_bad_requests_name_the_fix(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    status, answer, _ = post("{}", table="Clicks-1")
    assert (status, "lower-case" in answer["error"]) == (400, True)
    status, answer, _ = post("{}", Idempotency_Key="k" * 256)
    assert (status, "Idempotency-Key" in answer["error"]) == (400, True)
    event = payload("ingest_function_url") | {"body": "not base64!"}
    assert call(event)[:2] == (400, {"error": "the body is marked as base64, but is not valid base64"})
    monkeypatch.delenv("ALLUVIA_CREATE_TABLES")
    status, answer, _ = post("{}", table="unknown")
    assert (status, "alluvia create unknown" in answer["error"]) == (404, True)
    assert lake.tables(rejects=True) == []


def test_tables_that_are_not_for_events(lake: alluvia.Lake) -> None:
    lake.create_table("plain", {"x": "long"})
    status, answer, _ = post('{"x":1}', table="plain")
    assert (status, "event_id" in answer["error"]) == (400, True)
    lake.create_events("odd", pa.schema([("by_number", pa.map_(pa.int64(), pa.string()))]))
    status, answer, _ = post('{"by_number":{}}', table="odd")
    assert (status, "by_number" in answer["error"]) == (400, True)


def test_text_bodies_hold_any_character(lake: alluvia.Lake) -> None:
    assert post('{"event_id":"é€😀\\u0000"}', plain=True)[0] == 200
    assert ids(lake) == ["é€😀\0"]
    event = payload("ingest_api_gateway") | {"body": '{"event_id":"\ud800"}'}
    assert call(event)[1]["errors"][0]["reason"].startswith("not valid UTF-8")


def test_many_threads_and_the_same_events(lake: alluvia.Lake) -> None:
    def request(number: int) -> dict[str, Any]:
        body = json.dumps([{"event_id": f"e{number // 2 * 5 + at}", "from": number // 2} for at in range(5)])
        status, answer, _ = post(body, table=f"clicks_{number // 2 % 2}")
        assert status == 200
        return answer

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(request, range(32)))
    assert sum(answer["accepted"] for answer in answers) == 160
    assert sum(answer["duplicates"] for answer in answers) == 80
    found = ids(lake, "clicks_0") + ids(lake, "clicks_1")
    assert sorted(found, key=lambda name: int(name[1:])) == [f"e{at}" for at in range(80)]


@pytest.mark.parametrize(("name", "events"), [("access_log", 9_999), ("github_webhooks", 255)])
def test_all_real_events_in_many_small_posts(lake: alluvia.Lake, name: str, events: int) -> None:
    lines = gzip.decompress((EVENTS / "data" / f"{name}.ndjson.gz").read_bytes()).splitlines()
    step = -(-len(lines) // 20)
    for start in range(0, len(lines), step):
        status, answer, _ = post(b"\n".join(lines[start : start + step]), table=name, Idempotency_Key=f"part-{start}")
        assert (status, answer["rejected"], answer["duplicates"]) == (200, 0, 0)
    assert len(set(ids(lake, name))) == events


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    uri = f"s3://{s3_server.new_bucket()}/lake"
    monkeypatch.setenv("ALLUVIA_LAKE", uri)
    monkeypatch.setenv("ALLUVIA_ENDPOINT_URL", s3_server.endpoint_url)
    monkeypatch.setenv("ALLUVIA_CREATE_TABLES", "true")
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)
    options: dict[str, Any] = s3_server.options
    return alluvia.connect(uri, **options)


def test_a_warm_function_makes_two_requests(bucket: alluvia.Lake, s3_server: S3Server) -> None:
    post('{"event_id":"a","ts":"2020-01-01T00:00:00Z"}')
    s3_server.requests()
    status, answer, _ = post(
        '[{"event_id":"b","ts":"2020-01-01T00:00:00Z"},{"event_id":"c","ts":"2020-01-01T10:00:00Z"}]'
    )
    assert (status, answer["accepted"]) == (200, 2)
    assert dict(s3_server.requests()) == {"PUT": 2}
    assert post('{"event_id":"b","ts":"2020-01-01T00:00:00Z"}')[1]["duplicates"] == 1
    assert dict(s3_server.requests()) == {"GET": 1}  # is the table that knows it still there
    assert ids(bucket) == ["a", "b", "c"]


@pytest.mark.slow
def test_a_store_that_fails_is_a_503_and_a_retry_heals_it(
    bucket: alluvia.Lake, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SystemClock, "sleep", lambda *_: None)
    post('{"event_id":"a"}')
    body = '{"event_id":"b"}\nbroken'
    s3_server.inject({"method": "PUT", "match": "/clicks/_delta_log/", "fault": "status:503", "times": 50})
    status, answer, headers = post(body)
    assert (status, headers["Retry-After"]) == (503, "2")
    assert re.search("send the same request again", answer["error"])
    s3_server.inject()
    status, answer, _ = post(body)
    assert (status, answer["accepted"], answer["duplicates"], answer["rejected"]) == (200, 1, 0, 1)
    assert ids(bucket) == ["a", "b"]
    assert bucket.table("clicks/_rejects").scan().read_all().num_rows == 1


def test_a_lost_answer_of_a_commit_makes_no_second_row(bucket: alluvia.Lake, s3_server: S3Server) -> None:
    post('{"event_id":"a"}')
    s3_server.inject({"method": "PUT", "match": "/clicks/_delta_log/", "fault": "lost", "times": 1})
    status, answer, _ = post('{"event_id":"b"}')
    assert (status, answer["accepted"], answer["duplicates"]) == (200, 1, 0)
    warm_lake._lakes.clear()  # a cold function
    assert post('{"event_id":"b"}')[1]["duplicates"] == 1
    assert ids(bucket) == ["a", "b"]


def test_events_and_files_create_no_table_over_a_view(lake: alluvia.Lake) -> None:
    lake.create_table("t", {"n": "long"})
    lake.sql("CREATE VIEW clicks AS SELECT count(*) AS rows FROM t")
    status, body, _ = post('{"event": "x"}')
    assert (status, body["error"]) == (400, "there is a view clicks: DROP VIEW clicks first, or choose another name")
    assert lake.tables() == ["t"]
    assert lake.sql("FROM clicks").to_pylist() == [{"rows": 0}]
