from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest

from alluvia.json_values.plain import plain_values

ZONED = pa.timestamp("us", tz="UTC")
MOMENT = datetime(2024, 1, 31, 23, 59, 59, 120, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "values", "text"),
    [
        (pa.int64(), [2**63 - 1, -(2**63), None], "[9223372036854775807,-9223372036854775808,null]"),
        (pa.uint64(), [2**64 - 1], "[18446744073709551615]"),
        (pa.decimal128(38, 3), [Decimal("12345678901234567890123.450"), None], "[12345678901234567890123.450,null]"),
        (pa.decimal128(38, 20), [Decimal("0.00000000000000000001")], "[0.00000000000000000001]"),
        (pa.float64(), [0.1, float("nan"), float("inf"), -0.0], "[0.1,null,null,-0.0]"),
        (pa.bool_(), [True, None], "[true,null]"),
        (pa.string(), ['é\n"', None], '["é\\n\\"",null]'),
        (pa.binary(), [b"\x00\xff", b"", None], '["AP8=","",null]'),
        (pa.binary(2), [b"\x00\xff"], '["AP8="]'),
        (pa.date32(), [date(2024, 2, 29), date(1, 1, 1), None], '["2024-02-29","0001-01-01",null]'),
        (
            ZONED,
            [MOMENT, MOMENT.replace(microsecond=0), None],
            '["2024-01-31T23:59:59.00012Z","2024-01-31T23:59:59Z",null]',
        ),
        (pa.timestamp("us"), [MOMENT.replace(tzinfo=None)], '["2024-01-31T23:59:59.00012"]'),
        (pa.timestamp("s", tz="UTC"), [0, -1], '["1970-01-01T00:00:00Z","1969-12-31T23:59:59Z"]'),
        (pa.timestamp("ns"), [1], '["1970-01-01T00:00:00.000000001"]'),
        (ZONED, [253402300800000000, -62198755200000000], '["+010000-01-01T00:00:00Z","-000001-01-01T00:00:00Z"]'),
        (ZONED, [2**63 - 1, -(2**63) + 1], '["infinity","-infinity"]'),
        (pa.date32(), [2**31 - 1, -(2**31) + 1], '["infinity","-infinity"]'),
        (pa.time64("us"), [time(1, 2, 3, 400000), time(0), None], '["01:02:03.4","00:00:00",null]'),
        (pa.time32("ms"), [time(1, 2, 3, 5000)], '["01:02:03.005"]'),
        (pa.duration("ms"), [timedelta(hours=1, milliseconds=5)], '["PT3600.005S"]'),
        (pa.month_day_nano_interval(), [(14, -3, 1_500_000_000), (0, 0, 0), None], '["P14M-3DT1.5S","PT0S",null]'),
        (pa.list_(ZONED), [[MOMENT], [], None], '[["2024-01-31T23:59:59.00012Z"],[],null]'),
        (pa.list_(pa.int32(), 2), [[1, 2], None], "[[1,2],null]"),
        (pa.list_(pa.list_(pa.decimal128(3, 1))), [[[Decimal("1.5")], None]], "[[[1.5],null]]"),
        (
            pa.struct([("a", pa.binary()), ("b", pa.int8())]),
            [{"a": b"a", "b": None}, None],
            '[{"a":"YQ==","b":null},null]',
        ),
        (pa.map_(pa.string(), pa.date32()), [[("k", date(2024, 1, 1))], [], None], '[{"k":"2024-01-01"},{},null]'),
        (pa.map_(pa.int32(), pa.string()), [[(1, "x")]], '[[{"key":1,"value":"x"}]]'),
        (pa.null(), [None], "[null]"),
    ],
)
def test_values_in_json(kind: pa.DataType, values: list[Any], text: str) -> None:
    array = pa.array(values, kind)
    assert orjson.dumps(plain_values(array)).decode() == text
    padded = pa.concat_arrays([pa.nulls(3, kind), array, pa.nulls(2, kind)]).slice(3, len(array))
    assert orjson.dumps(plain_values(padded)).decode() == text


def test_dictionaries_unions_and_extensions() -> None:
    assert plain_values(pa.array(["a", "b", "a", None]).dictionary_encode()) == ["a", "b", "a", None]
    union = pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([1, 0]), pa.array([date(2024, 1, 1), date(2024, 1, 2)])]
    )
    assert plain_values(union) == [1, "2024-01-02"]
    assert plain_values(pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))) == [
        "MDAwMDAwMDAwMDAwMDAwMA=="
    ]


def test_the_calendar_is_right_for_every_year() -> None:
    days = list(range(-719162, 2932896, 9973))
    expected = [(date(1970, 1, 1) + timedelta(days=day)).isoformat() for day in days]
    assert plain_values(pa.array(days, pa.int32()).cast(pa.date32())) == expected
