"""Merge queries: which tables may have one, what optimize does with it, and that nothing depends on merges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.engine.duck.database import connect
from alluvia.errors import Invalid
from alluvia.operations.compaction.optimize import optimize
from alluvia.operations.merge_query import merge_query_checks
from alluvia.store import CountingStore
from tests.judges import judges_agree
from tests.unit.operations.ingesting import ingest, stored

SUMS = "SELECT user, sum(hits) AS hits FROM source GROUP BY user"
HITS = {"user": "string", "hits": "long"}
SCHEMA = pa.schema(
    [
        pa.field("user", pa.string()),
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("value", pa.string()),
        pa.field("hits", pa.int64()),
        pa.field("x", pa.float64()),
    ]
)
GROUPED = "SELECT user, max(ts) AS ts, min(value) AS value, sum(hits) AS hits, max(x) AS x FROM source GROUP BY user"
LOWER = GROUPED.replace("user, max", "lower(user) AS user, max").replace("BY user", "BY lower(user)")
NEWEST = "SELECT DISTINCT ON (user) * FROM source ORDER BY user, ts DESC, value, hits, x"


def declare(lake: Lake, query: str, schema: Any = SCHEMA, partition_by: Any = (), **properties: str) -> Table:
    given = {name.replace("_", ".", 1): value for name, value in properties.items()}
    return lake.create_table("t", schema, partition_by, properties={"alluvia.merge_query": query, **given})


def hits_of(lake: Lake, rows: Mapping[str, int] | None = None) -> Table:
    table = declare(lake, SUMS, HITS)
    for user, hits in (rows or {"a": 1, "b": 2}).items():
        table.append([{"user": user, "hits": hits}, {"user": "a", "hits": 1}])
    return table


def as_dict(rows: pa.Table) -> dict[str, int]:
    assert len(set(rows["user"].to_pylist())) == len(rows)
    return dict(zip(rows["user"].to_pylist(), rows["hits"].to_pylist(), strict=True))


def changed(old: str, new: str) -> str:
    assert old in GROUPED
    return GROUPED.replace(old, new)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (changed("sum(hits)", "count(*)"), r"when it runs over its own result\. .* write sum\(n\) AS n"),
        (changed("sum(hits)", "avg(hits)::BIGINT"), "merged before .* keep a sum and a number of rows"),
        (changed("max(x)", "sum(x)"), "depends on the order of rows.* make the column a decimal"),
        (changed("sum(hits)", "sum(2 * hits)"), "Compute each column from itself alone"),
        (changed("sum(hits)", "sum(DISTINCT hits)"), "merged before"),
        (changed("sum(hits)", "least(sum(hits), 1000)"), "merged before"),
        (changed("sum(hits)", "coalesce(sum(hits), 7)"), "merged before"),
        (changed("GROUP BY", "WHERE hits < 1000 GROUP BY"), "merged before"),
        (changed("min(value)", "string_agg(value, ',' ORDER BY value)"), "merged before"),
        (
            changed("min(value)", "arg_max(value, ts)"),
            r"order of rows.*SELECT DISTINCT ON \(user\) \* FROM source ORDER BY user, ts DESC, value, hits, x\.",
        ),
        ("SELECT DISTINCT ON (user) * FROM source ORDER BY user, ts DESC", "order of rows.* so that no rows tie"),
        (changed(", max(x) AS x", ""), "does not give the table's column x: select it"),
        (changed("max(x) AS x", "max(x) AS x, 1 AS y"), "gives y, which is not a column of the table"),
        (changed("sum(hits)", "max(x)"), "gives hits as DOUBLE, but the column is BIGINT: cast it"),
        (changed("max(ts)", "max(ts) FILTER (hits > 3)"), "can give a null in ts|merged before"),
        (changed("sum(hits)", "sum(nothing)"), 'fails on sample rows: .*"nothing" not found'),
    ],
)
def test_a_query_that_is_no_fixed_point_is_refused_with_what_to_write_instead(
    lake: Lake, query: str, reason: str
) -> None:
    with pytest.raises(Invalid, match=f"^property alluvia.merge_query: (?s:.*)(?:{reason})"):
        declare(lake, query)
    assert lake.tables() == []


@pytest.mark.parametrize(
    "query",
    [
        GROUPED,
        NEWEST,
        "SELECT DISTINCT * FROM source",
        changed("sum(hits)", "bit_xor(hits)"),
        changed("min(value)", "max(value) FILTER (value <> 'b')"),
        changed("GROUP BY", "WHERE user IS NOT NULL GROUP BY"),
    ],
)
def test_fixed_points_are_taken(lake: Lake, query: str) -> None:
    declare(lake, query)


def test_a_query_is_tried_once_for_new_tables_that_are_alike(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Mapping[str, str]] = []

    def counted(options: Mapping[str, str]) -> duckdb.DuckDBPyConnection:
        opened.append(options)
        return connect(options)

    monkeypatch.setattr(merge_query_checks, "connect", counted)
    schema, query = {"customer": "string", "hits": "long"}, "SELECT customer, sum(hits) AS hits FROM source GROUP BY 1"
    for name in ("t", "u"):
        lake.create_table(name, schema, properties={"alluvia.merge_query": query})
    assert len(opened) == 1
    lake.create_table("p", schema, ["customer"], properties={"alluvia.merge_query": query})
    assert len(opened) == 2
    for seen in (3, 4):
        with pytest.raises(Invalid, match=r"changes hits, by which the table is partitioned|merged before"):
            lake.create_table("q", schema, ["hits"], properties={"alluvia.merge_query": query})
        assert len(opened) == seen


def test_the_newest_value_by_arg_max_needs_columns_that_are_not_null(lake: Lake) -> None:
    query = "SELECT user, max(ts) AS ts, arg_max(value, (ts, value)) AS value FROM source GROUP BY user"
    columns = [SCHEMA.field(name) for name in ("user", "ts", "value")]
    with pytest.raises(Invalid, match="merged before"):
        declare(lake, query, pa.schema(columns))
    declare(lake, query, pa.schema([*columns[:2], columns[2].with_nullable(False)]))


@pytest.mark.parametrize(
    ("query", "partition_by", "properties", "reason"),
    [
        (GROUPED, [], {"delta_appendOnly": "true"}, "not possible with delta.appendOnly"),
        (GROUPED, [], {"delta_enableChangeDataFeed": "true"}, "not possible with delta.enableChangeDataFeed"),
        (GROUPED, [], {"delta_constraints.few": "hits < 5"}, "can break a constraint: .*few"),
        (GROUPED, ["day(ts)"], {"alluvia_ttl": "90 days"}, "not possible with alluvia.ttl"),
        (LOWER, ["user"], {}, "changes user, by which the table is part"),
        (NEWEST, ["day(ts)"], {"alluvia_ttl": "90 days"}, None),
        (GROUPED, ["user"], {}, None),
    ],
)
def test_other_properties_must_allow_it(
    lake: Lake, query: str, partition_by: list[str], properties: dict[str, str], reason: str | None
) -> None:
    if reason is None:
        declare(lake, query, SCHEMA, partition_by, **properties)
        return
    with pytest.raises(Invalid, match=f"^property alluvia.merge_query: .*{reason}"):
        declare(lake, query, SCHEMA, partition_by, **properties)


def test_rows_of_the_table_are_samples_too(lake: Lake) -> None:
    query = "SELECT user, min(CASE WHEN length(user) = 7 THEN hits * 2 ELSE hits END) AS hits FROM source GROUP BY user"
    table = lake.create_table("t", HITS)
    table.evolve(properties={"alluvia.merge_query": query})
    table.evolve(properties={"alluvia.merge_query": ""})
    table.append([{"user": "someone", "hits": -5}])
    with pytest.raises(Invalid, match="someone"):
        table.evolve(properties={"alluvia.merge_query": query})


def test_a_merge_folds_rows_in_a_commit_that_changes_them(lake: Lake) -> None:
    table = hits_of(lake)
    assert table.count() == 4
    report = table.optimize()
    assert (report.rows_folded, report.files_after, table.count()) == (2, 1, 2)
    assert as_dict(table.to_arrow()) == {"a": 3, "b": 2}
    [add] = table.files
    assert add.data_change
    net = {
        (row["user"], row["hits"], row["_change_type"]) for row in table.changes(table.version).read_all().to_pylist()
    }
    assert net == {("a", 1, "delete"), ("a", 3, "insert")}
    assert table.optimize().versions == []
    assert table.verify(full=True).findings == ()


def test_a_merge_that_folds_nothing_changes_no_data(lake: Lake) -> None:
    table = declare(lake, SUMS, HITS)
    for user in "abc":
        table.append([{"user": user, "hits": 1}])
    assert table.optimize().rows_folded == 0
    assert [add.data_change for add in table.files] == [False]
    assert table.changes(table.version).read_all().num_rows == 0


def test_a_merge_of_rows_that_the_query_alters_changes_data(lake: Lake) -> None:
    lower = "SELECT lower(user) AS user, sum(hits) AS hits FROM source GROUP BY lower(user)"
    table = declare(lake, lower, HITS)
    for user in "aB":
        table.append([{"user": user, "hits": 1}])
    table.optimize()
    assert [add.data_change for add in table.files] == [True]
    assert as_dict(table.to_arrow()) == {"a": 1, "b": 1}


def test_final_gives_the_same_before_and_after_a_merge(lake: Lake) -> None:
    table = hits_of(lake)
    final = {"a": 3, "b": 2}
    for _ in range(2):
        assert as_dict(lake.sql("FROM t_final")) == as_dict(table.final()) == final
        assert as_dict(lake.sql("FROM t_final WHERE hits > 2")) == as_dict(table.final(where="hits > 2")) == {"a": 3}
        assert table.final(["hits"], "user = 'b'").to_pylist() == [{"hits": 2}]
        assert as_dict(lake.sql("FROM t_final(version => 1)")) == as_dict(table.final(version=1)) == {"a": 2}
        table.optimize()
    joined = lake.sql("SELECT count(*) AS n FROM t_final AS x JOIN t_final AS y USING (user) JOIN t USING (user)")
    assert joined.to_pylist() == [{"n": 2}]
    assert {row["name"] for row in lake.sql("SELECT column_name AS name FROM (DESCRIBE t_final)").to_pylist()} == set(
        HITS
    )


def test_final_of_other_tables(lake: Lake) -> None:
    plain = lake.create_table("plain", HITS)
    with pytest.raises(Invalid, match=r"table plain has no alluvia\.merge_query: read it with scan"):
        plain.final()
    with pytest.raises(Exception, match="the lake has no table 'plain_final'"):
        lake.sql("FROM plain_final")
    plain.evolve(properties={"alluvia.merge_query": SUMS})
    assert lake.sql("FROM plain_final").num_rows == 0
    with pytest.raises(Invalid, match=r"plain_final: version 0 of plain had no alluvia\.merge_query"):
        lake.sql("FROM plain_final(version => 0)")
    lake.create_table("plain_final", {"mine": "long"})
    assert lake.sql("FROM plain_final").column_names == ["mine"]
    assert lake.sql("FROM plain_final(version => 0)").column_names == ["mine"]


def test_conditions_on_keys_alone_leave_files_out(lake: Lake) -> None:
    table = hits_of(lake, {"b": 5, "c": 5, "d": 5})

    def read(where: str) -> int:
        rows = lake.sql(f"EXPLAIN FROM t_final WHERE {where}").to_pylist()
        return int(rows[0]["files_read"])

    assert read("user = 'd'") == 1
    assert read("user = 'd' AND hits = 5") == 1
    assert read("hits = 1") == 3
    assert read("user = 'd' OR hits = 1") == 3
    assert as_dict(lake.sql("FROM t_final WHERE hits = 3")) == as_dict(table.final(where="hits = 3")) == {"a": 3}


def test_nothing_that_a_merge_could_change_decides_what_is_changed(lake: Lake) -> None:
    table = hits_of(lake)
    with pytest.raises(Invalid, match="delete: rows of t may have been merged already, and hits may have other values"):
        table.delete("hits = 1")
    with pytest.raises(Invalid, match=r"^update: table t has a merge query, .* append new rows"):
        table.update({"hits": "0"})
    with pytest.raises(Invalid, match=r"^upsert: table t has a merge query, .* append new rows"):
        table.upsert([{"user": "a", "hits": 1}], on=["user"])
    table.delete("user = 'a'")
    assert as_dict(table.final()) == {"b": 2}


def test_columns_come_with_a_query_that_gives_them(lake: Lake) -> None:
    table = hits_of(lake)
    with pytest.raises(Invalid, match="does not give the table's column paid"):
        table.evolve({"paid": "boolean"})
    with pytest.raises(Invalid, match="does not give the table's column paid"):
        table.append([{"user": "a", "hits": 1, "paid": True}], evolve=True)
    more = SUMS.replace("AS hits", "AS hits, bool_or(paid) AS paid")
    table.evolve({"paid": "boolean"}, {"alluvia.merge_query": more})
    table.append([{"user": "a", "hits": 1, "paid": True}])
    table.optimize()
    assert {"user": "a", "hits": 4, "paid": True} in table.to_arrow().to_pylist()


def test_of_two_overlapping_merges_one_wins_and_the_other_plans_again(lake: Lake, other: Lake) -> None:
    table = hits_of(lake, {"b": 5, "c": 5, "d": 5})
    rival = other["t"]

    def first_the_other() -> bool:
        if rival.version == 3:
            rival.optimize(max_files=2)
        return True

    rival.snapshot()
    report = table.optimize(go_on=first_the_other)
    assert report.conflicts == 1
    assert as_dict(table.to_arrow()) == as_dict(rival.final()) == {"a": 3, "b": 5, "c": 5, "d": 5}
    assert len(table.files) == 1


def test_without_a_way_to_run_it_rows_are_merged_as_they_are(lake: Lake) -> None:
    table = hits_of(lake)
    optimize(lake.catalog.handle("t"))
    assert (len(table.files), table.count()) == (1, 4)


def test_a_sum_that_does_not_fit_is_refused_and_nothing_is_lost(lake: Lake) -> None:
    table = declare(lake, SUMS, {"user": "string", "hits": "byte"})
    for _ in range(2):
        table.append([{"user": "a", "hits": 100}])
    with pytest.raises(Invalid, match=r"property alluvia\.merge_query of t: its rows cannot be merged: .*out of range"):
        table.optimize()
    assert table.count() == 2


def test_a_constraint_holds_for_folded_rows(lake: Lake) -> None:
    query = "SELECT user, max(hits) AS hits FROM source GROUP BY user"
    table = declare(lake, query, HITS, (), **{"delta_constraints.few": "hits < 1000000"})
    for hits in (1, 999_999):
        table.append([{"user": "a", "hits": hits}])
    table.optimize()
    assert as_dict(table.to_arrow()) == {"a": 999_999}


def test_a_merge_costs_the_requests_of_one_without_a_query(lake: Lake, store: CountingStore) -> None:
    costs = []
    for name, properties in (("plain", {}), ("folded", {"alluvia.merge_query": SUMS})):
        table = lake.create_table(name, HITS, properties=properties)
        for _ in range(20):
            table.append([{"user": "a", "hits": 1}])
        before = store.requests.copy()
        table.optimize()
        costs.append(store.requests - before)
    assert costs[0] == costs[1]


def test_folded_files_are_sorted_as_the_table_says(lake: Lake) -> None:
    table = lake.create_table("t", HITS, sort_by=["hits"], properties={"alluvia.merge_query": SUMS})
    for at in range(40):
        table.append([{"user": f"u{at * 7 % 20}", "hits": at}])
    table.optimize()
    assert table.to_arrow()["hits"].to_pylist() == sorted(2 * at + 20 for at in range(20))


def test_an_event_that_was_folded_is_not_stored_again(lake: Lake) -> None:
    query = (
        "SELECT min(event_id) AS event_id, max(ts) AS ts, event, min(source) AS source, "
        "min(properties) AS properties, max(received_at) AS received_at FROM source GROUP BY event"
    )
    table = lake.create_events("t", partition_by=[], properties={"alluvia.merge_query": query})
    assert ingest(table, "e1", "e2") == (2, 0)
    assert ingest(table, "e3") == (1, 0)
    assert table.optimize().rows_folded == 2
    assert ingest(table, "e1", "e2", "e3", "e4") == (1, 3)
    assert stored(table) == ["e1", "e4"]


def test_a_rollup_cannot_have_a_merge_query(lake: Lake) -> None:
    lake.create_table("hits", HITS)
    query = "SELECT user, sum(hits) AS hits FROM hits GROUP BY user"
    with pytest.raises(Invalid, match=r"alluvia\.merge_query: a rollup cannot have one"):
        lake.create_rollup("r", query, properties={"alluvia.merge_query": SUMS})
    rollup = lake.create_rollup("r", query)
    with pytest.raises(Invalid, match=r"alluvia\.merge_query: a table that follows from others cannot have one"):
        rollup.evolve(properties={"alluvia.merge_query": SUMS})


def test_a_rollup_follows_the_rows_that_are_there(lake: Lake) -> None:
    table = hits_of(lake)
    rollup = lake.create_rollup("r", "SELECT user, count(*) AS n, sum(hits) AS hits FROM t GROUP BY user")
    assert {row["user"]: row["n"] for row in rollup.to_arrow().to_pylist()} == {"a": 3, "b": 1}
    table.optimize()
    rollup.refresh()
    assert {row["user"]: row["n"] for row in rollup.to_arrow().to_pylist()} == {"a": 1, "b": 1}
    assert as_dict(rollup.to_arrow().select(["user", "hits"])) == {"a": 3, "b": 2}


def test_other_readers_see_the_folded_rows(disk: Lake) -> None:
    folded = disk.create_table(
        "t",
        {"place": "string", "user": "string", "hits": "long"},
        ["place"],
        properties={
            "alluvia.merge_query": "SELECT place, user, sum(hits) AS hits FROM source GROUP BY place, user",
        },
    )
    for place in ("x", "y", "x", None, None):
        folded.append([{"place": place, "user": user, "hits": 1} for user in "abc"])
    folded.delete("user = 'c'")
    folded.optimize(full=True)
    assert folded.count() == 6
    judges_agree(folded)
