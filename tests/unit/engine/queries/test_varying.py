"""Which queries may answer otherwise when they run again: compared with what DuckDB says of its functions."""

from __future__ import annotations

import re

import duckdb
import pytest

from alluvia.engine.queries.functions import VARYING_FUNCTIONS, VARYING_NAMES
from alluvia.engine.queries.parse import parse
from alluvia.engine.queries.reproducible import condition_varies, varies

_SCALAR = "function_type NOT IN ('table', 'table_macro', 'pragma')"


def names(where: str) -> set[str]:
    found = duckdb.execute(f"SELECT DISTINCT function_name FROM duckdb_functions() WHERE {where}").fetchall()
    return {name for (name,) in found}


def test_every_function_that_duckdb_does_not_call_consistent_varies() -> None:
    fails_always = {"error"}
    by_settings = set()
    if duckdb.__version__ >= "2":  # for which functions of the time zone are so, too, which is always UTC here
        within_query = "stability = 'CONSISTENT_WITHIN_QUERY'"
        by_settings = names(f"{within_query} AND function_name NOT SIMILAR TO '.*(current|now|today).*'")
        by_settings |= {"current_setting"}
    assert names("stability <> 'CONSISTENT'") - fails_always - by_settings <= VARYING_FUNCTIONS
    of_the_parser, since_2 = {"current_time", "current_timestamp"}, {"setval"}
    assert names(_SCALAR) >= VARYING_FUNCTIONS - of_the_parser - since_2


def test_so_do_macros_over_them() -> None:
    macros = duckdb.execute(
        "SELECT function_name, macro_definition FROM duckdb_functions() WHERE macro_definition <> ''"
    )
    over = {name for name, text in macros.fetchall() if VARYING_FUNCTIONS & set(re.findall(r"\w+", text))}
    of_the_catalog = {"current_catalog", "current_database", "current_schema", "current_schemas", "current_query"}
    assert over <= VARYING_FUNCTIONS | {"format_type", "pg_get_viewdef", "user"} | of_the_catalog
    assert {"ago", "pg_conf_load_time"} <= over


def test_names_that_need_no_parentheses_are_known() -> None:
    bare = set()
    for name in [*names(_SCALAR), *VARYING_NAMES]:
        try:
            duckdb.execute(f"SELECT {name}")
        except duckdb.Error:
            continue
        bare.add(name)
    of_the_engine = {"current_catalog", "current_role", "current_schema", "current_user", "session_user", "user"}
    assert bare == VARYING_NAMES | of_the_engine


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT count(*), max(ts) FROM t WHERE ts > TIMESTAMP '2026-01-01'", False),
        ('SELECT uuid, "user", t.current_date, now.x FROM t', False),
        ("SELECT age(a, b) FROM t", False),
        ("SELECT age(a) FROM t", True),
        ("SELECT NOW()", True),
        ("SELECT Current_Date", True),
        ("SELECT localtimestamp - ts FROM t", True),
        ("FROM t WHERE ts > ago(INTERVAL 1 DAY)", True),
        ("FROM t WHERE n IN (SELECT random() FROM u)", True),
        ("WITH c AS (SELECT gen_random_uuid() AS id) FROM c", True),
        ("SELECT list_transform([1], lambda x: x + random())", True),
        ("SELECT x.today() FROM t", True),
        ("FROM t USING SAMPLE 10", True),
        ("FROM t TABLESAMPLE 10%", True),
        ("SELECT * FROM (FROM t USING SAMPLE 1 ROWS)", True),
        ("SELECT reservoir_quantile(n, 0.5) FROM t", True),
        ("SELECT sum(n) OVER (ORDER BY ts + (now() - now())) FROM t", True),
    ],
)
def test_queries(query: str, expected: bool) -> None:
    assert varies(parse(query).root) is expected


def test_conditions() -> None:
    assert not condition_varies("name = 'now()' -- now()")
    assert condition_varies("ts > now() - INTERVAL 1 DAY")
    assert condition_varies("this is not SQL")
