"""Columns that are suggested for fields of events, and filled once they are there."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from itertools import count

import orjson
import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import TableNotFound
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.suggest import suggest
from alluvia.events.ingest.values import IngestOutcome, Limits
from alluvia.store import CountingStore, MemoryStore

NUMBERS = count()
ARRIVAL_US = 1_700_000_000_000_000


@pytest.fixture
def lake() -> Lake:
    made = Lake(MemoryStore(f"suggest-{next(NUMBERS)}"), ManualClock(ARRIVAL_US, next(NUMBERS)))
    made.create_events("clicks", pa.schema([("status", pa.int64())]))
    return made


def send(lake: Lake, *events: Mapping[str, object]) -> IngestOutcome:
    found = split(b"\n".join(map(orjson.dumps, events)), content_type=None, content_encoding=None, limits=Limits())
    return ingest_batch(lake.catalog, "clicks", found.events, found.rejects, arrival_us=ARRIVAL_US)


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


def test_texts_of_digits_are_no_times(lake: Lake) -> None:
    send(lake, {"event_id": "a", "order": "1577880000", "at": "20200101T12Z", "day": "20200101"})
    assert types(lake) == {"order": "string", "at": "timestamp", "day": "string"}


def test_fields_whose_times_cannot_be_read_come_first(lake: Lake) -> None:
    send(lake, {"event_id": "a", "ts": "noon"}, {"event_id": "b", "ts": "soon"}, {"event_id": "c", "time": "late"})
    send(lake, {"event_id": "d", "ts": "2020-01-01", "time": "morning"}, {"event_id": "e", "ts": 1_577_880_000})
    send(lake, {"event_id": "f", "ts": "2020-01-01T00:00:00.0000001Z"}, {"event_id": "g", "status": "x", "ts": "never"})
    [ts, time, *others] = lake["clicks"].suggest()
    assert (ts.field, ts.type, ts.coverage, ts.events, ts.example) == ("ts", None, round(3 / 7, 4), 7, '"noon"')
    assert (time.field, time.coverage, time.example) == ("time", round(1 / 7, 4), '"late"')
    assert "send ISO 8601" in str(ts.note)
    assert [(each.field, each.type) for each in others] == [("time", "string")]


def test_the_field_that_a_property_names_is_looked_at(lake: Lake) -> None:
    lake["clicks"].evolve(properties={"alluvia.time_field": "data.at"})
    send(lake, {"event_id": "a", "ts": "2020-01-01", "data": {"at": "noon"}}, {"event_id": "b", "data": {"at": 10**9}})
    odd, *_ = lake["clicks"].suggest()
    assert (odd.field, odd.coverage, odd.example) == ("data.at", 0.5, '"noon"')


def test_what_no_column_could_hold_is_shown_without_a_type(lake: Lake) -> None:
    send(lake, {"mixed": 1, "object": {"a": 1}, "list": [1], "Plan": "x", "my key": 1}, {"mixed": "a", "plan": "y"})
    assert types(lake) == dict.fromkeys(["mixed", "object", "list", "Plan", "plan", "my key"])
    notes = {each.field: each.note for each in lake["clicks"].suggest()}
    assert notes["mixed"] == "its values are a number, a string"
    assert notes["object"] == (
        "a column would refuse objects with other fields, so it is for you to add: --add 'object:struct<field:type>'"
    )
    assert str(notes["list"]).endswith("--add 'list:array<type>'")
    lake["clicks"].evolve(pa.schema([("object", pa.struct([("a", pa.int64())])), ("list", pa.list_(pa.int64()))]))
    assert send(lake, {"object": {"a": 1}, "list": [1]}).stored == 1
    assert "case" in str(notes["plan"])
    assert str(notes["my key"]).endswith("so it is for you to add: --add 'my key:long'")
    lake["clicks"].evolve({"my key": "long"})
    send(lake, {"my key": 2, "other key": "x"})
    assert types(lake)["other key"] == "string"


def test_numbers_that_a_double_would_round_are_no_double() -> None:
    lake = Lake(MemoryStore(f"suggest-{next(NUMBERS)}"), ManualClock(ARRIVAL_US, next(NUMBERS)))
    lake.create_events("clicks")
    found = split(b'{"n":0.12345678901234567891}', content_type=None, content_encoding=None, limits=Limits())
    ingest_batch(lake.catalog, "clicks", found.events, arrival_us=ARRIVAL_US)
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


def test_older_files_are_looked_at_where_the_newest_are_small(lake: Lake) -> None:
    assert isinstance(lake.clock, ManualClock)
    send(lake, *({"x": "text" if at % 2 else 1} for at in range(900)))
    for _ in range(70):
        lake.clock.advance(1.0)
        send(lake, {"x": 1})
    store = CountingStore(lake.store)
    [found] = Lake(store, lake.clock)["clicks"].suggest(1000)
    assert (found.type, found.note, found.events) == (None, "its values are a number, a string", 963)
    read = [key for kind, key in store.keys if kind == "get" and key.endswith(".parquet") and "_delta_log" not in key]
    assert len(read) == 64
    [found] = lake["clicks"].suggest(10)
    assert (found.type, found.events) == ("long", 10)


def test_files_that_are_read_have_a_bound(lake: Lake) -> None:
    assert isinstance(lake.clock, ManualClock)
    for _ in range(70):
        lake.clock.advance(1.0)
        send(lake, {"x": 1})
    assert [each.events for each in lake["clicks"].suggest(70)] == [64]


def test_a_sample_is_of_several_files_and_full(lake: Lake) -> None:
    assert isinstance(lake.clock, ManualClock)
    for at in range(3):
        lake.clock.advance(1.0)
        send(lake, *({f"file{at}": 1} for _ in range(4 + 20 * at)))
    found = {each.field: (each.coverage, each.events) for each in lake["clicks"].suggest(40)}
    assert found == {"file2": (0.45, 40), "file1": (0.45, 40), "file0": (0.1, 40)}


def test_rejects_that_are_no_objects_do_not_count(lake: Lake) -> None:
    send(lake, *({"page": "/"} for _ in range(20)))
    found = split(b"garbage\n[1]\n" * 90, content_type=None, content_encoding=None, limits=Limits())
    assert ingest_batch(lake.catalog, "clicks", found.events, found.rejects, arrival_us=ARRIVAL_US).rejected == 180
    assert [(each.field, each.coverage, each.events) for each in lake["clicks"].suggest()] == [("page", 1.0, 20)]


def test_names_that_the_change_feed_uses_get_no_type(lake: Lake) -> None:
    send(lake, {"_change_type": "a", "_Commit_Version": 1, "_commit_timestamp": 2, "_commit": 3})
    found = {each.field: (each.type, each.note) for each in lake["clicks"].suggest()}
    note = "with a column of that name the table has no change feed: send another name"
    refused = dict.fromkeys(("_change_type", "_Commit_Version", "_commit_timestamp"), (None, note))
    assert found == {"_commit": ("long", None), **refused}


def test_whole_numbers_beyond_a_long_are_decimals_and_fit_them(lake: Lake) -> None:
    event = {"hash": 2**64 - 1, "large": 10, "double": 1e19}
    send(lake, {**event, "hash": 2**63}, event)
    wide = split(b'{"large":123456789012345678901234567890}', content_type=None, content_encoding=None, limits=Limits())
    ingest_batch(lake.catalog, "clicks", wide.events, arrival_us=ARRIVAL_US)
    found = types(lake)
    assert found == {"hash": "decimal(20,0)", "large": "decimal(38,0)", "double": "double"}
    lake["clicks"].evolve({name: str(kind) for name, kind in found.items()})
    assert send(lake, event).rejects == []
    assert Decimal(2**64 - 1) in lake["clicks"].to_arrow(["hash"])["hash"].to_pylist()


def test_there_are_bounds_to_what_is_counted(lake: Lake) -> None:
    events: list[dict[str, object]] = [{f"id{at}": 1} for at in range(1200)]
    send(lake, *events)
    assert len(types(lake)) == 1000


def test_a_column_has_the_field_of_all_events_their_own_or_one_of_properties(lake: Lake) -> None:
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
        "a": {"plan": "pro", "source": None, "properties": '{"plan":"pro"}'},
        "b": {"plan": "free", "source": None, "properties": '{"plan":"free"}'},
        "c": {"plan": "team", "source": None, "properties": '{"plan":"team","page":"/"}'},
        "d": {"plan": "own", "source": None, "properties": '{"plan":"own","_properties":{"plan":"other"}}'},
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
    assert ingest_batch(lake.catalog, "plain", found.events, arrival_us=ARRIVAL_US).rejected == 1
    assert [(each.field, each.type, each.coverage) for each in suggest(lake.catalog, "plain")] == [("n", "long", 1.0)]
    with pytest.raises(TableNotFound):
        suggest(lake.catalog, "views")
