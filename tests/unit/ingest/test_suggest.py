"""Columns that are suggested for fields of events, and filled once they are there."""

from __future__ import annotations

from itertools import count

import orjson
import pyarrow as pa
import pytest

from alluvia.clock import ManualClock
from alluvia.errors import TableNotFound
from alluvia.ingest.envelope import split
from alluvia.ingest.pipeline import Answer, ingest_batch
from alluvia.ingest.suggest import suggest
from alluvia.ingest.values import Limits
from alluvia.lake import Lake
from alluvia.store import MemoryStore

NUMBERS = count()
ARRIVAL_US = 1_700_000_000_000_000


@pytest.fixture
def lake() -> Lake:
    made = Lake(MemoryStore(f"suggest-{next(NUMBERS)}"), ManualClock(ARRIVAL_US, next(NUMBERS)))
    made.create_events("clicks", pa.schema([("status", pa.int64())]))
    return made


def send(lake: Lake, *events: dict[str, object]) -> Answer:
    found = split(b"\n".join(map(orjson.dumps, events)), content_type=None, content_encoding=None, limits=Limits())
    return ingest_batch(lake, "clicks", found.events, found.rejects, arrival_us=ARRIVAL_US)


def types(lake: Lake, sample: int = 10_000) -> dict[str, str | None]:
    return {each.field: each.type for each in lake["clicks"].suggest(sample)}


def test_a_type_is_one_that_all_values_fit_exactly(lake: Lake) -> None:
    send(
        lake,
        {"whole": 1, "part": 1, "flag": True, "day": "2026-11-20", "at": "2026-11-20T10:00:00Z", "word": "a"},
        {
            "whole": 2**40,
            "part": 0.5,
            "flag": False,
            "day": "2026-11-21",
            "at": "2026-11-20T10:00:00.5+02:00",
            "word": "b",
        },
        {"whole": None, "day": None},
    )
    wanted = {"whole": "long", "part": "double", "flag": "boolean", "day": "date", "at": "timestamp", "word": "string"}
    assert types(lake) == wanted


def test_what_no_column_could_hold_is_shown_without_a_type(lake: Lake) -> None:
    send(lake, {"mixed": 1, "object": {"a": 1}, "list": [1], "Plan": "x", "my key": 1}, {"mixed": "a", "plan": "y"})
    assert types(lake) == dict.fromkeys(["mixed", "object", "list", "Plan", "plan", "my key"])
    notes = {each.field: each.note for each in lake["clicks"].suggest()}
    assert notes["mixed"] == "its values are a number, a string"
    assert "case" in str(notes["plan"])
    assert "Delta does not allow" in str(notes["my key"])


def test_numbers_that_a_double_would_round_are_no_double() -> None:
    lake = Lake(MemoryStore(f"suggest-{next(NUMBERS)}"), ManualClock(ARRIVAL_US, next(NUMBERS)))
    lake.create_events("clicks")
    found = split(b'{"n":0.12345678901234567891}', content_type=None, content_encoding=None, limits=Limits())
    ingest_batch(lake, "clicks", found.events, arrival_us=ARRIVAL_US)
    assert types(lake) == {"n": None}


def test_coverage_counts_the_events_that_have_a_field_rejected_ones_too(lake: Lake) -> None:
    send(lake, {"a": 1}, {"a": 1, "b": 1}, {}, {"status": "x", "b": 2})
    found = {each.field: each.coverage for each in lake["clicks"].suggest()}
    assert found == {"a": 0.5, "b": 0.5}


def test_a_table_that_knows_events_by_their_ids_alone_is_offered_no_column_source(lake: Lake) -> None:
    schema = pa.schema([field for field in lake["clicks"].schema if field.name not in ("source", "status")])
    lake.drop_table("clicks")
    lake.create_table("clicks", schema)
    send(lake, {"event_id": "1", "source": "shop", "Source": "x", "plan": "pro"})
    assert set(types(lake)) == {"Source", "plan"}


def test_the_newest_events_are_looked_at(lake: Lake) -> None:
    for at in range(12):
        assert isinstance(lake.clock, ManualClock)
        lake.clock.advance(1.0)
        send(lake, {f"field{at}": 1})
    assert set(types(lake, 8)) == {f"field{at}" for at in range(4, 12)}


def test_there_are_bounds_to_what_is_counted(lake: Lake) -> None:
    events: list[dict[str, object]] = [{f"id{at}": 1} for at in range(1200)]
    send(lake, *events)
    assert len(types(lake)) == 1000


def test_a_column_takes_the_field_of_new_events_their_own_or_one_of_properties(lake: Lake) -> None:
    send(lake, {"event_id": "a", "plan": "pro"})
    lake["clicks"].evolve({"plan": str(types(lake)["plan"])})
    send(
        lake,
        {"event_id": "b", "plan": "free"},
        {"event_id": "c", "properties": {"plan": "team", "page": "/"}},
        {"event_id": "d", "plan": "own", "properties": {"plan": "other"}},
        {"event_id": "e", "source": "web", "properties": {"source": "ad", "event": "x"}},
    )
    rows = lake["clicks"].to_arrow(["event_id", "plan", "source", "properties"]).to_pylist()
    assert {row.pop("event_id"): row for row in rows} == {
        "a": {"plan": None, "source": None, "properties": '{"plan":"pro"}'},
        "b": {"plan": "free", "source": None, "properties": None},
        "c": {"plan": "team", "source": None, "properties": '{"page":"/"}'},
        "d": {"plan": "own", "source": None, "properties": '{"plan":"other"}'},
        "e": {"plan": None, "source": "web", "properties": '{"source":"ad","event":"x"}'},
    }
    assert "plan" not in {each.field for each in lake["clicks"].suggest()}


def test_a_field_of_properties_that_its_column_cannot_hold_rejects_the_event_as_it_was(lake: Lake) -> None:
    answer = send(lake, {"properties": {"status": "x", "page": "/"}})
    assert [each.reason for each in answer.rejects] == ["status: expected a number (long), got a string"]
    assert answer.rejects[0].raw == b'{"properties":{"status":"x","page":"/"}}'


def test_a_table_without_properties_and_no_table(lake: Lake) -> None:
    lake.create_table("plain", {"event_id": "string"})
    found = split(b'{"event_id":"a","n":1}', content_type=None, content_encoding=None, limits=Limits())
    assert ingest_batch(lake, "plain", found.events, arrival_us=ARRIVAL_US).rejected == 1
    assert [(each.field, each.type, each.coverage) for each in suggest(lake, "plain")] == [("n", "long", 1.0)]
    with pytest.raises(TableNotFound):
        suggest(lake, "views")
