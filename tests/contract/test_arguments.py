"""Arguments that make no sense: `Invalid` names the argument, and what it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.api.lake import Table
from alluvia.errors import Invalid


@pytest.fixture
def table() -> Iterator[Table]:
    lake = alluvia.connect("memory://arguments")
    table = lake.create_table("t", {"id": "long", "s": "string"}, exist_ok=True)
    table.append([{"id": 1, "s": "x"}])
    before = table.snapshot().version
    yield table
    assert lake.table("t").snapshot().version == before
    assert lake.tables() == ["t"]


CASES: dict[str, tuple[Callable[[Any], object], str]] = {
    "no schema": (lambda t: t.lake.create_table("u", None), "schema: expected a pyarrow schema or a mapping"),
    "names alone": (lambda t: t.lake.create_table("u", ["a"]), "schema: expected a pyarrow schema or a mapping"),
    "a type of Python's": (lambda t: t.lake.create_table("u", {"a": int}), "column a: expected a type's name"),
    "a number for a name": (lambda t: t.lake.create_table("u", {1: "long"}), "column name: expected text"),
    "events, names alone": (
        lambda t: t.lake.create_events("u", ["a"]),
        "schema: expected a pyarrow schema or a mapping",
    ),
    "events, a type": (lambda t: t.lake.create_events("u", {"a": int}), "column a: expected a type's name"),
    "one partition": (lambda t: t.lake.create_table("u", {"a": "long"}, "a"), "partition_by: expected a list of names"),
    "one sort": (lambda t: t.lake.create_table("u", {"a": "long"}, [], "a"), "sort_by: expected a list of names"),
    "scan where": (lambda t: t.scan(where=5), "where: expected text, such as 'id = 1', got 5"),
    "scan columns": (lambda t: t.scan("id"), "columns: expected a list of names"),
    "delete": (lambda t: t.delete(None), "where: expected text, such as 'id = 1', got None"),
    "update where": (lambda t: t.update({"s": "'y'"}, where=True), "where: expected text"),
    "upsert when": (
        lambda t: t.upsert([{"id": 1}], on=["id"], when=5),
        "^when: expected text, such as 'new.id > 0', got 5",
    ),
    "upsert columns": (lambda t: t.upsert([{"id": 1}], on=["id"], columns="s"), "^columns: expected a list of names"),
    "sql": (lambda t: t.lake.sql(None), "query: expected text, such as 'SELECT 1', got None"),
    "vacuum": (lambda t: t.vacuum(5), r"retention: expected a timedelta, such as timedelta\(days=7\), got 5"),
    "vacuum back": (lambda t: t.vacuum(timedelta(-1)), "retention: -1 day.* is negative"),
    "target size": (
        lambda t: t.optimize(target_size="1 MB"),
        "target_size: expected a whole number above 0, got '1 MB'",
    ),
    "not a size": (lambda t: t.optimize(target_size=0), "target_size: expected a whole number above 0, got 0"),
    "memory": (lambda t: t.optimize(memory_mb=1.5), "memory_mb: expected a whole number above 0, got 1.5"),
    "convert": (lambda t: t.lake.convert(None, "u"), "path: expected text, such as 'u', got None"),
    "a number too great": (lambda t: t.append([{"id": 2}], txn=("a", 2**63)), "txn: expected a string and a number"),
    "an id of its own": (
        lambda t: t.append([{"id": 2}], txn=("alluvia.branch:fix", 1)),
        r"txn: application ids that begin with alluvia\. are Alluvia's own, got 'alluvia\.branch:fix': use another",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_argument_is_named(table: Table, case: str) -> None:
    act, message = CASES[case]
    with pytest.raises(Invalid, match=message):
        act(table)


@pytest.mark.parametrize("place", [None, 5, b"x", ""])
@pytest.mark.parametrize("open_it", [alluvia.connect, alluvia.open_table])
def test_a_place_is_a_path_or_a_uri(open_it: Callable[[Any], object], place: Any) -> None:
    with pytest.raises(Invalid, match="uri: expected a path or a URI"):
        open_it(place)


def test_a_path_object_is_a_place(tmp_path: Path) -> None:
    table = alluvia.connect(tmp_path).create_table("t", {"id": "long"})
    table.append([{"id": 1}])
    assert alluvia.open_table(tmp_path / "t").scan().read_all()["id"].to_pylist() == [1]


def test_event_tables_take_the_columns_that_tables_take() -> None:
    lake = alluvia.connect("memory://event-columns")
    given: dict[str, Any] = {"status": "long", "at": pa.timestamp("us", "UTC")}
    schema = pa.schema([("status", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    assert lake.create_events("a", given).schema.equals(lake.create_events("b", schema).schema)
    with lake.transaction() as tx:
        tx.create_events("c", {"status": "long"})
    assert lake.table("c").schema.field("status").type == pa.int64()
