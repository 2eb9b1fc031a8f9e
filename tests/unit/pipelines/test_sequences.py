"""Changes by key: newer ones are folded into the table, late ones come out as if they had come in time."""

from __future__ import annotations

from typing import Any

import pytest

from alluvia.api.lake import Lake, Table
from tests.property.shared_rows import SharedRows
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


def test_a_key_that_was_deleted_twice_has_no_current_row(lake: Lake, feed: Table, declare: Declare) -> None:
    pipeline = declare(TWO)
    add(feed, ("a", 5, "d"), ("a", 9, "d"))
    pipeline.run()
    add(feed, ("a", 7, "u"), ("b", 20, "d"))  # after the first of them, and before the second
    pipeline.run()
    add(feed, ("b", 21, "u"))
    pipeline.run()
    assert rows(lake, "two") == [
        ("a", 1, "i", 1, 5, False), ("a", 7, "u", 7, 9, False),
        ("b", 2, "i", 2, 20, False), ("b", 21, "u", 21, None, True), ("c", 3, "i", 3, None, True),
    ]  # fmt: skip


def test_rows_of_a_first_run_are_shared_out(lake: Lake, feed: Table, declare: Declare) -> None:
    add(feed, ("a", 3, "d"))
    execution = SharedRows(lake.evaluation())
    (report,) = declare(ONE).run(execution=execution)
    assert (report.error, execution.shared) == (None, 2)
    add(feed, ("a", 2, "u"), ("b", 4, "u"))
    declare(ONE).run()
    assert rows(lake, "one") == [("b", 4, "u"), ("c", 3, "i")]


@pytest.mark.parametrize("action", ["DROP ROW", "QUARANTINE"])
def test_changes_that_an_expectation_left_out_win_once_it_is_gone(
    lake: Lake, feed: Table, declare: Declare, action: str
) -> None:
    plain = ONE.replace(" DELETE WHEN op = 'd'", "")
    checked = f"TABLE one (CONSTRAINT c EXPECT (op <> 'bad') ON VIOLATION {action})"
    add(feed, ("a", 10, "bad"))
    declare(plain.replace("TABLE one", checked)).run()
    assert rows(lake, "one") == [("b", 2, "i"), ("c", 3, "i")]
    add(feed, ("a", 5, "u"), ("c", 4, "u"))
    declare(plain).run()
    assert rows(lake, "one") == [("a", 10, "bad"), ("b", 2, "i"), ("c", 4, "u")]


def test_a_deleted_key_stays_so_after_an_expectation_is_gone(lake: Lake, feed: Table, declare: Declare) -> None:
    add(feed, ("z", 10, "d"))
    declare(ONE.replace("TABLE one", "TABLE one (CONSTRAINT c EXPECT (seq > 0) ON VIOLATION DROP ROW)")).run()
    pipeline = declare(ONE)
    for change in (("y", 5, "i"), ("z", 7, "u")):
        add(feed, change)
        pipeline.run()
    assert [key for key, *_ in rows(lake, "one")] == ["a", "b", "c", "y"]


@pytest.mark.parametrize("name", ["latest", "least", "again"])
def test_columns_may_have_any_name(lake: Lake, feed: Table, declare: Declare, name: str) -> None:
    pipeline = declare(f"CREATE TABLE one KEY ({name}) SEQUENCE BY seq AS SELECT k AS {name}, seq, op FROM feed")
    pipeline.run()
    add(feed, ("a", 8, "u"), ("b", -1, "late"))
    (report,) = pipeline.run()
    assert (report.error, rows(lake, "one")) == (None, [("a", 8, "u"), ("b", 2, "i"), ("c", 3, "i")])
