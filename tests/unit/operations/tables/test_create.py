from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Invalid, TableExists, TableNotFound
from alluvia.store import CountingStore
from tests.judges import judges_agree
from tests.rejects import create_rejects

SCHEMA = pa.schema([("x", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("c", pa.string())])


def test_a_new_table_is_empty_and_guarded(lake: Lake) -> None:
    table = lake.create_table("t", SCHEMA, partition_by=["c", "day(ts)"], sort_by=["x"], properties={"owner": "me"})
    snapshot = lake.table("t").snapshot()
    assert (snapshot.version, len(snapshot.files), table.name) == (0, 0, "t")
    assert snapshot.schema.equals(SCHEMA)
    assert snapshot.partition_columns == ("c",)
    assert [str(field) for field in snapshot.partition_spec.fields] == ["c", "day(ts)"]
    assert (snapshot.settings.sort_by, snapshot.properties["owner"]) == (("x",), "me")
    assert snapshot.protocol.min_reader_version == 1
    assert "alluvia" in (snapshot.protocol.writer_features or ())
    assert judges_agree(table) == {0: []}


def test_a_schema_may_be_a_mapping_of_names(lake: Lake) -> None:
    table = lake.create_table("t", {"x": "long", "d": "decimal(5,2)"})
    assert table.snapshot().schema.equals(pa.schema([("x", pa.int64()), ("d", pa.decimal128(5, 2))]))


def test_a_table_is_created_once(lake: Lake, other: Lake) -> None:
    lake.create_table("t", SCHEMA)
    for again in (lake, other):
        with pytest.raises(TableExists, match="'t' already exists"):
            again.create_table("t", SCHEMA)
        assert again.create_table("t", SCHEMA, exist_ok=True).snapshot().version == 0


def test_a_table_whose_first_versions_have_expired_is_not_started_again(
    lake: Lake, other: Lake, clock: ManualClock
) -> None:
    table = lake.create_table("t", SCHEMA, properties={"delta.logRetentionDuration": "1 day"})
    for number in range(3):
        table.append([{"x": number}])
    clock.advance(86400)
    table.checkpoint()
    table.append([{"x": 3}])
    clock.advance(2 * 86400)
    table.append([{"x": 4}])
    assert table.vacuum().log_files
    with pytest.raises(TableExists):
        other.create_table("t", SCHEMA)
    again = other.create_table("t", SCHEMA, exist_ok=True)
    again.append([{"x": 5}])
    assert sorted(lake.table("t").scan(["x"]).read_all()["x"].to_pylist()) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"partition_by": ["none"]}, "partition_by: 'none'"),
        ({"sort_by": ["none"]}, "sort_by: 'none'"),
        ({"properties": {"alluvia.unknown": "1"}}, "property alluvia.unknown"),
        ({"properties": {"alluvia.codec": "x"}}, "property alluvia.codec"),
        ({"properties": {"alluvia.partition_by": '["c"]'}}, "use the argument partition_by"),
        ({"properties": {"alluvia.sort_by": '["c"]'}}, "use the argument sort_by"),
        ({"properties": {"alluvia.oldest_readable_version": "5"}}, "vacuum sets it"),
        ({"properties": {"delta.enableInCommitTimestamps": "false"}}, "follows from alluvia.writers"),
    ],
)
def test_what_cannot_be_is_refused_by_name(lake: Lake, arguments: dict[str, object], named: str) -> None:
    with pytest.raises(Invalid, match=named):
        lake.create_table("t", SCHEMA, **arguments)  # type: ignore[arg-type]
    assert lake.tables() == []


def test_a_sort_order_needs_an_order(lake: Lake) -> None:
    with pytest.raises(Invalid, match="sort_by: 'l' is array<long>"):
        lake.create_table("t", pa.schema([("l", pa.list_(pa.int64()))]), sort_by=["l"])


@pytest.mark.parametrize("name", ["", "T", "1t", "a b", "a/b", "../t", "_delta_log", "t/", "t/_rejects/x", "x" * 129])
def test_names_are_checked(lake: Lake, name: str) -> None:
    with pytest.raises(Invalid, match="table name"):
        lake.create_table(name, SCHEMA)


def test_no_one_else_takes_the_place_of_a_table_that_ingestion_creates(lake: Lake) -> None:
    lake.create_table("t", SCHEMA)
    creates: list[Callable[[], object]] = [
        lambda: lake.create_table("t._rejects", SCHEMA),
        lambda: lake.clone("t", "t/_rejects"),
        lambda: lake.attach("main.t._rejects", "elsewhere"),
        lambda: lake.convert("t/_rejects", "t/_rejects"),
        lambda: lake.create_external("t._rejects", "elsewhere.parquet"),
    ]
    for create in creates:
        with pytest.raises(Invalid, match=r"table t._rejects cannot be created: ingestion creates tables of rejects"):
            create()
    assert lake.tables(rejects=True) == ["t"]


def test_a_missing_table_is_not_found_on_first_use(lake: Lake, store: CountingStore) -> None:
    table = lake.table("none")
    assert store.requests.total() == 0
    for use in (
        table.snapshot,
        table.history,
        table.optimize,
        table.vacuum,
        table.checkpoint,
        lambda: table.append([{"x": 1}]),
        lambda: table.scan().read_all(),
        lambda: table.evolve({"y": "long"}),
        lambda: table.snapshot(version=3),
        lambda: table.vacuum(timedelta(0)),
    ):
        with pytest.raises(TableNotFound, match="none"):
            use()


def test_the_tables_of_a_lake(lake: Lake, store: CountingStore) -> None:
    for name in ("b", "a"):
        lake.create_table(name, SCHEMA)
    create_rejects(lake, "a", SCHEMA)
    store.put("not_a_table/x", b"")
    store.put("Odd/_delta_log/0.json", b"")
    assert lake.tables() == ["a", "b"]
    assert lake.tables(rejects=True) == ["a", "a/_rejects", "b"]
