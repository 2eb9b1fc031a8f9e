"""MERGE INTO, by the rows that are there afterwards."""

from __future__ import annotations

from typing import Any

import pytest

import alluvia
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.errors import Invalid
from alluvia.operations.rows import keyed_merge, located_merge, rewriting
from alluvia.operations.rows.row_changes import change_rows
from alluvia.query.limits import QueryLimits
from alluvia.sql import changing, merging
from alluvia.sql.run import execute
from tests.sql.sequences import run
from tests.unit.sql.selected import rows


@pytest.mark.usefixtures("each_way")
def test_every_kind_of_clause(merged: alluvia.Lake) -> None:
    done = merged.sql(
        """MERGE INTO t USING u ON t.id = u.id
           WHEN MATCHED AND u.n >= 300 THEN DELETE
           WHEN MATCHED AND x = 'y' THEN UPDATE SET n = t.n + u.n, s = s || x
           WHEN NOT MATCHED THEN INSERT (id, s) VALUES (u.id, upper(x))
           WHEN NOT MATCHED BY SOURCE AND s = 'a' THEN UPDATE SET n = n - 1, s = DEFAULT"""
    )
    assert done.to_pylist() == [{"rows_inserted": 1, "rows_updated": 2, "rows_deleted": 1, "version": 3}]
    assert rows(merged) == [(1, 9, None), (2, 220, "by"), (4, None, "W")]


@pytest.mark.usefixtures("each_way")
def test_stars_take_the_columns_of_the_source_by_name(merged: alluvia.Lake) -> None:
    merged.sql(
        "MERGE INTO t AS x USING (SELECT id, n FROM u) AS y ON y.id = x.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert rows(merged) == [(1, 10, "a"), (2, 200, "b"), (3, 300, "c"), (4, 400, None)]
    with pytest.raises(Invalid, match="column x of the source is not in the table"):
        merged.sql("MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET *")


@pytest.mark.usefixtures("each_way")
def test_the_first_clause_that_applies_counts(merged: alluvia.Lake) -> None:
    merged.sql(
        "MERGE INTO t USING u ON t.id = u.id AND t.n < u.n - 200 "
        "WHEN MATCHED AND t.n > 100 THEN DELETE WHEN MATCHED AND t.n > 5 THEN DO NOTHING "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND u.n > 300 THEN INSERT (id) VALUES (u.id) "
        "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (-u.id, 0)"
    )
    # (2, 20) is not less than 0, so row 2 of the source is not matched, though its key is.
    assert rows(merged) == [(-2, 0, None), (1, 10, "a"), (2, 20, "b"), (3, 30, "c"), (4, None, None)]


@pytest.mark.usefixtures("each_way")
def test_a_source_of_values_with_parameters_and_a_merge_of_the_table_itself(merged: alluvia.Lake) -> None:
    merged.sql(
        "MERGE INTO t USING (SELECT * FROM (VALUES (?, ?), (9, ?)) v(key, text)) AS s ON t.id = s.key "
        "WHEN MATCHED AND s.text <> ? THEN UPDATE SET s = s.text || ? "
        "WHEN NOT MATCHED THEN INSERT (id, s) VALUES (key, ?)",
        [1, "it's", "new", "no", "!", "?"],
    )
    assert rows(merged, "SELECT id, s FROM t WHERE id IN (1, 9) ORDER BY id") == [(1, "it's!"), (9, "?")]
    merged.sql(
        "MERGE INTO t USING (SELECT id, max(n) OVER () AS top FROM t) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET n = top"
    )
    assert rows(merged, "SELECT DISTINCT n FROM t") == [(30,)]


@pytest.mark.usefixtures("each_way")
def test_keys_of_several_columns_partitions_and_vectors(lake: alluvia.Lake) -> None:
    lake.sql(
        "CREATE TABLE t (day DATE, k STRING, n BIGINT) PARTITION BY (day) "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true')"
    )
    lake.sql("INSERT INTO t SELECT DATE '2026-01-01' + (range % 3)::INT, (range % 10)::VARCHAR, range FROM range(30)")
    done = lake.sql(
        "MERGE INTO t USING (SELECT DATE '2026-01-02' AS day, '4' AS k) AS s ON t.day = s.day AND t.k = s.k "
        "WHEN MATCHED THEN UPDATE SET n = 1000, day = DATE '2026-01-09'"
    ).to_pylist()[0]
    assert done["rows_updated"] == 1
    assert rows(lake, "SELECT day::VARCHAR, k, n FROM t WHERE n = 1000") == [("2026-01-09", "4", 1000)]
    assert lake.sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 30}]
    # Only the file of the key's day was replaced.
    assert lake.sql("DESCRIBE HISTORY t LIMIT 1").to_pylist()[0]["files_removed"] == 1


