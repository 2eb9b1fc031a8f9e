"""Which queries a rollup can be kept for, and which are refused, by name and with what to do."""

from __future__ import annotations

import pyarrow as pa
import pytest

from alluvia.errors import Invalid
from alluvia.rollups.definition import keys_of, read_query

SCHEMA = pa.schema([("day", pa.date32()), ("path", pa.string()), ("n", pa.int64()), ("Total", pa.int64())])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT count(*) AS c FROM events UNION SELECT 1", "UNION, INTERSECT and EXCEPT: create one rollup"),
        ("WITH x AS (SELECT 1) SELECT count(*) AS c FROM events", "WITH: write one SELECT over one table"),
        ("SELECT count(*) AS c FROM events JOIN users USING (id)", "a join: keep a rollup of one table"),
        ("SELECT count(*) AS c FROM events, users", "a join"),
        ("SELECT count(*) AS c FROM (SELECT * FROM events)", "a subquery"),
        ("SELECT count(*) AS c FROM events WHERE n = (SELECT max(n) FROM events)", "a subquery"),
        ("SELECT 1 AS c", "a SELECT without FROM"),
        ("SELECT count(*) AS c FROM events AS e(a, b)", "other names for the table's columns"),
        ("SELECT count(*) AS c FROM events TABLESAMPLE 10%", "a sample"),
        ("SELECT DISTINCT day FROM events", "DISTINCT: use GROUP BY instead"),
        ("SELECT day, count(*) AS c FROM events GROUP BY day ORDER BY c", "ORDER BY: order when you query"),
        ("SELECT day, count(*) AS c FROM events GROUP BY day LIMIT 3", "LIMIT: limit when you query"),
        ("SELECT day, count(*) AS c FROM events GROUP BY day LIMIT 3%", "LIMIT"),
        ("SELECT day, count(*) AS c FROM events GROUP BY day HAVING c > 1", "HAVING: filter with WHERE when"),
        ("SELECT day, count(*) AS c FROM events GROUP BY day QUALIFY c > 1", "QUALIFY"),
        ("SELECT day, count(*) AS c FROM events GROUP BY CUBE (day)", "GROUPING SETS, ROLLUP and CUBE"),
        ("SELECT day, count(*) AS c FROM events GROUP BY ALL", "GROUP BY ALL: name the columns"),
        ("SELECT day, rank() OVER () AS r FROM events GROUP BY day", "a window function"),
        ("SELECT * FROM events GROUP BY day", r"\*: name the columns"),
        ("SELECT day, COLUMNS('n') FROM events GROUP BY day", r"\*: name the columns"),
        ("SELECT day, max(now()) AS m FROM events GROUP BY day", r"now\(\): its value changes"),
        ("SELECT count(*) AS c FROM events WHERE day < current_date", "current_date: its value changes"),
        ("SELECT count(*) AS c FROM events WHERE day < today()", r"today\(\): its value changes"),
        ("SELECT count(*) AS c FROM events WHERE age(ts) > INTERVAL 1 DAY", r"age\(\): its value changes"),
        ("SELECT count(*) AS c FROM events WHERE random() < 0.5", r"random\(\): its value changes"),
        ("SELECT day, uuid() AS u FROM events GROUP BY day", r"uuid\(\): its value changes"),
        ("SELECT first(n) AS f FROM events", r"first\(\) without an order that settles ties: name in ORDER BY what it"),
        ("SELECT last(n ORDER BY day) AS f FROM events", r"takes, as in last\(x ORDER BY ts, x\)"),
        ("SELECT arg_max(path, n) AS f FROM events", r"arg_max\(\) .* as in arg_max\(x, ts ORDER BY x\)"),
        ("SELECT string_agg(path, ',' ORDER BY n) AS f FROM events", r"string_agg\(\) without an order"),
        ("SELECT json_group_array(n) AS f FROM events", r"write a list with an order .* list\(x ORDER BY x\)::JSON"),
        ("SELECT path COLLATE NOCASE AS k, count(*) AS c FROM events GROUP BY 1", r"COLLATE: .* use lower\(x\)"),
        ("SELECT max(path COLLATE NOCASE) AS m FROM events", r"COLLATE: .* use lower\(x\)"),
        ("SELECT #2 AS k, count(*) AS c FROM events GROUP BY #2", "a column by its position in the table: name the"),
        ("SELECT a FROM events PIVOT (sum(n) FOR path IN ('a')) GROUP BY a", "must name one table of the lake"),
        ("SELECT day, any_value(n) AS f FROM events GROUP BY day", r"any_value\(\) without an order"),
        ("SELECT day, unnest(list(n)) AS f FROM events GROUP BY day", r"unnest\(\): a group must give one row"),
        ("EXPLAIN SELECT count(*) AS c FROM events", "an EXPLAIN: write the SELECT alone"),
        ("SELECT count(*) AS c FROM range(3)", "must name one table of the lake"),
        ("DELETE FROM events", "only a SELECT can be run here, not DELETE"),
        ("SELECT count(*) AS c FROM read_csv('/etc/passwd')", "must name one table of the lake"),
        ("SELECT getenv('HOME') AS h, count(*) AS c FROM events GROUP BY 1", r"getenv\(\) is not allowed"),
    ],
)
def test_a_query_that_cannot_be_kept_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        read_query(text)


