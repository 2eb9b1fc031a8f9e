"""Tables that events come to: created for them, changed, dropped or restored meanwhile."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.clock import ManualClock
from alluvia.commit.handle import TableHandle
from alluvia.errors import Invalid, TableNotFound
from alluvia.events.ingest import pipeline
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import IngestOutcome, RawEvent
from alluvia.operations.append.ingest import ingest
from tests.unit.events.ingest.sent import ARRIVAL_US, NUMBERS, another, ids, rows, send


@pytest.fixture
def lake() -> alluvia.Lake:
    return alluvia.connect(f"memory://pipeline-{next(NUMBERS)}", clock=ManualClock(ARRIVAL_US, next(NUMBERS)))


def test_tables_are_created_up_to_a_limit(lake: alluvia.Lake) -> None:
    def post(table: str, tables_max: int) -> IngestOutcome:
        events = [RawEvent(0, {"event_id": "a"})]
        return ingest_batch(lake.catalog, table, events, arrival_us=ARRIVAL_US, create=True, tables_max=tables_max)

    for name in ("one", "two"):
        assert post(name, 2).stored == 1
    with pytest.raises(TableNotFound, match=r"there is no table 'three', and events cannot create it.*alluvia create"):
        post("three", 2)
    assert lake.tables() == ["one", "two"]
    assert post("one", 2).duplicates == 1
    assert post("three", 3).stored == 1


def test_a_table_of_rejects_is_none_for_events(lake: alluvia.Lake) -> None:
    """With the columns of events, it would take no rejects, and every batch with one would fail."""
    for name in ("clicks/_rejects", "clicks._rejects", "nowhere.clicks._rejects"):
        with pytest.raises(Invalid, match="events go to a table, not to its rejects"):
            lake.create_events(name)
    assert lake.tables(rejects=True) == []


def test_requests_at_once_create_no_more_tables_than_the_limit(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first table is being created, others ask for tables: they wait, and then the lake has its one."""
    create, others = lake.catalog.create, ThreadPoolExecutor(2)
    pending: list[Future[IngestOutcome]] = []

    def post(table: str) -> IngestOutcome:
        events = [RawEvent(0, {"event_id": table})]
        return ingest_batch(lake.catalog, table, events, arrival_us=ARRIVAL_US, create=True, tables_max=1)

    def create_slowly(name: str, *given: Any, **options: Any) -> Any:
        if not pending:
            pending.extend(others.submit(post, table) for table in ("second", "first"))
            wait(pending, timeout=0.2)
        return create(name, *given, **options)

    monkeypatch.setattr(lake.catalog, "create", create_slowly)
    one = post("first")
    with pytest.raises(TableNotFound, match="the lake has 1 tables or more"):
        pending[0].result()
    other = pending[1].result()  # which of the two commits first is up to the threads
    assert sorted((each.stored, each.duplicates) for each in (one, other)) == [(0, 1), (1, 0)]
    assert lake.tables() == ["first"]
    others.shutdown()


def test_a_missing_table(lake: alluvia.Lake) -> None:
    with pytest.raises(TableNotFound, match="create it first"):
        send(lake, '{"event_id":"a"}', create=False)
    assert lake.tables(rejects=True) == []


@pytest.mark.parametrize("name", ["Clicks", "", "../x", "clicks/_rejects", "a" * 129, "clicks;drop"])
def test_a_bad_table_name(lake: alluvia.Lake, name: str) -> None:
    with pytest.raises(Invalid, match="table name"):
        send(lake, '{"event_id":"a"}', table=name)


def test_a_table_that_events_cannot_go_to(lake: alluvia.Lake) -> None:
    lake.create_table("plain", {"x": "long"})
    with pytest.raises(Invalid, match="event_id"):
        send(lake, '{"x":1}', table="plain")


