"""FORMAT clauses, which are read only where DuckDB would read nothing else."""

from __future__ import annotations

import duckdb
import pytest

from alluvia.errors import Invalid
from functions.query.query_request import CLICKHOUSE_FORMATS, format_of, without_clause

CLAUSES = [
    ("SELECT 1 FORMAT JSONEachRow", "SELECT 1", "ndjson"),
    ("SELECT n FROM t WHERE s = 'x' format csvwithnames;", "SELECT n FROM t WHERE s = 'x'", "csv"),
    ("SELECT count(*) FROM t\nFORMAT\tTabSeparatedWithNames\n", "SELECT count(*) FROM t", "tsv"),
    ("SELECT [1]FORMAT Parquet ; ", "SELECT [1]", "parquet"),
    ('SELECT * FROM "t" FORMAT ArrowStream', 'SELECT * FROM "t"', "arrow"),
]
NONE = [
    "SELECT 1",
    "SELECT 'FORMAT CSVWithNames'",
    "SELECT 1 -- FORMAT CSVWithNames",
    "SELECT * FROM format csvwithnames",
    "SELECT a FROM t CROSS JOIN format parquet",
    "SELECT 1 AS a, format parquet FROM (SELECT 2 AS format)",
    "SELECT a, format parquet",
    "SELECT format parquet",
    "SELECT 2 * format parquet",
    "SELECT t AT TIME ZONE format parquet",
    "SELECT x AS format",
]


@pytest.mark.parametrize(("text", "query", "form"), CLAUSES)
def test_a_clause_is_cut_off(text: str, query: str, form: str) -> None:
    assert without_clause(text) == (query, form)
    with pytest.raises(duckdb.ParserException):
        duckdb.extract_statements(text)
    duckdb.extract_statements(query)


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_clause_stays(text: str) -> None:
    assert without_clause(text) == (text, None)
    duckdb.extract_statements(text)


@pytest.mark.parametrize("name", ["JSON", "CSV", "TSV", "TabSeparated", "Pretty", "x" * 1000])
def test_formats_that_mean_something_else_are_refused(name: str) -> None:
    for ask in (lambda: format_of(name), lambda: without_clause(f"SELECT 1 FORMAT {name}")):
        with pytest.raises(Invalid, match=", ".join(CLICKHOUSE_FORMATS)):
            ask()
