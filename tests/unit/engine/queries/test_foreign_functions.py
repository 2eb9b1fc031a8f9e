"""What the errors for functions of other systems say to write: it runs, and what they name does not."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from alluvia.engine.queries.foreign_functions import FUNCTIONS, NAMES, OTHER_ARGUMENTS, with_advice
from alluvia.engine.queries.parse import parse
from alluvia.engine.queries.references import find_references

ROWS = """
    (SELECT {a} AS a, 'y' AS b, 2 AS n, DATE '2026-01-05' AS d, d AS other_d, TIMESTAMP '2026-01-05 10:00:00' AS t,
            t AS other_t, '{{"key": 1}}'::JSON AS j, [1, 2] AS l)
"""
TEXTS = {"strptime": "'05.01.2026'", "CAST(a AS DATE)": "'2026-01-05'", "CAST(a AS TIMESTAMP)": "'2026-01-05 10:00'"}
"""Of other texts than a number, for what reads those."""


@pytest.fixture(scope="module")
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


@pytest.mark.parametrize("instead", sorted({*FUNCTIONS.values(), *NAMES.values(), *OTHER_ARGUMENTS.values()}))
def test_what_to_write_runs_and_may_be_written(engine: duckdb.DuckDBPyConnection, instead: str) -> None:
    value = next((given for part, given in TEXTS.items() if part in instead), "'12'")
    text = f"SELECT {instead} AS v FROM {ROWS.format(a=value)}"
    find_references(parse(text).root)
    assert engine.execute(text).to_arrow_table().num_rows >= 1


def test_only_functions_that_do_not_exist_are_replaced(engine: duckdb.DuckDBPyConnection) -> None:
    known = {name for (name,) in engine.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()}
    assert not known & FUNCTIONS.keys()
    assert known >= OTHER_ARGUMENTS.keys()


def test_a_message_lists_few_signatures_and_counts_the_rest(engine: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.BinderException) as raised:
        engine.execute("SELECT sum('a'::VARCHAR)")
    said = with_advice(str(raised.value).removeprefix("Binder Error: ").partition("\n\nLINE")[0], "", ())
    without_names = said.replace("arg ", "").replace(", /", "")  # DuckDB 2.0 names arguments
    assert without_names.endswith(
        "sum(DECIMAL) -> DECIMAL\n\tsum(BOOLEAN) -> HUGEINT\n\tsum(SMALLINT) -> HUGEINT\n\tand 5 more"
    )


def test_a_function_that_no_table_knows_keeps_the_engines_proposal() -> None:
    message = 'Scalar Function with name nullif2 does not exist!\nDid you mean "nullif"?'
    assert with_advice(message, "SELECT nullif2(a)", ()) == message


def test_words_in_quotes_explain_nothing() -> None:
    message = 'Referenced column "day" not found in FROM clause!\nCandidate bindings: "a"'
    assert with_advice(message, "SELECT 'datediff(day', day", ()) == message
    assert "unit as a text: date_diff('day', …)" in with_advice(message, "SELECT date_diff(DAY, a, a)", ())
