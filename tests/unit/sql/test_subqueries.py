"""UPDATE and DELETE with subqueries: which rows change, whatever files they are in, and what else must be so."""

from __future__ import annotations

from typing import Any

import pytest

import alluvia
from alluvia.access.rights import Rights
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.errors import Conflict, Forbidden, Invalid
from alluvia.operations.rows.located_merge import LocatedMerge
from alluvia.query.limits import QueryLimits
from alluvia.sql.run import execute
from tests.access import grant


@pytest.fixture
def pair(lake: alluvia.Lake) -> alluvia.Lake:
    """Tables `t` of the numbers to 9 in three files and `gone` of two of them."""
    lake.sql("CREATE TABLE t (id BIGINT, g INT, s STRING) PARTITION BY (g)")
    lake.sql("CREATE TABLE gone AS SELECT unnest([2, 7]) AS id, unnest(['a', 'b']) AS why")
    lake.sql("INSERT INTO t SELECT range, range % 3, 'row ' || range FROM range(10)")
    return lake


def ids(lake: alluvia.Lake, table: str = "t") -> list[Any]:
    return sorted(lake.table(table).to_arrow(["id"])["id"].drop_null().to_pylist())


PROPERTIES = ("delta.enableDeletionVectors", "delta.enableChangeDataFeed")


@pytest.mark.parametrize("properties", [(), PROPERTIES[:1], PROPERTIES[1:], PROPERTIES])
def test_rows_are_found_by_their_place_in_files_of_any_kind(pair: alluvia.Lake, properties: tuple[str, ...]) -> None:
    for name in properties:
        pair["t"].evolve(properties={name: "true"})
    pair.sql("ALTER TABLE t RENAME COLUMN s TO said")
    pair.sql("DELETE FROM t WHERE id IN (0, 1)")  # so that positions are not those among the rows that are left
    pair.sql("INSERT INTO t VALUES (2, NULL, NULL), (NULL, 0, 'none')")
    before = pair["t"].version
    done = pair.sql("DELETE FROM t WHERE id IN (SELECT id FROM gone) AND coalesce(said, 'row') LIKE 'row%'")
    assert done.to_pylist() == [{"rows_deleted": 3, "version": before + 1}]
    assert (ids(pair), pair["t"].count()) == ([3, 4, 5, 6, 8, 9], 7)
    assert pair["t"].verify().ok
    if PROPERTIES[1] in properties:
        assert sorted(pair["t"].changes(before + 1).read_all()["id"].to_pylist()) == [2, 2, 7]
    done = pair.sql(
        "UPDATE t SET g = (SELECT count(*) FROM gone WHERE id < t.id), said = coalesce(said, '') || '!' "
        "WHERE id > (SELECT min(id) + 2 FROM gone)"
    )
    assert done.to_pylist() == [{"rows_updated": 4, "version": before + 2}]
    found = pair.sql("SELECT id, g, said FROM t WHERE id > 2 ORDER BY id").to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (3, 0, "row 3"), (4, 1, "row 4"), (5, 1, "row 5!"), (6, 1, "row 6!"), (8, 2, "row 8!"), (9, 2, "row 9!"),
    ]  # fmt: skip
    assert pair["t"].verify().ok
    if PROPERTIES[1] in properties:
        kinds = pair["t"].changes(before + 2).read_all()["_change_type"].to_pylist()
        assert sorted(kinds) == ["update_postimage"] * 4 + ["update_preimage"] * 4


def test_rows_of_files_that_duckdb_reads_from_copies_are_found_too(lake: alluvia.Lake) -> None:
    """A column has the name that DuckDB would give to the numbers of rows."""
    lake.sql("CREATE TABLE t (id BIGINT, file_row_number BIGINT) TBLPROPERTIES (delta.enableDeletionVectors = 'true')")
    for start in (0, 6):
        lake.sql(f"INSERT INTO t SELECT range, 100 + range FROM range({start}, {start + 6})")
    lake.sql("DELETE FROM t WHERE id IN (0, 1, 7)")
    lake.sql("DELETE FROM t WHERE file_row_number IN (SELECT unnest([102, 105, 108]))")
    assert ids(lake) == [3, 4, 6, 9, 10, 11]


def test_parameters_and_several_statements_of_a_text(pair: alluvia.Lake) -> None:
    answer = pair.sql(
        "INSERT INTO gone VALUES (?, ?); DELETE FROM t WHERE id IN (SELECT id FROM gone WHERE why = ?) AND g < ?;"
        "SELECT count(*) AS n FROM t",
        [5, "b'; DROP TABLE t --", "b'; DROP TABLE t --", 9],
    )
    assert answer.to_pylist() == [{"n": 9}]
    assert 5 not in ids(pair)


