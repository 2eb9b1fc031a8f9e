"""Tables clustered by several columns: queries for any of them read few files, and merging ends."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.skipping.predicate import Comparison
from alluvia.errors import Invalid
from alluvia.operations.compaction.optimize_cuts import read_share

SCHEMA = {"id": "long", "a": "long", "b": "string", "place": "string", "pad": "string"}
SMALL = {"alluvia.target_file_size": "32 KB", "alluvia.row_group_rows": "1000"}
SMALLER = {**SMALL, "alluvia.target_file_size": "24 KB"}


@cache
def made(seed: int, count: int) -> pa.Table:
    """Rows in no order; a twentieth of `a` and of `b` is null."""
    chance = random.Random(seed)

    def some(value: Any) -> Any:
        return None if chance.random() < 0.05 else value

    return pa.table(
        {
            "id": [seed * 1_000_000 + at for at in range(count)],
            "a": pa.array([some(min(10**12, int(chance.paretovariate(0.3)))) for _ in range(count)], pa.int64()),
            "b": [some(f"https://example.com/users/{chance.getrandbits(48):012x}") for _ in range(count)],
            "place": [("de", "fr")[at % 2] for at in range(count)],
            "pad": [f"{chance.getrandbits(128):032x}" for _ in range(count)],
        }
    )


def share_read(table: Table, column: str) -> float:
    """Return what part of the table's bytes a query for one value of a column reads, on average of some values."""
    snapshot = table.snapshot()
    total = sum(file.size for file in snapshot.files)
    values = [value for value in made(1, 2000)[column].to_pylist()[:60] if value is not None]
    read = [sum(file.size for file in Scan(snapshot, Comparison((column,), "=", value)).files) for value in values]
    return fmean(read) / total


def contents(table: Table) -> list[tuple[Any, ...]]:
    rows = table.scan().read_all()
    return sorted(zip(*(rows[name].to_pylist() for name in rows.schema.names), strict=True))


def filled(table: Table, batches: Sequence[int] = range(1, 21)) -> Table:
    for seed in batches:
        table.append(made(seed, 2000))
    return table


def test_a_merge_keeps_the_rows_and_lets_queries_for_each_column_skip_files(disk: Lake) -> None:
    clustered = filled(disk.create_table("t", SCHEMA, cluster_by=["a", "b"], properties=SMALL))
    by_one = filled(disk.create_table("u", SCHEMA, sort_by=["a", "b"], properties=SMALL))
    before = contents(clustered)
    assert clustered.optimize().files_added > 0
    by_one.optimize()
    assert contents(clustered) == before
    files = len(clustered.files)
    for column in ("a", "b"):
        assert share_read(clustered, column) < 2.2 * files**-0.5 < 0.45
    assert share_read(by_one, "b") > 0.9
    assert clustered.optimize().versions == []
    assert not clustered.verify().findings


def test_three_columns_and_one(disk: Lake) -> None:
    several = filled(disk.create_table("t", SCHEMA, cluster_by=["a", "b", "id"], properties=SMALLER))
    several.optimize()
    assert all(share_read(several, column) < 0.55 for column in ("a", "b", "id"))
    one = filled(disk.create_table("u", SCHEMA, cluster_by=["b"], properties=SMALL))
    one.optimize()
    snapshot = one.snapshot()
    asked = [value for value in made(1, 2000)["b"].to_pylist()[:200] if value is not None]
    read = [len(Scan(snapshot, Comparison(("b",), "=", value)).files) for value in asked]
    assert len(snapshot.files) > 20
    assert max(read) <= 3  # its range, that of a file of rows that are left over, and where two meet
    assert share_read(one, "b") < 0.15


