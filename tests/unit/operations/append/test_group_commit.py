"""Writers that meet on one table offer their rows, and one of them commits for all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.commit_offers import AGE_MS_MAX, OFFERS, Offer, decode_offer, offer_name, offers_in
from alluvia.commit.event_window.id_runs import content_hashes
from alluvia.commit.event_window.window import fingerprints
from alluvia.errors import CommitUnknown, Corrupt, Invalid, Unavailable
from alluvia.store import CountingStore, MemoryStore, Store
from tests.contract.workers import events
from tests.unit.operations.ingesting import ingest, stored


class DistantStore(CountingStore):
    """A store that takes offers, and does something right after the next ones are put. `broken` lists nothing."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.parallel = True
        self.broken = False
        self.then: list[Callable[[], Any]] = []
        self.after_file: list[Callable[[], Any]] = []

    def put(self, key: str, data: bytes) -> None:
        super().put(key, data)
        if OFFERS in key and self.then:
            self.then.pop(0)()

    def put_new(self, key: str, data: bytes) -> None:
        super().put_new(key, data)
        if key.endswith(".parquet") and self.after_file:
            self.after_file.pop(0)()

    def list(self, prefix: str, start_after: str | None = None):  # type: ignore[no-untyped-def]
        if self.broken and OFFERS in prefix:
            raise Unavailable("the store does not answer")
        return super().list(prefix, start_after)


@pytest.fixture
def store(clock: ManualClock) -> DistantStore:
    return DistantStore(MemoryStore("m", clock))


@pytest.fixture
def table(lake: Lake) -> Table:
    return crowded(lake.create_events("t", partition_by=()))


@pytest.fixture
def theirs(table: Table, store: DistantStore) -> Table:
    """The same table in another process, which sees no crowd, and whose requests do nothing else."""
    found = Lake(store.inner, table.lake.clock).table("t")
    found.lake.store.parallel = True
    found.snapshot()
    return found


def crowded(table: Table) -> Table:
    """Let a process believe that others write to a table."""
    table._handle.at_hand()
    table._handle.contention.note(table.lake.clock.now_ms())
    return table


def lonely_offer(table: Table, *ids: str, event: str = "click") -> str:
    """Offer events, as somebody does who is gone then. Returns the offer's key."""
    snapshot = table.snapshot()
    rows = events(snapshot.schema, ids)
    rows = rows.set_column(rows.schema.get_field_index("event"), rows.schema.field("event"), [[event] * len(ids)])
    prints = fingerprints(rows["event_id"].to_pylist(), rows["source"].to_pylist())
    offer = Offer(
        f"gone-{'-'.join(ids)}", snapshot.state.metadata.id, snapshot.version, rows, prints, content_hashes(rows)
    )
    key = f"t/{offer_name(offer.base, offer.id)}"
    table.lake.store.put(key, offer.encode())
    return key


def commits_of_offers(table: Table) -> list[int]:
    """Return how many offers each version took that took any."""
    log = table._handle.log
    return [len(offers_in(each)) for each in log.read_commits(range(table.snapshot().version + 1)) if offers_in(each)]


def test_who_commits_takes_the_rows_of_others_along(table: Table, theirs: Table) -> None:
    lonely_offer(theirs, "x", "y")
    assert ingest(table, "a", "b") == (2, 0)
    assert stored(table) == ["a", "b", "x", "y"]
    assert commits_of_offers(table) == [2]
    assert ingest(theirs, "a", "x", "z") == (1, 2)
    assert len(table.files) == 2


def test_an_owner_finds_that_another_has_committed_its_rows(table: Table, theirs: Table, store: DistantStore) -> None:
    theirs._handle.contention.note(table.lake.clock.now_ms())
    store.then = [lambda: ingest(theirs, "x")]
    store.reset()
    answer = table.ingest(events(table.schema, ["a"]))
    assert (answer.version, answer.appended, answer.duplicates) == (1, 1, 0)
    assert store.requests["put"] == 1
    assert stored(table) == ["a", "x"]
    assert commits_of_offers(table) == [2]


def test_who_slept_before_it_committed_for_all_names_no_file_that_vacuum_took(
    table: Table, theirs: Table, store: DistantStore, clock: ManualClock
) -> None:
    def meanwhile() -> None:
        clock.advance(30 * 3600)
        assert len(theirs.vacuum(timedelta(0)).orphans) == 1

    lonely_offer(theirs, "x")
    store.after_file = [meanwhile]
    with pytest.raises(CommitUnknown):
        ingest(table, "a", "b")
    assert store.after_file == []
    assert stored(theirs) == []
    assert ingest(table, "a", "b") == (2, 0)
    assert stored(table) == ["a", "b"]


def test_an_event_that_another_brings_ends_the_offer_and_the_rest_is_offered_again(
    table: Table, theirs: Table, store: DistantStore
) -> None:
    store.then = [lambda: ingest(theirs, "a")]
    assert ingest(table, "a", "b") == (1, 1)
    assert stored(table) == ["a", "b"]
    assert ingest(theirs, "a", "b") == (0, 2)


