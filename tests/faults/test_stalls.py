"""A store that does not answer in time: a function answers before its invocation ends, and says truly what happened."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import alluvia
from alluvia.errors import AlluviaError, NoTimeLeft
from alluvia.pipelines import running
from alluvia.pipelines.marks import read_failure
from alluvia.serverless import derived_runs, warm_lake
from alluvia.serverless.deadlines import ANSWER_SECONDS, in_time
from alluvia.store.requests import SECONDS_MIN, STEPS, check_left, ending, seconds_left, within
from functions.ingest import handler as ingest
from functions.pipeline import handler as pipeline
from functions.query import handler as query
from tests.s3server import S3Server

FOREVER = "delay:90"


class Invocation:
    """The context of an invocation that ends after some seconds."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return int((self.end - time.monotonic()) * 1000)


class Frozen:
    """The context of an invocation that has some seconds left, whenever it is asked."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)


@pytest.fixture
def lake(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[alluvia.Lake]:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "function")
    monkeypatch.setenv("ALLUVIA_AUTH", "open")
    uri = f"s3://{s3_server.new_bucket()}/lake"
    with warm_lake.using(alluvia.connect(uri, **s3_server.options)) as lake:
        lake.create_events("t")
        assert post("0", 60)[0] == 200
        yield alluvia.connect(uri, **s3_server.options)


def post(event_id: str, seconds: float) -> tuple[int, dict[str, str], str]:
    return call(ingest.handler, "/v1/events/t", {"event_id": event_id}, seconds)


def call(handler: Any, path: str, body: object, seconds: float) -> tuple[int, dict[str, str], str]:
    event = {
        "rawPath": path,
        "headers": {},
        "requestContext": {"http": {"method": "POST", "path": path}, "stage": "$default"},
        "body": json.dumps(body),
    }
    answer = handler(event, Invocation(seconds))
    return answer["statusCode"], answer["headers"], answer["body"]


def ids(lake: alluvia.Lake) -> list[str]:
    return sorted(lake["t"].to_arrow()["event_id"].to_pylist())


def test_a_commit_whose_answer_does_not_come_is_of_unknown_outcome(lake: alluvia.Lake, s3_server: S3Server) -> None:
    s3_server.inject({"method": "PUT", "match": "t/_delta_log/", "fault": FOREVER, "times": 9})
    status, headers, body = post("1", 5)
    s3_server.inject()
    assert (status, headers["Retry-After"]) == (503, "2")
    assert "it is unknown whether" in body
    assert post("1", 60)[0] == 200
    assert ids(lake) == ["0", "1"]


def test_data_that_cannot_be_written_is_not_committed(lake: alluvia.Lake, s3_server: S3Server) -> None:
    s3_server.inject({"method": "PUT", "match": ".parquet", "fault": FOREVER, "times": 9})
    status, headers, body = post("1", 5)
    s3_server.inject()
    assert (status, headers["Retry-After"], "unknown" in body) == (503, "2", False)
    assert ids(lake) == ["0"]


def test_a_query_whose_tables_cannot_be_looked_at_is_answered(lake: alluvia.Lake, s3_server: S3Server) -> None:
    s3_server.inject({"method": "GET", "match": "_delta_log", "fault": FOREVER, "times": 99})
    status, headers, _ = call(query.handler, "/q", {"query": "SELECT * FROM t"}, 5)
    s3_server.inject()
    assert (status, headers["Retry-After"]) == (503, "2")
    assert call(query.handler, "/q", {"query": "SELECT event_id FROM t"}, 60)[0] == 200


def left(event: dict[str, Any], seconds: float) -> float | None:
    return in_time(lambda _event, _context: seconds_left())(event, Frozen(seconds))


def test_the_time_of_requests_ends_before_that_of_the_invocation(monkeypatch: pytest.MonkeyPatch) -> None:
    request: dict[str, Any] = {"requestContext": {"http": {}}}
    assert left(request, 20) is None  # a server has no such end
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "function")
    assert left(request, 20) == left({"Records": []}, 20) == 20 - ANSWER_SECONDS
    assert in_time(lambda _event, _context: seconds_left())(request, None) is None
    assert seconds_left() is None


def test_a_request_has_no_more_time_than_is_left() -> None:
    assert (within(30), within(3600)) == (30, 3600)
    for seconds, expected in {100: 30, 30: 30, 29.9: 20, 4: 2, 0.6: 1}.items():
        with ending(lambda seconds=seconds: seconds):  # type: ignore[misc]
            assert (within(30), within(3600)) == (
                expected,
                next(step for step in (*STEPS, 0) if step <= max(1, seconds)),
            )
            check_left()
    with ending(lambda: 0.4), pytest.raises(NoTimeLeft, match="too slow, and the request ran out of time"):
        check_left()


def test_the_last_request_of_an_invocation_fails_for_lack_of_time(lake: alluvia.Lake, s3_server: S3Server) -> None:
    s3_server.inject({"method": "GET", "match": "_delta_log", "fault": "status:503", "times": 99})
    with ending(lambda: SECONDS_MIN), pytest.raises(NoTimeLeft, match=r"S3 (did not serve|cannot be reached)"):
        lake.store.get("t/_delta_log/_last_checkpoint")
    s3_server.inject()


def test_a_pipelines_run_that_the_store_holds_up_leaves_a_record(
    lake: alluvia.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "all.sql").write_text("CREATE TABLE copy SCHEDULE ON CHANGE AS SELECT event_id FROM t")
    assert [each.error for each in lake.pipeline(tmp_path).run()] == [None]
    assert post("1", 60)[0] == 200
    invocation, real = Frozen(900), running.run_table

    def late(*given: Any) -> Any:
        invocation.seconds = derived_runs.RECORD_SECONDS + ANSWER_SECONDS
        return real(*given)

    monkeypatch.setattr(derived_runs, "run_table", late)
    with pytest.raises(AlluviaError, match=r"copy: NoTimeLeft: .* ran out of time"):
        pipeline.handler({}, invocation)
    failure = read_failure(lake.store, "copy")
    assert failure is not None
    assert failure.at_limit
