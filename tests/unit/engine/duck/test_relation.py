"""The text of the SELECT, run by DuckDB over real files: exactly the table's columns, types and rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from alluvia import connect
from alluvia.api.lake import Table
from alluvia.engine.duck.literals import quote_name, quote_text
from alluvia.engine.duck.relation import duckdb_type, escape_glob, relation_sql, shown_sql
from alluvia.errors import Unsupported
from tests.judges import canonical

NUL = "\0it\0\0's\0"
NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)


def read(table: Table, files: slice = slice(None), **versions: Any) -> pa.Table:
    snapshot = table.snapshot(**versions)
    chosen = list(snapshot.files)[files]
    urls = [str(table.lake.store.url(snapshot.key(file))) for file in chosen]
    query = relation_sql(snapshot.schema, snapshot.partition_columns, chosen, urls)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(query).to_arrow_table()
    assert found.column_names == snapshot.schema.names
    return found


def same(table: Table) -> pa.Table:
    found = read(table)
    assert canonical(found) == canonical(table.scan().read_all())
    return found


def test_columns_of_every_type_come_as_the_tables_own(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("l", pa.int64()), ("i", pa.int32()), ("s", pa.int16()), ("y", pa.int8()), ("f", pa.float32()),
            ("x", pa.float64()), ("b", pa.bool_()), ("t", pa.string()), ("raw", pa.binary()),
            ("d", pa.decimal128(20, 4)), ("day", pa.date32()), ("ts", pa.timestamp("us", tz="UTC")),
            ("local", pa.timestamp("us")), ("list", pa.list_(pa.field("element", pa.int32()))),
            ("map", pa.map_(pa.string(), pa.decimal128(5, 1))),
            ("st", pa.struct([("a", pa.int8()), ("inner", pa.list_(pa.struct([("z", pa.date32())])))])),
        ]
    )  # fmt: skip
    table = connect(str(tmp_path)).create_table("t", schema)
    row = {
        "l": 2**60, "i": -5, "s": 3, "y": -128, "f": 0.5, "x": 1e300, "b": True, "t": "é'\"", "raw": b"\x00\xff",
        "d": Decimal("1.2345"), "day": date(2024, 5, 6), "ts": NOON, "local": NOON.replace(tzinfo=None),
        "list": [1, None], "map": [("k", Decimal("1.5"))], "st": {"a": 1, "inner": [{"z": date(2024, 1, 1)}]},
    }  # fmt: skip
    table.append([row, {}])
    found = same(table)
    expected = [duckdb_type(field.type) for field in schema]
    with duckdb.connect() as connection:
        connection.register("found", found)
        types = [str(each[1]) for each in connection.execute("DESCRIBE found").fetchall()]
    named = {"TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE"}
    plain = [named.get(kind, kind).replace('"', "") for kind in expected]
    assert [kind.replace('"', "") for kind in types] == plain
    empty = read(table, slice(0, 0))
    assert len(empty) == 0
    assert empty.schema.types == found.schema.types


@pytest.mark.parametrize("name", ["path", "filename", "p", "f", "select", 'q"uote', "file_row_number", "a.b", "é"])
def test_a_partition_column_may_have_any_name(tmp_path: Path, name: str) -> None:
    schema = pa.schema([("x", pa.int64()), (name, pa.string()), ("other", pa.int32())])
    table = connect(str(tmp_path)).create_table("t", schema, partition_by=[name, "other"])
    table.append([{"x": 1, name: "a", "other": 1}, {"x": 2, name: "b", "other": None}, {"x": 3}])
    same(table)
    assert canonical(read(table, slice(0, 1)))[0] in canonical(table.scan().read_all())


@pytest.mark.parametrize("name", ["path", "filename", "p", "f", "order", "a.b"])
def test_a_stored_column_may_have_any_name(tmp_path: Path, name: str) -> None:
    schema = pa.schema([(name, pa.int64()), ("c", pa.string())])
    table = connect(str(tmp_path)).create_table("t", schema, partition_by=["c"], sort_by=[name])
    table.append([{name: 1, "c": "a"}, {name: 2, "c": "b"}])
    same(table)
    table.append([{name: 3, "c": "a"}])
    assert table.optimize().files_removed == 2
    same(table)


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (
        pa.string(),
        ["a b", "a/b", "100%", "a%20b", "é🌊", "'", '"', "*", "[x]", "?", "#", "a=b", "..", "\\", "\n", None],
    ),
    (pa.int64(), [-(2**63), 0, None]),
    (pa.bool_(), [True, False, None]),
    (pa.date32(), [date(999, 1, 2), date(2024, 5, 6), None]),
    (pa.timestamp("us", tz="UTC"), [NOON, NOON.replace(microsecond=123456), None]),
    (pa.timestamp("us"), [NOON.replace(tzinfo=None), None]),
    (pa.decimal128(12, 8), [Decimal("0.00000001"), Decimal("-12.5"), None]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES)
def test_partition_values_come_from_the_log(tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    table = connect(str(tmp_path)).create_table("t", pa.schema([("x", pa.int64()), ("c", kind)]), partition_by=["c"])
    table.append([{"x": at, "c": value} for at, value in enumerate(values)])
    found = same(table)
    assert sorted(found["x"].to_pylist()) == list(range(len(values)))
    for at in range(len(values)):
        assert len(read(table, slice(at, at + 1))) == 1


@pytest.mark.parametrize("folder", ["a lake", "it's", "l*ke", "[lake]", "la?ke", "100%", "a%20b", "é"])
def test_a_lake_may_lie_anywhere(tmp_path: Path, folder: str) -> None:
    schema = pa.schema([("x", pa.int64()), ("c", pa.string())])
    table = connect(str(tmp_path / folder)).create_table("t", schema, partition_by=["c"])
    for number in range(2):
        table.append([{"x": number, "c": "a"}, {"x": number, "c": "*"}])
    same(table)
    assert table.optimize().files_removed == 4
    same(table)


def test_a_column_that_a_file_lacks_is_null_there(tmp_path: Path) -> None:
    table = connect(str(tmp_path)).create_table("t", pa.schema([("x", pa.int64())]))
    table.append([{"x": 1}])
    table.evolve({"y": "decimal(5,2)", "z": "timestamp"})
    only_old = read(table)
    assert only_old.to_pylist() == [{"x": 1, "y": None, "z": None}]
    table.append([{"x": 2, "y": Decimal("1.5"), "z": NOON}])
    same(table)
    assert read(table, slice(0, 1)).schema.types == read(table, slice(1, 2)).schema.types == only_old.schema.types


def test_names_and_texts_are_quoted() -> None:
    assert quote_name('a"b') == '"a""b"'
    assert quote_text("it's") == "'it''s'"
    assert duckdb.execute(f"SELECT {quote_text(NUL)}").fetchone() == (NUL,)
    assert escape_glob("a*b?c[d]") == "a[*]b[?]c[[]d]"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (pa.schema([]), "the table has no columns"),
        (pa.schema([("n", pa.int64()), ("s", pa.list_(pa.struct([])))]), "a struct without fields"),
        (pa.schema([("a\0b", pa.int64())]), "contains a NUL character"),
    ],
    ids=["no columns", "no fields", "a name with a NUL"],
)
def test_what_sql_cannot_show_is_refused(schema: pa.Schema, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        relation_sql(schema, (), [], [])


@pytest.mark.parametrize("condition", ["tenant = 'a'", "TRY(lower(tenant) = 'a')"])
def test_no_condition_of_a_query_reaches_rows_that_are_not_shown(tmp_path: Path, condition: str) -> None:
    """DuckDB's plan has the query's condition above the wall and the filter below it, whatever either is."""
    with duckdb.connect() as connection:
        file = tmp_path / "t.parquet"
        rows = "SELECT chr(97 + (i % 2)::INTEGER) AS tenant, i::INTEGER AS id, i::VARCHAR AS text FROM range(10) t(i)"
        connection.execute(f"COPY ({rows}) TO '{file}'")
        connection.execute(f"CREATE VIEW everything AS FROM read_parquet('{file}')")
        schema = pa.schema([("tenant", pa.string()), ("id", pa.int32()), ("text", pa.string())])
        connection.execute(f"CREATE VIEW shown AS {shown_sql('everything', schema, ['id', 'text'], [condition])}")
        asked = "SELECT count(*) FROM shown WHERE id <> 7 AND text::INTEGER > 3"
        plan = connection.execute(f"EXPLAIN {asked}").fetchall()[0][1].replace(str(2**63 - 1), "")
        above, wall, below = plan.partition("LIMIT" if "LIMIT" in plan else "Limit")
        assert wall
        assert ("7" in above, "INTEGER" in above, "tenant" in above) == (True, True, False)
        assert ("7" in below, "INTEGER" in below, "tenant" in below) == (False, False, True)
        assert connection.execute("SELECT id, text FROM shown WHERE id < 4").fetchall() == [(0, "0"), (2, "2")]
