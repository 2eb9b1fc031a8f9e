"""A cast of texts of which some do not fit: what each becomes, judged one by one."""

from __future__ import annotations

import re
from random import Random

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from alluvia.json_values.instants import cast_texts, replaced

NASTY = [
    "",
    "'",
    "x'y",
    "a\nb",
    "é",
    "\0",
    "Failed to parse string: '7' as a scalar of type int64",
    "1' as a scalar of type",
]
TEXTS = (
    st.integers(-(2**70), 2**70).map(str) | st.sampled_from([*NASTY, "007", "+1", " 1", "1.5"]) | st.text(max_size=4)
)


def alone(text: str | None) -> int | None:
    try:
        found: int | None = pa.array([text], pa.string()).cast(pa.int64())[0].as_py()
    except pa.ArrowInvalid:
        return -1
    return found


@given(
    st.lists(st.none() | st.integers(-(10**17), 10**17).map(str), max_size=20),
    st.lists(TEXTS, max_size=3),
    st.randoms(),
)
def test_few_texts_that_do_not_fit_leave_the_others_alone(
    usual: list[str | None], odd: list[str], random: Random
) -> None:
    texts = [*usual, *odd]
    random.shuffle(texts)
    assert cast_texts(pa.array(texts, pa.string()), pa.int64(), "^never$", "-1").to_pylist() == [*map(alone, texts)]


@given(st.lists(st.none() | TEXTS, min_size=1, max_size=30))
@example(NASTY)
def test_of_many_those_that_match_keep_their_values(texts: list[str | None]) -> None:
    pattern = "^-?[0-9]{1,18}$"
    found = cast_texts(pa.array(texts, pa.string()), pa.int64(), pattern, "-1").to_pylist()
    for text, value in zip(texts, found, strict=True):
        known = text is not None and re.fullmatch(pattern, text) and "\n" not in text
        assert value in ({alone(text)} if known or text is None else {alone(text), -1})


def test_texts_of_a_slice_are_cast() -> None:
    whole = pa.array(["x", "1", "y", None, "3", "z"])
    assert cast_texts(whole.slice(1, 4), pa.int64(), "^[0-9]$", None).to_pylist() == [1, None, None, 3]


@pytest.mark.parametrize("places", [[], [0], [4], [0, 1, 2, 3, 4], [1, 3]])
def test_some_texts_are_replaced(places: list[int]) -> None:
    texts = [*"abcde"]
    expected = ["?" if at in places else text for at, text in enumerate(texts)]
    assert replaced(pa.array(texts), places, "?").to_pylist() == expected
