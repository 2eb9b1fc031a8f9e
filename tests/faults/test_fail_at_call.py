"""The Nth store call fails, for N = 1, 2, … until a run completes untouched; then the lake is reopened.

The operation is repeated as a caller would repeat it, and afterwards the table holds what one run of it makes, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import CommitUnknown, Unavailable
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import RawEvent
from alluvia.files.sent import SentFile
from alluvia.files.uploads import storing
from alluvia.store import MemoryStore
from tests.faults.store import MODES, Died, FailingStore

CALLS_MAX = 200
DAY = 24 * 3600
SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("amount", pa.int64())])
Rows = list[tuple[str, int]]


@dataclass(frozen=True)
class Case:
    """An operation that may be repeated, and the rows that it makes of `START`.

    `versions_max`: how many versions two runs of it may add.
    """

    name: str
    act: Callable[[Lake], object]
    rows: Rows
    versions_max: int = 1


def events(*numbers: int) -> pa.Table:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return pa.table(
        {
            "event_id": [f"e{number}" for number in numbers],
            "ts": pa.array([moment] * len(numbers), pa.timestamp("us", "UTC")),
            "event": ["open"] * len(numbers),
            "received_at": pa.array([moment] * len(numbers), pa.timestamp("us", "UTC")),
        }
    )


START: Rows = [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
UPSERTED = [{"id": "b", "amount": 20}, {"id": "n", "amount": 5}]
CASES = (
    Case("append", lambda lake: lake.table("t").append([{"id": "x", "amount": 9}], txn=("app", 1)), [*START, ("x", 9)]),
    Case("merge", lambda lake: lake.table("t").optimize(full=True), START),
    Case("checkpoint", lambda lake: lake.table("t").checkpoint(), START, 0),
    Case("vacuum", lambda lake: lake.table("t").vacuum(timedelta(0)), START, 2),
    Case("delete", lambda lake: lake.table("t").delete("id = 'b'"), [START[0], *START[2:]]),
    Case(
        "update",
        lambda lake: lake.table("t").update({"amount": "30"}, where="id = 'c'"),
        [*START[:2], ("c", 30), START[3]],
        2,
    ),
    Case(
        "upsert",
        lambda lake: lake.table("t").upsert(UPSERTED, on=["id"]),
        [START[0], ("b", 20), *START[2:], ("n", 5)],
        2,
    ),
    Case("restore", lambda lake: lake.table("t").restore(version=4), START[:3]),
    Case("evolve", lambda lake: lake.table("t").evolve(properties={"alluvia.codec": "snappy"}), START),
    Case("create", lambda lake: lake.create_table("new", SCHEMA, exist_ok=True), START, 0),
    Case(
        "append that evolves",
        lambda lake: lake.table("t").append([{"id": "x", "amount": 9, "more": "m"}], txn=("app", 1), evolve=True),
        [*START, ("x", 9)],
    ),
    Case("upload", lambda lake: upload(lake, "t"), [*START, ("x", 9)]),
    Case("restore to a time", lambda lake: lake.table("t").restore(timestamp=_second(lake)), START[:3]),
)
KINDS: dict[str, dict[str, str]] = {
    "copies": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "second checkpoints": {"delta.checkpointPolicy": "v2"},
    "change feed": {"delta.enableChangeDataFeed": "true"},
    "any writer": {"alluvia.writers": "any"},
}


def upload(lake: Lake, table: str) -> object:
    return storing.store(
        lake.catalog, storing.Upload(table, SentFile(b"id,amount\nx,9\n", "csv"), key="k", content="c")
    )


def _second(lake: Lake) -> datetime:
    """Return a moment at which version 4 was the newest."""
    return lake.table("t").history()[-5].timestamp


def made(clock: ManualClock, kind: str = "copies") -> MemoryStore:
    """Return a store with a table of five versions: `a` to `d` in a file each, one of them written twice."""
    store = MemoryStore("faults", clock)
    lake = Lake(store, clock)
    properties = {"delta.logRetentionDuration": "interval 1 day", **KINDS[kind]}
    table = lake.create_table("t", SCHEMA, sort_by=["id"], properties=properties)
    for make in (
        lambda: table.append([{"id": "a", "amount": 1}]),
        lambda: table.append([{"id": "b", "amount": 1}]),
        lambda: table.update({"amount": "2"}, where="id = 'b'"),
        lambda: table.append([{"id": "c", "amount": 3}]),
    ):
        clock.advance(1)
        make()
    clock.advance(1)
    table.append([{"id": "d", "amount": 4}])
    return store


def content(lake: Lake) -> Rows:
    rows = lake.table("t").scan(columns=["id", "amount"]).read_all().to_pylist()
    return sorted((row["id"], row["amount"]) for row in rows)


def attempts(mode: str, make: Callable[[ManualClock], MemoryStore]) -> Iterator[tuple[FailingStore, ManualClock]]:
    """Yield a fresh copy of one store, whose call or write 1, 2, … fails, until one run has completed untouched."""
    template_clock = ManualClock()
    template = make(template_clock)
    for at in range(1, CALLS_MAX):
        clock = ManualClock(template_clock.now_us(), seed=at)
        store = FailingStore(copied(template, clock), mode, at)
        yield store, clock
        if not store.fired:
            return
    raise AssertionError("the operation never completes")


def copied(store: MemoryStore, clock: ManualClock) -> MemoryStore:
    """Return a store with the same objects, of the same times."""
    found = MemoryStore("faults", clock)
    found._objects, found._keys = dict(store._objects), list(store._keys)
    return found


def tried(act: Callable[..., object], *arguments: object) -> bool:
    """Whether an operation says that it is done. It may say that the store failed it, or die; nothing else."""
    try:
        act(*arguments)
    except (Unavailable, CommitUnknown, Died):
        return False
    return True


def check_log(lake: Lake, name: str) -> None:
    """Versions are gapless, and each was committed by one transaction."""
    snapshot = lake.table(name).snapshot()
    entries = [lake.table(name)._handle.log.read_commit(at) for at in range(snapshot.version + 1)]
    ids = [entry.info["txnId"] for entry in entries if entry is not None]
    times = [entry.timestamp_ms for entry in entries if entry is not None]
    assert len(ids) == len(set(ids)) == len(entries)
    assert times == sorted(times)
    if snapshot.properties.get("delta.enableInCommitTimestamps") == "true":
        assert len(times) == len(set(times))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_operation_whose_nth_call_fails(case: Case, mode: str) -> None:
    _hold(case, mode, "copies")


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS)[1:])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_operation_on_another_kind_of_table_whose_nth_call_fails(case: Case, mode: str, kind: str) -> None:
    _hold(case, mode, kind)


def _hold(case: Case, mode: str, kind: str) -> None:
    done = 0
    for store, clock in attempts(mode, partial(made, kind=kind)):
        before = Lake(store.inner, clock).table("t").snapshot().version
        finished = tried(case.act, Lake(store, clock))
        again = Lake(store.inner, clock)
        if finished:
            assert content(again) == sorted(case.rows), store.at
        else:
            assert content(again) in (sorted(START), sorted(case.rows)), store.at
        case.act(again)
        reopened = Lake(store.inner, clock)
        assert content(reopened) == sorted(case.rows), store.at
        check_log(reopened, "t")
        assert reopened.table("t").snapshot().version <= before + case.versions_max, store.at
        done += 1
    assert done > 1


@pytest.mark.parametrize("mode", MODES)
def test_an_upload_that_creates_its_table_whose_nth_call_fails(mode: str) -> None:
    """Whatever failed, the same upload again stores the rows once, and the next gets the first answer."""
    for store, clock in attempts(mode, lambda clock: MemoryStore("faults", clock)):
        tried(upload, Lake(store, clock), "new")
        answer = upload(Lake(store.inner, clock), "new")
        again = upload(Lake(store.inner, clock), "new")
        lake = Lake(store.inner, clock)
        assert lake.table("new").to_arrow().to_pylist() == [{"id": "x", "amount": 9}], store.at
        assert isinstance(answer, storing.Stored)
        assert again == replace(answer, repeated=True)
        check_log(lake, "new")


@pytest.mark.parametrize("mode", MODES)
def test_a_drop_whose_nth_call_fails(mode: str) -> None:
    """The table is there whole, or dropped; and a drop can be undone."""
    for store, clock in attempts(mode, made):
        finished = tried(Lake(store, clock).drop_table, "t")
        again = Lake(store.inner, clock)
        assert again.tables() in ([], [] if finished else ["t"]), store.at
        if again.tables():
            assert content(again) == sorted(START), store.at
            again.drop_table("t")
        assert Lake(store.inner, clock).tables() == [], store.at
        again.undrop("t")
        assert content(Lake(store.inner, clock)) == sorted(START), store.at


def dropped(clock: ManualClock) -> MemoryStore:
    store = made(clock)
    Lake(store, clock).drop_table("t")
    return store


@pytest.mark.parametrize("mode", MODES)
def test_an_undrop_whose_nth_call_fails(mode: str) -> None:
    for store, clock in attempts(mode, dropped):
        finished = tried(Lake(store, clock).undrop, "t")
        again = Lake(store.inner, clock)
        assert again.tables() in (["t"], ["t"] if finished else []), store.at
        if not again.tables():
            again.undrop("t")
        lake = Lake(store.inner, clock)
        assert content(lake) == sorted(START), store.at
        lake.table("t").append([{"id": "x", "amount": 9}])
        assert content(Lake(store.inner, clock)) == sorted([*START, ("x", 9)]), store.at


def with_files(clock: ManualClock) -> MemoryStore:
    store = MemoryStore("faults", clock)
    for name, number in START:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": [name], "amount": [number]}), sink)
        store.put(f"t/{name}.parquet", sink.getvalue().to_pybytes())
    return store


@pytest.mark.parametrize("mode", MODES)
def test_a_conversion_whose_nth_call_fails(mode: str) -> None:
    for store, clock in attempts(mode, with_files):
        finished = tried(Lake(store, clock).convert, "t", "t")
        again = Lake(store.inner, clock)
        assert again.tables() in (["t"], ["t"] if finished else []), store.at
        if not again.tables():
            again.convert("t", "t")
        assert content(Lake(store.inner, clock)) == sorted(START), store.at
        check_log(Lake(store.inner, clock), "t")


def test_reading_whose_nth_call_fails_leaves_a_handle_that_reads() -> None:
    for store, clock in attempts("before", made):
        table = Lake(store, clock).table("t")
        tried(table.scan)
        tried(table.history)
        tried(table.changes, 0)
        store.healed = True
        assert sorted(table.scan().read_all()["id"].to_pylist()) == ["a", "b", "c", "d"]
        assert table.changes(0).read_all().num_rows == 6


def with_events(clock: ManualClock) -> MemoryStore:
    store = MemoryStore("faults", clock)
    table = Lake(store, clock).create_events("events")
    table.ingest(events(1, 2))
    table.checkpoint()
    table.ingest(events(3))
    return store


@pytest.mark.parametrize("mode", MODES)
def test_ingestion_whose_nth_call_fails(mode: str) -> None:
    for store, clock in attempts(mode, with_events):
        tried(Lake(store, clock).table("events").ingest, events(2, 4, 5))
        Lake(store.inner, clock).table("events").ingest(events(5, 4, 2, 6))
        lake = Lake(store.inner, clock)
        found = lake.table("events").scan(columns=["event_id"]).read_all()["event_id"].to_pylist()
        assert sorted(found) == ["e1", "e2", "e3", "e4", "e5", "e6"], store.at
        check_log(lake, "events")


@pytest.mark.parametrize("mode", MODES)
def test_a_request_with_rejects_whose_nth_call_fails(mode: str) -> None:
    """On the same warm handle a retry finds what the first try left."""
    sent = [RawEvent(0, {"event_id": "good", "event": "open"}), RawEvent(1, {"event_id": "bad", "event": 5})]
    sent.append(RawEvent(2, {"event_id": "good", "event": "close"}))
    for store, clock in attempts(mode, with_events):
        lake = Lake(store, clock)
        ingest_once = partial(ingest_batch, arrival_us=clock.now_us(), idempotency_key="k")
        finished = tried(ingest_once, lake.catalog, "events", sent)
        store.healed = True
        retried = Lake(store.inner, clock) if mode == "crash" else lake
        answer = ingest_batch(retried.catalog, "events", sent, arrival_us=clock.now_us(), idempotency_key="k")
        assert (answer.accepted, answer.rejected, answer.conflicting) == (1, 2, 1)
        assert answer.duplicates == 1 or not finished
        cold = Lake(store.inner, clock)
        found = cold.table("events").scan(columns=["event_id"]).read_all()["event_id"].to_pylist()
        assert sorted(found) == ["e1", "e2", "e3", "good"], store.at
        kept = cold.table("events/_rejects").scan(columns=["event_id"]).read_all()["event_id"].to_pylist()
        assert sorted(name.partition("#")[0] for name in kept) == ["bad", "good"], store.at


@pytest.mark.parametrize("mode", MODES)
def test_an_expiry_whose_nth_call_fails(mode: str) -> None:
    def old(clock: ManualClock) -> MemoryStore:
        store = MemoryStore("faults", clock)
        table = Lake(store, clock).create_events("events", properties={"alluvia.ttl": "1 day"})
        table.ingest(events(1, 2))
        clock.advance(datetime(2026, 2, 1, tzinfo=UTC).timestamp() - clock.now_us() / 1e6)
        now = pa.array([clock.now_us()], pa.int64()).cast(pa.timestamp("us", "UTC"))
        table.ingest(events(3).set_column(1, "ts", now))
        return store

    for store, clock in attempts(mode, old):
        finished = tried(Lake(store, clock).table("events").expire)
        again = Lake(store.inner, clock).table("events")
        assert again.count() in ((1,) if finished else (1, 3)), store.at
        again.expire()
        assert again.to_arrow(["event_id"])["event_id"].to_pylist() == ["e3"], store.at
        check_log(Lake(store.inner, clock), "events")
        assert [entry.operation for entry in again.history()].count("EXPIRE") == 1, store.at


@pytest.mark.parametrize("mode", MODES)
def test_vacuum_of_an_old_log_whose_nth_call_fails(mode: str) -> None:
    def old(clock: ManualClock) -> MemoryStore:
        store = made(clock)
        table = Lake(store, clock).table("t")
        table.optimize(full=True)
        table.checkpoint()
        clock.advance(40 * DAY)
        table.append([{"id": "e", "amount": 5}])
        return store

    rows = [*START, ("e", 5)]
    for store, clock in attempts(mode, old):
        tried(Lake(store, clock).table("t").vacuum)
        assert content(Lake(store.inner, clock)) == rows, store.at
        report = Lake(store.inner, clock).table("t").vacuum()
        assert content(Lake(store.inner, clock)) == rows, store.at
        left = [info.key for info in store.inner.list("t/") if info.key.endswith(".parquet")]
        data = [key for key in left if "_delta_log" not in key]
        assert len(data) == 2, store.at
        assert report.oldest_version >= 6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("of_lake", [False, True], ids=["table", "lake"])
def test_a_tag_whose_nth_call_fails(mode: str, of_lake: bool) -> None:
    """A tag that is told of reads as it was, whatever is vacuumed; one that is not is whole or not there."""

    def old(clock: ManualClock) -> MemoryStore:
        store = made(clock)
        clock.advance(1)
        return store

    for store, clock in attempts(mode, old):
        lake = Lake(store, clock)
        finished = tried((lake if of_lake else lake.table("t")).tag, "x")
        again = Lake(store.inner, clock)
        clock.advance(1)
        again.table("t").delete("true")
        again.table("t").vacuum(timedelta(0))
        tags = again.tags(tables=True)
        assert len(tags) == 1 if finished else len(tags) <= 1, store.at
        for tag in tags:
            found = Lake(store.inner, clock).table("t").to_arrow(["id", "amount"], tag=tag.name).to_pylist()
            assert sorted((row["id"], row["amount"]) for row in found) == START, store.at
        (again if of_lake else again.table("t")).tag("x", replace=True)
        assert again.table("t").count(tag="x") == 0, store.at


@pytest.mark.parametrize("mode", MODES)
def test_a_vacuum_beside_tags_whose_nth_call_fails(mode: str) -> None:
    def tagged(clock: ManualClock) -> MemoryStore:
        store = made(clock)
        lake = Lake(store, clock)
        lake.table("t").tag("mine")
        clock.advance(1)
        lake.tag("all")
        clock.advance(1)
        lake.table("t").append([{"id": "e", "amount": 5}])
        lake.table("t").optimize(full=True)
        lake.table("t").checkpoint()
        clock.advance(40 * DAY)
        lake.table("t").append([{"id": "f", "amount": 6}])
        return store

    for store, clock in attempts(mode, tagged):
        tried(Lake(store, clock).table("t").vacuum)
        for _ in range(2):
            table = Lake(store.inner, clock).table("t")
            for name in ("mine", "all"):
                rows = table.to_arrow(["id", "amount"], tag=name).to_pylist()
                assert sorted((row["id"], row["amount"]) for row in rows) == START, store.at
            table.vacuum()
        lake = Lake(store.inner, clock)
        lake.untag("all")
        lake.table("t").untag("mine")
        lake.table("t").vacuum()
        left = [
            info.key for info in store.inner.list("") if info.key.endswith(".parquet") and "_delta_log" not in info.key
        ]
        assert len(left) == 2, store.at
