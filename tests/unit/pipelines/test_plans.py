"""What a pipeline would do, and where its tables stand, from the logs alone."""

from __future__ import annotations

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.rollups import change
from alluvia.store.counting import CountingStore
from tests.unit.pipelines.conftest import Declare

COPY = "CREATE TABLE copy AS SELECT * FROM events"
TOTALS = "CREATE TABLE totals AS SELECT visitor, sum(n) AS s FROM events GROUP BY visitor"


def test_a_plan_says_that_the_schema_of_a_new_table_is_missing(lake: Lake, events: Table, declare: Declare) -> None:
    pipeline = declare(COPY.replace("TABLE copy", "TABLE gold.copy"))
    for row in (*pipeline.plan(), *pipeline.status()):
        assert row["mode"] == "refused"
        assert "create it with CREATE SCHEMA gold" in str(row["why"])
    lake.create_schema("gold")
    assert [row["mode"] for row in pipeline.plan()] == ["rebuilt"]


def test_plan_and_status_come_from_the_log(lake: Lake, events: Table, declare: Declare) -> None:
    pipeline = declare(COPY, TOTALS.replace("events", "copy"))
    planned = pipeline.plan()
    assert [(row["table"], row["mode"], row["after"]) for row in planned] == [
        ("copy", "rebuilt", []), ("totals", "rebuilt", ["copy"]),
    ]  # fmt: skip
    pipeline.run()
    events.append([{"id": 4, "visitor": "b", "n": 5}])
    copy, totals = pipeline.plan()
    assert (copy["mode"], copy["sources"], copy["rows"]) == ("appended", {"events": {"from": 1, "to": 2}}, 1)
    assert (copy["files"], copy["engine"]) == (1, "duckdb")
    assert (totals["mode"], totals["rows"], totals["why"], totals["after"]) == ("changed", None, "after copy", ["copy"])
    copy, totals = pipeline.status()
    assert (copy["behind"], copy["mode"], totals["behind"]) == ({"events": 1}, "appended", {"copy": 0})


def test_a_full_table_reads_commits_until_one_changes_rows(
    lake: Lake, other: Lake, events: Table, store: CountingStore, declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = "CREATE TABLE counted KIND FULL AS SELECT count(*) AS c FROM events"
    assert [each.error for each in declare(counted).run()] == [None]
    monkeypatch.setattr(change, "COMMITS_AT_ONCE", 2)
    events.optimize(full=True)
    for number in range(12):
        events.append([{"id": number, "visitor": "z", "n": 1}])
    events.checkpoint()
    store.reset()
    (plan,) = declare(counted, on=other).plan()
    assert plan["mode"] == "rebuilt"
    read = [key for kind, key in store.keys if kind == "get" and key.startswith("events/_delta_log/0")]
    # 13 is the newest version; of those before, a batch that has the first append
    assert sorted(int(key[-25:-5]) for key in read if key.endswith(".json")) == [2, 3, 13]
