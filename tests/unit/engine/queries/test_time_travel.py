"""Versions of tables, typed as in other systems."""

from __future__ import annotations

import pytest

from alluvia.engine.queries.parse import parse
from alluvia.engine.queries.references import At, find_references
from alluvia.engine.queries.time_travel import in_our_form

_HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "at", "alias"),
    [
        ("FROM t AT (OFFSET => '1 hour ago')", At(ago_ms=_HOUR_MS), "t"),
        ("FROM t AT(OFFSET=>-3600) AS e WHERE a", At(ago_ms=_HOUR_MS), "e"),
        ("FROM t AS e AT (OFFSET => '60 minutes')", At(ago_ms=_HOUR_MS), "e"),
        ("FROM t e AT (offset := '1 h') JOIN range(3) ON true", At(ago_ms=_HOUR_MS), "e"),
        ("FROM t AT /* ü */ (OFFSET => '1 hour ago') -- and so on", At(ago_ms=_HOUR_MS), "t"),
        ("SELECT * FROM range(2), t(offset => '1 hour ago') AS e", At(ago_ms=_HOUR_MS), "e"),
        ("FROM t AT (VERSION => 3)", At(version=3), "t"),
        ("FROM t AS e AT (VERSION => 3)", At(version=3), "e"),
        ("FROM t AT (VERSION => 3) AS e", At(version=3), "e"),
        ("FROM t VERSION AS OF 3", At(version=3), "t"),
        ("FROM t /* a /* b */ it's */ VERSION AS OF 3 -- it's", At(version=3), "t"),
        ("FROM t VERSION AS OF '3' e", At(version=3), "e"),
        ('FROM "T"VERSION AS OF 3', At(version=3), "t"),
        ("FROM t for system_version as of 3 AS e WHERE true", At(version=3), "e"),
        ("FROM (SELECT * FROM t VERSION AS OF 3)", At(version=3), "t"),
    ],
)
def test_a_version_is_read_in_every_form(text: str, at: At, alias: str) -> None:
    (found,) = find_references(parse(text).root).tables
    assert (found.table, found.at, found.alias) == ("t", at, alias)


@pytest.mark.parametrize(
    "text",
    [
        "FROM t AT (TIMESTAMP => '2026-01-31') AS e",
        "FROM t TIMESTAMP AS OF '2026-01-31'",
        "FROM t FOR SYSTEM_TIME AS OF '2026-01-31' AS e",
        "FROM t(timestamp => '2026-01-31')",
        "FROM t AT (TIMESTAMP => now() - INTERVAL 1 HOUR) e",
    ],
)
def test_a_moment_is_read_in_every_form(text: str) -> None:
    (found,) = find_references(parse(text).root).tables
    assert (found.table, found.at.version, found.at.moment is not None) == ("t", None, True)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 'FROM t VERSION AS OF 3', \"from t at (offset => 1)\", $$FROM t AT (OFFSET => 1)$$ FROM t",
        "SELECT E'it\\'s FROM t AT (OFFSET => 1)' FROM t",
        "SELECT 1 -- FROM t VERSION AS OF 3",
        "/* FROM t AT (OFFSET => 1) */ SELECT 1",
        "SELECT x -> y AS of, struct_pack(at := 1) FROM t",
        "FROM read_csv('x', offset => 1)",
        "FROM t AT (TIMESTAMP => '2026-01-31') WHERE x = 1",
    ],
)
def test_what_duckdb_takes_stays_as_it_is(text: str) -> None:
    assert in_our_form(text) == text


@pytest.mark.parametrize("text", ["FROM t VERSION AS OF 3 WHERE x = 'a", "FROM (SELECT * FROM t VERSION AS OF 3"])
def test_a_text_that_is_broken_off_stays_as_it_is(text: str) -> None:
    assert in_our_form(text) == text


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("FROM columns('t')", 1),
        ("SELECT * FROM x, Columns ( 't' ) c", 1),
        ("FROM x LEFT JOIN columns('t') USING (a)", 1),
        ("FROM a JOIN b ON f(a.x, 1) = b.x, columns('t')", 1),
        ("FROM x, LATERAL columns('t')", 1),
        ("WITH a AS (SELECT 1), b AS (FROM columns('t')) SELECT * FROM a, b, columns('t', version => 1)", 2),
        ("FROM ((columns('t') a JOIN y ON true) CROSS JOIN columns('u'))", 2),
        ("SELECT (SELECT count(*) FROM columns('t')) AS n, columns('a') FROM x", 1),
        ("FROM x, columns('t') SELECT columns('a'), columns('b') WHERE columns('c') > 0", 1),
        ("SELECT 1 FROM a UNION ALL SELECT name FROM columns('t')", 1),
        ("SELECT x FROM y WHERE x IN (FROM columns('t') SELECT name)", 1),
        ("EXPLAIN SELECT extract(year FROM d) FROM x, columns('t') -- , columns('t')", 1),
        ("FROM \"columns\"('t')", 1),
    ],
)
def test_columns_of_a_table_stand_where_a_table_does(text: str, tables: int) -> None:
    found = find_references(parse(text).root).tables
    calls = [each for each in found if each.call is not None]
    assert [each.call.function for each in calls if each.call is not None] == ["columns"] * tables
    assert all(each.table in ("t", "u") for each in calls)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT columns('a'), max(columns('b')), 1, columns(*) FROM x",
        "SELECT a FROM x, y WHERE b IN (1, columns('c')) ORDER BY a, columns('b')",
        "SELECT a FROM x GROUP BY a, columns('b')",
        "SELECT extract(year FROM columns('x')), trim(both 'a' FROM columns('x')) FROM y",
        "SELECT substring(a from columns('y')) FROM z",
        "SELECT 1 IS DISTINCT FROM columns('x'), a IS NOT DISTINCT FROM columns('x') FROM y",
        "FROM x SELECT a, columns('b'), (a, columns('b')), [a, columns('b')], {'k': 1, 'l': columns('b')}",
        "FROM x JOIN y ON coalesce(a, columns('b'))",
        "FROM range(3) t(x), range(columns('a'), 1)",
        "SELECT sum(a) OVER (PARTITION BY b, columns('c')) FROM x WINDOW w AS (ORDER BY a, columns('d'))",
        "FROM x QUALIFY row_number() OVER (ORDER BY a, columns('c')) = 1",
        "SELECT DISTINCT ON (a, columns('b')) * EXCLUDE (a, b), columns('c') FROM x, y LIMIT 3",
        "SELECT 'FROM columns(1)', $$FROM columns('t')$$ /* FROM columns('t') */ FROM columns",
        "VALUES (1, columns('b'))",
        "FROM (UNPIVOT t ON id, columns('v.*') INTO NAME n VALUE v)",
        "FROM (TABLE t ORDER BY id, columns('v.*'))",
        "FROM a UNION ALL BY NAME UNPIVOT u ON a, columns('b')",
    ],
)
def test_columns_in_an_expression_stays_as_it_is(text: str) -> None:
    parse(text)  # DuckDB takes it
    assert in_our_form(text) == text


def test_positions_stay_what_they_are() -> None:
    text = "SELECT 'ü' FROM tü AS ë AT (OFFSET => '1 hour ago') WHERE ë.x = 1"
    found = in_our_form(text)
    assert len(found.encode()) == len(text.encode())
    assert found.encode().index(b"WHERE") == text.encode().index(b"WHERE")
