"""Statistics of parts, put together, say no more than those of the whole, and hardly less."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.delta.statistics.written import file_statistics, loose_statistics, merged_statistics

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("price", pa.decimal128(38, 10)),
        ("whole", pa.decimal128(38, 0)),
        ("value", pa.float64()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("flag", pa.bool_()),
        ("place", pa.struct([("zip", pa.int32()), ("city", pa.string())])),
        ("tags", pa.list_(pa.string())),
    ]
)
ROW = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "price": st.none() | st.integers(-(10**37), 10**37).map(lambda n: Decimal(n).scaleb(-10)),
        "whole": st.none() | st.integers(1 - 10**38, 10**38 - 1).map(Decimal),
        "value": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "name": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
        "day": st.none() | st.dates(date(1, 1, 1), date(9998, 1, 1)),
        "ts": st.none() | st.integers(0, 10**15).map(lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(0, 0, us)),
        "flag": st.none() | st.booleans(),
        "place": st.none() | st.fixed_dictionaries({"zip": st.none() | st.integers(0, 9), "city": st.just("x")}),
        "tags": st.none() | st.just(["a"]),
    }
)


@settings(max_examples=60)
@given(st.lists(st.lists(ROW, min_size=1, max_size=3), min_size=1, max_size=4))
def test_the_whole_is_its_parts(parts: list[list[dict[str, Any]]]) -> None:
    tables = [pa.Table.from_pylist(rows, SCHEMA) for rows in parts]
    merged = merged_statistics([file_statistics(table) for table in tables])
    assert _plain(merged) == _plain(file_statistics(pa.concat_tables(tables)))


def _plain(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_part_without_bounds_takes_those_of_the_whole(value: float) -> None:
    kind = pa.schema([("value", pa.float64())])
    parts = [pa.table({"value": [1.0]}, kind), pa.table({"value": [value]}, kind), pa.table({"value": [None]}, kind)]
    found = json.loads(merged_statistics([file_statistics(table) for table in parts]))
    assert found == {"numRecords": 3, "minValues": {}, "maxValues": {}, "nullCount": {"value": 1}}


@pytest.mark.parametrize("value", ["18446744073709551616", "-1E+30", "1e300", "0.1234567890123456789", "1E-30"])
def test_bounds_of_more_than_64_bits_keep_their_digits(value: str) -> None:
    text = f'{{"numRecords":3,"minValues":{{"p":{value}}},"maxValues":{{"p":{value}}},"nullCount":{{"p":0}}}}'
    for again in (loose_statistics(text, 3), loose_statistics(loose_statistics(text, 3), 3)):
        assert json.loads(again, parse_float=Decimal, parse_int=Decimal)["minValues"] == {"p": Decimal(value)}
    merged = merged_statistics([text, text])
    assert json.loads(merged, parse_float=Decimal, parse_int=Decimal)["maxValues"] == {"p": Decimal(value)}


def test_statistics_of_a_file_with_deleted_rows() -> None:
    text = '{"numRecords":3,"minValues":{"p":1.10},"maxValues":{"p":2.20},"nullCount":{"p":0}}'
    assert loose_statistics(text, 3) == text[:-1] + ',"tightBounds":false}'
    for broken in (None, "", "[]", "{"):
        assert loose_statistics(broken, 3) == '{"numRecords":3,"tightBounds":false}'
