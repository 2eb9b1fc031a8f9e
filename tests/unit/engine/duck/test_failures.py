"""What DuckDB's errors say: their fields, as it gives them before and after the first rows."""

from __future__ import annotations

import pytest

from alluvia.engine.duck.failures import INTERRUPT, Context, details_of, translate

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
    assert str(translate(found, Context(""))).endswith("DuckDB does not say why: run it again")
