"""What DuckDB's errors say: their fields, as it gives them before and after the first rows."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import alluvia
from alluvia.engine.duck.failures import INTERRUPT, Context, QueryTooCostly, details_of, translate
from alluvia.errors import Invalid

LATE = '{"exception_type":"Conversion","exception_message":"Could not convert","position":"7"}'


@pytest.mark.parametrize("text", [f"Conversion Error: {LATE}", LATE])
def test_an_error_after_the_first_rows_is_worded_as_one_before(text: str) -> None:
    found = details_of(OSError(text))
    assert found == {"exception_type": "Conversion", "exception_message": "Could not convert", "position": "7"}
    said = str(translate(found, Context("SELECT x::INT")))
    assert said.startswith("Conversion Error: Could not convert\n\nLINE 1: SELECT x::INT\n")


@pytest.mark.parametrize("kind", ["IO", "HTTP", "INTERNAL", "FATAL", "Parser"])
def test_what_a_query_may_have_written_itself_is_not_believed(kind: str) -> None:
    text = f'{{"exception_type":"{kind}","exception_message":"x"}}'
    assert details_of(OSError(text)) == {"exception_type": "DuckDB", "exception_message": text}
    assert details_of(OSError(f"Invalid Input Error: {text}"))["exception_type"] == "Invalid Input"


def test_an_interruption_asks_for_another_run() -> None:
    found = details_of(OSError('{"exception_type":"INTERRUPT","exception_message":"Interrupted!"}'))
    assert found["exception_type"] == INTERRUPT
    translated = translate(found, Context(""))
    assert str(translated).endswith("DuckDB does not say why: run it again")
    assert not translated.at_limit  # any error may be behind it


def test_a_full_disk_is_a_limit() -> None:
    with duckdb.connect(config={"errors_as_json": True}) as connection, pytest.raises(duckdb.IOException) as full:
        connection.execute("COPY (FROM range(100000)) TO '/dev/full' (FORMAT csv)")
    late = OSError(str(full.value).removeprefix("IO Error: "))  # as it comes after the first rows
    for error in (full.value, late):
        translated = translate(details_of(error), Context(""))
        assert (type(translated), translated.at_limit) == (QueryTooCostly, True)
        assert str(translated).startswith(
            "the query does not fit into memory, and needs more disk than there is: select fewer rows"
        )


def test_a_value_that_cannot_be_converted_is_cut() -> None:
    event = '{"user": "ann\'s", ' + '"secret": "hunter2"' * 9 + "}"
    message = f"Could not convert string '{event}' to BOOL when casting from source column properties"
    said = str(translate({"exception_type": "Conversion", "exception_message": message}, Context("")))
    assert '\'{"user": "ann\'s",' in said
    assert said.endswith("…' to BOOL when casting from source column properties")
    assert len(said) < 200


OVERFLOWS = [
    ("n + 1", "2147483647 + 1 does not fit INTEGER: cast what it is computed from to a wider type, such as BIGINT"),
    ("-n - 2", "-2147483647 - 2 does not fit INTEGER: cast what it is computed from to a wider type, such as BIGINT"),
    ("big * 2", "9223372036854775807 * 2 does not fit BIGINT: cast what it is computed from to a wider type, such as "),
    ("(-big - 1) // -1", "-9223372036854775808 / -1 does not fit its type: cast what it is computed from to a wider "),
    ("-(-big - 1)", "the result of the negation does not fit its type: cast what it is computed from to a wider type"),
    ("abs(-big - 1)", "abs(-9223372036854775808) does not fit its type: cast what it is computed from to a wider type"),
    ("n::UINTEGER - 2147483648::UINTEGER", "2147483647 - 2147483648 does not fit UINTEGER: cast what it is computed"),
    ("d + d", "the result of the addition does not fit DECIMAL(18): cast what it is computed from to a wider type, "),
    ("e + 1", "the result of the addition does not fit DECIMAL(38): no wider type is exact: cast what it is computed "),
    ("e * 10", "the result of the multiplication does not fit DECIMAL(38): no wider type is exact: cast what it is "),
]


if duckdb.__version__ >= "2":  # which gives the sum a wider type
    OVERFLOWS = [each for each in OVERFLOWS if each[0] != "d + d"]


@pytest.fixture
def numbers(tmp_path: Path) -> alluvia.Lake:
    lake = alluvia.connect(tmp_path)
    lake.sql("CREATE TABLE t (id BIGINT, n INTEGER, d DECIMAL(18,2), e DECIMAL(38,2), big BIGINT)")
    lake.sql(
        "INSERT INTO t VALUES (1, 2147483647, 9999999999999999.99, 999999999999999999999999999999999999.99, "
        "9223372036854775807)"
    )
    return lake


@pytest.mark.parametrize(("expression", "said"), OVERFLOWS)
@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("UPDATE t SET big = CAST({} AS BIGINT)", "column big: "),
        ("INSERT INTO t (id, big) SELECT 1, {} FROM t", ""),
        (
            "MERGE INTO t USING (SELECT 1 AS k) s ON t.id = s.k WHEN MATCHED THEN UPDATE SET big = CAST({} AS BIGINT)",
            "column big: ",
        ),
        ("SELECT {} FROM t", ""),
    ],
    ids=["update", "insert", "merge", "select"],
)
def test_arithmetic_that_overflows(
    numbers: alluvia.Lake, statement: str, where: str, expression: str, said: str
) -> None:
    with pytest.raises(Invalid) as caught:
        numbers.sql(statement.format(expression))
    assert str(caught.value).startswith(where + said)
    assert not str(caught.value).endswith((";", "!", "."))
    assert numbers.table("t").version == 1


def test_a_sum_that_overflows(numbers: alluvia.Lake) -> None:
    with pytest.raises(
        Invalid, match=r"^a sum or product does not fit HUGEINT or DECIMAL\(38\): no wider type is exact"
    ):
        numbers.sql("SELECT sum(e.e) FROM t e, range(3)")
