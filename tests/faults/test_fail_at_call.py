"""The Nth store call fails, for N = 1, 2, … until a run completes untouched; then the lake is reopened.

The operation is repeated as a caller would repeat it, and afterwards the table holds what one run of it makes, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import RawEvent
from alluvia.files.sent import SentFile
from alluvia.files.uploads import storing
from alluvia.store import MemoryStore
from tests.faults.attempts import KINDS, SCHEMA, START, Rows, attempts, check_log, content, events, made, tried
from tests.faults.store import MODES


@dataclass(frozen=True)
class Case:
    """An operation that may be repeated, and the rows that it makes of `START`.

    `versions_max`: how many versions two runs of it may add.
    """

    name: str
    act: Callable[[Lake], object]
    rows: Rows
    versions_max: int = 1


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


def upload(lake: Lake, table: str) -> object:
    return storing.store(
        lake.catalog, storing.Upload(table, SentFile(b"id,amount\nx,9\n", "csv"), key="k", content="c")
    )


def _second(lake: Lake) -> datetime:
    """Return a moment at which version 4 was the newest."""
    return lake.table("t").history()[-5].timestamp


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
