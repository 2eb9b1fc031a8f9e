"""The forms that MERGE INTO takes, as DuckDB does, and those that it refuses."""

from __future__ import annotations

import duckdb
import pytest

import alluvia
from tests.unit.sql.selected import TO_MERGE, rows


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("USING u ON t.n < u.n WHEN MATCHED THEN UPDATE SET n = 1", "several rows of u would change one row of t"),
        ("USING u ON id = u.id WHEN MATCHED THEN DELETE", 'reference to column name "id"'),
        ("USING u AS t ON t.id = t.id WHEN MATCHED THEN DELETE", "the table and the source are both called t"),
        ("USING (SELECT 'x' AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE", "column id is long in the table"),
        ("USING (SELECT 1 AS id FROM range(2)) s ON t.id = s.id WHEN MATCHED AND n > 1 THEN DELETE", "several rows"),
        ("USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET q = 1", "table t has no column q"),
        ("USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET n = 1, N = 2", "a column is named twice"),
        ("USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET n = x", "column n"),
        ("USING u ON t.id = u.id WHEN MATCHED AND n > 1 THEN DELETE", 'column "n" not found'),
        ("USING u ON t.id = u.id WHEN NOT MATCHED THEN INSERT (id) VALUES (t.id)", 'table "t" not found'),
        ("USING u ON t.id = u.id WHEN NOT MATCHED THEN INSERT (id, n) VALUES (1)", "INSERT has 2 columns, but 1"),
        ("USING u ON t.id = u.id WHEN NOT MATCHED THEN INSERT VALUES (1)", "has 1 values, but table t"),
        ("USING u ON t.id = u.id WHEN NOT MATCHED THEN INSERT (id)", "VALUES"),
        ("USING u ON t.id = u.id WHEN NOT MATCHED THEN DELETE", "WHEN NOT MATCHED THEN DELETE is not possible"),
        ("USING u ON t.id = u.id WHEN MATCHED THEN INSERT *", "WHEN MATCHED THEN INSERT is not possible"),
        ("USING u ON t.id = u.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *", "there is no row of the source"),
        ("USING u ON t.id = u.id WHEN MATCHED THEN DELETE WHEN MATCHED THEN DELETE", "so it would never apply"),
        ("USING u ON t.id = (SELECT 1) WHEN MATCHED THEN DELETE", "ON cannot use subqueries"),
        ("USING u USING (nope) WHEN MATCHED THEN DELETE", "nope"),
        ("USING nothing ON t.id = nothing.id WHEN MATCHED THEN DELETE", "the lake has no table 'nothing'"),
    ],
)  # fmt: skip
def test_what_a_merge_cannot_do(merged: alluvia.Lake, text: str, message: str) -> None:
    with pytest.raises(alluvia.errors.AlluviaError) as raised:
        merged.sql(f"MERGE INTO t {text}")
    assert message in str(raised.value)
    assert rows(merged) == [(1, 10, "a"), (2, 20, "b"), (3, 30, "c")]


FORMS = [
    (
        "USING (VALUES (2, 9, 'v'), (7, 70, 'w')) AS s(id, n, x) ON t.id = s.id ",
        "WHEN MATCHED THEN UPDATE SET n = s.n, s = x",
    ),
    (
        "USING (VALUES (2, 9), (7, 70)) s(key, more) ON id = key ",
        "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (key, more)",
    ),
    (
        "USING u AS s(k, m, y) ON t.id = s.k ",
        "WHEN MATCHED THEN UPDATE SET s = y WHEN NOT MATCHED THEN INSERT VALUES (k, m, y)",
    ),
    ("USING (SELECT id, x FROM u) AS s(id, x) USING (id) ", "WHEN MATCHED THEN DELETE"),
    (
        "USING u USING (id) ",
        "WHEN MATCHED THEN UPDATE SET n = t.n + u.n WHEN NOT MATCHED THEN INSERT VALUES (u.id, u.n, x)",
    ),
    ("USING (SELECT id, 20 AS n FROM u) AS s USING (id, n) ", "WHEN MATCHED THEN DELETE"),
    (
        "USING u USING (id) ",
        "WHEN NOT MATCHED BY SOURCE THEN DELETE WHEN NOT MATCHED BY TARGET THEN INSERT DEFAULT VALUES",
    ),
    ("USING (SELECT id, n, x AS s FROM u) AS s USING (id) ", "WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"),
    (
        "USING (SELECT n, x AS s, id FROM u) AS s USING (id) ",
        "WHEN MATCHED THEN UPDATE BY NAME WHEN NOT MATCHED THEN INSERT BY NAME *",
    ),
    (
        "USING u USING (id) ",
        "WHEN MATCHED AND u.n > 200 THEN UPDATE SET (n, s) = (u.n, x) WHEN MATCHED THEN DO NOTHING",
    ),
    ("USING u USING (id) ", "WHEN NOT MATCHED THEN INSERT VALUES ((SELECT max(id) FROM u), DEFAULT, x)"),
]


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize(("using", "clauses"), FORMS)
def test_forms_of_merge_do_what_duckdb_does(merged: alluvia.Lake, using: str, clauses: str) -> None:
    judge = duckdb.connect()
    for text in TO_MERGE:
        judge.execute(text)
    judge.execute(f"MERGE INTO t {using} {clauses}")
    merged.sql(f"MERGE INTO t {using} {clauses}")
    assert rows(merged) == judge.execute("FROM t ORDER BY ALL").fetchall()


def test_parameters_stand_in_the_rows_of_a_source(merged: alluvia.Lake) -> None:
    text = "MERGE INTO t USING (VALUES (?, ?)) AS s(id, s) USING (id) WHEN MATCHED AND t.n > ? THEN UPDATE SET s = s.s"
    merged.sql(text, [2, "it's", 15])
    assert rows(merged, "SELECT s FROM t WHERE id = 2") == [("it's",)]