def test_names_that_both_have_mean_the_row_that_is_there(merged: alluvia.Lake) -> None:
    merged.sql(
        "MERGE INTO t USING u ON t.id > u.id * 100 WHEN NOT MATCHED AND n + id > 202 "
        "THEN INSERT (id, n) VALUES (list_sum(list_transform([id], lambda x: x + 100))::BIGINT, n) "
        "WHEN NOT MATCHED BY SOURCE AND id = 1 THEN UPDATE SET n = id + n"
    )
    assert rows(merged, "SELECT id, n FROM t ORDER BY id") == [(1, 11), (2, 20), (3, 30), (103, 300), (104, 400)]


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize(
    ("key", "source", "updated"),
    [
        ("(id BIGINT, k INT, n BIGINT)", "1::BIGINT AS k, 9 AS n UNION ALL SELECT 5000000000, 9", [1]),
        ("(id BIGINT, k DECIMAL(10, 2), n BIGINT)", "1::DECIMAL(10, 3) AS k, 9 AS n UNION ALL SELECT 2.001, 9", [1]),
        ("(id BIGINT, k FLOAT, n BIGINT)", "0.1::DOUBLE AS k, 9 AS n UNION ALL SELECT 2, 9", [2]),
        ("(id BIGINT, k DOUBLE, n BIGINT)", "1 AS k, 9 AS n UNION ALL SELECT 0, 9", [0, 1]),
        ("(id BIGINT, k DOUBLE, n BIGINT)", "'nan'::DOUBLE AS k, 9 AS n UNION ALL SELECT NULL, 9", [3]),
    ],
)
def test_keys_are_equal_where_sql_says_so(lake: alluvia.Lake, key: str, source: str, updated: list[int]) -> None:
    """A key of the source that the table's column cannot hold equals none: it is neither refused nor rounded to one."""
    lake.sql(f"CREATE TABLE t {key}")
    lake.sql("INSERT INTO t VALUES (1, 1, 0), (2, 2, 0)")
    if "FLOAT" in key:
        lake.sql("INSERT INTO t VALUES (7, 0.1, 0)")
    if "DOUBLE," in key:
        lake.sql("INSERT INTO t VALUES (0, -0.0, 0), (3, 'NaN', 0), (4, NULL, 0)")
    lake.sql(f"MERGE INTO t USING (SELECT {source}) u ON t.k = u.k WHEN MATCHED THEN UPDATE SET n = u.n")
    assert rows(lake, "SELECT id FROM t WHERE n = 9 ORDER BY id") == [(number,) for number in updated]


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize("more", ["", " AND EXISTS (FROM u)"])
def test_chance_decides_once_about_each_row(lake: alluvia.Lake, more: str) -> None:
    """What a clause with random() applies to is what it changes, and what is counted."""
    lake.sql("CREATE TABLE t AS SELECT range AS id, range AS k, 0 AS n FROM range(400)")
    lake.sql("CREATE TABLE u AS SELECT range AS k FROM range(800)")
    done = lake.sql(
        f"""MERGE INTO t USING u ON t.k = u.k
            WHEN MATCHED AND random() < 0.5{more} THEN UPDATE SET n = 1
            WHEN MATCHED AND random() < 0.5{more} THEN DELETE
            WHEN MATCHED THEN UPDATE SET n = 2
            WHEN NOT MATCHED AND random() < 0.5{more} THEN INSERT (k, n) VALUES (k, 3)
            WHEN NOT MATCHED THEN INSERT (k, n) VALUES (k, 4)"""
    ).to_pylist()[0]
    counts = dict(rows(lake, "SELECT n, count(*) FROM t GROUP BY n"))
    assert counts.keys() == {1, 2, 3, 4}
    assert done["rows_updated"] == counts[1] + counts[2]
    assert (done["rows_deleted"], done["rows_inserted"]) == (400 - counts[1] - counts[2], 400)


@pytest.mark.usefixtures("each_way")
@pytest.mark.parametrize(
    ("clause", "left"),
    [("WHEN MATCHED AND u.n > 250 THEN DELETE", [1, 2]), ("WHEN MATCHED AND true THEN DELETE", [1])],
)
def test_a_clause_may_look_at_the_source_alone_or_at_nothing(
    merged: alluvia.Lake, clause: str, left: list[int]
) -> None:
    """The key is not the first column, so that a file's first column need not be read at all."""
    merged.sql("CREATE TABLE w AS SELECT s AS first, id, n FROM t")
    merged.sql(f"MERGE INTO w USING u ON w.id = u.id AND 1 = 1 {clause}")
    assert rows(merged, "SELECT id FROM w ORDER BY id") == [(number,) for number in left]


