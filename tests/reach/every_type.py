"""Rows of every type that a table can have, at the ends of what they hold, and conditions that find them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("long", pa.int64()),
        ("integer", pa.int32()),
        ("short", pa.int16()),
        ("byte", pa.int8()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("ts", TIME),
        ("small", pa.decimal128(9, 2)),
        ("middle", pa.decimal128(18, 0)),
        ("big", pa.decimal128(38, 18)),
        ("record", pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string()), ("d", TIME)]))])),
        ("items", pa.list_(pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))]))),
        ("pairs", pa.map_(pa.string(), pa.struct([("v", pa.decimal128(5, 1))]))),
    ]
)
LONG_TEXT = "x" * 40
ORDINARY: dict[str, Any] = {
    "long": 1,
    "integer": 2,
    "short": 3,
    "byte": 4,
    "single": 0.5,
    "double": 0.1,
    "flag": True,
    "text": "plain",
    "raw": b"\x00\xff",
    "day": date(2024, 2, 29),
    "ts": datetime(2024, 2, 29, 12, 0, 0, 123_456, UTC),
    "small": Decimal("1.50"),
    "middle": Decimal(10**17),
    "big": Decimal("1.000000000000000001"),
    "record": {"a": 1, "b": {"c": "in", "d": datetime(2000, 1, 1, tzinfo=UTC)}},
    "items": [{"x": 1, "y": ["p", None]}, None],
    "pairs": [("k", {"v": Decimal("1.5")}), ("l", None)],
}
HIGHEST: dict[str, Any] = {
    "long": 2**63 - 1,
    "integer": 2**31 - 1,
    "short": 2**15 - 1,
    "byte": 127,
    "single": float("inf"),
    "double": 1.7976931348623157e308,
    "flag": True,
    "text": LONG_TEXT,
    "raw": b"\xff" * 40,
    "day": date(9999, 12, 31),
    "ts": datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    "small": Decimal("9999999.99"),
    "middle": Decimal(10**18 - 1),
    "big": Decimal("9" * 20 + "." + "9" * 18),
    "record": {"a": None, "b": None},
    "items": [],
    "pairs": [],
}
LOWEST: dict[str, Any] = {
    "long": -(2**63),
    "integer": -(2**31),
    "short": -(2**15),
    "byte": -128,
    "single": float("-inf"),
    "double": float("nan"),
    "flag": False,
    "text": "\U0010ffff" * 35,
    "raw": b"",
    "day": date(1, 1, 1),
    "ts": datetime(1, 1, 1, tzinfo=UTC),
    "small": Decimal("-9999999.99"),
    "middle": Decimal(1 - 10**18),
    "big": Decimal("-" + "9" * 20 + "." + "9" * 18),
    "record": {"a": 1, "b": {"c": None, "d": None}},
    "items": [{"x": None, "y": []}],
    "pairs": [("", {"v": None})],
}
CONDITIONS = [
    ("long = 9223372036854775807", 1),
    ("long < 0", 1),
    ("byte >= 4", 2),
    ("single > 1e30", 1),
    ("double > 1e300", 2),
    ("double = 0.1", 1),
    (f"text = '{LONG_TEXT}'", 1),
    (f"text > '{LONG_TEXT[:-1]}'", 2),
    ("flag = true", 2),
    ("day = DATE '9999-12-31'", 1),
    ("day < DATE '1000-01-01'", 1),
    ("ts = TIMESTAMP '2024-02-29 12:00:00.123456'", 1),
    ("ts > TIMESTAMP '2024-02-29 12:00:00.123456'", 1),
    ("small = CAST('9999999.99' AS DECIMAL(9,2))", 1),
    ("big = CAST('1.000000000000000001' AS DECIMAL(38,18))", 1),
    ("big < -1", 1),
    ("raw IS NULL", 1),
    ("record.a IS NULL", 2),
]
"""What finds rows of the table of every type, and how many of its four. A NaN is above every number, as SQL has it."""
