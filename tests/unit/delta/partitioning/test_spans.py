from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pyarrow as pa
import pytest

from alluvia.delta.log.actions import AddFile
from alluvia.delta.partitioning.spec import parse_spec
from alluvia.delta.partitioning.transforms import PARTITION_TAG, Key, Span, cut, hull, part
from alluvia.delta.skipping.pruning import span_of
from alluvia.delta.statistics.written import file_statistics

SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("d", pa.date32()), ("n", pa.int64())])
DAY = parse_spec(["day(ts)"], SCHEMA)
BOTH = parse_spec(["day(ts)", "year(d)"], SCHEMA)


def key(*values: str | int | None) -> Key:
    return tuple(map(part, values))


def days(first: str, last: str | None = None) -> Span:
    return Span(key(first), key(last or first))


def add(tag: Any = None, stats: str | None = None) -> AddFile:
    tags = {} if tag is None else {PARTITION_TAG: tag if isinstance(tag, str) else orjson.dumps(tag).decode()}
    return AddFile("f", {}, 1, 1, data_change=True, stats=stats, tags=tags)


def test_null_is_the_last_key_of_a_span() -> None:
    march, nulls = days("2024-03-01", "2024-03-31"), Span(key(None), key(None))
    assert not march.single
    assert all(span.single for span in (days("2024-03-05"), nulls, Span((), ())))
    assert hull([march, nulls, days("2024-02-01")]) == Span(key("2024-02-01"), key(None))


@pytest.mark.parametrize(
    ("tag", "span"),
    [
        ({"day(ts)": "2024-01-01"}, days("2024-01-01")),
        ({"day(ts)": None}, Span(key(None), key(None))),
        ({"day(ts)": ["2024-01-01", "2024-01-05"]}, days("2024-01-01", "2024-01-05")),
        ({"day(ts)": ["2024-01-01", None]}, Span(key("2024-01-01"), key(None))),
    ],
)
def test_a_tag_is_read_and_written(tag: dict[str, Any], span: Span) -> None:
    assert span_of(add(tag), DAY) == span
    assert orjson.loads(span.tag(["day(ts)"])) == tag


def test_a_range_over_two_transforms_is_one_of_pairs() -> None:
    span = Span(key("2024-01-01", "2023"), key("2024-01-02", "2020"))
    text = span.tag(["day(ts)", "year(d)"])
    assert orjson.loads(text) == {"day(ts)": ["2024-01-01", "2024-01-02"], "year(d)": ["2023", "2020"]}
    assert span_of(add(text), BOTH) == span
    assert span_of(add({"day(ts)": "2024-01-01", "year(d)": ["2020", "2023"]}), BOTH) == Span(
        key("2024-01-01", "2020"), key("2024-01-01", "2023")
    )


@pytest.mark.parametrize(
    "tag",
    ["no json", "[]", {"day(d)": "2024-01-01"}, {"day(ts)": 3}, {"day(ts)": ["2024-01-01"]}, {},
     {"day(ts)": ["2024-01-02", "2024-01-01"]}, {"day(ts)": "2024-01-01", "more": "1"}],
)  # fmt: skip
def test_a_tag_that_is_not_of_the_specification_counts_for_nothing(tag: Any) -> None:
    assert span_of(add(tag), DAY) is None


def moments(*texts: str | None) -> pa.Table:
    times = [None if text is None else datetime.fromisoformat(text).replace(tzinfo=UTC) for text in texts]
    return pa.table({"ts": pa.array(times, SCHEMA.field("ts").type)})


def test_without_a_tag_the_span_follows_from_the_statistics() -> None:
    within = file_statistics(moments("2024-01-01T10:00", "2024-01-05T23:00"))
    assert span_of(add(stats=within), DAY) == days("2024-01-01", "2024-01-05")
    some_null = file_statistics(moments("2024-01-01T10:00", None))
    assert span_of(add(stats=some_null), DAY) == Span(key("2024-01-01"), key(None))
    assert span_of(add(stats=file_statistics(moments(None))), DAY) == Span(key(None), key(None))
    assert span_of(add(), DAY) is None
    assert span_of(add(stats='{"numRecords": 2}'), DAY) is None
    assert span_of(add(), parse_spec(["n"], SCHEMA)) == Span((), ())


def test_bounds_that_were_rounded_lose_no_row() -> None:
    """Statistics hold milliseconds, cut by other writers: the last moment of a day can be written as the day's end."""
    last = datetime(2024, 1, 2, tzinfo=UTC) - timedelta(microseconds=1)
    cut_down = {
        "numRecords": 1,
        "nullCount": {"ts": 0},
        "minValues": {"ts": "2024-01-01T00:00:00.000Z"},
        "maxValues": {"ts": "2024-01-01T23:59:59.999Z"},
    }
    for stats in (orjson.dumps(cut_down).decode(), file_statistics(moments("2024-01-01T00:00", last.isoformat()[:26]))):
        span = span_of(add(stats=stats), DAY)
        assert span is not None
        assert span.low <= key("2024-01-01") <= span.high


@pytest.mark.parametrize(
    ("sizes", "least", "most", "ends"),
    [
        ([], 10, None, []),
        ([1, 1, 1], 10, None, [3]),
        ([5, 5, 5, 5, 5], 10, None, [2, 4, 5]),
        ([1, 20, 1], 10, None, [1, 2, 3]),
        ([20, 20], 10, None, [1, 2]),
        ([9, 9, 9], 10, 12, [1, 2, 3]),
        ([50, 1], 10, 12, [1, 2]),
        ([4, 4, 4, 4], 100, 10, [2, 4]),
    ],
)
def test_keys_are_cut_into_contiguous_ranges(sizes: list[int], least: int, most: int | None, ends: list[int]) -> None:
    found = cut(sizes, least, most)
    assert [each.stop for each in found] == ends
    assert [at for each in found for at in each] == list(range(len(sizes)))


@pytest.mark.parametrize("sizes", [[1] * 400, [1, 99] * 200, [100] + [1] * 399, list(range(1, 1001))])
def test_a_fiftieth_each_makes_at_most_a_hundred_ranges(sizes: list[int]) -> None:
    assert len(cut(sizes, -(-sum(sizes) // 50))) <= 100