def test_a_column_added_elsewhere_takes_its_values_at_once(lake: alluvia.Lake) -> None:
    send(lake, '{"event_id":"a","status":100}')
    another(lake).table("clicks").evolve(add={"status": "long"})
    assert send(lake, '[{"event_id":"b","status":200},{"event_id":"c","status":"x"}]').accepted == 1
    assert send(lake, '{"event_id":"d","status":300}').accepted == 1
    found = {row["event_id"]: (row["status"], row["properties"]) for row in rows(lake)}
    assert found == {"a": (100, '{"status":100}'), "b": (200, '{"status":200}'), "d": (300, '{"status":300}')}
    assert [row["reason"][:7] for row in rows(lake, "clicks/_rejects")] == ["status:"]


def test_a_column_dropped_elsewhere_refuses_no_event(lake: alluvia.Lake) -> None:
    lake.create_events("clicks", pa.schema([("n", pa.int64())]))
    send(lake, '{"event_id":"a","n":5}')
    another(lake).table("clicks").evolve(drop=["n"])
    answer = send(lake, '[{"event_id":"b","n":"text"},{"event_id":"c","event":5}]')
    assert (answer.accepted, answer.rejected) == (1, 1)
    assert {row["event_id"]: row["properties"] for row in rows(lake)} == {"a": None, "b": '{"n":"text"}'}
    assert [row["reason"][:6] for row in rows(lake, "clicks/_rejects")] == ["event:"]


def test_an_event_that_another_process_replayed_is_a_duplicate(lake: alluvia.Lake) -> None:
    lake.create_events("clicks", pa.schema([("n", pa.int64())]))
    sent = '{"event_id":"a","n":"text"}'
    assert send(lake, sent).rejected == 1
    other = another(lake).table("clicks")
    other.evolve(drop=["n"])
    assert other.replay_rejects().stored == 1
    assert (send(lake, sent).duplicates, rows(lake, "clicks/_rejects")) == (1, [])


def test_a_table_dropped_elsewhere_is_made_anew_for_events_that_it_had_refused(lake: alluvia.Lake) -> None:
    lake.create_events("clicks", pa.schema([("n", pa.int64())]))
    send(lake, '{"event_id":"a","n":5}')
    another(lake).drop_table("clicks")
    assert send(lake, '{"event_id":"b","n":"text"}').stored == 1
    assert {row["event_id"]: row["properties"] for row in rows(lake)} == {"b": '{"n":"text"}'}


def test_a_table_changed_meanwhile_gets_rows_of_its_new_schema(lake: alluvia.Lake) -> None:
    send(lake, '{"event_id":"a"}')
    another(lake).table("clicks").evolve(add={"status": "long"}, properties={"delta.appendOnly": "true"})
    answer = send(
        lake,
        '[{"event_id":"b","status":200},{"event_id":"c","event":5},{"event_id":"d","status":"abc"},{"event_id":"e"}]',
    )
    assert (answer.accepted, answer.rejected) == (2, 2)
    assert [reject.position for reject in answer.rejects] == [1, 2]
    assert {row["event_id"]: row["status"] for row in rows(lake)} == {"a": None, "b": 200, "e": None}
    kept = {row["event_id"]: row["reason"].split(":")[0] for row in rows(lake, "clicks/_rejects")}
    assert {event_id.partition("#")[0]: reason for event_id, reason in kept.items()} == {"c": "event", "d": "status"}


def test_a_table_that_never_rests_is_given_up(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    send(lake, '{"event_id":"a"}')
    other, real, tries = another(lake).table("clicks"), ingest, []

    def restless(handle: TableHandle, given: pa.Table, *rest: Any) -> Any:
        tries.append(len(given))
        other.evolve(properties={"delta.appendOnly": "true" if len(tries) % 2 else "false"})
        return real(handle, given, *rest)

    monkeypatch.setattr(pipeline, "ingest", restless)
    with pytest.raises(alluvia.errors.MetadataChanged):
        send(lake, '{"event_id":"b"}')
    assert (tries, ids(lake)) == ([1] * 5, ["a"])
