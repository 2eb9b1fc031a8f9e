"""An erasure finds a field wherever rows have it: in columns old and new, in `properties`, in files and in rejects."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.errors import Invalid
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import RawEvent, Reject
from tests.erased import traces
from tests.unit.operations.erasure.people import VICTIM, WHERE, post


def post_broken(lake: Lake, *raws: bytes) -> None:
    rejects = [Reject(at + 1, "it is not a JSON object", raw) for at, raw in enumerate(raws)]
    sent = [RawEvent(0, {"event": "a", "event_id": "1", "user_id": "bob"})]
    ingest_batch(lake.catalog, "events", sent, rejects, arrival_us=lake.clock.now_us(), create=True)


def people(table: Table) -> list[str]:
    found: list[str] = table.to_arrow(["event_id"])["event_id"].to_pylist()
    return sorted(found)


def test_a_field_that_became_a_column_later_is_found_in_older_events(lake: Lake) -> None:
    post(lake, {"event_id": "old", "user_id": VICTIM}, {"event_id": "alice", "user_id": "alice"})
    events = lake.table("events")
    events.evolve({"user_id": "string"})
    post(lake, {"event_id": "new", "user_id": VICTIM}, {"event_id": "bob", "user_id": "bob"})

    found = events.erase(WHERE, dry_run=True)
    assert not found.ok
    report = events.erase(WHERE, prove=True)

    assert (report.rows, report.ok) == (2, True)
    assert people(events) == ["alice", "bob"]
    assert traces(lake.store, VICTIM) == []


def test_a_field_without_a_column_is_found_in_properties(lake: Lake) -> None:
    post(lake, {"event_id": "a", "user_id": VICTIM}, {"event_id": "b", "user_id": "bob"}, {"event_id": "c"})
    events = lake.table("events")
    events.checkpoint()
    report = events.erase(WHERE, prove=True)
    assert (report.rows, report.ok) == (1, True)
    assert people(events) == ["b", "c"]
    assert traces(lake.store, VICTIM) == []


@pytest.mark.parametrize(
    ("where", "gone"),
    [
        ("customer = 42", "number"),
        ("customer = '42'", "number text"),
        ("customer > 41 AND customer < 43", "number"),
        ("paid", "paid"),
        ("account.id = 'x'", "inside"),
        ("day = DATE '2026-03-01'", "day"),
        ("upper(name) = 'MALLORY'", "name"),
        (f"properties ->> 'user_id' = '{VICTIM}'", "user"),
        (f"json_extract_string(properties, '$.user_id') = '{VICTIM}'", "user"),
    ],
)
def test_fields_in_properties_are_compared_as_sql_does(lake: Lake, where: str, gone: str) -> None:
    sent: dict[str, dict[str, Any]] = {
        "number": {"customer": 42},
        "text": {"customer": "42"},
        "paid": {"paid": True},
        "inside": {"account": {"id": "x"}},
        "day": {"day": "2026-03-01"},
        "name": {"name": "Mallory"},
        "user": {"user_id": VICTIM},
    }
    others: dict[str, dict[str, Any]] = {
        "zero": {"customer": 0, "paid": False, "account": {"id": "y"}, "name": "bob", "user_id": "bob"}
    }
    post(lake, *({"event_id": name, **fields} for name, fields in (sent | others).items()))
    events = lake.table("events")
    gone_too = {"text"} if "customer" in where else set()
    report = events.erase(where, prove=True)
    left = set(sent | others) - set(people(events))
    assert left == {*gone.replace("number text", "number").split(), *gone_too}
    assert report.ok


def test_a_condition_on_a_key_of_properties_finds_the_column_that_has_it_now(lake: Lake) -> None:
    post(lake, {"event_id": "old", "user_id": VICTIM})
    events = lake.table("events")
    events.evolve({"user_id": "string"})
    post(lake, {"event_id": "new", "user_id": VICTIM}, {"event_id": "bob", "user_id": "bob"})
    report = events.erase(f"properties ->> 'user_id' = '{VICTIM}'", prove=True)
    assert (report.rows, report.ok) == (2, True)
    assert people(events) == ["bob"]
    assert traces(lake.store, VICTIM) == []


def test_all_values_that_a_row_has_of_a_field_count(lake: Lake) -> None:
    lake.create_events("events", pa.schema([("user_id", pa.string())]))
    post(
        lake,
        {"event_id": "own", "user_id": "alice", "properties": {"user_id": VICTIM}},
        {"event_id": "clash", "properties": {"plan": "free", "user_id": "x"}, "plan": "gold"},
        {"event_id": "bob", "user_id": "bob"},
    )
    events = lake.table("events")
    assert events.erase(WHERE, prove=True).rows == 1
    assert events.erase("plan = 'gold'", prove=True).rows == 1
    assert people(events) == ["bob"]


def test_a_field_deeper_in_properties_is_named_and_left(lake: Lake) -> None:
    post(lake, {"event_id": "a", "context": {"user_id": VICTIM}}, {"event_id": "b", "user_id": VICTIM})
    events = lake.table("events")
    report = events.erase(WHERE)
    assert (report.rows, report.ok) == (1, False)
    [trace] = report.unjudged
    assert "context.user_id" in trace.why
    assert VICTIM not in trace.why
    proof = events.erase(WHERE, prove=True).proof
    assert proof is not None
    assert [each.key for each in proof.found] == [trace.key]
    assert events.erase(f"context.user_id = '{VICTIM}'", prove=True).ok
    assert people(events) == []
    assert traces(lake.store, VICTIM) == []


def test_a_null_is_no_field(lake: Lake) -> None:
    """A condition that holds for whatever lacks a field takes no row of a table that has no place for it."""
    post(lake, {"event_id": "a"}, {"event_id": "b", "user_id": VICTIM})
    events = lake.table("events")
    report = events.erase("user_id IS NULL", prove=True)
    assert (report.rows, report.ok) == (0, False)
    assert people(events) == ["a", "b"]


def test_former_names_of_a_column_are_the_column(lake: Lake) -> None:
    table = lake.create_table("t", {"uid": "string", "n": "long"})
    table.append([{"uid": VICTIM, "n": 1}, {"uid": "bob", "n": 2}])
    table.evolve(rename={"uid": "user_id"})
    table.append([{"user_id": VICTIM, "n": 3}])
    report = table.erase(f"uid = '{VICTIM}'", prove=True)
    assert (report.rows, report.ok) == (2, True)
    assert table.to_arrow(["n"])["n"].to_pylist() == [2]
    assert traces(lake.store, VICTIM) == []


def test_a_column_that_was_dropped_is_found_in_files(lake: Lake) -> None:
    table = lake.create_table("t", {"user_id": "string", "n": "long"})
    table.append([{"user_id": VICTIM, "n": 1}, {"user_id": "bob", "n": 2}])
    table.evolve(drop=["user_id"])
    report = table.erase(WHERE, prove=True)
    assert (report.rows, report.ok) == (1, True)
    assert table.to_arrow(["n"])["n"].to_pylist() == [2]
    assert traces(lake.store, VICTIM) == []


def test_a_table_without_such_a_field_refuses_it(lake: Lake) -> None:
    table = lake.create_table("t", {"n": "long"})
    with pytest.raises(Invalid, match="user_id"):
        table.erase(WHERE)
    assert table.erase(WHERE, prove=True, anywhere=True).ok


def test_files_of_a_column_that_a_new_table_has_not_are_found(lake: Lake) -> None:
    lake.create_table("t", {"user_id": "string"}).append([{"user_id": VICTIM}])
    lake.drop_table("t")
    table = lake.create_table("t", {"n": "long"})
    report = table.erase(WHERE, prove=True, anywhere=True)
    assert traces(lake.store, VICTIM) == []
    assert report.ok


@pytest.mark.parametrize("column", [".team", "_team", "team"])
def test_folders_that_look_hidden_are_searched(lake: Lake, column: str) -> None:
    table = lake.create_table("t", {column: "string", "u": "string", "n": "long"}, partition_by=[column])
    table.append([{column: "red", "u": VICTIM, "n": 1}, {column: "red", "u": "bob", "n": 2}])
    table.delete(f"u = '{VICTIM}'")
    found = table.erase(f"u = '{VICTIM}'", dry_run=True)
    assert not found.ok
    assert table.erase(f"u = '{VICTIM}'", prove=True).ok
    assert traces(lake.store, VICTIM) == []


@pytest.mark.parametrize("column", [".team", "_team"])
def test_vacuum_deletes_files_in_folders_that_look_hidden(lake: Lake, column: str) -> None:
    table = lake.create_table("t", {column: "string", "n": "long"}, partition_by=[column])
    table.append([{column: "red", "n": 1}])
    table.delete("n = 1")
    table.vacuum(timedelta(0))
    assert not list(lake.store.list(f"t/{column}=red/"))
    assert table.verify(full=True).ok


def test_rejects_are_found_by_fields_without_a_column(lake: Lake) -> None:
    lake.create_table("events", {"event_id": "string", "n": "long"})
    post(lake, {"event_id": "a", "user_id": VICTIM}, {"event_id": "b", "user_id": "bob"})
    rejects = lake.table("events/_rejects")
    assert rejects.count() == 2
    report = lake.table("events").erase(WHERE, prove=True, anywhere=True)
    assert report.rejects is not None
    assert (report.rejects.rows, report.ok) == (1, True)
    assert traces(lake.store, VICTIM) == []


def test_bounds_of_properties_go(lake: Lake) -> None:
    """Statistics have the beginning of a text, in which a value may end."""
    post(lake, {"event_id": "a", "user_id": VICTIM})
    events = lake.table("events")
    events.checkpoint()
    events.delete("event_id = 'a'")
    events.vacuum(timedelta(0))
    assert traces(lake.store, VICTIM[:10])
    assert events.erase(WHERE, prove=True).ok
    assert traces(lake.store, VICTIM[:10]) == []


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (rb'{"event": "a", "user_id": "jos\u00e977", cut', "josé77"),
        (rb'{"event": "a", "user_id": "jos\u00E977", cut', "josé77"),
        (rb'["jos\u00e977"]', "josé77"),
        (rb'{"user_id": "a\/zed99", cut', "a/zed99"),
        (rb'{"user_id": "say \"zed99\"", cut', 'say "zed99"'),
        (rb'{"body": "{\"user_id\": \"jos\\u00e977\"}", cut', "josé77"),
        (b"event=a&user_id=zed99%40x, cut", "zed99@x"),
        (b"event=a&user_id=jos%C3%A977, cut", "josé77"),
        (b"event=a&user_id=jos%c3%a977, cut", "josé77"),
        (b"event=a&note=by%20zed99%20too, cut", "zed99"),
        (rb'{"note": "by:\nzed99\ttoo", cut', "zed99"),
        (rb'{"note": "by:\u00a0zed99", cut', "zed99"),
    ],
)
def test_rejects_that_are_no_objects_are_searched_for_what_they_escape(lake: Lake, raw: bytes, value: str) -> None:
    post_broken(lake, raw, b'"carol", cut')
    rejects = lake.table("events/_rejects")
    assert rejects.count() == 2

    report = lake.table("events").erase(f"user_id = '{value}'", prove=True)

    assert report.rejects is not None
    assert (report.rejects.rows, report.ok) == (1, True)
    assert rejects.to_arrow(["raw"])["raw"].to_pylist() == [b'"carol", cut']


@pytest.mark.parametrize("where", ["user_id LIKE 'zed99%'", "lower(user_id) = 'zed99@x'", "user_id <> 'bob'"])
def test_rejects_that_a_condition_cannot_judge_are_named(lake: Lake, where: str) -> None:
    post_broken(lake, b'{"user_id": "Zed99@x", cut')
    report = lake.table("events").erase(where, prove=True)
    assert not report.ok
    assert report.rejects is not None
    assert report.rejects.proof is not None
    assert any("some of its rejects are not JSON objects" in trace.why for trace in report.rejects.proof.found)
