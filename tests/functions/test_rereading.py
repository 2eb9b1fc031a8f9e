"""Rejects of sources and of other formats, replayed: each becomes what it would have become, or stays a reject."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pytest

import alluvia
from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.events.formats.body_format import SentBody, by_name, reading_of
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.replay import Replayed
from alluvia.events.ingest.values import Limits
from alluvia.events.sources.definition import Source
from alluvia.events.sources.kinds.registry import KINDS
from alluvia.events.sources.lake_sources import change_sources
from alluvia.serverless import warm_lake
from alluvia.store import MemoryStore
from functions.ingest.handler import handler
from tests.formats import IDS, SAMPLES, otlp_json
from tests.webhooks import NOW_US, SECRETS, SETTINGS, event_of, identity, send, signed

NUMBERS = count()
JSON = {"content-type": "application/json"}
STAYS = Replayed(looked_at=1, remaining=1)
COLUMNS = ("event_id", "source", "event", "ts", "received_at", "properties")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_US)


@pytest.fixture
def lake(clock: ManualClock) -> Iterator[alluvia.Lake]:
    with warm_lake.using(Lake(MemoryStore(f"rereading-{next(NUMBERS)}"), clock)) as lake:
        lake.create_events("t", pa.schema([("status", pa.int64())]))
        yield lake


def define(lake: alluvia.Lake, clock: ManualClock, kind: str = "open", **settings: Any) -> Source:
    secret = {} if kind == "open" else {"secret": "env:SECRET"}
    made = Source.read("s", {"kind": kind, "table": "t", **secret, **SETTINGS.get(kind, {}), **settings})
    change_sources(lake.store, lambda sources: sources.update(s=made))
    clock.advance(31)  # what a warm process knows of sources is older now
    return made


def post(body: bytes, headers: Mapping[str, str] = JSON, path: str = "/v1/webhooks/s") -> dict[str, Any]:
    answer = handler(event_of(path, body, headers), None)
    found: dict[str, Any] = json.loads(answer["body"])
    return found


def rows(lake: alluvia.Lake, table: str = "t") -> list[dict[str, Any]]:
    return [{name: row[name] for name in COLUMNS} for row in lake[table].to_arrow().sort_by("event_id").to_pylist()]


def rejects(lake: alluvia.Lake) -> list[dict[str, Any]]:
    return lake.table("t/_rejects").to_arrow().to_pylist()


def replayed(lake: alluvia.Lake) -> Replayed:
    return lake["t"].replay_rejects()


def record(text: bytes) -> dict[str, str]:
    return {"data": base64.b64encode(text).decode()}


ORDER = b'{"order":{"id":"o-1","at":1600000000},"type":"paid"}'


@pytest.mark.parametrize("again", ["before", "after", "never"])
def test_an_event_that_a_source_refused_gets_what_the_source_says_now(
    again: str, lake: alluvia.Lake, clock: ManualClock
) -> None:
    define(lake, clock, event_id="order", event="type", ts="order.at")
    assert post(ORDER)["rejected"] == 1
    assert replayed(lake) == STAYS
    arrival_us = clock.now_us()
    define(lake, clock, event_id="order.id", event="type", ts="order.at")
    if again == "before":
        assert post(ORDER)["stored"] == 1
    once = Replayed(1, 1, 0, 1, 0) if again == "before" else Replayed(1, 1, 1, 0, 0)
    assert (replayed(lake), replayed(lake)) == (once, Replayed())
    if again == "after":
        assert post(ORDER)["duplicates"] == 1
    [row] = rows(lake)
    assert (row["event_id"], row["source"], row["event"]) == ("o-1", "s", "paid")
    assert row["ts"].timestamp() == 1_600_000_000
    assert (row["received_at"].timestamp() * 1_000_000 == arrival_us) == (again != "before")
    assert rejects(lake) == []


CALL = b'{"type":"track","event":"%b","messageId":"%b","properties":{"v":%b}}'
CLOUD_EVENT = b'{"specversion":"1.0","source":"/shop","type":"%b","id":"%b","data":{"v":%b}}'


@pytest.mark.parametrize(
    ("name", "one", "body", "content_type"),
    [
        ("segment", CALL, b'{"batch":[%b,%b]}', "application/json"),
        ("cloudevents", CLOUD_EVENT, b"[%b,%b]", "application/cloudevents-batch+json"),
    ],
)
def test_an_element_that_is_not_valid_is_read_again_by_itself(
    name: str, one: bytes, body: bytes, content_type: str, lake: alluvia.Lake, clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    define(lake, clock, format=name)
    post(body % (one % (b"Good", b"1", b"1"), one % (b"Bad", b"2", b"NaN")), {"content-type": content_type})
    assert [row["event"] for row in rows(lake)] == ["Good"]
    assert replayed(lake) == STAYS
    monkeypatch.setattr("alluvia.events.formats.events.decode", lambda raw: json.loads(raw.replace(b"NaN", b"5")))
    assert replayed(lake) == Replayed(looked_at=1, settled=1, stored=1)
    source = "s" if name == "segment" else "/shop"
    found = [(row["event_id"], row["event"], row["source"]) for row in rows(lake)]
    assert found == [("1", "Good", source), ("2", "Bad", source)]


def test_a_log_record_that_was_not_valid_keeps_its_resource_and_its_place(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    define(lake, clock, format="otlp")
    sent = otlp_json("a", "b", "c")
    sent["resourceLogs"][0]["scopeLogs"][0]["logRecords"][1]["traceId"] = "odd"  # type: ignore[index]
    body = json.dumps(sent).encode()
    for _ in range(2):
        assert post(body)["partialSuccess"]["rejectedLogRecords"] == "1"
    assert len(rejects(lake)) == 1
    assert replayed(lake) == STAYS
    monkeypatch.setattr("alluvia.events.formats.otlp_format._unhex", lambda text, _: text.encode())
    assert replayed(lake) == Replayed(looked_at=1, settled=1, stored=1)
    found = rows(lake)
    assert [row["event_id"].rpartition("/")[2] for row in found] == ["0", "1", "2"]
    said = [json.loads(row["properties"]) for row in found]
    assert [each["body"] for each in said] == ["a", "b", "c"]
    assert said[0]["resource"] == said[1]["resource"] == said[2]["resource"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_table_refused_becomes_what_it_would_have_been(
    kind: str, lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules that a replay asks need no header that was not kept, and no credential is kept."""
    monkeypatch.setenv("SECRET", SECRETS[kind])
    source = define(lake, clock, kind, table="u")
    lake.create_events("u", properties={"delta.constraints.none": "event_id IS NULL"})
    delivery = signed(source, now_us=clock.now_us())
    send(delivery.body, delivery.headers)
    assert rows(lake, "u") == []
    kept = lake.table("u/_rejects").to_arrow()["given"][0].as_py()
    for proof in KINDS[kind].sign(source, delivery, SECRETS[kind], clock.now_us()).values():
        assert proof not in kept or proof.isdigit()  # a time
    lake.sql("ALTER TABLE u DROP CONSTRAINT none")
    assert lake["u"].replay_rejects() == Replayed(looked_at=1, settled=1, stored=1)
    assert send(delivery.body, delivery.headers).status == 200
    [row] = rows(lake, "u")
    assert (row["event_id"], row["source"]) == (identity(kind, delivery.body), "s")


