"""The rows that a condition leaves out, as pruning sees them: what proves that all rows of a file match."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.delta.log.actions import AddFile
from alluvia.delta.skipping.predicate import And, Comparison, In, IsNotNull, IsNull, Or, Predicate, Unknown
from alluvia.delta.skipping.pruning import prune
from alluvia.delta.statistics.written import file_statistics
from alluvia.engine.conditions.condition import condition

SCHEMA = pa.schema(
    [("n", pa.int64()), ("m", pa.int64()), ("name", pa.string()), ("flag", pa.bool_()), ("value", pa.float64())]
)
N = IsNull(("n",))
NEVER = Or(())


def on(op: Any, value: object) -> Comparison:
    return Comparison(("n",), op, value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n > 5", Or((on("<=", 5), N))),
        ("NOT n > 5", Or((on(">", 5), N))),
        ("n = 5", Or((on("!=", 5), N))),
        ("n IN (1, 2)", Or((And((on("!=", 1), on("!=", 2))), N))),
        ("n NOT IN (1, 2)", Or((In(("n",), (1, 2)), N))),
        ("n BETWEEN 1 AND 2", Or((on("<", 1), on(">", 2), N))),
        ("n IS NULL", IsNotNull(("n",))),
        ("n IS NOT NULL", N),
        ("NOT n IS NULL", N),
        ("n > 5 AND n IS NOT NULL", Or((on("<=", 5), N, N))),
        ("n > 5 OR n IS NULL", And((Or((on("<=", 5), N)), IsNotNull(("n",))))),
        ("NOT (n > 5 AND n < 9)", And((Or((on(">", 5), N)), Or((on("<", 9), N))))),
        ("flag", Or((Comparison(("flag",), "=", False), IsNull(("flag",))))),
        ("true", NEVER),
        ("NOT false", NEVER),
        ("1 = 1", Unknown()),
        ("false", Unknown()),
        ("NULL", Unknown()),
        ("n > 5 AND true", Or((on("<=", 5), N))),
        ("n > 5 OR true", And((Or((on("<=", 5), N)), NEVER))),
        ("n > m", Unknown()),
        ("n > 5 AND random() < 0.5", Unknown()),
        ("n > 5 OR random() < 0.5", Or((on("<=", 5), N))),
        ("n IS DISTINCT FROM 5", Unknown()),
        ("n IS NOT DISTINCT FROM 5", Unknown()),
        ("n = NULL", Unknown()),
        ("n IN (1, NULL)", Unknown()),
        ("name LIKE 'a%'", Unknown()),
        ("1 / n > 0", Unknown()),
        ("coalesce(n, 1) > 0", Unknown()),
    ],
)
def test_what_a_condition_leaves_out(text: str, expected: Predicate) -> None:
    assert condition(text, SCHEMA).complement == expected


def test_fields_of_structs_prove_nothing() -> None:
    nested = pa.schema([("place", pa.struct([("zip", pa.int64())]))])
    assert condition("place.zip > 5", nested).complement == Unknown()
    assert condition("place['zip'] > 5", nested).complement == Unknown()


NUMBER = st.none() | st.integers(-3, 3)
ROW = st.fixed_dictionaries(
    {
        "n": NUMBER,
        "m": NUMBER,
        "name": st.none() | st.sampled_from(["", "a", "b", "ab", "x" * 40, "x" * 40 + "y"]),
        "flag": st.none() | st.booleans(),
        "value": st.none() | st.sampled_from([-1.0, 0.0, 2.5, math.nan, math.inf]),
    }
)
LEAF = st.sampled_from(
    ["n > 0", "n <= 1", "n = 2", "n <> 2", "m IN (1, 2)", "n NOT IN (0)", "n IS NULL", "m IS NOT NULL", "name = 'a'",
     f"name > '{'x' * 40}'", "name < 'b'", "name LIKE 'a%'", "flag", "NOT flag", "value < 1", "value > 0.5",
     "value = 2.5", "value <> 2.5", "n BETWEEN 0 AND 2", "n > m", "true", "false", "n % 2 = 0"]
)  # fmt: skip
CONDITION = st.recursive(
    LEAF,
    lambda inner: (
        st.builds("NOT ({})".format, inner)
        | st.builds("({}) AND ({})".format, inner, inner)
        | st.builds("({}) OR ({})".format, inner, inner)
    ),
    max_leaves=4,
)


def check_whole_files(rows: list[dict[str, Any]], text: str) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    file = AddFile("f", {}, 1, 1, data_change=True, stats=file_statistics(table))
    parsed = condition(text, SCHEMA)
    matching = parsed.mask(table.combine_chunks().to_batches()[0])
    if not prune([file], parsed.complement, SCHEMA, ()):
        assert matching.to_pylist() == [True] * len(rows)
    if not prune([file], parsed.predicate, SCHEMA, ()):
        assert True not in matching.to_pylist()


@settings(max_examples=30)
@given(st.lists(ROW, min_size=1, max_size=4), CONDITION)
def test_a_file_goes_whole_only_if_every_row_matches(rows: list[dict[str, Any]], text: str) -> None:
    check_whole_files(rows, text)


@pytest.mark.slow
@settings(max_examples=120)
@given(st.lists(ROW, min_size=1, max_size=4), CONDITION)
def test_a_file_goes_whole_only_if_every_row_matches_at_length(rows: list[dict[str, Any]], text: str) -> None:
    check_whole_files(rows, text)
