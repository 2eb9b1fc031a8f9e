"""PIVOT without a list of values has the columns and the rows that DuckDB gives."""

from __future__ import annotations

import pytest

import alluvia
from alluvia.access.rights import Rights
from alluvia.engine.queries.pivots import VALUES_MAX, OpenPivot, open_pivots
from alluvia.errors import Invalid
from alluvia.query.engine import run
from alluvia.sql.run import execute
from tests.access import grant
from tests.same_in_duckdb import Both, in_both

QUERIES = [
    "PIVOT t ON a USING sum(v)",
    "PIVOT t ON a",
    "PIVOT t ON a USING sum(v), count(*) AS n GROUP BY id",
    "PIVOT t ON id, a USING sum(v)",
    "PIVOT t ON a || '_' || id USING sum(v)",
    "PIVOT t ON id USING sum(v)",
    "PIVOT main.t AS q ON day USING sum(v) GROUP BY id ORDER BY id LIMIT 1",
    "PIVOT (SELECT * FROM t WHERE id < 3) ON a USING sum(v) GROUP BY id",
    "PIVOT (SELECT t.* FROM t JOIN t AS u ON t.id = u.id) ON a USING count(*) GROUP BY id",
    "WITH k AS (SELECT * FROM t WHERE v > 1) PIVOT k ON a USING sum(v) GROUP BY id",
    "SELECT * FROM (PIVOT t ON upper(a) USING sum(v) GROUP BY id) WHERE id > 1",
    "FROM (PIVOT t ON a USING sum(v) GROUP BY id) JOIN t USING (id)",
    "PIVOT t ON a IN ('x'), id USING sum(v)",
    "PIVOT_WIDER t ON a USING sum(v) GROUP BY id",
    "PIVOT t ON a USING sum(v) GROUP BY id UNION ALL SELECT 1, 2, 3, 4",
    "SELECT * FROM t PIVOT (sum(v) FOR a IN ('x', 'y'))",
]


@pytest.fixture(scope="module")
def both() -> Both:
    return in_both(
        "pivots",
        "CREATE TABLE t (id INT, a STRING, v INT, day DATE)",
        "INSERT INTO t VALUES (1, 'x', 1, '2026-01-05'), (2, 'y', 2, '2026-01-06')",
        "INSERT INTO t VALUES (1, 'it''s', 3, '2025-12-31'), (3, NULL, 4, NULL)",
    )


@pytest.mark.parametrize("query", QUERIES)
def test_columns_and_rows_are_duckdbs(both: Both, query: str) -> None:
    lake, judge = both
    expected, answer = judge.execute(query).to_arrow_table(), lake.sql(query)
    assert answer.column_names == expected.column_names
    assert sorted(map(repr, answer.to_pylist())) == sorted(map(repr, expected.to_pylist()))


def test_statements_that_write_take_it(both: Both) -> None:
    lake, _ = both
    lake.sql("CREATE TABLE wide AS PIVOT t ON id USING sum(v) GROUP BY a")
    assert lake.sql("SELECT * FROM wide WHERE a = 'x'").to_pylist() == [{"a": "x", "1": 1, "2": None, "3": None}]
    lake.sql("DROP TABLE wide")


def test_values_of_rows_that_may_not_be_seen_make_no_column(both: Both) -> None:
    lake, _ = both
    rights = Rights((grant("read:t", where="id < 3"),))
    assert execute(lake, "PIVOT t ON id USING sum(v) GROUP BY a", rights=rights).column_names == ["a", "1", "2"]


def test_values_are_those_of_the_version_that_is_read(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that another writer adds between the two queries are in neither."""
    lake, _ = both
    lake.sql("CREATE TABLE moving AS SELECT 'x' AS a, 1 AS v")
    condition = OpenPivot.condition

    def meanwhile(*given: object) -> str:
        alluvia.connect(lake.uri).sql("INSERT INTO moving VALUES ('x', 10), ('z', 20)")
        return condition(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(OpenPivot, "condition", meanwhile)
    assert lake.sql("PIVOT moving ON a USING sum(v)").to_pylist() == [{"x": 1}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE VIEW w AS PIVOT t ON a USING sum(v)", "a PIVOT in a view must name its values: PIVOT … ON a IN"),
        (
            "PIVOT (FROM t WHERE false) ON a USING sum(v)",
            "PIVOT … ON a: it has no value in any row: name",
        ),
        (f"PIVOT (FROM range({VALUES_MAX + 1})) ON range", f"it has more than {VALUES_MAX} values"),
        ("PIVOT t ON nope USING sum(v)", 'column "nope" not found'),
    ],
)
def test_what_a_pivot_cannot_do(both: Both, text: str, message: str) -> None:
    with pytest.raises(Invalid) as raised:
        both[0].sql(text)
    assert message in str(raised.value)


def test_a_dry_run_and_parameters_need_the_values(both: Both) -> None:
    lake, _ = both
    with pytest.raises(Invalid, match="a PIVOT must name its values"):
        run(lake.catalog, "PIVOT t ON a USING sum(v)", dry_run=True)
    with pytest.raises(Invalid, match="the PIVOT values must be manually specified"):
        lake.sql("PIVOT (FROM t WHERE id = ?) ON a USING sum(v)", [1])


@pytest.mark.parametrize(
    "text", ["SELECT pivot FROM t", "FROM t PIVOT (sum(v) FOR a IN ('x'))", "PIVOT t ON a IN ('x')", "PIVOT", "PIVOT t"]
)
def test_other_texts_have_no_open_pivot(text: str) -> None:
    assert open_pivots(text) == []