def test_times_are_merged_with_other_columns(disk: Lake) -> None:
    """DuckDB gives a sample and a stream of the same times with two names of the zone."""
    schema = {"ts": "timestamp", "local": "timestamp_ntz", "price": "decimal(10,2)"}
    table = disk.create_table("t", schema, cluster_by=["ts", "local", "price"])
    for start in range(0, 300, 100):
        numbers = [(at * 7919) % 300 for at in range(start, start + 100)]
        times = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=at) for at in numbers]
        local = [each.replace(tzinfo=None) for each in reversed(times)]
        prices = pa.array([Decimal(at) / 100 for at in numbers], pa.decimal128(10, 2))
        table.append(pa.table({"ts": times, "local": local, "price": prices}))
    before = contents(table)
    assert table.optimize().files_added == 1
    assert contents(table) == before


def test_files_stay_clustered_after_a_column_was_renamed(disk: Lake) -> None:
    table = filled(disk.create_table("t", SCHEMA, cluster_by=["a", "b"], properties=SMALL))
    table.optimize()
    table.evolve(rename={"a": "amount"}, properties={"alluvia.cluster_by": '["amount", "b"]'})
    assert table.optimize().versions == []


def test_new_rows_are_merged_without_rewriting_what_is_clustered(disk: Lake) -> None:
    table = filled(disk.create_table("t", SCHEMA, cluster_by=["a", "b"], properties=SMALL))
    table.optimize()
    clustered = {file.key for file in table.files if file.tags.get("alluvia.cluster")}
    assert len(clustered) > 25
    shares = [share_read(table, column) for column in ("a", "b")]
    for seed in (31, 32, 33):
        table.append(made(seed, 200))
    report = table.optimize()
    assert report.files_added == 1
    assert clustered <= {file.key for file in table.files}
    assert all(share_read(table, column) < share + 0.1 for column, share in zip(("a", "b"), shares, strict=True))


def test_an_append_is_in_the_order_of_the_curve(disk: Lake) -> None:
    properties = {"alluvia.row_group_rows": "100"}
    table = disk.create_table("t", SCHEMA, cluster_by=["a", "b"], properties=properties)
    table.append(made(1, 10_000))
    [file] = table.files
    metadata = pq.read_metadata(str(table.lake.store.local_path(table.snapshot().key(file))))
    assert metadata.num_row_groups == 100
    for place, column in ((1, "a"), (2, "b")):
        found = [metadata.row_group(at).column(place).statistics for at in range(100)]
        bounds = [(each.min, each.max) for each in found if each is not None and each.has_min_max]
        values = [value for value in made(1, 10_000)[column].to_pylist()[:200] if value is not None]
        hits = [sum(low <= value <= high for low, high in bounds) for value in values]
        assert fmean(hits) < 25


def test_the_property_clusters_a_table_that_is_there(disk: Lake) -> None:
    table = filled(disk.create_table("t", SCHEMA, sort_by=["a"], properties=SMALL))
    table.optimize()
    assert share_read(table, "b") > 0.9
    with pytest.raises(Invalid, match=r"cluster_by: the table has sort_by too.*set alluvia.sort_by to \[\]"):
        table.evolve(properties={"alluvia.cluster_by": '["a", "b"]'})
    table.evolve(properties={"alluvia.cluster_by": '["a", "b"]', "alluvia.sort_by": "[]"})
    before = contents(table)
    assert all(group.into_files > 1 for group in table.optimize(dry_run=True).plan)
    table.optimize()
    assert share_read(table, "b") < 0.5
    assert contents(table) == before
    table.evolve(properties={"alluvia.cluster_by": '["b", "pad"]'})
    table.optimize()
    assert share_read(table, "pad") < 0.5


def test_files_in_which_queries_find_little_are_left_alone(disk: Lake) -> None:
    """Files that came in the order of a column prune as well as they can; to cut them anew would only cost."""
    table = disk.create_table("t", SCHEMA, cluster_by=["id"], properties=SMALL)
    for seed in range(1, 9):
        table.append(made(seed, 2000))
    assert len(table.files) == 16
    assert table.optimize().files_added == 0


