from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from alluvia.delta.log.actions import AddFile
from alluvia.delta.partitioning.values import parse_partition_text, partition_value
from alluvia.errors import Corrupt

ZONED = pa.timestamp("us", tz="UTC")
NAIVE = pa.timestamp("us")


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("a b/%25", pa.string(), "a b/%25"),
        ("-128", pa.int8(), -128),
        ("+7", pa.int16(), 7),
        (str(2**63 - 1), pa.int64(), 2**63 - 1),
        ("1.0E10", pa.float64(), 1e10),
        ("-Infinity", pa.float32(), -math.inf),
        ("12.500", pa.decimal128(10, 3), Decimal("12.5")),
        ("true", pa.bool_(), True),
        ("False", pa.bool_(), False),
        ("0001-01-01", pa.date32(), date(1, 1, 1)),
        ("2021-9-8", pa.date32(), date(2021, 9, 8)),
        ("2021-09-08 11:11:11", ZONED, datetime(2021, 9, 8, 11, 11, 11, tzinfo=UTC)),
        ("2021-09-08 11:11:11.123456", ZONED, datetime(2021, 9, 8, 11, 11, 11, 123456, tzinfo=UTC)),
        ("2021-09-08T11:11:11.123456Z", ZONED, datetime(2021, 9, 8, 11, 11, 11, 123456, tzinfo=UTC)),
        ("2021-09-08T11:11:11+02:00", ZONED, datetime(2021, 9, 8, 9, 11, 11, tzinfo=UTC)),
        ("2021-09-08 11:11:11.1", NAIVE, datetime(2021, 9, 8, 11, 11, 11, 100000)),
        ("2021-09-08", NAIVE, datetime(2021, 9, 8)),
        ("\x01é", pa.binary(), b"\x01\xc3\xa9"),
    ],
)
def test_a_text_stands_for_its_value(text: str, kind: pa.DataType, value: Any) -> None:
    assert parse_partition_text(text, kind) == value
    assert parse_partition_text("", kind) is None
    assert parse_partition_text(None, kind) is None


def test_not_a_number_is_a_number_here() -> None:
    assert math.isnan(parse_partition_text("NaN", pa.float64()))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("128", pa.int8()),
        ("1_000", pa.int32()),
        ("1.5", pa.int32()),
        ("٣", pa.int32()),
        ("9" * 5000, pa.int64()),
        ("one", pa.float64()),
        ("1_0.0", pa.float64()),
        ("123.45", pa.decimal128(4, 2)),
        ("1.005", pa.decimal128(5, 2)),
        ("Infinity", pa.decimal128(5, 2)),
        ("yes", pa.bool_()),
        ("2021-02-30", pa.date32()),
        ("20210208", pa.date32()),
        ("noon", ZONED),
        ("0001-01-01T00:00:00+14:00", ZONED),
        ("x", pa.list_(pa.int8())),
    ],
)
def test_a_text_that_is_no_value_is_the_files_fault(text: str, kind: pa.DataType) -> None:
    file = AddFile("p=1/part.parquet", {"p": text}, 1, 1, data_change=True)
    with pytest.raises(Corrupt, match=r"data file p=1/part.parquet: the value .* of partition column p is no"):
        partition_value(file, "p", kind)
