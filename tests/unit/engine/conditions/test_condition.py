from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

import alluvia
from alluvia.engine.conditions.columnar import definite
from alluvia.engine.conditions.condition import condition
from alluvia.errors import Invalid

BATCH = pa.record_batch(
    {
        "n": pa.array([1, 2, None, 4], pa.int64()),
        "name": pa.array(["a", "b", "c", None], pa.string()),
        "price": pa.array([Decimal("1.10"), None, Decimal("2.20"), Decimal("3.30")], pa.decimal128(38, 2)),
        "ts": pa.array([datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3, 4)], pa.timestamp("us", tz="UTC")),
        "place": pa.array([{"zip": 1}, None, {"zip": None}, {"zip": 4}], pa.struct([("zip", pa.int32())])),
        "tags": pa.array([["x"], [], None, ["y", "x"]], pa.list_(pa.string())),
    }
)


@pytest.mark.parametrize(
    ("text", "rows", "columns"),
    [
        ("n > 1", [1, 3], ("n",)),
        ("N > 1 OR name = 'c'", [1, 2, 3], ("n", "name")),
        ("NOT (n > 1)", [0], ("n",)),
        ("n IS NULL", [2], ("n",)),
        ("true", [0, 1, 2, 3], ()),
        ("NULL", [], ()),
        ("n", [0, 1, 3], ("n",)),
        ("price >= 2.2", [2, 3], ("price",)),
        ("ts BETWEEN '2024-01-02' AND '2024-01-03'", [1, 2], ("ts",)),
        ("ts < now()", [0, 1, 2, 3], ("ts",)),
        ("place.zip = 4", [3], ("place",)),
        ("rows.n = 1 -- a comment", [0], ()),
        ("list_contains(tags, 'x')", [0, 3], ("tags",)),
        ("len(list_filter(tags, lambda t: t = 'x' AND n = 4)) = 1", [3], ("n", "tags")),
        ("n = 1 OR\n/* (; */ n = 2", [0, 1], ("n",)),
    ],
)
def test_rows_that_match_are_kept_as_they_are(text: str, rows: list[int], columns: tuple[str, ...]) -> None:
    parsed = condition(text, BATCH.schema)
    kept = parsed.filter(BATCH)
    assert kept.schema == BATCH.schema
    assert kept.equals(BATCH.take(pa.array(rows, pa.int64())))
    if columns:
        assert parsed.columns == columns
        assert parsed.filter(BATCH.select(list(columns))).num_rows == len(rows)


def test_a_condition_filters_batch_after_batch() -> None:
    parsed = condition("n > 1", BATCH.schema)
    assert [parsed.filter(batch).num_rows for batch in (BATCH, BATCH.slice(0, 1), BATCH.slice(3), BATCH)] == [
        2,
        0,
        1,
        2,
    ]


def test_now_stands_still() -> None:
    """Rows of the second that the condition was made in must match in every batch alike, as pruning assumed."""
    parsed = condition("ts >= now()", BATCH.schema)
    at = datetime.now(UTC)
    batch = BATCH.set_column(3, "ts", pa.array([at] * 4, pa.timestamp("us", tz="UTC")))
    assert [parsed.filter(batch).num_rows for _ in range(3)] == [4, 4, 4]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "syntax error"),
        ("bogus = 1", "Referenced column"),
        ("other.n = 1", 'Referenced table "other" not found'),
        ("n = 1; SELECT 2", "2 statements"),
        ("n = 1 ORDER BY n", "syntax error"),
        ("n = 1 GROUP BY n", "syntax error|one condition"),
        ("n = 1 LIMIT 1", "syntax error|one condition"),
        ("true) FROM rows, (SELECT 1", "syntax error|one condition"),
        ("1) AS BOOLEAN) AS mask FROM rows --", "syntax error"),
        ("n = 1 UNION SELECT 1", "syntax error|one condition"),
        ("n = (SELECT 1)", "a condition cannot use"),
        ("EXISTS (FROM rows)", "a condition cannot use"),
        ("n IN (SELECT 1)", "a condition cannot use"),
        ("n = ANY(SELECT 1)", "a condition cannot use"),
        ("row_number() OVER () = 1", "a condition cannot use"),
        ("sum(n) > 1", "a condition cannot use"),
        ("unnest([true, false])", "a condition cannot use|UNNEST"),
        ("getenv('HOME') = 'x'", "getenv"),
        ("current_setting('threads') = 1", "current_setting"),
        ("n = ?", "parameter"),
        ("n = 'x'", "Could not convert string 'x'"),
        ("n = $1", "parameter"),
        ("read_text('/etc/passwd') = 'x'", "read_text"),
    ],
)
def test_anything_but_one_condition_is_refused(text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        condition(text, BATCH.schema)


def test_a_value_that_cannot_be_compared_is_the_callers_error() -> None:
    with pytest.raises(Invalid, match="Could not convert string 'a' to INT"):
        condition("CAST(name AS INT) = 1", BATCH.schema).filter(BATCH)


def test_a_table_is_scanned_by_a_condition(lake: alluvia.Lake) -> None:
    rows = lake.table("events").scan(columns=["kind"], where="n < 12 AND place.zip = 1").read_all()
    assert rows.to_pylist() == [{"kind": "kind-1"}] * 2


def test_null_in_a_mask_becomes_false() -> None:
    assert definite(pa.array([True, None, False], pa.bool_())).to_pylist() == [True, False, False]
