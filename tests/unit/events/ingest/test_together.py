"""Requests of several threads in one commit: each is answered as if it had come alone."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import TableNotFound, Unavailable
from alluvia.events.ingest import pipeline
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.event_rows import to_rows
from alluvia.events.ingest.pipeline import Sent, ingest_batch, ingest_together
from alluvia.events.ingest.values import EventRows, IngestOutcome, Limits, Origin
from alluvia.store import MemoryStore, Store, Wrapper

T = TypeVar("T")
NUMBERS = count()
ARRIVAL_US = 1_700_000_000_000_000


class Gate(Wrapper):
    """A store that stops at the first commit of `clicks` until it is opened, counts requests, and may fail."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.opened = threading.Event()
        self.reached = False
        self.requests: Counter[str] = Counter()
        self.fails: Callable[[str], bool] = lambda _: False

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        if self.fails(key):
            raise Unavailable("the store went away")
        if key.startswith("clicks/_delta_log") and kind == "put_if_absent":
            self.reached = True
            assert self.opened.wait(30)
        self.requests[kind] += 1
        return send()


class Place:
    """A lake with a table `clicks`, and threads that send to it."""

    def __init__(self, properties: dict[str, str] | None = None) -> None:
        self.store = Gate(MemoryStore(f"together-{next(NUMBERS)}"))
        self.lake = Lake(self.store, ManualClock(ARRIVAL_US, next(NUMBERS)))
        self.store.opened.set()
        self.lake.create_events("clicks", pa.schema([("n", pa.int64())]), properties=properties)
        self.pool = ThreadPoolExecutor(20)

    def send(self, body: str, key: str | None = None) -> IngestOutcome:
        found = split(body.encode(), content_type="application/x-ndjson", content_encoding=None, limits=Limits())
        arrival_us = self.lake.clock.now_us()
        return ingest_batch(
            self.lake.catalog, "clicks", found.events, found.rejects, arrival_us=arrival_us, idempotency_key=key
        )

    def together(self, bodies: Sequence[str]) -> list[Future[IngestOutcome]]:
        """Have a request under way and others waiting for it; return those others."""
        self.store.opened.clear()
        self.store.reached = False
        first = self.pool.submit(self.send, '{"event_id":"first"}')
        line = ("clicks", False, None)
        self.wait(lambda: self.store.reached)
        found = []
        for number, body in enumerate(bodies):
            found.append(self.pool.submit(self.send, body, f"key{number}"))
            self.wait(lambda: len(self.lake.catalog.ingestion._lines[line]) == len(found))
        before = self.store.requests.copy()
        self.store.opened.set()
        assert first.result(30).stored == 1
        for each in found:
            each.exception(30)
        self.asked = self.store.requests - before - Counter(put_if_absent=1)
        return found

    def wait(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def rows(self, table: str = "clicks") -> list[dict[str, Any]]:
        return sorted(self.lake.table(table).to_arrow().to_pylist(), key=lambda row: str(row["event_id"]))


def counts(answer: IngestOutcome) -> tuple[int, int, int, int]:
    return answer.stored, answer.duplicates, answer.rejected, answer.conflicting


def test_requests_that_wait_are_one_data_file_and_one_commit_and_each_has_its_own_answer() -> None:
    place = Place()
    place.lake.clock.advance(1)  # type: ignore[attr-defined]
    sent = place.together(
        [
            '{"event_id":"a","n":1}\n{"event_id":"b","n":"no"}',
            '{"event_id":"a","n":1}\n{"n":2}',  # a duplicate of the request before
            '{"event_id":"a","n":7}\n{"broken',  # a clash with it
            '{"event_id":"first"}',  # a duplicate of what was committed meanwhile
            '{"broken',
        ]
    )
    answers = [each.result() for each in sent]
    assert [counts(each) for each in answers] == [
        (1, 0, 1, 0), (1, 1, 0, 0), (0, 0, 2, 1), (0, 1, 0, 0), (0, 0, 1, 0)
    ]  # fmt: skip
    assert [each.version for each in answers] == [2, 2, None, 2, None]
    assert [[reject.position for reject in each.rejects] for each in answers] == [[1], [], [0, 1], [], [0]]
    assert [row["event_id"] for row in place.rows()] == ["a", "first", "key1/1"]
    assert len(place.lake["clicks"].files) == 2
    rejected = [(row["position"], row["raw"]) for row in place.rows("clicks/_rejects")]
    assert sorted(rejected) == sorted(
        [(1, b'{"event_id":"b","n":"no"}'), (1, b'{"broken'), (0, b'{"broken'), (0, b'{"event_id":"a","n":7}')]
    )
    # the rejects' table, their file and commit, the rows' file and commit, the file and commit of the clash
    assert place.asked["put_new"] + place.asked["put_if_absent"] == 7
    assert place.lake["clicks/_rejects"].version == 2


def test_requests_without_contention_take_two_puts_each() -> None:
    place = Place()
    place.send('{"event_id":"a"}')
    place.store.requests.clear()
    for each in ("b", "c"):
        place.send(json.dumps({"event_id": each}))
    assert place.store.requests == {"put_new": 2, "put_if_absent": 2}


def test_arrivals_are_those_of_each_request() -> None:
    place = Place()
    clock = ManualClock(ARRIVAL_US)
    requests = []
    for key in ("k", "l", None):
        clock.advance(1)
        found = split(b'{"n":1}\n{"broken', content_type="application/x-ndjson", content_encoding=None, limits=Limits())
        requests.append(Sent(found.events, found.rejects, Origin(clock.now_us(), key)))
    ingest_together(place.lake.catalog, "clicks", requests, create=False, tables_max=None)
    for table in ("clicks", "clicks/_rejects"):
        arrived = sorted(row["received_at"].timestamp() - ARRIVAL_US // 1_000_000 for row in place.rows(table))
        assert arrived == [1, 2, 3]
    assert [row["event_id"] for row in place.rows()][1:] == ["k/0", "l/0"]


def test_blocks_of_several_requests_are_converted_as_blocks() -> None:
    place = Place()
    requests = []
    for number in range(3):
        lines = b"\n".join(b'{"event_id":"%d-%d","n":%d}' % (number, at, at) for at in range(300))
        found = split(lines, content_type="application/x-ndjson", content_encoding=None, limits=Limits())
        requests.append(Sent(found.events, [], Origin(ARRIVAL_US + number, "k")))
    with patch("alluvia.events.ingest.event_columns.Conversion.__init__", side_effect=AssertionError):
        answers = ingest_together(place.lake.catalog, "clicks", requests, create=False, tables_max=None)
    assert [counts(each) for each in answers if isinstance(each, IngestOutcome)] == [(300, 0, 0, 0)] * 3
    arrived = {row["event_id"][:2]: row["received_at"] for row in place.rows() if row["event_id"] != "first"}
    assert [(arrived[f"{number}-"] - arrived["0-"]).microseconds for number in range(3)] == [0, 1, 2]


def test_an_error_of_the_commit_goes_to_all_whose_events_were_in_it() -> None:
    place = Place()
    commits = count()
    place.store.fails = lambda key: key.startswith("clicks/ts_day") and next(commits) == 1
    sent = place.together(['{"event_id":"a"}', '{"event_id":"b"}'])
    errors = [each.exception() for each in sent]
    assert [(type(each), str(each)) for each in errors] == [(Unavailable, "the store went away")] * 2
    assert errors[0] is not errors[1]
    assert place.send('{"event_id":"c"}').stored == 1


def test_where_rejects_cannot_be_kept_only_requests_with_rejects_fail() -> None:
    place = Place()
    place.store.fails = lambda key: key.startswith("clicks/_rejects")
    sent = place.together(['{"event_id":"a"}', '{"broken\n{"event_id":"b"}', '{"event_id":"c"}'])
    assert isinstance(sent[1].exception(), Unavailable)
    assert [counts(sent[at].result()) for at in (0, 2)] == [(1, 0, 0, 0)] * 2
    assert [row["event_id"] for row in place.rows()] == ["a", "c", "first"]


def test_where_a_clash_cannot_be_kept_the_rows_are_stored_and_the_others_answered() -> None:
    place = Place()
    place.store.fails = lambda key: key.startswith("clicks/_rejects")
    sent = place.together(['{"event_id":"a","n":1}', '{"event_id":"a","n":2}\n{"event_id":"b"}', '{"event_id":"c"}'])
    assert isinstance(sent[1].exception(), Unavailable)
    assert [counts(sent[at].result()) for at in (0, 2)] == [(1, 0, 0, 0)] * 2
    assert [row["event_id"] for row in place.rows()] == ["a", "b", "c", "first"]


def test_a_request_that_breaks_the_code_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place()

    def fragile(events: Any, *given: Any, **named: Any) -> EventRows:
        if any(event.value.get("event_id") == "poison" for event in events):
            raise ZeroDivisionError
        return to_rows(events, *given, **named)

    monkeypatch.setattr(pipeline, "to_rows", fragile)
    sent = place.together(['{"event_id":"a"}', '{"event_id":"poison"}', '{"event_id":"b"}\n{"broken'])
    assert isinstance(sent[1].exception(), ZeroDivisionError)
    assert [counts(sent[at].result()) for at in (0, 2)] == [(1, 0, 0, 0), (1, 0, 1, 0)]
    assert [row["event_id"] for row in place.rows()] == ["a", "b", "first"]


def test_a_row_that_the_table_refuses_is_its_requests_own_reject() -> None:
    place = Place({"delta.constraints.small": "n IS NULL OR n < 10"})
    sent = place.together(['{"event_id":"a","n":5}', '{"event_id":"b","n":50}', '{"event_id":"c","n":6}'])
    assert [counts(each.result()) for each in sent] == [(1, 0, 0, 0), (0, 0, 1, 0), (1, 0, 0, 0)]


def test_a_group_whose_table_was_dropped_goes_to_the_next_one_of_its_name() -> None:
    place = Place()
    Lake(place.store.inner, ManualClock(ARRIVAL_US, next(NUMBERS))).drop_table("clicks")
    found = split(b'{"event_id":"z"}', content_type=None, content_encoding=None, limits=Limits())
    requests = [Sent(found.events, [], Origin(ARRIVAL_US))] * 2
    with pytest.raises(TableNotFound):
        ingest_together(place.lake.catalog, "clicks", requests, create=False, tables_max=None)
    made = ingest_together(place.lake.catalog, "clicks", requests, create=True, tables_max=None)
    assert [counts(each) for each in made if isinstance(each, IngestOutcome)] == [(1, 0, 0, 0), (0, 1, 0, 0)]


EVENTS = st.fixed_dictionaries(
    {}, optional={"event_id": st.sampled_from("abcd"), "n": st.sampled_from([1, 2, "no"]), "x": st.integers(0, 1)}
)
REQUESTS = st.lists(st.lists(EVENTS | st.just("broken"), min_size=1, max_size=4), min_size=1, max_size=5)


@settings(max_examples=50)
@given(before=REQUESTS, requests=REQUESTS, keyed=st.booleans(), blocks=st.booleans())
def test_a_group_is_answered_as_its_requests_one_after_another(
    before: Any, requests: Any, keyed: bool, blocks: bool
) -> None:
    one, other = Place(), Place()
    for place in (one, other):
        for number, body in enumerate(before):
            place.send(json.dumps(body), f"before{number}")
    sent = []
    for number, body in enumerate(requests):
        lines = b"\n".join(json.dumps(event).encode() for event in body)
        with patch("alluvia.events.ingest.envelope.MANY", 1 if blocks else 256):
            found = split(lines, content_type="application/x-ndjson", content_encoding=None, limits=Limits())
        sent.append(Sent(found.events, found.rejects, Origin(ARRIVAL_US + number, f"k{number}" if keyed else None)))
    together = ingest_together(one.lake.catalog, "clicks", sent, create=False, tables_max=None)
    alone = [ingest_together(other.lake.catalog, "clicks", [each], create=False, tables_max=None)[0] for each in sent]
    for mine, theirs in zip(together, alone, strict=True):
        assert isinstance(mine, IngestOutcome)
        assert isinstance(theirs, IngestOutcome)
        assert (mine.version is None) == (theirs.version is None)
        assert replace(mine, version=None) == replace(theirs, version=None)

    def stored(place: Place, table: str) -> list[Any]:
        shown = [{name: row[name] for name in row if keyed or name != "event_id"} for row in place.rows(table)]
        return sorted(shown, key=str)

    assert stored(one, "clicks") == stored(other, "clicks")
    if one.lake["clicks"].version and any(isinstance(each, IngestOutcome) and each.rejected for each in together):
        assert stored(one, "clicks/_rejects") == stored(other, "clicks/_rejects")