@pytest.mark.parametrize(
    ("select", "group_by", "expected"),
    [
        ("day AS d, path, count(*) AS c", "day, path", ["d", "path"]),
        ("count(*) AS c, day AS d", "2", ["d"]),
        ("date_trunc('month', day) AS month, count(*) AS c", "month", ["month"]),
        ("events.day AS d, count(*) AS c", "DAY", ["d"]),
        ("upper(path) AS p, count(*) AS c", "UPPER(Events.Path)", ["p"]),
        ("path AS p, count(*) AS c", "path, path", ["p"]),
        ("count(*) AS c", "", []),
    ],
)
def test_the_keys_are_the_columns_that_are_grouped_by(select: str, group_by: str, expected: list[str]) -> None:
    query = read_query(f"SELECT {select} FROM events" + (f" GROUP BY {group_by}" if group_by else ""))
    names = [node["alias"] or node["column_names"][-1] for node in query.root["select_list"]]
    assert list(keys_of(query, SCHEMA, names)) == expected


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("SELECT count(*) AS c FROM events GROUP BY path", "path"),
        # DuckDB groups by the column, not by the expression of that name: so the column must be selected.
        ("SELECT date_trunc('month', day) AS day, count(*) AS c FROM events GROUP BY day", "day"),
        ("SELECT count(*) AS c FROM events GROUP BY upper(path)", "number 1"),
    ],
)
def test_a_key_that_is_not_selected_is_named(text: str, missing: str) -> None:
    query = read_query(text)
    with pytest.raises(Invalid, match=f"add the GROUP BY expression {missing} to the SELECT"):
        keys_of(query, SCHEMA, [node["alias"] for node in query.root["select_list"]])


@pytest.mark.parametrize(
    ("aggregate", "kind", "folds"),
    [
        ("count(*)", pa.int64(), True),
        ("count(n) FILTER (WHERE n > 1)", pa.int64(), True),
        ("sum(n)", pa.int64(), True),
        ("sum(n)", pa.decimal128(38, 2), True),
        ("min(path)", pa.string(), True),
        ("max(DISTINCT n)", pa.int64(), True),
        ("bool_or(n > 1)", pa.bool_(), True),
        ("sum(n)", pa.float64(), False),
        ("sum(DISTINCT n)", pa.int64(), False),
        ("count(DISTINCT n)", pa.int64(), False),
        ("avg(n)", pa.float64(), False),
        ("sum(n) + 1", pa.int64(), False),
        ("max(n, 3)", pa.list_(pa.int64()), False),
        ("min([n])", pa.list_(pa.int64()), False),
        ("arg_max(path, (n, path))", pa.string(), False),
    ],
)
def test_only_what_two_values_decide_is_folded(aggregate: str, kind: pa.DataType, folds: bool) -> None:
    query = read_query(f"SELECT {aggregate} AS a FROM events")
    assert (query.fold_of(0, kind) is not None) is folds


def test_the_columns_that_a_query_names_are_all_that_is_compared() -> None:
    query = read_query("SELECT e.PATH AS p, sum(total) AS t FROM events e GROUP BY 1")
    assert query.columns_used(SCHEMA) == ("path", "Total")
    assert read_query("SELECT count(*) AS c FROM events").columns_used(SCHEMA) == ("day",)


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("SELECT count(DISTINCT events) AS c FROM events", "events"),
        ("SELECT max(E::VARCHAR) AS m FROM events AS e", "e"),
        ("SELECT day, struct_extract(events, 'path') AS p FROM events GROUP BY 1, 2", "events"),
    ],
)
def test_a_query_that_takes_the_table_for_a_column_is_refused(text: str, table: str) -> None:
    with pytest.raises(Invalid, match=f"the table {table} as a value: name its columns, as in {table}.x"):
        read_query(text).columns_used(SCHEMA)


def test_a_column_may_be_called_like_its_table() -> None:
    assert read_query("SELECT sum(total) AS s FROM total").columns_used(SCHEMA) == ("Total",)
