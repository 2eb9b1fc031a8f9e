"""JSON text comes back from variants, whole and by field, as this library reads them and as DuckDB does."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from itertools import count
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.delta.schema.variant_shredding import FORM_TAG, form_of, form_text, variants
from alluvia.delta.schema.variants import variant_texts
from alluvia.engine.duck.variant_sql import field_sql, plain_key, text_sql

NAMES = st.sampled_from(["user_id", "n", "Flag", "flag", "o", "x.y", "", "é", 'q"', "a b", "$k", "A" * 70])
NUMBERS = st.sampled_from(
    [
        *("0", "-1", "127", "-129", "32768", "2147483648", "9223372036854775807", "9223372036854775808", "-0.0"),
        *("1.5", "0.1", "1e3", "1e16", "1e-7", "1e300", "123456789012345.6", "18446744073709551616", "1.10"),
        *("12345678901234567890123456789012345678", "0.12345678901234567890", "1" * 45, "1e-400", "-7e2", "10e36"),
    ]
)
TEXTS = st.sampled_from(['""', '"x"', '"é\\u0000\\n\\"\\\\"', f'"{"x" * 63}"', f'"{"é" * 40}"', '"12"', '"null"'])
SCALARS = st.sampled_from(["null", "true", "false"]) | NUMBERS | TEXTS


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=3).map(_array) | st.dictionaries(NAMES, inner, max_size=3).map(_object)


def _array(texts: list[str]) -> str:
    return f"[{','.join(texts)}]"


def _object(fields: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in fields.items()) + "}"


VALUES = st.recursive(SCALARS, _nested, max_leaves=5)
ROWS = st.lists(st.none() | VALUES | st.dictionaries(NAMES, VALUES, max_size=6).map(_object), min_size=1, max_size=12)
Rows = list[str | None]


def read(text: str | None) -> Any:
    """Return a value with numbers as what they are worth: beyond 38 digits the nearest double."""
    return None if text is None else (json.loads(text, parse_float=_worth, parse_int=_worth),)


def _worth(text: str) -> Decimal:
    exact = Decimal(text)
    _, digits, exponent = exact.as_tuple()
    scale = -int(exponent)
    whole = len(digits) - min(scale, 0)
    if whole <= 38 and scale <= 38:
        return exact
    return Decimal(repr(float(text)))


@pytest.fixture(scope="module")
def by_duckdb(tmp_path_factory: pytest.TempPathFactory) -> Callable[[pa.StructArray, list[str]], list[tuple[Any, ...]]]:
    """Return what reads a column of variants from a file: its text, and what is found under some paths."""
    folder, numbers = tmp_path_factory.mktemp("files"), count()
    connection = duckdb.connect()

    def get(column: pa.StructArray, paths: list[str]) -> list[tuple[Any, ...]]:
        path = folder / f"{next(numbers)}.parquet"  # DuckDB remembers what it has read
        pq.write_table(pa.table({"p": column}), path, store_schema=False)
        form = form_of({FORM_TAG: form_text(column.type)})
        assert form is not None
        shown = [text_sql("p", form), *(field_sql("p", form, plain_key(each) or "") for each in paths)]
        rows = connection.execute(f"SELECT {', '.join(shown)} FROM '{path}'").fetchall()
        path.unlink()
        return rows

    return get


@given(shredded=st.booleans(), texts=ROWS)
def test_this_library_reads_what_it_wrote(shredded: bool, texts: Rows) -> None:
    column = variants(pa.array(texts, pa.string()), rows_min=1 if shredded else 1000)
    assert (column.type.get_field_index("typed_value") >= 0) <= shredded
    assert [read(each) for each in variant_texts(column).to_pylist()] == [read(each) for each in texts]


@given(shredded=st.booleans(), texts=ROWS)
def test_duckdb_reads_the_same_texts_and_fields(shredded: bool, texts: Rows, by_duckdb: Any) -> None:
    column = variants(pa.array(texts, pa.string()), rows_min=1 if shredded else 1000)
    ours = variant_texts(column).to_pylist()
    paths = ["user_id", "$.user_id", "n", "Flag", "flag", "o", "a b"]
    try:
        found = by_duckdb(column, paths)
    except duckdb.InvalidInputException as error:
        assert "alluvia has to read this value" in str(error)  # noqa: PT017 - and so it does
        return
    assert [read(each) for each, *_ in found] == [read(each) for each in ours]
    expected = duckdb.execute(
        f"SELECT {', '.join(f'unnest($1) ->> {chr(39)}{path}{chr(39)}' for path in paths)}", [ours]
    ).fetchall()
    assert [_fields(each) for _, *each in found] == [_fields(each) for each in expected]


def _fields(row: Any) -> list[Any]:
    """Return texts, in which numbers and objects may be written in several ways."""
    return [each if each is None else _parsed(each) for each in row]


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_float=float, parse_int=float)
    except ValueError:
        return text


@given(shredded=st.booleans(), texts=st.lists(ROWS, min_size=2, max_size=2))
def test_later_rows_of_a_file_take_the_form_of_the_first(shredded: bool, texts: list[Rows]) -> None:
    first = variants(pa.array(texts[0], pa.string()), rows_min=1 if shredded else 1000)
    second = variants(pa.array(texts[1], pa.string()), first.type)
    assert second.type == first.type
    assert [read(each) for each in variant_texts(second).to_pylist()] == [read(each) for each in texts[1]]