@pytest.mark.parametrize(("name", "body", "content_type", "more"), SAMPLES, ids=IDS)
def test_rows_of_each_format_are_those_of_a_request_that_fitted(
    name: str,
    body: bytes,
    content_type: str,
    more: Mapping[str, str],
    lake: alluvia.Lake,
    clock: ManualClock,
) -> None:
    headers = {"content-type": content_type, "idempotency-key": "k", **more}
    lake.create_events("u", properties={"delta.constraints.none": "event_id IS NULL"})
    found = []
    for table in ("u", "t"):
        define(lake, clock, table=table, format=name)
        handler(event_of("/v1/webhooks/s", body, headers), None)
        if table == "u":
            refused = len(lake.table("u/_rejects").to_arrow())
            lake.sql("ALTER TABLE u DROP CONSTRAINT none")
            assert lake["u"].replay_rejects() == Replayed(refused, refused, refused)
            handler(event_of("/v1/webhooks/s", body, headers), None)
        found.append(
            [{key: row[key] for key in ("event_id", "source", "event", "properties")} for row in rows(lake, table)]
        )
    assert found[0] == found[1] != []


def test_several_events_under_one_identity_keep_their_places(lake: alluvia.Lake, clock: ManualClock) -> None:
    define(lake, clock, event_id="header:X-Id")
    headers = {**JSON, "X-Id": "d-1", "x-other": "hunter2"}
    body = b'[{"n":1},{"n":2,"status":"x"}]'
    assert post(body, headers)["rejected"] == 1
    lake["t"].evolve(rename={"status": "status_number"})
    assert "hunter2" not in rejects(lake)[0]["given"]
    assert replayed(lake).stored == 1
    assert [row["event_id"] for row in rows(lake)] == ["d-1/0", "d-1/1"]
    assert post(body, headers)["duplicates"] == 2


