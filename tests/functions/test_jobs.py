"""Jobs of the stack: started in a function of their own, which puts results into S3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from botocore.exceptions import ClientError

import alluvia
from alluvia.operations.results.jobs import FAILED, end_job, find_job
from alluvia.serverless import job_starting
from functions.query import handler as query
from tests.access import grant, token
from tests.functions.test_large_results import rows
from tests.functions.test_query import Answer, error_of, event
from tests.s3server import S3Server


class Lambda:
    """What invokes functions: it keeps what is to be run, as Lambda does with events."""

    def __init__(self) -> None:
        self.refuses = False
        self.events: list[bytes] = []

    def invoke(self, **given: Any) -> None:
        if self.refuses:
            raise ClientError({"Error": {"Code": "TooManyRequestsException"}}, "Invoke")
        assert (given["FunctionName"], given["InvocationType"]) == ("arn:jobs:live", "Event")
        self.events.append(given["Payload"])

    def run(self) -> list[Any]:
        done = [query.handler(json.loads(payload), None) for payload in self.events]
        self.events.clear()
        return done


@pytest.fixture(scope="module")
def lake(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[alluvia.Lake]:
    s3_server.inject()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("keys")))
        lake = alluvia.connect(f"s3://{s3_server.new_bucket()}/lake", **s3_server.options)
        patch.setenv("ALLUVIA_LAKE", lake.uri)
        patch.setenv("ALLUVIA_ENDPOINT_URL", s3_server.endpoint_url)
        patch.setenv("AWS_ACCESS_KEY_ID", s3_server.options["access_key_id"])
        patch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.options["secret_access_key"])
        patch.setenv("ALLUVIA_MAX_RESULT_BYTES", "100000")
        patch.setenv("ALLUVIA_JOBS_FUNCTION", "arn:jobs:live")
        lake.create_table("totals", {"name": "string", "n": "long"}).append(rows())
        yield lake


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Lambda:
    found = Lambda()
    monkeypatch.setattr(job_starting, "_client", lambda: found)
    return found


def send(sql: str, key: str = "", bearer: str = "") -> Answer:
    sent = event(json.dumps({"query": sql, "mode": "async"}))
    headers = {"idempotency-key": key, "authorization": f"Bearer {bearer}" if bearer else ""}
    return query.handler(sent | {"headers": {name: value for name, value in headers.items() if value}}, None)


def at(path: str, bearer: str = "", **headers: str) -> Answer:
    path, _, values = path.partition("?")
    sent = event("", method="GET", path=path) | {"rawQueryString": values}
    own = {"authorization": f"Bearer {bearer}"} if bearer else {}
    return query.handler(sent | {"headers": own | headers}, None)


def test_a_job_runs_in_the_function_that_is_named(lake: alluvia.Lake, functions: Lambda) -> None:
    sent = send("SELECT * FROM totals ORDER BY n")
    path = sent["headers"]["Location"]
    assert (sent["statusCode"], json.loads(at(path)["body"])["state"]) == (202, "queued")
    twice = functions.events * 2  # Lambda may call it again
    functions.events = twice
    assert [each["state"] for each in functions.run()] == ["done", None]
    told = json.loads(at(path)["body"])
    assert (told["state"], told["rows"], told["requests"] > 0, told["dollars"] > 0) == ("done", 200, True, True)
    link = at(told["result"])
    with urlopen(link["headers"]["Location"], timeout=30) as found:
        assert [json.loads(line) for line in found] == rows()


def test_what_could_not_be_started_is_started_when_it_is_sent_again(lake: alluvia.Lake, functions: Lambda) -> None:
    functions.refuses = True
    refused = send("SELECT 1 AS x", "key")
    assert (refused["statusCode"], "the job could not be started" in error_of(refused)) == (503, True)
    functions.refuses = False
    path = send("SELECT 1 AS x", "key")["headers"]["Location"]
    assert [each["state"] for each in functions.run()] == ["done"]
    assert send("SELECT 1 AS x", "key")["headers"]["Location"] == path
    assert functions.events == []


def test_a_job_keeps_all_digits_of_its_parameters(lake: alluvia.Lake, functions: Lambda) -> None:
    body = '{"query": "SELECT $a AS a, $b AS b", "mode": "async", "parameters": {"a": %d, "b": %s}}'
    numbers = (10**38 - 1, "-0.12345678901234567890")
    sent = [query.handler(event(body % numbers) | {"headers": {"idempotency-key": "digits"}}, None) for _ in range(2)]
    assert [each["statusCode"] for each in sent] == [202, 202]
    assert next(each["state"] for each in functions.run()) == "done"
    link = at(json.loads(at(sent[0]["headers"]["Location"])["body"])["result"])
    with urlopen(link["headers"]["Location"], timeout=30) as found:
        assert found.read() == b'{"a":%d,"b":%s}\n' % (numbers[0], numbers[1].encode())


def test_a_job_keeps_the_types_of_its_parameters(lake: alluvia.Lake, functions: Lambda) -> None:
    kept = {"a": {"$decimal": "0.10"}, "b": {"$timestamp_ntz": "2026-11-20T10:00:00"}, "c": [{"$double": "-Infinity"}]}
    body = {"query": "SELECT typeof($a) AS a, typeof($b) AS b, $c::VARCHAR AS c", "mode": "async", "parameters": kept}
    sent = query.handler(event(json.dumps(body)), None)
    assert next(each["state"] for each in functions.run()) == "done"
    link = at(json.loads(at(sent["headers"]["Location"])["body"])["result"])
    with urlopen(link["headers"]["Location"], timeout=30) as found:
        assert json.loads(found.read()) == {"a": "DECIMAL(2,2)", "b": "TIMESTAMP", "c": "[-inf]"}


def test_a_job_whose_parameters_are_nested_too_deeply_is_not_taken(lake: alluvia.Lake, functions: Lambda) -> None:
    body = '{"query": "SELECT $a", "mode": "async", "parameters": {"a": %s}}' % ("[" * 300 + "]" * 300)
    answer = query.handler(event(body), None)
    assert (answer["statusCode"], error_of(answer).partition(":")[0]) == (
        400,
        "parameter $a is nested more than 32 levels deep",
    )
    assert functions.events == []


def test_a_bug_ends_a_job_too(lake: alluvia.Lake, functions: Lambda, monkeypatch: pytest.MonkeyPatch) -> None:
    path = send("SELECT 1")["headers"]["Location"]
    monkeypatch.setattr("functions.query.running_jobs.run_query", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        functions.run()
    told = json.loads(at(path)["body"])
    assert (told["state"], told["status"], told["error"]) == ("failed", 500, "internal error")


def test_without_a_function_there_are_no_jobs(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALLUVIA_JOBS_FUNCTION")
    refused = send("SELECT 1")
    assert (refused["statusCode"], "mode: this server runs no jobs" in error_of(refused)) == (400, True)
    assert query.handler({"query": "SELECT 1", "mode": "async"}, None)["statusCode"] == 400


def test_so_many_jobs_at_once(lake: alluvia.Lake, functions: Lambda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_JOB_CONCURRENCY", "2")
    assert [send("SELECT 1 AS x")["statusCode"] for _ in range(2)] == [202, 202]
    refused = send("SELECT 1 AS x", "later")
    assert (refused["statusCode"], refused["headers"]["Retry-After"]) == (429, "30")
    assert "2 jobs are queued or running" in error_of(refused)
    assert len(functions.events) == 2
    functions.run()
    assert send("SELECT 1 AS x", "later")["statusCode"] == 202
    assert [each["state"] for each in functions.run()] == ["done"]


def test_no_caller_takes_all_places(lake: alluvia.Lake, functions: Lambda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_JOB_CONCURRENCY", "3")
    first, second = (token(lake, grant("read:totals")) for _ in range(2))
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")

    def asks(bearer: str, *keys: str) -> list[int]:
        answers = [send("SELECT 1 AS x", key, bearer) for key in keys]
        refused.extend(error_of(each) for each in answers if each["statusCode"] == 429)
        return [each["statusCode"] for each in answers]

    refused: list[str] = []
    assert asks(first, "", "", "", "later") == [202, 202, 429, 429]
    assert asks(second, "", "", "") == [202, 429, 429]
    own, all_taken = "you have 2 jobs queued or running", "3 jobs are queued or running"
    assert [each.partition(",")[0].partition(":")[0] for each in refused] == [own, own, all_taken, all_taken]
    assert [each["state"] for each in functions.run()] == ["done"] * 3
    assert asks(second, "", "", "") == [202, 202, 429]  # what was refused keeps no place
    assert asks(first, "later", "") == [202, 429]
    assert [each["state"] for each in functions.run()] == ["done"] * 3
    monkeypatch.setenv("ALLUVIA_JOB_CONCURRENCY", "1")
    assert asks(first, "", "") == [202, 429]  # the only place there is
    functions.run()


def test_a_published_query_is_a_job_for_who_may_run_it_and_tells_its_rows_alone(
    lake: alluvia.Lake, functions: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.publish_query("by_n", "SELECT n FROM totals WHERE n >= $least ORDER BY n", {"least": "int=0"})
    lake.publish_query("wrong", "SELECT name::INT AS n FROM totals")
    guest, other = token(lake, grant("query:by_n query:wrong")), token(lake, grant("query:by_n"))
    reader = token(lake, grant("read:totals"))
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")

    def job(path: str, bearer: str, **headers: str) -> str:
        sent = at(path, bearer, prefer="respond-async", **headers)
        assert (sent["statusCode"], sent["headers"].get("Preference-Applied")) == (202, "respond-async")
        return str(sent["headers"]["Location"])

    mine, failed = job("/v1/queries/by_n.ndjson?least=198", guest), job("/v1/queries/wrong.json", guest)
    own = job("/v1/queries/by_n.csv", reader, **{"idempotency-key": "once"})
    assert own == job("/v1/queries/by_n.csv", reader, **{"idempotency-key": "once"})
    assert {each["state"] for each in functions.run() if each["state"]} == {"done", "failed"}

    told = json.loads(at(mine, guest)["body"])
    assert {name for name, value in told.items() if value is not None} == {
        *("id", "state", "asked", "started", "ended", "result", "rows", "result_bytes")
    }
    link = at(told["result"], guest)
    with urlopen(link["headers"]["Location"], timeout=30) as found:
        assert [json.loads(line) for line in found] == [{"n": 198}, {"n": 199}]
    assert not {name for name in link["headers"] if name in ("Alluvia-Versions", "Alluvia-Files-Read")}
    assert at(mine, other)["statusCode"] == at(mine, reader)["statusCode"] == 404

    refused = at(f"{failed}/result.json", guest)
    assert (refused["statusCode"], error_of(refused).partition(":")[0]) == (400, "the query failed")
    assert at("/v1/queries/wrong.json", guest)["body"] == refused["body"]  # as it is told without a job
    assert json.loads(at(own, reader)["body"])["versions"] == "totals=1"  # with rights of its own

    assert at("/v1/queries/by_n.csv", guest, prefer="respond-async", **{"alluvia-max-bytes": "9"})["statusCode"] == 403
    assert at("/v1/queries/other.csv", guest, prefer="respond-async")["statusCode"] == 403
    monkeypatch.delenv("ALLUVIA_JOBS_FUNCTION")
    assert at("/v1/queries/by_n.csv?least=199", guest, prefer="respond-async")["body"] == "n\r\n199\r\n"


def test_a_key_is_a_new_job_after_one_that_failed_in_passing(lake: alluvia.Lake, functions: Lambda) -> None:
    path = send("SELECT 2 AS x", "again")["headers"]["Location"]
    job = find_job(lake.store, lake.clock, path.rpartition("/")[2])
    assert job is not None
    end_job(lake.store, lake.clock, job, FAILED, {"status": 503, "error": "the server was stopped"})
    functions.events.clear()
    again = [send("SELECT 2 AS x", "again") for _ in range(2)]
    assert {each["headers"]["Location"] for each in again} != {path}
    assert [each["state"] for each in functions.run()] == ["done", None]
    path = send("SELECT nope", "wrong")["headers"]["Location"]
    functions.run()
    assert send("SELECT nope", "wrong")["headers"]["Location"] == path


def test_what_could_not_be_started_keeps_no_place(
    lake: alluvia.Lake, functions: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLUVIA_JOB_CONCURRENCY", "1")
    functions.refuses = True
    assert [send("SELECT 1 AS x")["statusCode"] for _ in range(2)] == [503, 503]
    functions.refuses = False
    assert send("SELECT 1 AS x")["statusCode"] == 202
    functions.run()
