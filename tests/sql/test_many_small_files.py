"""Queries whose rows an engine got wrong over many small files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import alluvia
from alluvia.errors import Invalid
from tests.golden.test_foreign_logs import Made, add, field, meta

PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}


def test_rows_ordered_by_a_narrowing_cast(tmp_path: Path) -> None:
    """DuckDB 1.5 gives those of the first files, and a DELETE by such a subquery takes the wrong row."""
    lake = alluvia.connect(str(tmp_path))
    table = lake.create_table("m", {"k": "long", "x": "string"})
    with lake.transaction() as tx:
        for number in range(40):
            tx.table("m").append([{"k": 40 * row + number, "x": f"{row}"} for row in range(5)])
    text = "SELECT k, x FROM m ORDER BY k::INT DESC, x LIMIT 4"
    assert lake.sql(text).to_pylist() == [{"k": k, "x": "4"} for k in (199, 198, 197, 196)]
    rows = "SELECT k::SMALLINT AS i FROM m"
    for other in (
        "SELECT k FROM m ORDER BY TRY_CAST(k AS UTINYINT) DESC LIMIT 1",
        f"SELECT max(i) AS k FROM (SELECT i FROM ({rows}) ORDER BY i DESC LIMIT 1)",
        f"WITH c AS ({rows}) SELECT i AS k FROM c ORDER BY 1 DESC NULLS LAST LIMIT 1 OFFSET 0",
        "SELECT k FROM (SELECT k, k::INT AS i FROM m) ORDER BY i DESC FETCH FIRST 1 ROW ONLY",
    ):
        assert lake.sql(other)["k"].to_pylist() == [199], other
    lake.sql(f"CREATE VIEW narrow AS {rows}")
    assert lake.sql("SELECT i FROM narrow ORDER BY i DESC LIMIT 1")["i"].to_pylist() == [199]
    lake.create_rollup("counted", "SELECT k::SMALLINT AS i, count(*) AS n FROM m GROUP BY 1")
    tables = ("counted", "counted_live")
    for name in tables:
        assert lake.sql(f"SELECT i FROM {name} ORDER BY i DESC LIMIT 1")["i"].to_pylist() == [199]
    lake.sql("DELETE FROM m WHERE k IN (SELECT k FROM m ORDER BY k::INT DESC, x LIMIT 1)")
    assert sorted(table.scan().read_all()["k"].to_pylist()) == list(range(199))


def test_files_with_larger_numbers_than_the_table(tmp_path: Path) -> None:
    """Files of other writers hold longs of an int column, which the view casts."""
    made = Made(tmp_path / "t")
    for number in range(20):
        made.file(f"{number}.parquet", pa.table({"k": pa.array([20 * row + number for row in range(5)], pa.int64())}))
    kind = {"type": "struct", "fields": [field("k", "integer")]}
    made.commit({"protocol": PROTOCOL}, meta(kind, []), *(add(f"{number}.parquet", {}) for number in range(20)))
    lake = alluvia.connect(str(tmp_path))
    assert lake.sql("SELECT k FROM t ORDER BY k DESC LIMIT 3")["k"].to_pylist() == [99, 98, 97]


ROWS = [(None, None), (None, 1), (1, None), (1, 1), (1, 2), (20, 200)]


def test_rows_of_values_among_those_of_a_subquery(tmp_path: Path) -> None:
    """A null in one value does not hide that another tells the rows apart: what DuckDB gets wrong is refused."""
    lake = alluvia.connect(str(tmp_path))
    lake.create_table("t", {"a": "long", "b": "long"}).append([{"a": a, "b": b} for a, b in ROWS])
    lake.create_table("n", {"x": "long", "y": "long"}).append([{"x": None, "y": 6000}, {"x": 1, "y": 1}])
    lake.create_table("few", {"a": "long"}).append([{"a": 20}])
    inside = "(a, b) IN (SELECT x, y FROM n)"
    for where, rows in {
        inside: [(1, 1)],
        f"{inside} OR a = 20": [(1, 1), (20, 200)],
        f"a = 1 AND ({inside} OR b = 2)": [(1, 1), (1, 2)],
        "(a, b) = ANY (SELECT x, y FROM n)": [(1, 1)],
        "NOT EXISTS (SELECT 1 FROM n WHERE x = a AND y = b) AND a = 20": [(20, 200)],
        "a NOT IN (SELECT x FROM n WHERE x IS NOT NULL)": [(20, 200)],
    }.items():
        found = lake.sql(f"SELECT a, b FROM t WHERE {where} ORDER BY a, b").to_pylist()
        assert [(row["a"], row["b"]) for row in found] == rows, where
    assert lake.sql(f"SELECT CASE WHEN {inside} THEN 1 ELSE 0 END AS c FROM t ORDER BY c DESC LIMIT 1")["c"][0].as_py()
    outside = "(a, b) NOT IN (SELECT x, y FROM n)"
    for text in (
        f"SELECT * FROM t WHERE {outside}",
        f"SELECT * FROM t WHERE NOT ({inside})",
        "SELECT * FROM t WHERE (a, b) <> ALL (SELECT x, y FROM n)",
        "SELECT * FROM t WHERE (a, b) < ANY (SELECT x, y FROM n)",
        "SELECT * FROM t WHERE NOT (a, b) = ANY (SELECT x, y FROM n)",
        f"SELECT {inside} AS c FROM t",
        f"SELECT * FROM t WHERE ({inside}) IS NULL",
        f"SELECT * FROM t WHERE coalesce({inside}, true)",
        f"SELECT * FROM t WHERE a IN (SELECT x FROM n, t AS u WHERE {outside.replace('(a, b)', '(u.a, u.b)')})",
        f"DELETE FROM t WHERE {outside}",
        f"UPDATE t SET a = 0 WHERE {outside}",
        f"UPDATE t SET a = CASE WHEN {outside} THEN 1 END",
        f"MERGE INTO t USING few ON t.a = few.a AND {outside.replace('(a, b)', '(t.a, t.b)')} WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(Invalid, match=r"NOT EXISTS|subquer"):
            lake.sql(text)
    assert len(lake.table("t").to_arrow()) == len(ROWS)
    lake.sql(f"DELETE FROM t WHERE {inside}")
    assert len(lake.table("t").to_arrow()) == len(ROWS) - 1