def test_a_header_that_was_not_kept_gives_nothing_another_identity(lake: alluvia.Lake, clock: ManualClock) -> None:
    define(lake, clock, event_id="order")
    headers = {**JSON, "X-Id": "d-1"}
    assert post(ORDER, headers)["rejected"] == 1
    define(lake, clock, event_id="header:X-Id")
    assert replayed(lake) == STAYS
    assert post(ORDER, headers)["stored"] == 1
    assert [row["event_id"] for row in rows(lake)] == ["d-1"]


def test_a_source_that_was_removed(lake: alluvia.Lake, clock: ManualClock) -> None:
    """What it had said all about goes by that; what it had refused stays."""
    define(lake, clock, event_id="order.id", event="type")
    assert post(ORDER.replace(b"{", b'{"status":"x",', 1))["rejected"] == 1
    assert post(b'{"order":{"id":[]}}')["rejected"] == 1
    change_sources(lake.store, lambda sources: sources.clear())
    lake["t"].evolve(rename={"status": "status_number"})
    assert replayed(lake) == Replayed(looked_at=2, settled=1, stored=1, remaining=1)
    assert [(row["event_id"], row["source"], row["event"]) for row in rows(lake)] == [("o-1", "s", "paid")]
    lake.store.put("_alluvia/sources.toml", b'[s]\nkind = "what"\ntable = "t"\n')
    with pytest.raises(Invalid, match="source 's': kind: choose one of"):
        replayed(lake)


FIREHOSE = {"content-type": "application/json", "x-amz-firehose-request-id": "r-1"}
NEVER = {
    "bad base64": ("firehose", json.dumps({"records": [{"data": "!!!"}]}).encode(), FIREHOSE),
    "no data": ("firehose", json.dumps({"records": [{"event_id": "a"}]}).encode(), FIREHOSE),
    "a line of a record": ("firehose", json.dumps({"records": [record(b'{"a":1}x')]}).encode(), FIREHOSE),
    "no records": ("firehose", b'{"event_id":"a"}', FIREHOSE),
    "an unknown call": ("segment", b'{"type":"dance","messageId":"a"}', JSON),
    "a call in a batch": ("segment", b'{"batch":[{"type":"dance","messageId":"a"}]}', JSON),
    "a CloudEvent without an id": (
        "cloudevents",
        b'{"specversion":"1.0","source":"/a","type":"paid"}',
        {"content-type": "application/cloudevents+json"},
    ),
    "a batch of them": (
        "cloudevents",
        b'[{"specversion":"1.0","source":"/a","type":"paid"}]',
        {"content-type": "application/cloudevents-batch+json"},
    ),
    "one in binary mode": (
        "cloudevents",
        b"not json",
        {**JSON, "ce-specversion": "1.0", "ce-id": "a", "ce-source": "/a", "ce-type": "paid"},
    ),
    "a row of CSV": ("csv", b'a\n"{""event_id"":1}",2\n', {"content-type": "text/csv"}),
    "a row of CSV with two ends": ("csv", b"a,b\n1,2\r3,4\n", {"content-type": "text/csv"}),
    "a broken quote": ("csv", b'a,b\n1,"2\n{"event_id":3}\n', {"content-type": "text/csv"}),
    "OTLP": ("otlp", b'{"resourceLogs":7}', JSON),
    "MessagePack": ("fluentbit", b'{"event_id":"a"}', {"content-type": "application/msgpack"}),
}


