"""A column named as the engine names something of its own is a column like any other, whatever is done to the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import alluvia
from alluvia.api.lake import Lake, Table
from tests.light_engines import light as light  # noqa: PLC0414 - a fixture

OWN = ("alluvia_file", "alluvia_row", "deleted", "rows", "scan_0")
VIRTUAL = ("empty", "file_index", "file_row_number", "filename", "rowid", "_metadata")
SPELLED = ("FILENAME", "File_Index", "FILE_ROW_NUMBER")
Row = dict[str, Any]


def options() -> list[str]:
    """Return the names of all options of DuckDB's reader of Parquet."""
    query = "SELECT DISTINCT unnest(parameters) FROM duckdb_functions() WHERE function_name = 'read_parquet' ORDER BY 1"
    with duckdb.connect() as connection:
        return [name for (name,) in connection.execute(query).fetchall()]


def keywords() -> list[str]:
    with duckdb.connect() as connection:
        return [name for (name,) in connection.execute("SELECT keyword_name FROM duckdb_keywords()").fetchall()]


NAMES = sorted({*options(), *OWN, *VIRTUAL, *SPELLED})


def test_options_are_known() -> None:
    assert {"filename", "hive_partitioning", "union_by_name", "file_row_number", "schema"} <= set(options())


def rows_of(name: str, first: int) -> list[Row]:
    return [{"a": a, name: "xyz"[a % 3], "part": "pq"[a % 2]} for a in range(first, first + 6)]


def make(folder: Path, name: str, *, renamed: bool) -> tuple[Table, list[Row]]:
    """A table of four files in two partitions, and the rows that it has; with `renamed`, files call the column `old`.

    In that table, what files call by the name is shown as `was`.
    """
    lake = alluvia.connect(str(folder))
    stored = {"a": pa.int64(), **({name: pa.string()} if not renamed else {"old": pa.string(), name: pa.string()})}
    schema = pa.schema([*stored.items(), ("part", pa.string())])
    table = lake.create_table("t", schema, partition_by=["part"], properties={"delta.enableDeletionVectors": "true"})
    rows = [*rows_of(name, 0), *rows_of(name, 6)]
    for first in (0, 6):
        each = rows_of(name, first)
        table.append([{**row, name: f"{row[name]}!", "old": row[name]} for row in each] if renamed else each)
    if renamed:
        lake.sql(f'ALTER TABLE t RENAME COLUMN "{name}" TO was')
        lake.sql(f'ALTER TABLE t RENAME COLUMN old TO "{name}"')
        rows = [{**row, "was": f"{row[name]}!"} for row in rows]
    lake.create_table("few", pa.schema([("a", pa.int64())])).append([{"a": a} for a in range(9)])
    return table, rows


def shown(lake: Lake, where: str, source: str = "t") -> list[int]:
    return sorted(lake.sql(f"SELECT a FROM {source} WHERE {where}")["a"].to_pylist())


def keys(rows: list[Row]) -> list[int]:
    return [row["a"] for row in rows]


def check_conditions(lake: Lake, name: str, rows: list[Row], source: str = "t") -> None:
    quoted = f'"{name}"'
    conditions: dict[str, Callable[[str], bool]] = {
        f"{quoted} = 'x'": lambda value: value == "x",
        f"{quoted} <> 'x'": lambda value: value != "x",
        f"{quoted} LIKE 'x%'": lambda value: value == "x",
        f"{quoted} IN (SELECT 'z' UNION ALL SELECT 'y')": lambda value: value in ("y", "z"),
        f"{quoted} NOT IN ('x', 'y') OR {quoted} IS NULL": lambda value: value not in ("x", "y"),
    }
    for where, kept in conditions.items():
        assert shown(lake, where, source) == sorted(keys([row for row in rows if kept(row[name])])), where