@pytest.mark.usefixtures("each_way")
def test_all_parts_of_a_merge_see_one_time_and_the_history_says_the_same(merged: alluvia.Lake) -> None:
    merged.sql("CREATE TABLE w (id BIGINT, moment TIMESTAMP); INSERT INTO w VALUES (2, NULL), (3, NULL)")
    merged.sql(
        "MERGE INTO w USING u ON w.id = u.id AND u.n > 0 WHEN MATCHED AND u.n = 200 THEN UPDATE SET moment = now() "
        "WHEN MATCHED THEN UPDATE SET moment = now() WHEN NOT MATCHED THEN INSERT (id, moment) VALUES (u.id, now())"
    )
    assert rows(merged, "SELECT count(DISTINCT moment), count(moment) FROM w") == [(1, 3)]
    entry = merged.table("w").history(1)[0]
    assert (entry.operation, entry.parameters) == ("MERGE", {"on": "w.id = u.id AND u.n > ?"})


@pytest.mark.usefixtures("each_way")
def test_the_history_counts_the_rows_of_the_source(merged: alluvia.Lake) -> None:
    merged.sql(
        "MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET n = u.n "
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (u.id)"
    )
    assert merged.table("t").history(1)[0].metrics["numSourceRows"] == "3"


@pytest.mark.usefixtures("each_way")
def test_values_of_every_kind(lake: alluvia.Lake) -> None:
    columns = (
        "k INT, i BIGINT, d DECIMAL(9, 2), b BINARY, l ARRAY<INT>, m MAP<STRING, INT>, s STRUCT<a: INT, b: STRING>"
    )
    lake.sql(f"CREATE TABLE t ({columns}, moment TIMESTAMP)")
    lake.sql("INSERT INTO t (k) VALUES (1), (2), (3)")
    full = (
        "7 AS i, 1.25::DECIMAL(9, 2) AS d, 'x'::BLOB AS b, [1, NULL] AS l, MAP {'a': 1} AS m, "
        "{'a': 1, 'b': NULL::VARCHAR} AS s, TIMESTAMPTZ '2026-01-01 12:00:00Z' AS moment"
    )
    lake.sql(
        f"MERGE INTO t USING (SELECT range AS k, {full} FROM range(1, 5)) u ON t.k = u.k "
        "WHEN MATCHED AND u.k = 1 THEN UPDATE SET i = u.i, l = u.l, m = u.m, s = u.s, moment = u.moment "
        "WHEN MATCHED AND u.k = 2 THEN UPDATE SET d = u.d, b = u.b, l = NULL "
        "WHEN NOT MATCHED THEN INSERT (k, i, d, b, l, m, s, moment) VALUES (k, i, d, b, l, m, s, moment)"
    )
    shown = "SELECT k, i, d::VARCHAR, b, l::VARCHAR, m::VARCHAR, s::VARCHAR, moment IS NULL FROM t ORDER BY k"
    assert rows(lake, shown) == [
        (1, 7, None, None, "[1, NULL]", "{a=1}", "{'a': 1, 'b': NULL}", False),
        (2, None, "1.25", b"x", None, None, None, True),
        (3, None, None, None, None, None, None, True),
        (4, 7, "1.25", b"x", "[1, NULL]", "{a=1}", "{'a': 1, 'b': NULL}", False),
    ]


