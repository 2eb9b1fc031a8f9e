from __future__ import annotations

import base64
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.errors import Invalid
from alluvia.serverless.query_settings import QuerySettings
from functions.query import handler as query
from tests.s3server import S3Server
from tests.samples import payload

Answer = dict[str, Any]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    uri = str(tmp_path / "lake")
    monkeypatch.setenv("ALLUVIA_LAKE", uri)
    lake = alluvia.connect(uri)
    columns = {"ts": "timestamp", "status": "integer", "properties": "string"}
    logs = lake.create_table("access_log", columns, partition_by=["day(ts)"])
    for day in (17, 18, 19):
        times = [(datetime(2015, 5, day, hour, tzinfo=UTC), 200 + hour // 2) for hour in range(4)]
        logs.append([{"ts": ts, "status": status, "properties": f'{{"status":{status}}}'} for ts, status in times])
    hooks = lake.create_table("github_webhooks", {"event": "string"})
    hooks.append([{"event": name} for name in ("push", "push", "issues")])
    return lake


def event(body: str | bytes, *, accept: str | None = None, method: str = "POST", path: str = "/q") -> dict[str, Any]:
    text = body if isinstance(body, str) else base64.b64encode(body).decode()
    return {
        "version": "2.0",
        "rawPath": path,
        "headers": {} if accept is None else {"Accept": accept},
        "requestContext": {"http": {"method": method, "path": path}, "stage": "$default"},
        "body": text,
        "isBase64Encoded": isinstance(body, bytes),
    }


def ask(sql: str, accept: str | None = None) -> Answer:
    return query.handler(event(json.dumps({"query": sql}), accept=accept), None)


def error_of(answer: Answer) -> str:
    assert answer["headers"]["Content-Type"] == "application/json"
    body = json.loads(answer["body"])
    assert set(body) == {"error"}
    return str(body["error"])


def test_the_api_gateways_request(lake: alluvia.Lake) -> None:
    answer = query.handler(payload("query_api_gateway"), None)
    assert (answer["statusCode"], answer["headers"]["Content-Type"]) == (200, "application/json")
    assert json.loads(answer["body"]) == [
        {"day": f"2015-05-{day}", "status": status, "requests": 2} for day in (17, 18, 19) for status in ("200", "201")
    ]


def test_the_function_urls_request(lake: alluvia.Lake) -> None:
    answer = query.handler(payload("query_function_url"), None)
    assert (answer["statusCode"], answer["headers"]["Content-Type"]) == (200, "text/csv; charset=utf-8")
    assert answer["body"] == "event,deliveries\r\npush,2\r\nissues,1\r\n"


def test_a_direct_invocation(lake: alluvia.Lake) -> None:
    answer = query.handler(payload("query_invoke"), None)
    assert (answer["statusCode"], answer["body"]) == (200, '{"events":12}\n')
    assert query.handler({"query": "SELECT 1 AS x", "accept": "text/csv"}, None)["body"] == "x\r\n1\r\n"
    assert query.handler({"query": "SELEC 1"}, None)["statusCode"] == 400
    assert query.handler({}, None)["statusCode"] == 400


@pytest.mark.parametrize(
    "event",
    [[], None, "SELECT 1"]
    + [{"requestContext": context} for context in (None, {}, {"httpMethod": "POST", "path": "/q"}, {"http": None})],
)
def test_an_event_that_is_no_request(lake: alluvia.Lake, event: Any) -> None:
    with pytest.raises(Invalid, match=r"must be a request of API Gateway or a function URL, payload 2.*query"):
        query.handler(event, None)


def test_rows_are_ndjson_unless_the_caller_asks_otherwise(lake: alluvia.Lake) -> None:
    answer = ask("SELECT status, ts FROM access_log WHERE ts < '2015-05-17 02:00:00' ORDER BY ts", "*/*")
    assert answer["headers"]["Content-Type"] == "application/x-ndjson"
    assert not answer["isBase64Encoded"]
    assert answer["body"].splitlines() == [
        '{"status":200,"ts":"2015-05-17T00:00:00Z"}',
        '{"status":200,"ts":"2015-05-17T01:00:00Z"}',
    ]


def test_arrow_travels_as_base64(lake: alluvia.Lake) -> None:
    answer = ask("SELECT ts FROM access_log", "application/vnd.apache.arrow.stream")
    assert answer["isBase64Encoded"]
    table = pa.ipc.open_stream(io.BytesIO(base64.b64decode(answer["body"]))).read_all()
    assert table.schema.field("ts").type == pa.timestamp("us", tz="UTC")
    assert len(table) == 12


def test_a_large_text_travels_as_base64(lake: alluvia.Lake) -> None:
    answer = ask("SELECT i FROM range(200000) t(i)")
    assert answer["isBase64Encoded"]
    assert base64.b64decode(answer["body"]).endswith(b'{"i":199999}\n')


@pytest.mark.parametrize(
    ("sql", "status", "reason"),
    [
        ("SELECT nope FROM access_log", 400, 'Binder Error: Referenced column "nope" not found'),
        ("SELECT", 400, "Parser Error"),
        ("", 400, "the query is empty"),
        ("DROP TABLE access_log", 403, "only reads are allowed here"),
        ("SELECT 1; SELECT nope", 400, 'Binder Error: Referenced column "nope" was not found'),
        ("SELECT CAST('x' AS INT)", 400, "Conversion Error: Could not convert string 'x' to INT32"),
        (
            "SELECT CASE i WHEN 999999 THEN error('late') ELSE i END FROM range(1000000) t(i)",
            413,
            "larger than the limit",
        ),
        ("SELECT sum(CASE i WHEN 999999 THEN error('late') ELSE i END) FROM range(1000000) t(i)", 400, "late"),
        ("SELECT getenv('HOME')", 400, "getenv"),
        ("FROM read_text('/etc/passwd')", 400, "read_text"),
        ("FROM nothing", 404, "the tables are: access_log, github_webhooks"),
        ("FROM access_log(version => 99)", 404, "version 99 does not exist"),
        ("FROM access_log('1999-01-01')", 404, "did not exist yet"),
        ("FROM access_log('soon')", 400, "must be a timestamp"),
    ],
)
def test_a_query_that_fails_is_the_callers_error(lake: alluvia.Lake, sql: str, status: int, reason: str) -> None:
    answer = ask(sql)
    assert answer["statusCode"] == status
    assert reason in error_of(answer)
    assert lake.uri not in answer["body"]
    assert "Traceback" not in answer["body"]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "SELECT 1",
        "[]",
        '"SELECT 1"',
        "{}",
        '{"query": 1}',
        '{"query": null}',
        '{"sql": "SELECT 1"}',
        "{",
        b"\xff\xfe",
        "\ud800",
    ],
)
def test_a_body_without_a_query_is_told_what_to_send(lake: alluvia.Lake, body: str | bytes) -> None:
    answer = query.handler(event(body), None)
    assert answer["statusCode"] == 400
    assert "send" in error_of(answer)


