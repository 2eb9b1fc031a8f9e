"""Rejects that are sent again once they are gone: each is one row or one reject, whoever removed it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count, permutations
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import AlluviaError
from alluvia.events.ingest import event_tables
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch, keep_rejects
from alluvia.events.ingest.replay import Replayed
from alluvia.events.ingest.values import BodyReading, IngestOutcome, Limits, Origin, Reject
from alluvia.operations.append.ingest import ingest
from alluvia.store import CountingStore, MemoryStore
from tests.unit.events.ingest.test_replay import Failing

ARRIVAL_US = 1_700_000_000_000_000
BAD = '{"event_id":"a","status":"x"}'
Row = dict[str, Any]


@pytest.fixture
def lake() -> Lake:
    clock = ManualClock(ARRIVAL_US)
    found = Lake(CountingStore(MemoryStore("m", clock)), clock)
    found.create_events("c", pa.schema([("status", pa.int64())]))
    return found


def another(lake: Lake) -> Lake:
    """The lake as another process opens it."""
    return Lake(lake.store, lake.clock)


def send(lake: Lake, body: str, *, key: str | None = None, limits: Limits | None = None) -> IngestOutcome:
    found = split(body.encode(), content_type=None, content_encoding=None, limits=limits or Limits())
    return ingest_batch(lake.catalog, "c", found.events, found.rejects, arrival_us=ARRIVAL_US, idempotency_key=key)


def counts(answer: IngestOutcome) -> tuple[int, int, int]:
    return answer.stored, answer.duplicates, answer.rejected


def rows(lake: Lake) -> list[str]:
    return sorted(another(lake).table("c").scan(["event_id"]).read_all()["event_id"].to_pylist())


def rejects(lake: Lake) -> list[Row]:
    return another(lake).table("c/_rejects").scan().read_all().to_pylist()


def let_texts_in(lake: Lake) -> None:
    lake["c"].evolve(rename={"status": "status_number"})


def want_numbers(lake: Lake) -> None:
    """Refuse texts again, with what is in the table left alone."""
    lake["c"].evolve({"status": "long"})


def by_replay(lake: Lake) -> None:
    version = lake["c"].version
    let_texts_in(lake)
    assert lake["c"].replay_rejects() == Replayed(looked_at=1, settled=1, stored=1)
    lake["c"].restore(version)


def by_delete(lake: Lake) -> None:
    lake.sql("DELETE FROM c._rejects")


def by_erase(lake: Lake) -> None:
    lake["c"].erase("event_id = 'a'")


def by_expiry(lake: Lake) -> None:
    lake.table("c/_rejects").evolve(properties={"alluvia.ttl": "1 day"})
    assert isinstance(lake.clock, ManualClock)
    lake["c"].evolve(properties={"alluvia.dedup_window": "30 days"})
    send(lake, '{"event_id":"other","status":"y"}')
    lake.clock.advance(3 * 86400)
    lake.table("c/_rejects").expire()


@pytest.mark.parametrize("who", [lambda lake: lake, another], ids=["the same process", "another"])
@pytest.mark.parametrize("remove", [by_replay, by_delete, by_erase, by_expiry])
def test_a_reject_that_is_gone_is_kept_again_once(
    lake: Lake, remove: Callable[[Lake], None], who: Callable[[Lake], Lake]
) -> None:
    assert counts(send(lake, BAD)) == (0, 0, 1)
    remove(lake)
    assert (rows(lake), rejects(lake)) == ([], [])
    for _ in range(3):
        assert counts(send(who(lake), BAD)) == (0, 0, 1)
    [kept] = rejects(lake)
    assert (kept["raw"], rows(lake)) == (BAD.encode(), [])
    let_texts_in(lake)
    assert lake["c"].replay_rejects() == Replayed(looked_at=1, settled=1, stored=1)
    assert (rows(lake), rejects(lake)) == (["a"], [])


@pytest.mark.parametrize("body", [BAD, '{"status":"x"}', '[{"event_id":"a","status":"x"},{"status":"y"}]'])
@pytest.mark.parametrize("key", [None, "k"])
def test_an_event_that_a_replay_made_a_row_is_a_duplicate_also_where_it_fits_no_more(
    lake: Lake, body: str, key: str | None
) -> None:
    events = body.count("status")
    assert counts(send(lake, body, key=key)) == (0, 0, events)
    let_texts_in(lake)
    assert lake["c"].replay_rejects().stored == events
    want_numbers(lake)
    before = rows(lake)
    for process in (lake, another(lake)):
        answer = send(process, body, key=key)
        assert (counts(answer), answer.version) == ((0, events, 0), process["c"].version)
    assert counts(send(lake, body + '\n{"event_id":"new"}' if body[0] == "{" else body, key=key))[1:] == (events, 0)
    assert (set(before) <= set(rows(lake)), rejects(lake)) == (True, [])


def test_other_content_under_the_id_of_a_row_is_rejected_again(lake: Lake) -> None:
    other = BAD.replace("x", "y")
    send(lake, BAD)
    let_texts_in(lake)
    lake["c"].replay_rejects()
    want_numbers(lake)
    send(lake, other)
    lake.sql("DELETE FROM c._rejects")
    assert counts(send(lake, BAD + "\n" + other)) == (0, 1, 1)
    assert [row["raw"] for row in rejects(lake)] == [other.encode()]


@pytest.mark.parametrize("order", [*permutations(("replay", "restore", "send"))], ids="-".join)
def test_in_any_order_an_event_is_one_row_or_one_reject(lake: Lake, order: tuple[str, ...]) -> None:
    send(lake, BAD)
    version = lake["c"].version
    for step in (*order, *order, "send"):
        if step == "replay":
            other = another(lake)
            if "status" in other["c"].snapshot().schema.names:
                let_texts_in(other)
            other["c"].replay_rejects()
        elif step == "restore":
            lake["c"].restore(version)
        else:
            send(lake, BAD)
            assert len(rows(lake)) + len(rejects(lake)) == 1
        assert len(rows(lake)) + len(rejects(lake)) <= 1


def before_the_commit(action: Callable[[], object], monkeypatch: pytest.MonkeyPatch, *, again: bool) -> None:
    """Have something happen once when rejects are about to be looked up, or those that are gone to be kept again."""
    actions = [action]

    def meddled(handle: Any, rows: Any, contents: Any, made_for: Any, gone_until: int) -> Any:
        if actions and handle.name == "c/_rejects" and (gone_until >= 0) == again:
            actions.pop()()
        return ingest(handle, rows, contents, made_for, gone_until)

    monkeypatch.setattr(event_tables, "ingest", meddled)


def test_of_two_posts_at_once_one_keeps_a_reject_that_is_gone(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    send(lake, BAD)
    lake.sql("DELETE FROM c._rejects")
    before_the_commit(lambda: send(another(lake), BAD), monkeypatch, again=True)
    assert counts(send(lake, BAD + "\n" + BAD)) == (0, 0, 2)
    assert len(rejects(lake)) == 1


def test_a_replay_while_a_known_reject_comes_again_makes_it_a_duplicate(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replay() -> None:
        other = another(lake)
        let_texts_in(other)
        other["c"].replay_rejects()
        want_numbers(other)

    send(lake, BAD)
    before_the_commit(replay, monkeypatch, again=False)
    assert counts(send(lake, BAD)) == (0, 1, 0)
    assert (rows(lake), rejects(lake)) == (["a"], [])


@pytest.mark.parametrize("lost", [False, True])
def test_after_a_replay_that_broke_off_at_any_write_a_reject_is_one_row_or_one_reject(lost: bool) -> None:
    found = set()
    for writes in count():
        clock = ManualClock(ARRIVAL_US)
        store = Failing(MemoryStore("m", clock))
        lake = Lake(store, clock)
        lake.create_events("c")
        given = [Reject(0, "broken", b'{"event_id":"a"}')]
        keep_rejects(lake.catalog, "c", given, Origin(ARRIVAL_US))
        store.writes_left, store.lost = writes, lost
        with suppress(AlluviaError):
            lake["c"].replay_rejects()
        whole, store.writes_left = store.writes_left >= 0, None
        for _ in range(2):
            left = keep_rejects(another(lake).catalog, "c", given, Origin(ARRIVAL_US))
            assert (len(rows(lake)), len(rejects(lake))) == (1 - len(left), len(left))
            found.add(len(left))
        if whole:
            break
    assert found == {0, 1}


def test_what_a_replay_rejects_of_a_body_is_kept_again(lake: Lake) -> None:
    body = '[{"event_id":"a","status":1},{"event_id":"b","status":"x"}]'
    before = lake["c"].version
    for _ in range(2):
        assert counts(send(lake, body, limits=Limits(events=1))) == (0, 0, 1)
        assert lake["c"].replay_rejects() == Replayed(looked_at=1, settled=1, stored=1)
        assert (rows(lake), [row["event_id"].partition("#")[0] for row in rejects(lake)]) == (["a"], ["b"])
        lake.sql("DELETE FROM c._rejects")
        lake["c"].restore(before)


def test_what_cannot_be_read_without_its_request_is_kept_again(lake: Lake) -> None:
    for _ in range(2):
        assert counts(send(lake, "{not json", key="k")) == (0, 0, 1)
        assert [row["raw"] for row in rejects(lake)] == [b"{not json"]
        lake.sql("DELETE FROM c._rejects")


def test_a_text_of_a_format_is_no_event_however_it_reads(lake: Lake) -> None:
    text = Reject(0, "not what the header says", b'{"event_id":"a"}')
    assert send(lake, text.raw.decode()).stored == 1
    for _ in range(2):
        assert keep_rejects(lake.catalog, "c", [text], Origin(ARRIVAL_US, reading=BodyReading("csv"))) == [text]
        assert [row["raw"] for row in rejects(lake)] == [text.raw]
        lake.sql("DELETE FROM c._rejects")


def test_rejects_that_are_kept_before_a_queue_come_again_too(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alluvia.events.ingest.event_tables.IDS_NAMED_MAX", 1)
    given = [Reject(at, "broken", b'{"event_id":"%d"}' % at) for at in range(3)]
    keep_rejects(lake.catalog, "c", given, Origin(ARRIVAL_US))
    lake.sql("DELETE FROM c._rejects WHERE position < 2")
    assert keep_rejects(lake.catalog, "c", given, Origin(ARRIVAL_US)) == given
    assert sorted(row["position"] for row in rejects(lake)) == [0, 1, 2]
    lake["c"].replay_rejects("position = 1")
    assert keep_rejects(lake.catalog, "c", given, Origin(ARRIVAL_US)) == [given[0], given[2]]
    assert sorted(row["position"] for row in rejects(lake)) == [0, 2]


def test_what_known_rejects_cost(lake: Lake) -> None:
    store = lake.store
    assert isinstance(store, CountingStore)

    def cost(event_id: str) -> dict[str, int]:
        store.reset()
        assert send(lake, BAD.replace('"a"', f'"{event_id}"')).rejected == 1
        return dict(store.requests)

    for event_id in "abc":  # one file each
        cost(event_id)
    # Two looks for new commits, and the one file that can hold the reject.
    assert cost("b") == {"get": 3}
    assert cost("d") == {"get": 1, "put": 2}
    lake.sql("DELETE FROM c._rejects WHERE event_id LIKE 'b%'")
    # A look at the table more, and the commit.
    assert cost("b") == {"get": 3, "put": 2}