@pytest.mark.parametrize("what", NEVER)
def test_what_its_format_cannot_read_stays(what: str, lake: alluvia.Lake, clock: ManualClock) -> None:
    name, body, headers = NEVER[what]
    define(lake, clock, format=name)
    assert send(body, headers).status in (200, 400, 415)
    assert len(rejects(lake)) == 1
    assert replayed(lake) == STAYS
    assert rows(lake) == []


@pytest.mark.parametrize("what", ["a CloudEvent without an id", "one in binary mode", "a row of CSV"])
def test_what_a_declared_format_cannot_read_stays(what: str, lake: alluvia.Lake) -> None:
    _, body, headers = NEVER[what]
    assert post(body, headers, "/v1/events/t")["rejected"] == 1
    assert replayed(lake) == STAYS
    assert rows(lake) == []


def test_events_that_a_format_read_keep_what_it_said(lake: alluvia.Lake, clock: ManualClock) -> None:
    """The clock of a call is corrected by when it was sent, which only its request told."""
    define(lake, clock, format="segment")
    call = {"type": "page", "messageId": "m-1", "status": "x", "timestamp": "2020-01-01T00:00:00Z"}
    body = json.dumps({"batch": [call], "sentAt": "2020-01-01T00:00:05Z"}).encode()
    arrival_us = clock.now_us()
    assert not post(body)["success"]
    lake["t"].evolve(rename={"status": "status_number"})
    define(lake, clock, format="segment", event="context.name")
    assert replayed(lake).stored == 1
    assert post(body)["success"]
    [row] = rows(lake)
    assert (row["event_id"], row["source"], row["event"]) == ("m-1", "s", "page")
    assert row["ts"].timestamp() * 1_000_000 == arrival_us - 5_000_000


def test_a_body_that_the_wrong_format_refused_is_read_by_the_right_one(lake: alluvia.Lake, clock: ManualClock) -> None:
    define(lake, clock, format="firehose")
    body = b'{"order":"o-1"}\n{"order":[]}\n{"order":"o-2"}\nbroken'
    send(body, {**JSON, "idempotency-key": "k"})
    assert len(rejects(lake)) == 1
    define(lake, clock, format="json", event_id="order")
    assert replayed(lake) == Replayed(looked_at=1, settled=1, stored=2)
    assert [row["event_id"] for row in rows(lake)] == ["o-1", "o-2"]
    assert sorted(row["raw"] for row in rejects(lake)) == [b"broken", b'{"order":[]}']
    again = post(body, {**JSON, "idempotency-key": "k"})
    assert (again["duplicates"], again["rejected"], len(rejects(lake))) == (2, 2, 2)
    assert replayed(lake) == Replayed(looked_at=2, remaining=2)


@pytest.mark.parametrize("name", ["firehose", "csv"])
def test_an_event_that_was_too_large_is_read_as_the_event_that_it_was(name: str, lake: alluvia.Lake) -> None:
    text = "x" * 300
    bodies = {
        "firehose": json.dumps({"records": [record(json.dumps({"event_id": "a", "text": text}).encode())]}).encode(),
        "csv": f"event_id,text,status\na,{text},7\n".encode(),
    }
    form, sent = by_name(name), SentBody({}, bodies[name], NOW_US)
    found = form.read(sent, Limits(event_bytes=100))
    ingest_batch(
        lake.catalog, "t", found.events, found.rejects, arrival_us=NOW_US, reading=reading_of(name, sent, found)
    )
    assert [row["reason"][:9] for row in rejects(lake)] == ["the event"]
    assert replayed(lake) == Replayed(looked_at=1, settled=1, stored=1)
    assert [(row["event_id"], json.loads(row["properties"])["text"]) for row in rows(lake)] == [("a", text)]
    assert lake["t"].to_arrow()["status"].to_pylist() == [7 if name == "csv" else None]