def test_of_two_offers_of_one_event_one_is_taken(table: Table, theirs: Table) -> None:
    lonely_offer(theirs, "a", "x")
    lonely_offer(theirs, "y")
    lonely_offer(theirs, "y", "z")
    assert ingest(table, "a") == (1, 0)
    assert stored(table) == ["a", "y"]


def test_an_offer_for_the_table_before_a_change_is_never_taken(table: Table, theirs: Table) -> None:
    lonely_offer(theirs, "x")
    theirs.evolve(properties={"alluvia.dedup_window": "2 hours"})
    table.snapshot()
    lonely_offer(theirs, "y")
    assert ingest(table, "a") == (1, 0)
    assert stored(table) == ["a", "y"]


def test_a_change_of_the_table_sends_the_owner_back(table: Table, theirs: Table, store: DistantStore) -> None:
    store.then = [lambda: theirs.evolve(add={"plan": "string"})]
    assert ingest(table, "a") == (1, 0)
    assert table.to_arrow()["plan"].to_pylist() == [None]


def test_an_offer_whose_owner_is_long_gone_is_not_taken(table: Table, theirs: Table, clock: ManualClock) -> None:
    lonely_offer(theirs, "x")
    clock.advance(AGE_MS_MAX / 2000)
    lonely_offer(theirs, "y")
    clock.advance(AGE_MS_MAX / 2000 + 1)
    crowded(table)
    assert ingest(table, "a") == (1, 0)
    assert stored(table) == ["a", "y"]


def test_rows_that_break_a_constraint_harm_nobody_else(lake: Lake, store: DistantStore) -> None:
    rule = {"delta.constraints.kind": "event <> 'bad'"}
    table = crowded(lake.create_events("t", partition_by=(), properties=rule))
    lonely_offer(table, "x", event="bad")
    assert ingest(table, "a") == (1, 0)
    assert stored(table) == ["a"]
    with pytest.raises(Invalid, match="event <> 'bad'"):
        crowded(table).ingest(events(table.schema, ["b"]).set_column(2, "event", [["bad"]]))
    assert len(list(store.list(f"t/{OFFERS}"))) == 2


def test_an_offer_that_cannot_be_read_harms_nobody(table: Table, theirs: Table) -> None:
    theirs.lake.store.put(f"t/{offer_name(0, 'broken')}", b"what is this")
    lonely_offer(theirs, "x")
    assert ingest(table, "a") == (1, 0)
    assert stored(table) == ["a", "x"]


def test_it_is_unknown_what_becomes_of_an_offer_when_the_store_fails(table: Table, store: DistantStore) -> None:
    store.broken = True
    with pytest.raises(CommitUnknown, match="unknown whether a group of rows for table t was written"):
        ingest(table, "a")
    store.broken = False
    assert ingest(table, "a", "b") == (1, 1) or stored(table) == ["a", "b"]


def test_who_is_alone_again_commits_with_two_requests(table: Table, store: DistantStore) -> None:
    assert ingest(table, "a") == (1, 0)
    store.reset()
    assert ingest(table, "b") == (1, 0)
    assert store.requests == {"put": 2}


def test_many_rows_and_short_windows_and_near_stores_do_without_offers(table: Table, lake: Lake) -> None:
    ingest(table, *(f"e{at}" for at in range(1001)))
    short = crowded(lake.create_events("short", partition_by=(), properties={"alluvia.dedup_window": "10 minutes"}))
    ingest(short, "a")
    lake.store.parallel = False
    ingest(table, "b")
    assert list(lake.store.list("t/_alluvia/")) == list(lake.store.list("short/_alluvia/")) == []


def test_vacuum_deletes_old_offers(table: Table, theirs: Table, clock: ManualClock) -> None:
    lonely_offer(theirs, "x")
    clock.advance(3601)
    young = lonely_offer(theirs, "y")
    table.vacuum(dry_run=True)
    assert len(list(theirs.lake.store.list(f"t/{OFFERS}"))) == 2
    table.vacuum(timedelta(days=7))
    assert [info.key for info in theirs.lake.store.list(f"t/{OFFERS}")] == [young]


def test_an_erasure_deletes_offers_of_such_rows(table: Table, theirs: Table) -> None:
    ingest(table, "a")
    lonely_offer(theirs, "x")
    kept = lonely_offer(theirs, "y")
    report = table.erase("event_id = 'x'", prove=True)
    assert report.ok
    assert report.removed == {"other": 1}
    assert kept in [info.key for info in theirs.lake.store.list(f"t/{OFFERS}")]


def test_an_offer_says_the_same_when_it_is_read(table: Table) -> None:
    rows = events(table.schema, ["a", "b"])
    prints = fingerprints(["a", "b"])
    offer = Offer("id", "table", 7, rows, prints, content_hashes(rows))
    assert decode_offer("id", offer.encode()) == offer
    with pytest.raises(Corrupt, match="2 rows, and 1 event ids"):
        decode_offer("id", Offer("id", "table", 7, rows, [prints[0]] * 2, content_hashes(rows)).encode())