def test_values_of_subqueries_must_fit_their_columns(lake: alluvia.Lake) -> None:
    lake.sql("CREATE TABLE t (a BIGINT NOT NULL, b FLOAT, c DATE, d STRING, CHECK (a < 100))")
    lake.sql("INSERT INTO t VALUES (1, 1, '2026-01-01', 'x'), (2, 2, '2026-01-02', 'y')")
    lake.sql("UPDATE t SET a = (SELECT sum(a) FROM t), b = 1.5, c = '2026-02-03', d = NULL WHERE d = (SELECT 'x')")
    assert lake.sql("SELECT a, b, c::VARCHAR AS c, d FROM t ORDER BY a").to_pylist() == [
        {"a": 2, "b": 2.0, "c": "2026-01-02", "d": "y"},
        {"a": 3, "b": 1.5, "c": "2026-02-03", "d": None},
    ]
    for value, message in (
        ("a = (SELECT 'x')", "a"), ("a = (SELECT NULL)", "a must not be null"), ("a = (SELECT 1.5)", "a"),
        ("a = (SELECT 100)", "CHECK"), ("a = (SELECT a FROM t)", "More than one row"),
        ("e = (SELECT 1)", "no column e"), ("a = 'x', b = (SELECT 1)", "Could not convert"),
        ("a = (SELECT 1), A = 2", "set twice"),
    ):  # fmt: skip
        with pytest.raises(Invalid, match=message):
            lake.sql(f"UPDATE t SET {value}")
    assert lake["t"].version == 2


def test_what_a_subquery_reads_is_part_of_what_a_transaction_has_read(pair: alluvia.Lake) -> None:
    pair.sql("CREATE TABLE other AS SELECT unnest([1, 2]) AS id")
    with pair.transaction() as one, pytest.raises(Conflict):  # noqa: PT012
        one.sql("DELETE FROM other WHERE id NOT IN (SELECT id FROM gone)")
        with pair.transaction() as two:  # each sees what the other takes away: together they would leave nothing
            two.sql("DELETE FROM gone WHERE id NOT IN (SELECT id FROM other WHERE id = 1)")
        one.commit()
    assert (ids(pair, "other"), ids(pair, "gone")) == ([1, 2], [])


