"""Which conditions of a query reach which table: seen by the files that are left of five, one a day."""

from __future__ import annotations

import pytest

import alluvia
from alluvia.errors import Invalid
from tests.unit.query.conftest import query, scans

E, U = "events e", "events f"


def left_of(lake: alluvia.Lake, text: str) -> list[int]:
    """Return the number of files that are left for each table named; `n` is 10 to 19 in the first, and so on."""
    return [scan.files_read for scan in scans(lake, text)]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        # WHERE, through every kind of join
        (f"FROM {E} WHERE n < 20", [1]),
        (f"FROM {E}, {U} WHERE e.n < 20 AND f.n >= 40", [1, 2]),
        (f"FROM {E}, {U} WHERE n < 20", None),
        (f"FROM {E} JOIN {U} ON e.n = f.n WHERE e.n < 20 AND f.n < 30", [1, 2]),
        (f"FROM {E} LEFT JOIN {U} ON e.n = f.n WHERE e.n < 20 AND f.n < 30", [1, 2]),
        (f"FROM {E} LEFT JOIN {U} ON e.n = f.n WHERE e.n IS NULL", [0, 5]),
        (f"FROM {E} LEFT JOIN {U} ON e.n = f.n WHERE f.n IS NULL", [5, 5]),
        (f"FROM {E} LEFT JOIN {U} ON e.n = f.n WHERE f.n IS NULL OR f.n < 20", [5, 5]),
        (f"FROM {E} LEFT JOIN {U} ON e.n = f.n WHERE f.n IS NULL AND f.n < 20", [5, 1]),
        (f"FROM {E} LEFT JOIN {U} ON e.n = f.n WHERE f.n < 20 OR e.n < 20", [5, 5]),
        (f"FROM {E} RIGHT JOIN {U} ON e.n = f.n WHERE e.n < 20 AND f.n < 30", [1, 2]),
        (f"FROM {E} RIGHT JOIN {U} ON e.n = f.n WHERE e.n IS NULL AND f.n IS NULL", [5, 0]),
        (f"FROM {E} FULL JOIN {U} ON e.n = f.n WHERE e.n < 20 AND f.n < 30", [1, 2]),
        (f"FROM {E} FULL JOIN {U} ON e.n = f.n WHERE e.n IS NULL AND f.n IS NULL", [5, 5]),
        (f"FROM {E} SEMI JOIN {U} ON e.n = f.n WHERE e.n < 20", [1, 5]),
        (f"FROM {E} ANTI JOIN {U} ON e.n = f.n WHERE e.n < 20", [1, 5]),
        # ON
        (f"FROM {E} JOIN {U} ON e.n < 20 AND f.n < 30", [1, 2]),
        (f"FROM {E} LEFT JOIN {U} ON e.n < 20 AND f.n < 30", [5, 2]),
        (f"FROM {E} RIGHT JOIN {U} ON e.n < 20 AND f.n < 30", [1, 5]),
        (f"FROM {E} FULL JOIN {U} ON e.n < 20 AND f.n < 30", [5, 5]),
        (f"FROM {E} SEMI JOIN {U} ON e.n < 20 AND f.n < 30", [1, 2]),
        (f"FROM {E} ANTI JOIN {U} ON e.n < 20 AND f.n < 30", [5, 2]),
        (f"FROM {E} JOIN ({U} LEFT JOIN events g ON g.n < 20) ON g.n < 30 AND f.n < 40", [5, 3, 1]),
        (f"FROM {E} LEFT JOIN ({U} LEFT JOIN events g ON true) ON g.n IS NULL AND f.n < 40", [5, 3, 5]),
        # joins that look for one row, or by position
        (f"FROM {E} ASOF JOIN {U} ON e.ts >= f.ts WHERE e.n < 20 AND f.n < 30", [1, 5]),
        (f"FROM {E} ASOF LEFT JOIN {U} ON e.ts >= f.ts WHERE e.n < 20 AND f.n < 30", [1, 5]),
        (f"FROM {E} POSITIONAL JOIN {U} WHERE e.n < 20 AND f.n < 30", [5, 5]),
        # names
        (f"FROM {E} JOIN {U} USING (n) WHERE n < 20", [5, 5]),
        (f"FROM {E} JOIN {U} USING (n) WHERE e.n < 20 AND f.n < 30", [1, 2]),
        (f"FROM {E} NATURAL JOIN {U} WHERE n < 20", [5, 5]),
        ("FROM events e JOIN users u ON e.n = u.n WHERE name = 'Ada' AND kind = 'kind-1'", [1, 1]),
        ("FROM events e(a, kind, n) WHERE n < 20 AND kind = 'kind-1'", [1]),
        ("FROM events e(n, b, c) WHERE n < '2024-01-02'", [1]),
        ("SELECT 5 AS n FROM events WHERE n < 20", [1]),
        ("SELECT n AS place FROM events WHERE place.zip = 1", [1]),
        ("FROM users, LATERAL (FROM events WHERE events.n = users.n AND users.name = 'Ada')", [2, 5]),
        ("FROM events e WHERE EXISTS (FROM events f WHERE f.n = e.n AND e.n < 20 AND f.n < 30)", [5, 2]),
        ("FROM events WHERE n < 20 AND n IN (SELECT n FROM events WHERE n < 30)", [1, 2]),
        # subqueries and common table expressions that give row for row
        ("FROM (FROM events) WHERE n < 20", [1]),
        ("FROM (SELECT n AS m, kind FROM events) x WHERE m < 20 AND x.m < 30", [1]),
        ("FROM (SELECT n AS m FROM events) x(k) WHERE k < 20", [1]),
        ("FROM (SELECT ts::DATE AS d FROM events) WHERE d = '2024-01-02'", [1]),
        ("FROM (SELECT place AS p FROM events) WHERE p.zip = 2", [1]),
        ("FROM (SELECT DISTINCT n FROM events ORDER BY n) WHERE n < 20", [1]),
        ("FROM (SELECT e.* FROM events e, users) WHERE kind = 'kind-1'", [1, 2]),
        ("FROM (SELECT *, n AS n FROM events) x(a, b, c, d, e, f, g) WHERE g < 20", [1]),
        ("FROM (SELECT n + 1 AS n FROM events) WHERE n < 20", [5]),
        ("FROM (SELECT kind AS n, n AS kind FROM events) WHERE n < 'kind-2' AND kind < 30", [1]),
        ("FROM (SELECT kind AS m, m AS k FROM events) WHERE k = 'kind-1'", [5]),
        ("FROM (SELECT n FROM events WHERE n < 30) WHERE n >= 20", [1]),
        ("WITH x AS (FROM events) FROM x WHERE n < 20", [1]),
        ("WITH x(m) AS (SELECT n FROM events), y AS (SELECT m AS k FROM x) FROM y WHERE k < 20", [1]),
        ("WITH x AS (FROM events) FROM x a, x b WHERE a.n < 20 AND b.n < 20", [5]),
        ("FROM users LEFT JOIN (FROM events) x USING (n) WHERE x.kind = 'kind-1'", [2, 1]),
        ("FROM users LEFT JOIN (FROM events) x USING (n) WHERE x.kind IS NULL", [2, 5]),
        ("FROM events WHERE n < 20 UNION ALL FROM events WHERE n > 50", [1, 1]),
        # ... and those that do not
        ("FROM (SELECT n, sum(value) FROM events GROUP BY n) WHERE n < 20", [5]),
        ("FROM (SELECT n, row_number() OVER () AS r FROM events) WHERE n < 20", [5]),
        ("FROM (SELECT max(n) AS n FROM events) WHERE n < 20", [5]),
        ("FROM (SELECT DISTINCT ON (kind) n FROM events ORDER BY n DESC) WHERE n < 20", [5]),
        ("FROM (FROM events LIMIT 20) WHERE n < 20", [5]),
        ("FROM (FROM events OFFSET 20) WHERE n < 20", [5]),
        ("FROM (FROM events QUALIFY row_number() OVER (ORDER BY n) > 5) WHERE n < 20", [5]),
        ("FROM (SELECT * EXCLUDE (kind) FROM events) WHERE n < 20", [5]),
        ("FROM (FROM events UNION ALL FROM events) WHERE n < 20", [5, 5]),
        ("FROM (FROM events USING SAMPLE 5 ROWS) WHERE n < 20", [5]),
        # clauses that come after grouping, and samples
        ("SELECT n, count(*) FROM events GROUP BY n HAVING n < 20", [5]),
        ("FROM events TABLESAMPLE 50% WHERE n < 20", [5]),
        ("FROM events WHERE n < 20 USING SAMPLE 3 ROWS", [5]),
        ("PIVOT (FROM events WHERE n < 20) ON kind IN ('kind-1') USING count(*)", [1]),
        ("FROM (PIVOT events ON kind IN ('kind-1') USING count(*) GROUP BY n) WHERE n < 20", [5]),
        ("SUMMARIZE SELECT n FROM events WHERE n < 20", [1]),
    ],
)
def test_files_that_conditions_leave(lake: alluvia.Lake, text: str, left: list[int] | None) -> None:
    if left is None:
        with pytest.raises(Invalid, match="Ambiguous"):
            left_of(lake, text)
    else:
        assert left_of(lake, text) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        # a star over columns that are not known, or that another entry has as well
        ("FROM (SELECT * FROM range(99) AS g(n) JOIN events e ON e.n = g.n + 1) WHERE n < 20", [5]),
        ("FROM (SELECT e.*, g.* FROM events e JOIN (FROM events) g ON e.n = g.n + 1) WHERE n < 20", [5, 5]),
        ("FROM (SELECT * FROM events JOIN users USING (n)) WHERE n < 20", [5, 2]),
        ("FROM (SELECT * FROM (SELECT max(n) AS m FROM users) JOIN events e ON n < m) WHERE n < 20", [2, 1]),
        # names given twice, and names that DuckDB may have made
        ("FROM (SELECT n + 0 AS n, n FROM events) WHERE n < 20", [5]),
        ("FROM (SELECT n + 0 AS m, n AS m, n AS m_1 FROM events) WHERE m_1 < 20", [5]),
        ("FROM (SELECT kind AS m, kind AS m, n AS m_x FROM events) WHERE m_x < 20", [1]),
        ("FROM (SELECT 1, n FROM events) WHERE n < 20", [1]),
        ("FROM events e(a, n) WHERE n = 'kind-3'", [5]),
        ("FROM events e(a, b) WHERE n < 20", [1]),
        ("WITH x(n, m) AS (SELECT kind, n FROM events) FROM x y(k) WHERE m < 20", [1]),
        ("WITH x(m, n) AS (SELECT n, kind FROM events) FROM x y(k) WHERE k < 20", [1]),
    ],
)
def test_a_name_restricts_a_table_only_where_it_is_certain_to_be_its(
    lake: alluvia.Lake, text: str, left: list[int]
) -> None:
    assert left_of(lake, text) == left


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            """SELECT count(*) FROM (SELECT * FROM (SELECT n, count(*) AS c FROM events GROUP BY n) g
               JOIN events e ON e.n = g.n + 1) WHERE n = 19""",
            1,
        ),
        ("SELECT count(*) FROM (SELECT n, n, kind AS n_1 FROM events) WHERE n_1 = 33", 1),
        ("SELECT count(*) FROM (SELECT n + 10 AS m, n AS m, n AS m_1 FROM events) WHERE m_1 = 33", 1),
        ("SELECT count(*) FROM events e(a, n) WHERE n = 'kind-3'", 10),
    ],
)
def test_a_condition_means_the_column_that_duckdb_takes_it_for(lake: alluvia.Lake, text: str, rows: int) -> None:
    assert query(lake, text) == [(rows,)]


def test_one_query_can_hold_the_past_and_the_present(lake: alluvia.Lake) -> None:
    text = "SELECT count(*) FROM events EXCEPT ALL SELECT count(*) FROM events(version => 2)"
    assert query(lake, text) == [(50,)]
    assert [(scan.version, scan.files_total) for scan in scans(lake, text)] == [(5, 5), (2, 2)]
