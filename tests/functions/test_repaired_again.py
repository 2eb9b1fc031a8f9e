"""Events that were rejected over HTTP and repaired by a replay, when their senders deliver them again as they were."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.events.ingest.messages import LIMIT_BYTES
from alluvia.serverless import warm_lake
from alluvia.store import CountingStore, MemoryStore
from functions.ingest.handler import handler
from tests.webhooks import NOW_US, event_of

NUMBERS = count()
JSON = {"content-type": "application/json"}
SETS = {"amount": "replace(amount, ',', '.')::double", "ts": "strptime(ts, '%d.%m.%Y')"}
CLOUD_EVENT = b'{"specversion":"1.0","source":"/shop","type":"order","id":"a","amount":"12,50"}'
BODIES: dict[str, tuple[bytes, Mapping[str, str]]] = {
    "object": (b'{"event_id":"a","amount":"12,50"}', JSON),
    "without a type": (b'{"event_id":"a","amount":"12,50"}', {}),
    "time": (b'{"event_id":"a","ts":"20.11.2026","amount":2}', JSON),
    "array": (b'[{"event_id":"a","amount":"1,5"},{"event_id":"b","properties":{"amount":"2,5"}}]', JSON),
    "lines": (b'{"event_id":"a","amount":"1,5"}\n{"event_id":"b"}', {"content-type": "application/x-ndjson"}),
    "key": (b'[{"amount":"1,5"},{"amount":2}]', {**JSON, "idempotency-key": "k"}),
    "csv": (b'event_id,amount\na,"12,50"\n', {"content-type": "text/csv"}),
    "form": (b"event_id=a&amount=12%2C50", {"content-type": "application/x-www-form-urlencoded"}),
    "cloudevent": (CLOUD_EVENT, {"content-type": "application/cloudevents+json"}),
}


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore(f"repaired-{next(NUMBERS)}"))


@pytest.fixture
def lake(store: CountingStore) -> Iterator[Lake]:
    with warm_lake.using(Lake(store, ManualClock(NOW_US))) as lake:
        columns = pa.schema([("amount", pa.float64())])
        lake.create_events("t", columns, properties={"alluvia.unreadable_time": "reject"})
        yield lake


def another(lake: Lake) -> Lake:
    """The lake as another process has it."""
    return Lake(lake.store, lake.clock)


def post(body: bytes, headers: Mapping[str, str] = JSON) -> tuple[int, dict[str, Any]]:
    answer = handler(event_of("/v1/events/t", body, headers), None)
    return answer["statusCode"], json.loads(answer["body"])


def counts(answer: Mapping[str, Any]) -> tuple[int, int, int]:
    return answer["stored"], answer["duplicates"], answer["rejected"]


def rows(lake: Lake) -> list[dict[str, Any]]:
    return sorted(another(lake)["t"].to_arrow().to_pylist(), key=lambda row: str(row["event_id"]))


def rejects(lake: Lake) -> list[dict[str, Any]]:
    return another(lake).table("t/_rejects").to_arrow().to_pylist()


@pytest.mark.parametrize("name", BODIES)
def test_a_repaired_event_that_comes_again_as_it_was_is_a_duplicate(name: str, lake: Lake) -> None:
    body, headers = BODIES[name]
    _, first = post(body, headers)
    count_of_events = first["stored"] + first["rejected"]
    assert first["rejected"] > 0
    assert another(lake)["t"].replay_rejects(values=SETS).stored == first["rejected"]
    before = rows(lake)
    for process in (lake, another(lake)):
        with warm_lake.using(process):
            status, again = post(body, headers)
        assert (status, counts(again)) == (200, (0, count_of_events, 0))
    assert (rows(lake), rejects(lake)) == (before, [])


def test_what_is_new_in_a_body_that_comes_again_is_stored_or_rejected(lake: Lake) -> None:
    post(b'[{"event_id":"a","amount":"1,5"}]')
    another(lake)["t"].replay_rejects(values=SETS)
    _, again = post(b'[{"event_id":"a","amount":"1,5"},{"event_id":"b","amount":2},{"event_id":"c","amount":"x"}]')
    assert counts(again) == (1, 1, 1)
    assert [row["raw"] for row in rejects(lake)] == [b'{"event_id":"c","amount":"x"}']


def test_a_reject_keeps_of_a_request_only_what_its_event_needs(lake: Lake) -> None:
    post(BODIES["array"][0])
    assert [row["given"] for row in rejects(lake)] == [None, None]


def test_an_event_that_was_too_large_is_a_duplicate_once_a_replay_has_stored_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLUVIA_EVENT_LIMIT_BYTES", "100")
    body = json.dumps([{"event_id": "a", "text": "x" * 200}, {"event_id": "b"}]).encode()
    assert counts(post(body)[1]) == (1, 0, 1)
    assert another(lake)["t"].replay_rejects().stored == 1
    assert counts(post(body)[1]) == (0, 2, 0)
    assert ([row["event_id"] for row in rows(lake)], rejects(lake)) == (["a", "b"], [])


def test_in_front_of_a_queue_and_behind_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event too large for a message is refused before the queue, one that does not fit behind it."""
    sent: list[bytes] = []
    monkeypatch.setenv("ALLUVIA_MODE", "queued")
    monkeypatch.setenv("ALLUVIA_QUEUE_URL", "https://sqs.example/q")
    monkeypatch.setattr("functions.ingest.events.sqs", lambda: None)
    monkeypatch.setattr("functions.ingest.events.send", lambda _client, _url, messages, _clock: sent.extend(messages))
    large = b'{"event_id":"large","text":"%b"}' % (b"x" * (LIMIT_BYTES - 60))
    body = b'[{"event_id":"a","amount":"1,5"},%b]' % large

    def delivered() -> dict[str, Any]:
        _, answer = post(body)
        messages = [{"messageId": "1", "body": each.decode(), "eventSource": "aws:sqs"} for each in sent]
        sent.clear()
        assert handler({"Records": messages}, None) == {"batchItemFailures": []}
        return answer

    assert delivered()["rejected"] == 1
    assert another(lake)["t"].replay_rejects(values=SETS).stored == 2
    before = rows(lake)
    again = delivered()
    assert (again["accepted"], again["rejected"]) == (2, 0)
    assert (rows(lake), rejects(lake)) == (before, [])


def test_what_a_reject_costs(lake: Lake, store: CountingStore) -> None:
    """The table is asked about a reject only if its rejects know it and do not hold it."""

    def cost(event_id: bytes) -> dict[str, int]:
        store.reset()
        post(b'{"event_id":"%b","amount":"1,5"}' % event_id)
        return dict(store.requests)

    cost(b"a")
    assert cost(b"b") == {"get": 1, "put": 2}
