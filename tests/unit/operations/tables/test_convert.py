"""A directory of Parquet files becomes a table: the files as they are, read by every reader, or refused by name."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Invalid, TableExists
from alluvia.store import CountingStore
from tests.judges import judges_agree, ours
from tests.unit.operations.converting import Write, statistics, xs


def test_the_files_are_named_and_stay_as_they_are(disk: Lake, write: Write, tmp_path: Path) -> None:
    write("a.parquet", {"x": [1, 2], "s": ["a", None]})
    write("deep/er/b.parquet", {"x": [3], "s": ["b"]})
    before = {path: path.read_bytes() for path in (tmp_path / "lake").rglob("*.parquet")}
    table = disk.convert("t", "t")
    assert {path: path.read_bytes() for path in (tmp_path / "lake").rglob("*.parquet")} == before
    assert {file.path for file in table.snapshot().files} == {"a.parquet", "deep/er/b.parquet"}
    assert [(entry.version, entry.operation, entry.files_added) for entry in table.history()] == [(0, "CONVERT", 2)]
    assert judges_agree(table)[0] == [(("s", s), ("x", x)) for s, x in [("a", 1), ("b", 3), (None, 2)]]
    table.append([{"x": 4}])
    table.delete("x = 1")
    table.optimize(full=True)
    assert xs(table) == [2, 3, 4]
    judges_agree(table)


@pytest.mark.parametrize("writers", ["alluvia", "any"])
def test_hive_partitions_become_partition_columns(disk: Lake, write: Write, writers: str) -> None:
    for year, day, country, x in [
        ("2023", "2023-01-05", "a b", 1),
        ("2024", "2024-02-29", "Ää/=%é", 2),
        ("2024", "2024-03-01", "__HIVE_DEFAULT_PARTITION__", 3),
        ("-1", "2024-03-01", "", 4),
    ]:
        write(f"year={year}/day={day}/country={quote(country, safe=' ')}/f.parquet", {"x": [x]})
    table = disk.convert("t", "t", properties={"alluvia.writers": writers})
    snapshot = table.snapshot()
    assert snapshot.partition_columns == ("year", "day", "country")
    assert snapshot.schema.equals(
        pa.schema([("x", pa.int64()), ("year", pa.int64()), ("day", pa.date32()), ("country", pa.string())])
    )
    rows = table.scan(["x", "year", "day", "country"]).read_all().to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [
        (1, 2023, date(2023, 1, 5), "a b"),
        (2, 2024, date(2024, 2, 29), "Ää/=%é"),
        (3, 2024, date(2024, 3, 1), None),
        (4, -1, date(2024, 3, 1), None),
    ]
    judges_agree(table)
    store = disk.store
    assert isinstance(store, CountingStore)
    store.reset()
    assert xs(table, where="year = 2024 AND country = 'Ää/=%é'") == [2]
    assert sum(key.endswith(".parquet") for _, key in store.keys) == 1
    table.append([{"x": 5, "year": 2024, "day": date(2024, 2, 29), "country": "a b"}])
    table.optimize(full=True)
    judges_agree(table)


@pytest.mark.parametrize(
    ("texts", "kind", "values"),
    [
        (["1", "02"], pa.int64(), [1, 2]),
        (["1", "9223372036854775808"], pa.string(), ["1", "9223372036854775808"]),
        (["1", "1.5"], pa.string(), ["1", "1.5"]),
        (["1_0", "2"], pa.string(), ["1_0", "2"]),
        (["2024-02-29"], pa.date32(), [date(2024, 2, 29)]),
        (["2024-02-30"], pa.string(), ["2024-02-30"]),
        (["2024-02-29 01:02:03.5"], pa.timestamp("us", "UTC"), [datetime(2024, 2, 29, 1, 2, 3, 500_000, UTC)]),
        (["2024-02-29T01:02:03Z"], pa.timestamp("us", "UTC"), [datetime(2024, 2, 29, 1, 2, 3, 0, UTC)]),
        (["true"], pa.string(), ["true"]),
        (["__HIVE_DEFAULT_PARTITION__"], pa.string(), [None]),
        (["__HIVE_DEFAULT_PARTITION__", "7"], pa.int64(), [7, None]),
    ],
)
def test_types_of_partition_columns_are_inferred(
    disk: Lake, write: Write, texts: list[str], kind: pa.DataType, values: list[Any]
) -> None:
    for text in texts:
        write(f"p={quote(text, safe='')}/f.parquet", {"x": [1]})
    table = disk.convert("t", "t")
    assert table.snapshot().schema.field("p").type == kind
    assert sorted(table.scan(["p"]).read_all()["p"].to_pylist(), key=repr) == sorted(values, key=repr)
    judges_agree(table)


def test_types_of_partition_columns_may_be_given(disk: Lake, write: Write) -> None:
    write("zip=01234/price=1.50/flag=TRUE/f.parquet", {"x": [1]})
    types: dict[str, str | pa.DataType] = {"zip": "string", "price": "decimal(5,2)", "flag": pa.bool_()}
    table = disk.convert("t", "t", partition_types=types)
    assert table.scan().read_all().to_pylist() == [{"x": 1, "zip": "01234", "price": Decimal("1.50"), "flag": True}]
    judges_agree(table)


@pytest.mark.parametrize(
    ("types", "named"),
    [
        ({"none": "long"}, "partition_types: 'none' is not a partition column; the folders name p"),
        ({"p": "long"}, r"p=a/f.parquet: partition column p: 'a' is not a valid long"),
        ({"p": "nothing"}, "unknown type 'nothing'"),
        ({"p": "double"}, "partition_by: 'p' needs .* p is double"),
    ],
)
def test_given_types_that_do_not_fit_are_refused(disk: Lake, write: Write, types: dict[str, str], named: str) -> None:
    write("p=a/f.parquet", {"x": [1]})
    with pytest.raises(Invalid, match=named):
        disk.convert("t", "t", partition_types=types)
    assert disk.tables() == []


def test_a_partition_column_that_the_files_hold_too_is_the_folders(disk: Lake, write: Write) -> None:
    write("p=1/f.parquet", {"p": pa.array([1, 1], pa.int32()), "x": [1, 2]})
    write("p=2/f.parquet", {"p": pa.array([2], pa.int32()), "x": [3]})
    table = disk.convert("t", "t")
    assert table.snapshot().schema.names == ["x", "p"]
    assert table.scan(["x", "p"]).read_all().to_pydict() == {"x": [1, 2, 3], "p": [1, 1, 2]}
    judges_agree(table)


def test_hidden_names_are_passed_over(disk: Lake, write: Write, tmp_path: Path) -> None:
    write("_d=1/a.parquet", {"x": [1]})
    for path in ("_temporary/0/b.parquet", "_d=1/.c.parquet", "_d=1/_d.parquet", ".e/f.parquet"):
        write(path, {"x": ["not a number"]})
    (tmp_path / "lake/t/_SUCCESS").touch()
    (tmp_path / "lake/t/_d=1_$folder$").touch()
    table = disk.convert("t", "t")
    assert table.scan().read_all().to_pydict() == {"x": [1], "_d": [1]}


def test_vacuum_keeps_hidden_files_of_a_converted_table(lake: Lake, clock: ManualClock) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": [1]}), sink)
    names = ["p=1/a.parquet", "p=1/_backup/b.parquet", "p=1/.c.crc", "_d/e.parquet"]
    for name in names:
        lake.store.put(f"t/{name}", bytes(sink.getvalue()))
    table = lake.convert("t", "t")
    clock.advance(30 * 24 * 60 * 60)
    assert table.vacuum(timedelta(0)).orphans == ()
    assert {f"t/{name}" for name in names} <= {info.key for info in lake.store.list("t/")}


def test_schemas_are_unified(disk: Lake, write: Write) -> None:
    first = pa.table({"x": [1], "st": pa.array([{"a": 1}]), "l": pa.array([[{"i": 1}]]), "only": ["first"]})
    second = pa.table(
        {
            "st": pa.array([{"b": "y", "a": 2}]),
            "x": [2],
            "l": pa.array([[{"i": 2, "j": 3}]]),
            "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        }
    )
    write("1.parquet", first)
    write("2.parquet", second)
    table = disk.convert("t", "t")
    element = pa.field("element", pa.struct([("i", pa.int64()), ("j", pa.int64())]))
    assert table.snapshot().schema.equals(
        pa.schema(
            [
                ("x", pa.int64()),
                ("st", pa.struct([("a", pa.int64()), ("b", pa.string())])),
                ("l", pa.list_(element)),
                ("only", pa.string()),
                ("m", pa.map_(pa.string(), pa.int64())),
            ]
        )
    )
    assert table.scan(["x", "st", "only"]).read_all().sort_by("x").to_pylist() == [
        {"x": 1, "st": {"a": 1, "b": None}, "only": "first"},
        {"x": 2, "st": {"a": 2, "b": "y"}, "only": None},
    ]
    judges_agree(table)


def test_arrows_variants_of_a_type_are_one_type(disk: Lake, write: Write) -> None:
    required = pa.schema([pa.field("s", pa.string(), nullable=False), pa.field("t", pa.timestamp("ms", "Asia/Tokyo"))])
    write("1.parquet", pa.table({"s": ["a"], "t": pa.array([1], pa.timestamp("ms", "Asia/Tokyo"))}, schema=required))
    write("2.parquet", {"s": pa.array(["b"], pa.large_string()), "t": pa.array([2000], pa.timestamp("us", "UTC"))})
    write("3.parquet", {"s": pa.array(["c"]).dictionary_encode(), "t": pa.array([3], pa.timestamp("ms", "UTC"))})
    table = disk.convert("t", "t")
    assert table.snapshot().schema.equals(pa.schema([("s", pa.string()), ("t", pa.timestamp("us", "UTC"))]))
    judges_agree(table)
    table.append([{"s": None}])
    assert len(ours(table)) == 4


def test_numbers_without_sign_get_the_next_type(disk: Lake, write: Write) -> None:
    write("1.parquet", {f"u{bits}": pa.array([2**bits - 1], f"uint{bits}") for bits in (8, 16, 32)})
    table = disk.convert("t", "t")
    assert [str(field.type) for field in table.snapshot().schema] == ["int16", "int32", "int64"]
    assert statistics(table, "1.parquet")["maxValues"] == {"u8": 255, "u16": 65535, "u32": 4294967295}
    judges_agree(table)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_int96_is_a_timestamp(disk: Lake, write: Write, zone: str | None) -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, 678901, UTC)
    column = pa.array([int(moment.timestamp() * 1_000_000)], pa.timestamp("us", zone))
    write("1.parquet", {"t": column}, use_deprecated_int96_timestamps=True, store_schema=zone is not None)
    table = disk.convert("t", "t")
    assert table.snapshot().schema.field("t").type == pa.timestamp("us", "UTC")
    assert table.scan().read_all().to_pydict() == {"t": [moment]}
    assert "t" not in statistics(table, "1.parquet")["minValues"]
    judges_agree(table)


def test_times_without_zone_bring_their_feature(disk: Lake, write: Write) -> None:
    write("1.parquet", {"t": pa.array([1_700_000_000_000_000], pa.timestamp("us"))})
    table = disk.convert("t", "t")
    assert "timestampNtz" in (table.snapshot().protocol.reader_features or ())
    judges_agree(table)


# Statistics


def test_statistics_come_from_the_row_groups(disk: Lake, write: Write) -> None:
    moments = [datetime(2024, 1, 1, 0, 0, 0, 1500, UTC), datetime(2024, 1, 1, 0, 0, 0, 1501, UTC), None]
    rows = pa.table(
        {
            "i": pa.array([5, None, -3], pa.int32()),
            "s": ["a" * 40, "b" * 40, None],
            "d": pa.array([Decimal("1.10"), None, Decimal("99.99")], pa.decimal128(30, 2)),
            "t": pa.array(moments, pa.timestamp("us", "UTC")),
            "day": pa.array([date(2024, 1, 1), None, date(1900, 1, 1)]),
            "st": pa.array([{"a": 1}, None, {"a": 3}]),
            "none": pa.array([None, None, None], pa.int64()),
            "f": [1.0, float("nan"), 2.0],
            "b": [True, False, None],
            "l": [[1], None, []],
            "z": pa.array([b"a", None, b"b"]),
        }
    )
    write("1.parquet", rows, row_group_size=2)
    table = disk.convert("t", "t")
    assert statistics(table, "1.parquet") == {
        "numRecords": 3,
        "minValues": {
            "i": -3,
            "s": "a" * 32,
            "d": 1.1,
            "t": "2024-01-01T00:00:00.001Z",
            "day": "1900-01-01",
            "st": {"a": 1},
        },
        "maxValues": {
            "i": 5,
            "s": "b" * 32 + "\U0010ffff",
            "d": 99.99,
            "t": "2024-01-01T00:00:00.002Z",
            "day": "2024-01-01",
            "st": {"a": 3},
        },
        "nullCount": dict.fromkeys(["i", "s", "d", "t", "day", "b", "z"], 1) | {"st": {"a": 1}, "none": 3, "f": 0},
    }
    judges_agree(table)
    assert len(table.scan(where="f > 100").read_all()) == 1  # NaN comes after all numbers


def test_statistics_that_a_footer_lacks_are_absent(disk: Lake, write: Write) -> None:
    write("1.parquet", {"x": [1, 2], "y": [1, 2]}, write_statistics=["y"])
    table = disk.convert("t", "t")
    assert statistics(table, "1.parquet") == {
        "numRecords": 2,
        "minValues": {"y": 1},
        "maxValues": {"y": 2},
        "nullCount": {"y": 0},
    }
    assert xs(table, where="x = 1") == [1]
    judges_agree(table)


def test_only_the_first_columns_are_indexed(disk: Lake, write: Write) -> None:
    write("p=1/1.parquet", {"p": [1], **{f"c{at}": [at] for at in range(40)}})
    table = disk.convert("t", "t", properties={"delta.dataSkippingNumIndexedCols": "3"})
    assert statistics(table, "p=1/1.parquet")["maxValues"] == {"c0": 0, "c1": 1, "c2": 2}


def test_files_of_other_writers(disk: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "lake" / "t"
    folder.mkdir(parents=True)
    duckdb.sql(
        f"""COPY (SELECT i::BIGINT AS x, i::DECIMAL(9, 3) AS d, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS t, i % 3 AS p,
        {{'a': i}} AS st, [i] AS l, ('k' || i) AS s, DATE '2024-01-01' + i::INT AS day FROM range(1000) r(i))
        TO '{folder}' (FORMAT parquet, PARTITION_BY (p), OVERWRITE_OR_IGNORE)"""
    )
    table = disk.convert("t", "t")
    assert (len(table.snapshot().files), len(ours(table))) == (3, 1000)
    judges_agree(table)
    assert xs(table, where="p = 1 AND x < 7") == [1, 4]


def test_properties_are_those_of_a_new_table(disk: Lake, write: Write) -> None:
    write("a.parquet", {"x": [2, 1]})
    for properties, named in [
        ({"delta.constraints.c": "x > 0"}, "does not read rows, so it cannot check the constraint"),
        ({"alluvia.unknown": "1"}, "property alluvia.unknown is unknown"),
    ]:
        with pytest.raises(Invalid, match=named):
            disk.convert("t", "t", properties=properties)
    table = disk.convert("t", "t", sort_by=["x"], properties={"owner": "me"})
    assert (table.snapshot().settings.sort_by, table.snapshot().properties["owner"]) == (("x",), "me")


# Cost


def test_a_file_costs_one_get_and_one_with_a_long_footer_two(disk: Lake, write: Write) -> None:
    for at in range(10):
        write(f"{at}.parquet", {"x": list(range(1000))})
    write("wide.parquet", {f"c{at}": ["x" * 100] for at in range(1000)})
    store = disk.store
    assert isinstance(store, CountingStore)
    store.reset()
    disk.convert("t", "t")
    assert store.requests == {"list": 5, "get": 10 + 2, "put": 1}
    assert store.bytes_read < 11 * (64 << 10) + (1 << 20)


def test_of_a_big_file_only_the_end_is_read(disk: Lake, write: Write, tmp_path: Path) -> None:
    write("big.parquet", {"x": [str(hash(at)) * 20 for at in range(20_000)]}, compression="none", use_dictionary=False)
    assert (tmp_path / "lake/t/big.parquet").stat().st_size > 1 << 20
    store = disk.store
    assert isinstance(store, CountingStore)
    store.reset()
    disk.convert("t", "t")
    assert store.bytes_read <= 64 << 10


def test_a_race_has_one_winner(disk: Lake, write: Write) -> None:
    write("a.parquet", {"x": [1]})
    other = Lake(disk.store, disk.clock)
    results: list[str] = []

    class Slow(CountingStore):
        def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
            if not results:
                results.append("created")
                other.create_table("t", {"y": "long"})
            return super().get(key, start, end)

    with pytest.raises(TableExists):
        Lake(Slow(disk.store), disk.clock).convert("t", "t")
    assert other.table("t").snapshot().schema.names == ["y"]
    assert results == ["created"]