def test_each_partition_is_clustered_by_itself(disk: Lake) -> None:
    table = filled(disk.create_table("t", SCHEMA, ["place"], cluster_by=["a", "b"], properties=SMALL))
    before = contents(table)
    table.optimize()
    assert contents(table) == before
    assert {file.partition_values["place"] for file in table.files} == {"de", "fr"}
    assert all(share_read(table, column) < 0.55 for column in ("a", "b"))


def test_files_of_several_partition_values_are_in_the_order_of_the_curve_too(disk: Lake) -> None:
    table = disk.create_table("t", SCHEMA, ["truncate(id, 20)"], cluster_by=["a", "b"], properties=SMALL)
    filled(table, range(1, 5))
    before = contents(table)
    table.optimize()
    assert contents(table) == before
    assert not table.verify().findings


def test_an_update_keeps_a_files_cell_unless_it_moves_rows(disk: Lake) -> None:
    table = filled(disk.create_table("t", SCHEMA, cluster_by=["a", "b"], properties=SMALL))
    table.optimize()
    cells = sorted(file.tags.get("alluvia.cluster", "") for file in table.files)
    table.update({"pad": "'x'"}, where="id = 1000005")
    assert sorted(file.tags.get("alluvia.cluster", "") for file in table.files) == cells
    table.update({"b": "'x'"}, where="id = 1000006")
    assert sorted(file.tags.get("alluvia.cluster", "") for file in table.files) != cells


@pytest.mark.parametrize(
    ("cluster_by", "more", "named"),
    [
        (["none"], {}, "cluster_by: 'none' is not a column"),
        (["a", "a"], {}, "cluster_by: 'a' is named twice"),
        (["id", "a", "b", "pad", "far"], {}, "alluvia.cluster_by: expected at most 4 columns, got 5"),
        (["l"], {}, "cluster_by: 'l' is array<long>, for which files have no bounds"),
        (["s"], {}, "cluster_by: 's' is struct<.*, for which files have no bounds"),
        (["flag"], {}, "cluster_by: 'flag' is boolean"),
        (["a"], {"sort_by": ["b"]}, "cluster_by: the table has sort_by too"),
        (["place"], {"partition_by": ["place"]}, "cluster_by: 'place' is a partition column"),
        (["far"], {"properties": {"delta.dataSkippingNumIndexedCols": "8"}}, "'far' is column 11, and only 8 .* raise"),
        ("a", {}, "cluster_by: expected a list of names"),
        (["a"], {"properties": {"alluvia.cluster_by": '["a"]'}}, "use the argument cluster_by"),
    ],
)
def test_what_cannot_be_clustered_is_refused_by_name(
    lake: Lake, cluster_by: list[str], more: dict[str, Any], named: str
) -> None:
    nested = {"l": pa.list_(pa.int64()), "s": pa.struct([("x", pa.int64()), ("y", pa.int64())])}
    schema: Any = {
        **{name: SCHEMA[name] for name in SCHEMA},
        **nested,
        "flag": "boolean",
        "raw": "binary",
        "far": "long",
    }
    with pytest.raises(Invalid, match=named):
        lake.create_table("t", schema, cluster_by=cluster_by, **more)


def test_events_are_clustered_instead_of_sorted(lake: Lake) -> None:
    settings = lake.create_events("hits", cluster_by=["source", "ts"]).snapshot().settings
    assert (settings.cluster_by, settings.sort_by) == (("source", "ts"), ())
    assert lake.create_events("others").snapshot().settings.sort_by == ("event", "ts")


def test_what_a_query_reads_of_files() -> None:
    same: list[tuple[int, int] | None] = [(0, 9)] * 4
    assert read_share(same, [1, 1, 1, 1]) == 1
    assert read_share([(0, 1), (2, 3), (4, 5), (6, 7)], [1, 1, 1, 1]) == 0.25
    assert read_share([(0, 1), (2, 3)], [3, 1]) == (3 * 3 + 1 * 1) / 16
    assert read_share([(0, 1), None], [1, 1]) == 1
    assert read_share([(5, 5), (5, 5)], [1, 1]) is None
    assert read_share([None, None], [1, 1]) is None