def test_clauses_of_a_merge_may_have_subqueries(pair: alluvia.Lake) -> None:
    pair.sql("DELETE FROM t WHERE id > 3; CREATE TABLE u AS SELECT unnest([1, 2, 7, 8]) AS id, 5 AS g")
    done = pair.sql(
        """MERGE INTO t USING u ON t.id = u.id
           WHEN MATCHED AND EXISTS (FROM gone WHERE gone.id = t.id AND gone.id < u.g) THEN
             UPDATE SET g = (SELECT max(id) FROM gone WHERE id < 3 * u.g) + t.g,
                        s = (SELECT why FROM gone WHERE id = t.id)
           WHEN MATCHED AND t.id < (SELECT min(id) FROM gone) THEN DELETE
           WHEN NOT MATCHED AND id IN (SELECT id FROM gone) THEN
             INSERT (id, g, s)
             VALUES (id, (SELECT count(*) FROM t), (SELECT why FROM gone WHERE gone.id = u.id) || $more)
           WHEN NOT MATCHED BY SOURCE AND g = (SELECT min(g) FROM t) THEN UPDATE SET s = (SELECT 'none')""",
        {"more": "'!"},
    )
    assert done.to_pylist() == [{"rows_inserted": 1, "rows_updated": 3, "rows_deleted": 1, "version": 4}]
    found = pair.sql("SELECT id, g, s FROM t ORDER BY id").to_pylist()
    assert [tuple(row.values()) for row in found] == [(0, 0, "none"), (2, 9, "a"), (3, 0, "none"), (7, 4, "b'!")]


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("NOT MATCHED AND EXISTS (FROM gone WHERE id = t.id) THEN INSERT (id) VALUES (2)", 'table "t" not found'),
        ("NOT MATCHED BY SOURCE AND EXISTS (FROM gone WHERE id = u.id) THEN DELETE", 'table "u" not found'),
        ("MATCHED THEN UPDATE SET s = (SELECT why FROM gone)", "More than one row"),
        ("MATCHED THEN UPDATE SET s = (SELECT why FROM gone LIMIT 1), g = rank() OVER ()", "window functions"),
        ("MATCHED THEN UPDATE SET g = (SELECT 'x')", "g is int"),
        ("MATCHED AND (SELECT true) OR rank() OVER () = 1 THEN DELETE", "window functions"),
    ],
)
def test_what_a_subquery_of_a_merge_cannot_be(pair: alluvia.Lake, clause: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        pair.sql(f"MERGE INTO t USING (SELECT 1 AS id) AS u ON t.id = u.id WHEN {clause}")
    assert pair["t"].version == 1


def test_what_a_subquery_of_a_merge_reads_is_part_of_what_a_transaction_has_read(pair: alluvia.Lake) -> None:
    merge = "MERGE INTO t USING (SELECT 1 AS id) AS u ON t.id = u.id WHEN MATCHED AND {} THEN DELETE"
    with pair.transaction() as one, pytest.raises(Conflict):  # noqa: PT012
        one.sql(merge.format("EXISTS (FROM gone WHERE why = 'a')"))
        pair.sql("DELETE FROM gone WHERE why = 'a'")
        one.commit()
    with pytest.raises(Forbidden, match="read:gone"):
        execute(pair, merge.format("EXISTS (FROM gone)"), rights=Rights((grant("read:t write:t"),)))
    assert len(ids(pair)) == 10


def test_a_statement_alone_runs_again_where_its_table_changes(
    pair: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: LocatedMerge, *arguments: Any) -> Any:
        monkeypatch.setattr(LocatedMerge, "find", find)
        pair.sql("INSERT INTO t VALUES (7, 1, 'late')")
        return find(self, *arguments)

    find = LocatedMerge.find
    monkeypatch.setattr(LocatedMerge, "find", interrupted)
    pair.sql("DELETE FROM t WHERE id IN (SELECT id FROM gone)")
    assert ids(pair) == [0, 1, 3, 4, 5, 6, 8, 9]


def test_subqueries_read_with_the_rights_of_the_caller(pair: alluvia.Lake) -> None:
    text = "DELETE FROM t WHERE id IN (SELECT id FROM gone)"
    with pytest.raises(Forbidden, match="read:gone"):
        execute(pair, text, rights=Rights((grant("read:t write:t"),)))
    filtered = Rights((grant("read:t write:t"), grant("read:gone", where="why = 'a'", hide="why")))
    with pytest.raises(Invalid, match="why"):
        execute(pair, "DELETE FROM t WHERE id IN (SELECT id FROM gone WHERE why = 'b')", rights=filtered)
    execute(pair, text, rights=filtered)
    assert ids(pair) == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    writing = Rights((grant("read:t write:gone"), grant("read:gone", where="why = 'a'")))
    with pytest.raises(Forbidden, match="only in part"):
        execute(pair, "DELETE FROM gone WHERE id IN (SELECT id FROM t)", rights=writing)


def test_a_subquery_ends_when_its_time_is_up(pair: alluvia.Lake) -> None:
    slow = "SELECT count(*) FROM range(1000000000) a, range(1000) b WHERE a.range % 7 = b.range"
    with pytest.raises(QueryTooCostly, match=r"longer than the 0\.3 seconds allowed"):
        execute(pair, f"DELETE FROM t WHERE id = ({slow})", limits=QueryLimits(timeout_seconds=0.3))
    assert len(ids(pair)) == 10


def test_rows_that_may_have_been_merged_are_not_counted(lake: alluvia.Lake) -> None:
    lake.sql(
        "CREATE TABLE t (id BIGINT, n BIGINT) TBLPROPERTIES "
        "('alluvia.merge_query' = 'SELECT id, sum(n) AS n FROM source GROUP BY id')"
    )
    lake.sql("INSERT INTO t VALUES (1, 1), (2, 2)")
    lake.sql("DELETE FROM t WHERE id IN (SELECT 2)")
    assert ids(lake) == [1]
    for condition in ("n IN (SELECT 1)", "t IN (SELECT NULL)", "id IN (SELECT count(*) FROM t AS o)"):
        with pytest.raises(Invalid, match="merge"):
            lake.sql(f"DELETE FROM t WHERE {condition}")
    assert ids(lake) == [1]


def test_calls_on_a_table_say_what_takes_subqueries(pair: alluvia.Lake) -> None:
    with pytest.raises(Invalid, match=r"cannot use subqueries or window functions: use DELETE or UPDATE in lake\.sql"):
        pair["t"].delete("id IN (SELECT id FROM gone)")
    with pytest.raises(
        Invalid, match=r"column g: an expression cannot use subqueries, .*: use UPDATE or MERGE INTO in"
    ):
        pair["t"].update({"g": "(SELECT count(*) FROM gone)"})
