"""Statistics of many files, which Arrow parses at once, are what each file's text says alone."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.delta.statistics.typed import FEW_VALUES, ManyStatistics, parse_texts
from tests.examples import examples

COLUMNS = {
    ("id",): pa.int64(),
    ("small",): pa.int8(),
    ("number",): pa.float64(),
    ("half",): pa.float32(),
    ("name",): pa.string(),
    ("day",): pa.date32(),
    ("ts",): pa.timestamp("us", "UTC"),
    ("local",): pa.timestamp("us"),
    ("price",): pa.decimal128(10, 2),
    ("a", "b"): pa.int32(),
    ("flag",): pa.bool_(),
}
MANY = FEW_VALUES // len(COLUMNS) + 1
PLAIN: dict[str, Any] = {
    "id": 7,
    "small": -3,
    "number": 0.5,
    "half": 1.25,
    "name": 'é\n"x"',
    "day": "2026-11-23",
    "ts": "2026-11-23T10:00:00.123Z",
    "local": "1969-12-31T23:59:59.999",
    "price": 12.5,
    "a": {"b": 9},
}
ODD: list[Any] = [
    None,
    True,
    1,
    1 << 70,
    1.5,
    -0.0,
    "",
    "2026-02-30",
    "2026-11-23T10:00:00+02:00",
    "10000-01-01",
    "x",
    [],
    {},
]
values = st.fixed_dictionaries({}, optional={name: st.just(value) for name, value in PLAIN.items()})
strange = st.dictionaries(st.sampled_from([*PLAIN, "flag", "other"]), st.sampled_from(ODD), max_size=2)
bounds = st.builds(lambda plain, odd: plain | odd, values, st.one_of(st.just({}), strange))
counts = st.dictionaries(st.sampled_from([*PLAIN, "flag"]), st.sampled_from([0, 3, 3, 3, None, "3", 2.0]))
statistics = st.fixed_dictionaries(
    {"numRecords": st.sampled_from([5, 5, 5, 5, None, 5.0, "5"])},
    optional={
        "minValues": st.one_of(bounds, st.just(None)),
        "maxValues": bounds,
        "nullCount": counts,
        "tightBounds": st.booleans(),
    },
).map(json.dumps)
texts = st.one_of(statistics, statistics, statistics, st.sampled_from([None, "", "{", "null", "[]", "{} {}", "{}\n{}"]))
plain_texts = st.builds(
    lambda low, high: json.dumps({"numRecords": 5, "minValues": low, "maxValues": high, "nullCount": {"id": 0}}),
    values,
    values,
)


@given(st.lists(plain_texts, min_size=1, max_size=6))
@settings(max_examples=examples(100))
def test_arrow_reads_what_each_text_says(some: list[str | None]) -> None:
    with patch("alluvia.delta.statistics.typed._parse_each", side_effect=AssertionError):
        found = _many(some)
    assert found == _alone(some)


@given(st.lists(texts, min_size=1, max_size=6))
@settings(max_examples=examples(100))
def test_many_odd_texts_say_what_each_says_alone(some: list[str | None]) -> None:
    assert _many(some) == _alone(some)


def _many(some: list[str | None]) -> list[dict[str, Any]]:
    return _plain(parse_texts(pa.array(some * MANY, pa.string()), COLUMNS))


def _alone(some: list[str | None]) -> list[dict[str, Any]]:
    return [row for text in some for row in _plain(parse_texts(pa.array([text], pa.string()), COLUMNS))] * MANY


def test_texts_are_read_by_the_types_of_columns() -> None:
    several = [json.dumps({"numRecords": 5, "minValues": PLAIN, "maxValues": PLAIN, "nullCount": {"flag": 1}})]
    with patch("alluvia.delta.statistics.typed._parse_each", side_effect=AssertionError):  # all goes at once
        [row, *others] = _plain(parse_texts(pa.array(several * MANY, pa.string()), COLUMNS))
    assert row["ts"][0].isoformat() == "2026-11-23T10:00:00.123000+00:00"
    assert [row[name][0] for name in ("id", "small", "half", "name", "a")] == [7, -3, 1.25, 'é\n"x"', 9]
    assert (str(row["price"][0]), str(row["day"][0]), row["flag"]) == ("12.50", "2026-11-23", (None, None, 1))
    assert all(other == row for other in others)


def test_numbers_of_rows_alone_are_read_at_once_too() -> None:
    several = pa.array(['{"numRecords":5}'] * (FEW_VALUES + 1), pa.string())
    with patch("alluvia.delta.statistics.typed._parse_each", side_effect=AssertionError):
        assert parse_texts(several, {}).rows.to_pylist() == [5] * len(several)


def _plain(found: ManyStatistics) -> list[dict[str, Any]]:
    """Return rows, tight bounds and each column's low, high and nulls, file by file."""
    columns = {
        path[0]: list(zip(each.low.to_pylist(), each.high.to_pylist(), each.nulls.to_pylist(), strict=True))
        for path, each in found.columns.items()
    }
    tight = found.tight.to_pylist()
    rows = found.rows.to_pylist()
    return [
        {"rows": rows[at], "tight": tight[at], **{name: each[at] for name, each in columns.items()}}
        for at in range(len(rows))
    ]
