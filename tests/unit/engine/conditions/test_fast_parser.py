"""What is read and computed without DuckDB is what DuckDB reads and computes."""

from __future__ import annotations

import subprocess
import sys

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.engine.conditions.columnar import computed_condition, computed_value
from alluvia.engine.conditions.condition import condition
from alluvia.engine.conditions.fast_parser import KEYWORDS, LENGTH_MAX, plain_condition, plain_value
from alluvia.engine.conditions.sql_assignments import SqlValues
from alluvia.engine.conditions.sql_condition import Evaluation
from alluvia.engine.queries.parse import parse, without_locations
from alluvia.errors import Invalid

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int16()),
        ("number", pa.float64()),
        ("Name", pa.string()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
    ]
)
NAN, INFINITY = float("nan"), float("inf")
ROWS = pa.RecordBatch.from_pylist(
    [
        {"id": 7, "small": -3, "number": 1.5, "Name": "a", "flag": True, "day": None},
        {"id": -7, "small": 7, "number": NAN, "Name": "b'c", "flag": False, "day": None},
        {"id": None, "small": None, "number": None, "Name": None, "flag": None, "day": None},
        {"id": 2**62, "small": 0, "number": INFINITY, "Name": "", "flag": None, "day": None},
        {"id": 0, "small": 32767, "number": -INFINITY, "Name": "é", "flag": True, "day": None},
        {"id": 3, "small": 1, "number": 3.0, "Name": "A", "flag": False, "day": None},
    ],
    SCHEMA,
)
WORDS = (
    *("id", "small", "number", "name", '"Name"', "flag", "day", "3", "-7", "5000000000", "'a'", "'b''c'", "''"),
    *("(", ")", "and", "OR", "not", "in", "between", "is", "null", "=", "==", "<>", "!=", "<", "<=", ">", ">="),
    *("+", "-", "*", "%", ",", "(3, -7)", "('a', '')", "is not null", "is null", "id = 3", "id % 3 = 1", "id=-7"),
    *("id -1", "--", "true", "1.5", "date", "rows.id", "at", "2147483648", "-2147483648", "number > 1", "small * 2"),
)
TESTS = (
    *("id = 7", "7 = id", "id <> 3", "id < small", "id % 3 = 1", "id % 5000000000 = 7", "small % 2 = 1", "day is null"),
    *("number > 1", "number >= 3", "number < 3", "number <= 3", "number = 3", "number <> 3", "not number > 1"),
    *("name = 'a'", "name < 'b'", "name >= 'b''c'", "'a' <> name", "name in ('a', '')", "name not in ('a', 'A')"),
    *(
        "id in (7, 3)",
        "id not in (7, 3)",
        "small between 0 and 7",
        "id not between -7 and 3",
        "name between 'a' and 'b'",
    ),
    *("flag", "not flag", "flag is null", "flag is not null", "id + 1 = 8", "id - small > 3", "number * 2 > 3"),
)
VALUES = (
    *(("id", "id + 1"), ("id", "small + id"), ("id", "id % 3"), ("id", "4"), ("id", "id - 5000000000")),
    *(("number", "number + 1"), ("number", "number * -2"), ("number", "number"), ("Name", "'x''y'"), ("Name", "name")),
)


def _joined(left: str, right: str, word: str) -> str:
    return f"not ({left}) {word} ({right})"


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join))
@settings(max_examples=600)
def test_a_text_that_is_read_has_the_tree_of_duckdbs_parser(text: str) -> None:
    read = plain_condition(text)
    if read is not None:
        assert without_locations(read) == _tree(f"SELECT * FROM rows WHERE {text}")["where_clause"]


@pytest.mark.parametrize("text", TESTS)
def test_the_usual_conditions_are_read_and_computed(text: str) -> None:
    read = plain_condition(text)
    assert read is not None
    assert without_locations(read) == _tree(f"SELECT * FROM rows WHERE {text}")["where_clause"]
    assert computed_condition(read, SCHEMA) is not None


