"""A store that refuses until its operator mends something: senders are asked to come again, and learn nothing of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

import alluvia
from alluvia.errors import StoreRefused
from alluvia.events.sources.definition import KEY
from alluvia.flight.statuses import status_of
from alluvia.serverless import warm_lake
from alluvia.serverless.http import RETRY_AFTER_SECONDS
from functions.ingest.handler import handler as ingest
from functions.query.handler import handler as query
from tests.access import grant, token
from tests.s3server import S3Server
from tests.webhooks import event_of

LOG = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "x"}}]}]}]}
POSTS = {"/v1/events/t": {"event": "x"}, "/v1/webhooks/hook": {"event": "x"}, "/v1/logs": LOG}


@pytest.fixture
def refusing(s3_server: S3Server) -> Iterator[S3Server]:
    yield s3_server
    s3_server.inject()


@pytest.fixture
def lake(refusing: S3Server) -> Iterator[alluvia.Lake]:
    opened = alluvia.connect(f"s3://{refusing.new_bucket()}/lake", **refusing.options)
    opened.store.put(KEY, b'[hook]\nkind = "open"\ntable = "t"\n')
    opened.create_events("t")
    with warm_lake.using(opened):
        yield opened


def refuse(server: S3Server, *methods: str) -> None:
    server.inject(*({"method": each, "match": ".*", "fault": "status:403", "times": 99} for each in methods))


def check(answer: Mapping[str, Any], log: str) -> None:
    assert (answer["statusCode"], answer["headers"]["Retry-After"]) == (503, str(RETRY_AFTER_SECONDS))
    assert "the storage refuses requests" in answer["body"]
    assert not any(word in answer["body"] for word in ("bucket", "AccessDenied", "parquet", "_delta_log"))
    assert "in the bucket test-" in log
    assert "AccessDenied" in log


@pytest.mark.parametrize("path", POSTS)
def test_events_are_not_the_senders_fault(
    path: str, lake: alluvia.Lake, refusing: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    sent = event_of(path, json.dumps(POSTS[path]).encode(), {"content-type": "application/json"})
    refuse(refusing, "PUT")
    answer = ingest(sent, None)
    check(answer, caplog.text)
    refusing.inject()
    assert ingest(sent, None)["statusCode"] == 200


def test_a_query_is_not_its_senders_fault(
    lake: alluvia.Lake, refusing: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    refuse(refusing, "GET")
    check(query(event_of("/q", b'{"query": "SELECT * FROM t"}'), None), caplog.text)


def test_a_token_is_not_wrong_because_no_key_can_be_read(
    lake: alluvia.Lake,
    refusing: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("ALLUVIA_AUTH", "tokens")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    bearer = {"authorization": f"Bearer {token(lake, grant('append:t'))}"}
    refuse(refusing, "GET")
    check(ingest(event_of("/v1/events/t", b'{"event": "x"}', bearer), None), caplog.text)


def test_flight_sql_says_no_more() -> None:
    code, text = status_of(StoreRefused("S3 refuses t/a in the bucket b (AccessDenied)"))
    assert (code, "bucket" in text, "the storage refuses requests" in text) == (
        grpc.StatusCode.UNAVAILABLE,
        False,
        True,
    )
