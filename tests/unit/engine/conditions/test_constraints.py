"""CHECK constraints of Spark's, checked by DuckDB where both mean the same, refused by name elsewhere."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from alluvia.engine.conditions.constraints import ConstraintCheck
from alluvia.errors import Invalid, Unsupported

SCHEMA = pa.schema(
    [("n", pa.int64()), ("my name", pa.string()), ("place", pa.struct([("zip", pa.int64())])), ("day", pa.date32())]
)


def rows(*values: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(values), SCHEMA)


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("n > 0", {"n": 1}, {"n": 0}),
        ("n > 0", {"n": 1}, {"n": None}),
        ("n IS NULL OR n > 0", {"n": None}, {"n": -1}),
        ("`my name` <> ''", {"my name": "x"}, {"my name": ""}),
        ("`my name` LIKE 'a%' AND NOT n IN (1, 2)", {"my name": "ab", "n": 3}, {"my name": "ab", "n": 2}),
        ("place.zip BETWEEN 1 AND 9", {"place": {"zip": 1}}, {"place": {"zip": 10}}),
        ("length(`my name`) * 2 + 1 < 6", {"my name": "äö"}, {"my name": "äöü"}),
        ("CASE WHEN n > 5 THEN `my name` = 'big' ELSE true END", {"n": 1}, {"n": 6, "my name": "small"}),
        ("day >= DATE '2024-01-01'", {"day": 19800}, {"day": 1}),
        ("`my name` = 'it''s'", {"my name": "it's"}, {"my name": "its"}),
        ("coalesce(n, 0) == 0", {"n": None}, {"n": 1}),
    ],
)
def test_rows_that_keep_and_break_them(text: str, good: dict[str, Any], bad: dict[str, Any]) -> None:
    check = ConstraintCheck({"mine": text}, SCHEMA)
    check(rows(good))
    check(rows())
    with pytest.raises(Invalid, match="1 of 2 rows break the CHECK constraint mine"):
        check(rows(good, bad))


@pytest.mark.parametrize(
    "text",
    [
        '`my name` = "x"',
        r"`my name` = '\\n'",
        "regexp_like(`my name`, 'x')",
        "n / 2 > 1",
        "day > current_date()",
        "(SELECT max(n) FROM other) > 1",
        "n > none",
        "n >",
        "n <=> 1",
        "`my name",
        "sum(n) > 1",
        "CAST(`my name` AS INT) > 1",
    ],
)
def test_what_cannot_be_checked_is_refused_by_name(text: str) -> None:
    with pytest.raises(Unsupported, match="the CHECK constraint mine"):
        ConstraintCheck({"other": "n > 0", "mine": text}, SCHEMA)
