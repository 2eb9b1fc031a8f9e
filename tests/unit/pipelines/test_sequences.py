"""Changes by key: newer ones are folded into the table, late ones come out as if they had come in time."""

from __future__ import annotations

from typing import Any

import pytest

from alluvia.api.lake import Lake, Table
from tests.unit.pipelines.conftest import Declare

ONE = "CREATE TABLE one KEY (k) SEQUENCE BY seq DELETE WHEN op = 'd' AS SELECT * FROM feed"
TWO = "CREATE TABLE two KEY (k) SEQUENCE BY seq DELETE WHEN op = 'd' SCD TYPE 2 AS SELECT k, seq, op FROM feed"


@pytest.fixture
def feed(lake: Lake) -> Table:
    table = lake.create_table("feed", {"k": "string", "seq": "long", "op": "string"})
    add(table, ("a", 1, "i"), ("b", 2, "i"), ("c", 3, "i"))
    return table


def add(table: Table, *changes: tuple[str, int | None, str]) -> None:
    table.append([dict(zip(("k", "seq", "op"), change, strict=True)) for change in changes])


def rows(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(f"FROM {name} ORDER BY ALL").to_pylist()]


def test_newer_changes_replace_close_and_delete(lake: Lake, feed: Table, declare: Declare) -> None:
    pipeline = declare(ONE, TWO)
    pipeline.run()
    add(feed, ("a", 5, "u"), ("a", 6, "u"), ("b", 7, "d"), ("d", 8, "i"))
    assert [each.units for each in pipeline.run()] == [3, 3]
    assert rows(lake, "one") == [("a", 6, "u"), ("c", 3, "i"), ("d", 8, "i")]
    assert rows(lake, "two") == [
        ("a", 1, "i", 1, 5, False), ("a", 5, "u", 5, 6, False), ("a", 6, "u", 6, None, True),
        ("b", 2, "i", 2, 7, False), ("c", 3, "i", 3, None, True), ("d", 8, "i", 8, None, True),
    ]  # fmt: skip


def test_late_changes_find_their_place(lake: Lake, feed: Table, declare: Declare) -> None:
    pipeline = declare(ONE, TWO)
    add(feed, ("a", 9, "u"), ("b", 9, "d"))
    pipeline.run()
    add(feed, ("a", 4, "u"), ("b", 4, "u"), ("c", None, "u"))
    pipeline.run()
    assert rows(lake, "one") == [("a", 9, "u"), ("c", 3, "i")]
    assert rows(lake, "two") == [
        ("a", 1, "i", 1, 4, False), ("a", 4, "u", 4, 9, False), ("a", 9, "u", 9, None, True),
        ("b", 2, "i", 2, 4, False), ("b", 4, "u", 4, 9, False),
        ("c", 3, "i", 3, None, True), ("c", None, "u", None, 3, False),
    ]  # fmt: skip


def test_a_key_that_was_deleted_in_an_earlier_run_stays_so(lake: Lake, feed: Table, declare: Declare) -> None:
    pipeline = declare(ONE)
    add(feed, ("z", 100, "d"))
    pipeline.run()
    add(feed, ("a", 10, "u"))  # the greatest of its run, and not of all
    pipeline.run()
    add(feed, ("z", 50, "u"))
    pipeline.run()
    assert rows(lake, "one") == [("a", 10, "u"), ("b", 2, "i"), ("c", 3, "i")]


def test_rows_that_go_from_the_source_are_reflected(lake: Lake, feed: Table, declare: Declare) -> None:
    pipeline = declare(ONE, TWO)
    add(feed, ("a", 5, "u"))
    pipeline.run()
    feed.delete("seq = 5")
    feed.update({"op": "'x'"}, where="k = 'b'")
    pipeline.run()
    assert rows(lake, "one") == [("a", 1, "i"), ("b", 2, "x"), ("c", 3, "i")]
    assert rows(lake, "two")[0] == ("a", 1, "i", 1, None, True)