def test_a_reject_of_a_later_release_is_read(lake: alluvia.Lake) -> None:
    assert post(b'{"event_id":"a","status":"x"}', path="/v1/events/t")["rejected"] == 1
    place = lake.table("t/_rejects")
    place.update({"given": """'{"unheard":1,"event":"paid"}'"""})
    lake["t"].evolve(drop=["status"])
    assert replayed(lake) == Replayed(looked_at=1, settled=1, stored=1)
    assert [row["event"] for row in rows(lake)] == ["paid"]


def test_a_request_of_firehose_gives_its_id(lake: alluvia.Lake, clock: ManualClock) -> None:
    define(lake, clock, format="fluentbit")
    body = json.dumps({"records": [record(b'{"n":1}'), record(b'{"n":2}')]}).encode()
    headers = {**FIREHOSE, "content-type": "application/msgpack"}
    send(gzip.compress(body), {**headers, "content-encoding": "gzip"})
    define(lake, clock, format="firehose")
    assert replayed(lake) == Replayed(looked_at=1, settled=1, stored=2)
    send(body, headers)
    assert [row["event_id"] for row in rows(lake)] == ["firehose-r-1/0", "firehose-r-1/1"]


def test_a_form_and_an_event_within_one(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", SECRETS["github"])
    source = define(lake, clock, "github")
    body = urlencode({"payload": '{"action":"opened","number":7,"pull_request":{},"status":"x"}'}).encode()
    form = {"content-type": "application/x-www-form-urlencoded"}
    delivery = signed(source, body, clock.now_us(), **form)
    assert json.loads(send(body, delivery.headers).text)["rejected"] == 1
    lake["t"].evolve(rename={"status": "status_number"})
    assert replayed(lake).stored == 1
    assert json.loads(send(body, delivery.headers).text)["duplicates"] == 1
    assert [(row["event_id"], row["event"]) for row in rows(lake)] == [(identity("github", body), "pull_request")]


def test_events_that_went_through_the_queue(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer, which finds what does not fit, knows of the request what its message says."""
    sent: list[bytes] = []
    monkeypatch.setenv("ALLUVIA_MODE", "queued")
    monkeypatch.setenv("ALLUVIA_QUEUE_URL", "https://sqs.example/q")
    monkeypatch.setattr("functions.ingest.events.sqs", lambda: None)
    monkeypatch.setattr("functions.ingest.events.send", lambda _client, _url, messages, _clock: sent.extend(messages))
    define(lake, clock, format="cloudevents", event_id="order")
    said = {"specversion": "1.0", "id": "a", "source": "/a", "type": "paid", "status": "x", "order": "o-1"}
    body = json.dumps(said).encode()
    post(body, {"content-type": "application/cloudevents+json"})
    [message] = sent
    handler({"Records": [{"messageId": "1", "body": message.decode(), "eventSource": "aws:sqs"}]}, None)
    assert len(rejects(lake)) == 1
    define(lake, clock, format="cloudevents", event_id="status")
    lake["t"].evolve(rename={"status": "status_number"})
    assert replayed(lake).stored == 1
    assert [(row["event_id"], row["event"], row["source"]) for row in rows(lake)] == [("x", "paid", "s")]


def test_on_a_branch_the_sources_of_the_lake_count(lake: alluvia.Lake, clock: ManualClock) -> None:
    define(lake, clock, event_id="order")
    post(ORDER)
    define(lake, clock, event_id="order.id")
    fix = lake.branch("fix")
    assert fix["t"].replay_rejects().stored == 1
    assert [row["event_id"] for row in rows(fix)] == ["o-1"]