def test_a_body_that_is_not_the_base64_it_claims(lake: alluvia.Lake) -> None:
    answer = query.handler({**event(b""), "body": "***"}, None)
    assert answer["statusCode"] == 400
    assert "marked" in error_of(answer)


def test_a_body_in_base64(lake: alluvia.Lake) -> None:
    assert query.handler(event(json.dumps({"query": "SELECT 'é' AS x"}).encode()), None)["body"] == '{"x":"é"}\n'


def test_other_paths_methods_and_forms(lake: alluvia.Lake) -> None:
    body = json.dumps({"query": "SELECT 1"})
    assert query.handler(event(body, path="/other"), None)["statusCode"] == 404
    refused = query.handler(event(body, method="DELETE"), None)
    assert (refused["statusCode"], refused["headers"]["Allow"]) == (405, "POST, GET, HEAD")
    refused = query.handler(event(body, method="GET", path="/sql"), None)
    assert (refused["statusCode"], refused["headers"]["Allow"]) == (405, "POST")
    assert ask("SELECT 1", "text/html")["statusCode"] == 406
    assert "text/csv" in error_of(ask("SELECT 1", "text/html"))


def test_the_name_of_a_stage_is_no_part_of_the_path(lake: alluvia.Lake) -> None:
    staged = event(json.dumps({"query": "SELECT 1 AS x"}), path="/prod/q")
    staged["requestContext"]["stage"] = "prod"
    assert query.handler(staged, None)["body"] == '{"x":1}\n'


