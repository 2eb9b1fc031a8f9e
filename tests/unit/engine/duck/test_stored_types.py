from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.delta.schema.serialization import schema_string
from alluvia.engine.duck.arrow_values import fits, holds, read_told, told
from tests.judges import canonical

TIME = pa.timestamp("us", tz="UTC")


def _duck(name: str) -> Any:
    return duckdb.connect().type(name)


@pytest.mark.parametrize(
    ("found", "kind", "expected"),
    [
        ("INTEGER", pa.int64(), False),
        ("BIGINT", pa.int64(), True),
        ("BIGINT", pa.int32(), True),
        ("UBIGINT", pa.int64(), False),
        ("FLOAT", pa.float64(), False),
        ("INTEGER", pa.float64(), False),
        ("FLOAT", pa.float32(), True),
        ("DECIMAL(5,2)", pa.decimal128(10, 4), False),
        ("DECIMAL(10,2)", pa.decimal128(10, 4), False),
        ("DECIMAL(10,4)", pa.decimal128(10, 2), False),
        ("DECIMAL(12,4)", pa.decimal128(10, 2), True),
        ("INTEGER", pa.decimal128(10, 2), False),
        ("DATE", pa.timestamp("us"), False),
        ("TIMESTAMP_MS", TIME, False),
        ("TIMESTAMP", TIME, True),
        ("VARCHAR", pa.string(), True),
        ("STRUCT(A SMALLINT)", pa.struct([("a", pa.int32()), ("b", pa.string())]), False),
        ("STRUCT(A INTEGER)", pa.struct([("a", pa.int32()), ("b", pa.string())]), False),
        ("STRUCT(B VARCHAR, A INTEGER)", pa.struct([("a", pa.int32()), ("b", pa.string())]), True),
        ("FLOAT[]", pa.list_(pa.float64()), False),
        ("MAP(VARCHAR, FLOAT)", pa.map_(pa.string(), pa.float64()), False),
        ("MAP(SMALLINT, DOUBLE)", pa.map_(pa.int32(), pa.float64()), False),
        ("MAP(INTEGER, DOUBLE)", pa.map_(pa.int32(), pa.float64()), True),
    ],
)
def test_a_type_that_fits_may_still_not_hold_every_value(found: str, kind: pa.DataType, *, expected: bool) -> None:
    own = _duck(found)
    for each in (own, read_told(orjson.loads(orjson.dumps(told(own))))):  # of this process, or of another
        assert fits(each, kind)
        assert holds(each, kind) is expected


def test_a_type_that_no_table_has_is_told_without_its_parts() -> None:
    assert told(_duck("UNION(a INTEGER, b VARCHAR)")) == ["union", []]


@pytest.mark.parametrize(
    ("narrow", "wide", "values"),
    [
        (pa.decimal128(5, 2), pa.decimal128(10, 4), [Decimal("1.2500"), Decimal("1.1234")]),
        (pa.decimal128(9, 4), pa.decimal128(10, 2), [Decimal("1.50"), Decimal("12345678.25")]),
        (pa.float32(), pa.float64(), [1.5, 0.1]),
        (pa.int32(), pa.float64(), [1.0, 2.5]),
        (pa.int32(), pa.decimal128(12, 2), [Decimal("1.00"), Decimal("2.55")]),
        (pa.int8(), pa.int64(), [1, 2**40]),
        (pa.date32(), pa.timestamp("us"), [datetime(2024, 1, 1), datetime(2024, 1, 2, 3, 4, 5, 6)]),
        (
            pa.struct([("a", pa.list_(pa.float32()))]),
            pa.struct([("a", pa.list_(pa.float64()))]),
            [{"a": [1.5]}, {"a": [0.1]}],
        ),
    ],
    ids=str,
)
def test_what_a_file_holds_does_not_depend_on_the_file_before_it(
    narrow: pa.DataType, wide: pa.DataType, values: list[Any], tmp_path: Path
) -> None:
    first = values[0].date() if narrow == pa.date32() else values[0]
    tables = [pa.table({"n": pa.array([each], kind)}) for each, kind in ((first, narrow), (values[1], wide))]
    lake = _lake(tmp_path, tables, pa.schema([("n", wide)]), {"n": {"a": 0} if pa.types.is_struct(wide) else 0})
    table = lake.table("mixed")
    assert table.scan().read_all()["n"].to_pylist() == values
    assert sorted(lake.sql("SELECT n FROM mixed")["n"].to_pylist(), key=repr) == sorted(values, key=repr)
    table.optimize()
    assert len(table.snapshot().files) == 1
    assert sorted(table.scan().read_all()["n"].to_pylist(), key=repr) == sorted(values, key=repr)


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)], ids=["poor, rich", "rich, poor"])
@pytest.mark.parametrize(
    ("poor", "rich", "counts"),
    [
        ({"n": 1}, {"n": 2, "s": "x"}, {"n": 0, "s": 1}),
        ({"n": 1, "q": {"a": 1}}, {"n": 2, "q": {"a": 2, "b": "y"}}, {"n": 0, "q": {"a": 0, "b": 1}}),
    ],
    ids=["a column", "a field"],
)
def test_statistics_may_count_what_a_file_lacks(
    poor: dict[str, Any], rich: dict[str, Any], counts: dict[str, Any], order: slice, tmp_path: Path
) -> None:
    tables = [pa.Table.from_pylist([row]) for row in (poor, rich)]
    lake = _lake(tmp_path, tables[order], tables[1].schema, counts)
    wanted = canonical(pa.Table.from_pylist([poor, rich], tables[1].schema))
    assert canonical(lake.table("mixed").scan().read_all()) == wanted
    assert canonical(lake.sql("SELECT * FROM mixed")) == wanted


def _lake(folder: Path, tables: list[pa.Table], schema: pa.Schema, counts: dict[str, Any]) -> alluvia.Lake:
    """Make a table of a file for each of some, whose statistics have the same counts of nulls."""
    log = folder / "mixed" / "_delta_log"
    log.mkdir(parents=True)
    stats = orjson.dumps({"numRecords": 1, "nullCount": counts}).decode()
    kept = {"partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True, "stats": stats}
    metadata = {"id": "x", "format": {"provider": "parquet"}, "schemaString": schema_string(schema)}
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **_FEATURES}},
        {"metaData": {**metadata, "partitionColumns": []}},
    ]
    for at, table in enumerate(tables):
        pq.write_table(table, log.parent / f"{at}.parquet")
        actions.append({"add": {"path": f"{at}.parquet", **kept}})
    (log / f"{0:020d}.json").write_bytes(b"\n".join(map(orjson.dumps, actions)))
    return alluvia.connect(str(folder))


_FEATURES = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz"]}