@pytest.mark.parametrize(("name", "renamed"), [*((name, False) for name in NAMES), *((name, True) for name in VIRTUAL)])
def test_a_column_named_as_something_of_the_engine(name: str, renamed: bool, tmp_path: Path) -> None:
    table, rows = make(tmp_path, name, renamed=renamed)
    lake, quoted = table.lake, f'"{name}"'
    check_conditions(lake, name, rows)

    lake.sql(f"CREATE VIEW \"seen\" AS SELECT {quoted}, a FROM t WHERE part = 'p'")
    check_conditions(lake, name, [row for row in rows if row["part"] == "p"], "seen")
    lake.create_rollup("counted", f"SELECT {quoted}, count(*) AS n FROM t GROUP BY {quoted}")
    lake.create_stream("news", "t")

    lake.sql(f"DELETE FROM t WHERE {quoted} <> 'x' AND a IN (SELECT a FROM few)")
    rows = [row for row in rows if row[name] == "x" or row["a"] >= 9]
    check_conditions(lake, name, rows)

    lake.sql(f"UPDATE t SET {quoted} = 'y' WHERE {quoted} = 'x' AND a >= 6")
    rows = [{**row, name: "y"} if row[name] == "x" and row["a"] >= 6 else row for row in rows]
    check_conditions(lake, name, rows)

    lake.sql(
        f"MERGE INTO t USING (SELECT a + 3 AS a, 'w' AS v FROM few) AS s ON t.a = s.a AND t.{quoted} <> 'x' "
        f"WHEN MATCHED AND t.{quoted} = 'y' THEN UPDATE SET {quoted} = s.v"
    )
    rows = [{**row, name: "w"} if row[name] == "y" and 3 <= row["a"] < 12 else row for row in rows]
    table.upsert([{**rows[0], name: "v"}], on=["a"])
    rows = [{**rows[0], name: "v"}, *rows[1:]]
    check_conditions(lake, name, rows)

    table.optimize(full=True)
    check_conditions(lake, name, rows)
    assert sorted(table.scan().read_all().to_pylist(), key=lambda row: row["a"]) == [
        {field: row[field] for field in table.schema.names} for row in rows
    ]
    lake.table("counted").refresh()
    counts = {row[name]: row["n"] for row in lake.sql("FROM counted").to_pylist()}
    assert counts == {value: [row[name] for row in rows].count(value) for value in {row[name] for row in rows}}
    check_moved(table, name, rows)


def check_moved(table: Table, name: str, rows: list[Row]) -> None:
    """Changes lead from no rows to those that there are, and the stream's from those that it began with."""
    net: dict[tuple[int, str], int] = {}
    for change in table.changes(0).read_all().to_pylist():
        key = (change["a"], change[name])
        net[key] = net.get(key, 0) + {"insert": 1, "delete": -1}[change["_change_type"]]
    assert {key for key, times in net.items() if times} == {(row["a"], row[name]) for row in rows}
    quoted = f'"{name}"'
    news = table.lake.sql(f"SELECT a, {quoted} AS v FROM news WHERE {quoted} IN ('v', 'w')").to_pylist()
    wanted = {(row["a"], row[name]) for row in rows if row[name] in ("v", "w")}
    assert {(each["a"], each["v"]) for each in news} == wanted


@pytest.mark.at_length
def test_columns_named_as_every_keyword(tmp_path: Path) -> None:
    """Each column has a value of its own, so a condition that reads another one finds nothing."""
    names = keywords()
    lake = alluvia.connect(str(tmp_path))
    table = lake.create_table("t", pa.schema([("a", pa.int64()), *((name, pa.int32()) for name in names)]))
    for a in range(2):
        table.append([{"a": a, **{name: 2 * at + a for at, name in enumerate(names)}}])

    def all_are(base: int) -> str:
        return " AND ".join(f'"{name}" = {2 * at + base}' for at, name in enumerate(names))

    assert shown(lake, all_are(1)) == [1]
    assert shown(lake, f"a IN (SELECT a FROM t WHERE {all_are(1)})") == [1]
    more = ", ".join(f'"{name}" = "{name}" + 1' for name in names)
    lake.sql(f"UPDATE t SET {more} WHERE {all_are(1)}")
    assert shown(lake, all_are(2)) == [1]
    lake.sql(f"DELETE FROM t WHERE {all_are(0)}")
    assert shown(lake, "true") == [1]
