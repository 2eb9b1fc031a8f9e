"""Syntax trees as DuckDB 2.0 serializes them, for tests that run with DuckDB 1.5.

`PYTHONPATH=.venv/next python -m tests.golden.duckdb_trees` records them, after `make next`.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import duckdb

RECORDED = Path(__file__).with_name("duckdb_2_trees.json.gz")
QUERIES = (
    "SELECT a, b AS c FROM t WHERE a = 1 AND b <> 'x' OR NOT (c IS NULL)",
    "SELECT count(*), sum(DISTINCT a ORDER BY b) FILTER (WHERE c > 1.5) FROM s.t AS u(x, y) GROUP BY ALL",
    "FROM t GROUP BY a HAVING count(*) > 2 ORDER BY 1 DESC NULLS LAST LIMIT 5 OFFSET 2",
    "WITH a AS (SELECT 1 x), b(k) AS (SELECT 2) SELECT * FROM a JOIN b ON a.x = b.k LEFT JOIN c USING (z), d",
    "WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
    "SELECT CAST(a AS INTEGER), TRY_CAST(b AS DECIMAL(10, 2)), c::timestamptz, d::text, e::numeric FROM t",
    "SELECT f::varchar(9), g::double precision, h::datetime FROM t",
    "SELECT a::INT[], b::STRUCT(x INT, y VARCHAR), c::json, d::main.kind, e::ENUM('a', 'b') FROM t",
    "SELECT * EXCLUDE (a) REPLACE (b + 1 AS b) RENAME (c AS d) FROM t",
    "SELECT COLUMNS('x.*'), t.*, #1 FROM t LIMIT 10%",
    "SELECT CASE WHEN a THEN 1 ELSE 2 END, a BETWEEN 1 AND 2, NOT a IN (1, 2), NOT (a < b) FROM t",
    "SELECT a NOT BETWEEN 1 AND 2, NOT (a IS NULL), a NOT LIKE 'x' FROM t",
    "SELECT a NOT IN (SELECT 1), EXISTS (SELECT 1), (SELECT 2), a = ANY (SELECT 3), a COLLATE nocase FROM t",
    "SELECT row_number() OVER (PARTITION BY a ORDER BY b ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t",
    "SELECT sum(x) FILTER (WHERE y) OVER (ORDER BY z) FROM t WINDOW w AS (ORDER BY c) QUALIFY 1 = 1",
    "SELECT list_transform(l, x -> x + 1), f(k := 1), s.f, l[1], coalesce(a, b), a ->> 'x', a -> 'y', a || b FROM t",
    "SELECT 1, 2147483648, -5, 1.5, .5, 1e5, 'it''s', NULL, true, false, 9223372036854775807, 1_000",
    "SELECT DATE '2020-01-01', INTERVAL '1 day', INTERVAL 5 DAY, now() - INTERVAL (x) MONTH, $1, $2 FROM t",
    "FROM t AT (VERSION => 3)",
    "SELECT * FROM range(10) r, t('2020-01-01') WHERE r.range = 1",
    "SELECT * FROM (VALUES (1, 'a'), (2, 'b')) v(x, y)",
    "SELECT 1 UNION ALL SELECT 2 ORDER BY 1 LIMIT 3",
    "SELECT 1 INTERSECT (SELECT 2 EXCEPT SELECT 3)",
    "SELECT * FROM a POSITIONAL JOIN b ASOF JOIN c ON a.x >= c.x NATURAL JOIN d CROSS JOIN e",
    "SELECT a FROM t GROUP BY GROUPING SETS ((a), (b), ())",
    "SELECT DISTINCT ON (a) a FROM t",
    "DESCRIBE t",
    "SUMMARIZE s.t",
    'TABLE "my t"',
    "DESCRIBE SELECT 1",
    "FROM (DESCRIBE t) a, (SUMMARIZE u) b",
    "SELECT 'é', b FROM t t2 WHERE x = ;",
)


def serialized(text: str) -> str:
    """Return the tree of a text as the installed DuckDB gives it."""
    [(tree,)] = duckdb.execute("SELECT json_serialize_sql($1)", [text]).fetchall()
    return str(tree)


def recorded() -> dict[str, str]:
    """Return the trees of DuckDB 2.0 by the texts of their queries."""
    trees: dict[str, str] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return trees


if __name__ == "__main__":
    trees = json.dumps({text: serialized(text) for text in QUERIES})
    RECORDED.write_bytes(gzip.compress(trees.encode(), mtime=0))