def test_a_source_larger_than_memory(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source has 24 MB, of which at most 1 MB is taken into memory here, and all of it is inserted or updates."""
    monkeypatch.setattr(merging, "SOURCE_BYTES", 1 << 20)
    monkeypatch.setattr(rewriting, "WAITING_BYTES", 2 << 20)
    lake.sql("CREATE TABLE t (id BIGINT, n BIGINT, s STRING)")
    lake.sql("INSERT INTO t SELECT range * 2, 0, NULL FROM range(200000)")
    done = lake.sql(
        "MERGE INTO t USING (SELECT range AS id, 'row number ' || range AS s FROM range(600000)) u ON t.id = u.id "
        "WHEN MATCHED THEN UPDATE SET n = 1, s = u.s WHEN NOT MATCHED THEN INSERT (id, n, s) VALUES (id, 2, s)"
    ).to_pylist()[0]
    assert (done["rows_updated"], done["rows_inserted"]) == (200_000, 400_000)
    assert rows(lake, "SELECT n, count(*), min(s), count(DISTINCT id) FROM t GROUP BY n ORDER BY n") == [
        (1, 200_000, "row number 0", 200_000),
        (2, 400_000, "row number 1", 400_000),
    ]
    assert lake["t"].verify().ok


def test_a_merge_without_keys_ends_when_its_time_is_up(merged: alluvia.Lake) -> None:
    text = (
        "MERGE INTO t USING (SELECT range AS x FROM range(400000000)) u ON sqrt(t.n + x) = 0.5 WHEN MATCHED THEN DELETE"
    )
    with pytest.raises(QueryTooCostly, match=r"longer than the 0\.3 seconds allowed"):
        execute(merged, text, limits=QueryLimits(timeout_seconds=0.3))
    assert len(rows(merged)) == 3


def test_a_merge_waits_for_no_one_and_loses_nothing(merged: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer changes rows of the table between the read and the commit: the merge runs again."""
    others = iter(["UPDATE t SET n = 11 WHERE id = 2", "UPDATE t SET n = 12 WHERE id = 3"])
    again = change_rows

    def interrupted(*arguments: Any) -> Any:
        if (other := next(others, None)) is not None:
            alluvia.connect(merged.uri).sql(other)
        return again(*arguments)

    monkeypatch.setattr(keyed_merge, "change_rows", interrupted)
    merged.sql("MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET n = t.n + u.n")
    assert rows(merged, "SELECT id, n FROM t ORDER BY id") == [(1, 10), (2, 211), (3, 312)]


def test_random_statements_do_what_duckdb_does() -> None:
    """`python -m tests.sql.sequences --seeds N` runs more of them."""
    counts = run(range(100_000), seconds=4)
    assert counts.total() > 10


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("big", 1),
        ("(SELECT id, n FROM big WHERE id > ?)", 1),
        ("(SELECT 250 AS id, 1 AS n UNION ALL SELECT 901, 1)", 2),
        ("(SELECT id, n FROM big UNION ALL SELECT NULL, 1)", 1),
        ("(SELECT id::INT AS id, n FROM big)", 1),
        ("(SELECT id, n FROM big LIMIT 300)", 10),
        ("(SELECT id, n FROM big WHERE random() < 2)", 10),
        ("a_view", 10),
        ("(SELECT range AS id, 1 AS n FROM range(200, 210))", 1),
    ],
)
def test_a_large_source_reaches_only_files_that_can_hold_its_keys(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, source: str, read: int
) -> None:
    """A source that may have other rows when it is read again, or that a view hides, reaches all files."""
    lake.sql("CREATE TABLE t (id BIGINT, n BIGINT) PARTITION BY (truncate(100, id))")
    for first in range(0, 1000, 100):
        lake.sql("INSERT INTO t SELECT range, 0 FROM range($1, $1 + 100)", [first])
    lake.sql("CREATE TABLE big AS SELECT range + 200 AS id, 7 AS n FROM range(50)")
    lake.sql("CREATE VIEW a_view AS FROM big")
    monkeypatch.setattr(merging, "SOURCE_BYTES", 1)
    scanned: list[int] = []
    kept = located_merge.kept

    def counted(scans: Any, *others: Any) -> Any:
        scanned.append(len(scans[0].files))
        return kept(scans, *others)

    monkeypatch.setattr(changing, "kept", counted)
    parameters = [-1] if "?" in source else None
    before = {row[0] for row in rows(lake, f"SELECT id FROM {source} AS y WHERE id IS NOT NULL", parameters)}
    done = lake.sql(
        f"MERGE INTO t AS x USING {source} AS y ON x.id = y.id WHEN MATCHED THEN UPDATE SET n = y.n + 1 "
        "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (y.id, y.n)",
        parameters,
    ).to_pylist()[0]
    assert scanned == [read]
    assert (done["rows_updated"], done["rows_inserted"]) == (len(before), int("NULL" in source))
    assert {row[0] for row in rows(lake, "SELECT id FROM t WHERE n > 0 AND id IS NOT NULL")} == before


def test_a_time_that_python_cannot_represent_is_a_key_like_others(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "SOURCE_BYTES", 1)
    lake.sql("CREATE TABLE t (d DATE, n BIGINT)")
    lake.sql("INSERT INTO t VALUES ('2026-01-01', 1), ('2026-01-02', 1)")
    days = "(SELECT d, 7 AS n FROM (VALUES (DATE '2026-01-02'), (DATE '20260-01-01')) AS v(d))"
    lake.sql(f"MERGE INTO t AS x USING {days} AS y ON x.d = y.d WHEN MATCHED THEN UPDATE SET n = y.n")
    assert [row[0] for row in rows(lake, "SELECT n FROM t ORDER BY d")] == [1, 7]