def test_a_result_over_the_limit_names_it(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_RESULT_LIMIT_BYTES", "1000")
    assert ask("SELECT i FROM range(50) t(i)")["statusCode"] == 200
    answer = ask("SELECT i FROM range(500) t(i)")
    assert answer["statusCode"] == 413
    assert "limit of 1000 bytes: add a LIMIT" in error_of(answer)


def test_a_query_over_its_time_names_it(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_QUERY_TIMEOUT_SECONDS", "1")
    answer = ask("SELECT count(*) FROM range(100000000000) t(i) WHERE hash(i) = 1")
    assert answer["statusCode"] == 422
    assert "longer than the 1 seconds allowed" in error_of(answer)


def test_a_query_over_its_memory_names_it(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_QUERY_MEMORY_MB", "50")
    answer = ask("SELECT len(list(hash(i))) FROM range(20000000) t(i)")
    assert answer["statusCode"] == 422
    assert "more memory than the 50 MB allowed" in error_of(answer)


def test_each_query_sees_the_newest_version(lake: alluvia.Lake) -> None:
    assert ask("SELECT count(*) AS c FROM github_webhooks")["body"] == '{"c":3}\n'
    alluvia.connect(lake.uri).table("github_webhooks").append([{"event": "fork"}])
    assert ask("SELECT count(*) AS c FROM github_webhooks")["body"] == '{"c":4}\n'


def test_a_damaged_file_is_the_lakes_error(lake: alluvia.Lake) -> None:
    (path,) = Path(lake.uri.removeprefix("file://")).glob("github_webhooks/*.parquet")
    path.write_bytes(b"garbage" * 100)
    answer = ask("SELECT count(event) FROM github_webhooks")
    assert answer["statusCode"] == 500
    assert "cannot be read" in error_of(answer)
    assert str(path.parent) not in answer["body"]


def test_a_store_that_does_not_answer_is_503(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"s3://{s3_server.new_bucket()}/lake"
    table = alluvia.connect(uri, clock=None, **s3_server.options).create_table("t", {"n": "long"})
    table.append([{"n": 1}])
    monkeypatch.setenv("ALLUVIA_LAKE", uri)
    monkeypatch.setenv("ALLUVIA_ENDPOINT_URL", s3_server.endpoint_url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.options["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.options["secret_access_key"])
    monkeypatch.setenv("AWS_DEFAULT_REGION", s3_server.options["region"])
    monkeypatch.setenv("ALLUVIA_FILE_CACHE_BYTES", "0")
    assert ask("SELECT sum(n) AS s FROM t")["body"] == '{"s":1}\n'
    table.append([{"n": 2}])  # a file that no process has read yet
    s3_server.inject({"method": "GET", "match": r"\.parquet", "fault": "status:503", "times": 100})
    answer = ask("SELECT sum(n) AS s FROM t")
    s3_server.inject()
    assert (answer["statusCode"], answer["headers"]["Retry-After"]) == (503, "2")
    assert "try again" in error_of(answer)
    assert s3_server.endpoint_url.removeprefix("http://") not in answer["body"]


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"ALLUVIA_QUERY_TIMEOUT_SECONDS": "-1"}, "ALLUVIA_QUERY_TIMEOUT_SECONDS is '-1'"),
        ({"ALLUVIA_QUERY_MEMORY_MB": "2GB"}, "ALLUVIA_QUERY_MEMORY_MB is '2GB'"),
        ({"ALLUVIA_RESULT_LIMIT_BYTES": "0"}, "ALLUVIA_RESULT_LIMIT_BYTES is '0'"),
        ({"ALLUVIA_FILE_CACHE_BYTES": "some"}, "ALLUVIA_FILE_CACHE_BYTES is 'some'"),
    ],
)
def test_settings_that_cannot_be_used_are_named(environment: dict[str, str], reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        QuerySettings.read(environment)


def test_a_function_without_a_lake_says_which_setting_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALLUVIA_LAKE", raising=False)
    with pytest.raises(Invalid, match="ALLUVIA_LAKE is not set"):
        query.handler({"query": "SELECT 1"}, None)


def test_settings_have_defaults() -> None:
    settings = QuerySettings.read({})
    assert (settings.limits.timeout_seconds, settings.limits.memory_bytes) == (25, None)
    assert settings.result_limit_bytes == 4_000_000


def test_csv_is_written_as_the_request_says(lake: alluvia.Lake) -> None:
    def sent(**fields: object) -> Answer:
        return query.handler(event(json.dumps({"query": "SELECT 1.5 AS n, 'a;b' AS t", **fields})), None)

    assert sent(format="csv", decimal_separator=",")["body"] == 'n;t\r\n1,5;"a;b"\r\n'
    assert sent(format="csv", delimiter="\t", bom=True)["body"] == "\ufeffn\tt\r\n1.5\ta;b\r\n"
    refused = sent(decimal_separator=",")
    assert (refused["statusCode"], "not for ndjson" in error_of(refused)) == (400, True)