@given(
    st.recursive(st.sampled_from(TESTS), lambda part: st.builds(_joined, part, part, st.sampled_from(("and", "or"))))
)
@settings(max_examples=200, deadline=None)
def test_arrow_computes_what_duckdb_computes(text: str) -> None:
    read = plain_condition(text)
    assert read is not None
    compute = computed_condition(read, SCHEMA)
    assert compute is not None
    expected = Evaluation().mask(text, pa.Table.from_batches([ROWS]))
    assert compute(ROWS).to_pylist() == expected.to_pylist(), text


@pytest.mark.parametrize(("column", "text"), VALUES)
def test_arrow_computes_the_values_that_duckdb_computes(column: str, text: str) -> None:
    read = plain_value(text)
    assert read is not None
    compute = computed_value(read, SCHEMA, SCHEMA.field(column).type)
    assert compute is not None
    by_duckdb = SqlValues(SCHEMA)
    by_duckdb.read(column, text)
    expected = by_duckdb.compute(column, pa.Table.from_batches([ROWS]))
    assert repr(compute(ROWS).to_pylist()) == repr(expected.to_pylist())


@pytest.mark.parametrize(
    "text",
    [
        *("id = 1 -- one", "id = /* one */ 1", "id = 1 OR", "id = 1; id = 2", "f(id)", "id::text = '1'", "id IS 1"),
        *("id = 1.5", "id = 1e3", "id = E'1'", "rows.id = 1", "id = $1", "id = ?", '"id = 1', "order = 1", "id = 1_0"),
        *("day = '2024-01-01'", "id = '1'", "name = 1", "number = small", "id % 0 = 1", "id % -2 = 1", "small + 1 = 2"),
        *("nothing = 1", "1 = 1", "name", "id in (1, 'a')", "number in (1)", "id = 9223372036854775808"),
        *("(" * 20 + "id = 1" + ")" * 20, "id = 1 or " * LENGTH_MAX + "id = 1", "name = '\u00e9'", "id = 1\0"),
    ],
)
def test_all_else_is_left_to_duckdb(text: str) -> None:
    read = plain_condition(text)
    assert read is None or computed_condition(read, SCHEMA) is None


@pytest.mark.parametrize(
    ("column", "text"), [("small", "small + 1"), ("small", "1"), ("id", "number"), ("number", "3 % 2"), ("id", "'1'")]
)
def test_a_value_that_may_not_fit_is_left_to_duckdb(column: str, text: str) -> None:
    read = plain_value(text)
    assert read is not None
    assert computed_value(read, SCHEMA, SCHEMA.field(column).type) is None


def test_columns_that_differ_in_case_only_are_left_to_duckdb() -> None:
    read = plain_condition("id = 1")
    assert read is not None
    assert computed_condition(read, pa.schema([("id", pa.int64()), ("ID", pa.int64())])) is None


def test_the_keywords_are_duckdbs() -> None:
    found = duckdb.execute("SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'")
    since_2 = {"tuple"}
    assert {word for (word,) in found.fetchall()} | since_2 == KEYWORDS


def test_a_number_that_overflows_is_shown() -> None:
    parsed = condition("id + id > 3", SCHEMA)
    with pytest.raises(Invalid, match=r"4611686018427387904 \+ 4611686018427387904 does not fit BIGINT"):
        parsed.mask(pa.RecordBatch.from_pylist([{"id": 2**62}], SCHEMA))
    assert parsed.lenient_mask(pa.RecordBatch.from_pylist([{"id": 2**62}, {"id": 2}], SCHEMA)).to_pylist() == [
        None,
        True,
    ]


def test_simple_changes_do_not_load_duckdb() -> None:
    code = (
        "import sys, alluvia; t = alluvia.connect('memory://x').create_table('t', {'id': 'bigint', 'n': 'double'});"
        "t.append([{'id': 1, 'n': 1.0}, {'id': 2, 'n': 2.0}]);"
        "t.update({'n': 'n + 1'}, where='id % 2 = 1'); t.upsert([{'id': 2, 'n': 5.0}], on=['id']);"
        "print(t.scan(where='n > 1 and id < 3').read_all().sort_by('id')['n'].to_pylist(), t.delete('id in (1, 5)'));"
        "assert not {'duckdb', '_duckdb'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("[2.0, 5.0]")


def _tree(query: str) -> dict[str, object]:
    try:
        root: dict[str, object] = without_locations(parse(query).root)
    except Invalid as error:
        return {"where_clause": str(error)}
    return root
