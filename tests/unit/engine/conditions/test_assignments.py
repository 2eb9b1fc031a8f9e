"""New values as SQL expressions: one a row, of the column's type, and confined."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from alluvia.engine.conditions.assignments import assignments
from alluvia.errors import Invalid

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("name", pa.string()),
        pa.field("must", pa.int32(), nullable=False),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(10, 2)),
        ("ratio", pa.float64()),
        ("tags", pa.list_(pa.string())),
    ]
)
ROWS = pa.Table.from_pylist([{"n": 5, "name": "q", "must": 7}, {"n": None, "name": "r", "must": 8}], SCHEMA)


@pytest.mark.parametrize(
    ("column", "text", "values", "columns"),
    [
        ("n", "n + 1", [6, None], ("n",)),
        ("n", "must", [7, 8], ("must",)),
        ("n", "rows.must * 2 -- a comment", [14, 16], ("must",)),
        ("n", "NULL", [None, None], ()),
        ("n", "CASE WHEN n = 5 THEN NULL ELSE must END", [None, 8], ("n", "must")),
        ("N", "0", [0, 0], ()),
        ("name", "upper(name) || coalesce(CAST(n AS VARCHAR), '-')", ["Q5", "R-"], ("n", "name")),
        ("must", "must // 2", [3, 4], ("must",)),
        ("ratio", "must / 2", [3.5, 4.0], ("must",)),
        ("ratio", "1.25", [1.25, 1.25], ()),
        ("tags", "[name, 'x']", [["q", "x"], ["r", "x"]], ("name",)),
        ("price", "must * 1.5", ["10.50", "12.00"], ("must",)),
        ("day", "'2024-02-29'", ["2024-02-29"] * 2, ()),
    ],
)
def test_values(column: str, text: str, values: list[Any], columns: tuple[str, ...]) -> None:
    parsed = assignments({column: text}, SCHEMA)
    found = parsed.apply(ROWS)
    name = column.lower()
    assert parsed.names == (name,)
    assert parsed.columns == columns
    assert found.schema == pa.schema([SCHEMA.field(name)])
    plain = found[name].to_pylist()
    assert [str(value) if isinstance(values[0], str) and name != "name" else value for value in plain] == values


def test_now_stands_still() -> None:
    parsed = assignments({"ts": "now()"}, SCHEMA)
    first = parsed.apply(ROWS)["ts"].to_pylist()
    assert first + parsed.apply(ROWS)["ts"].to_pylist() == [first[0]] * 4


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "syntax error|struct<>"),  # for DuckDB 2.0, a struct without fields
        ("1 AS b", "syntax error"),
        ("1; SELECT 2", "syntax error"),
        ("1), (2", "give one SQL expression"),
        ("1) FROM rows UNION SELECT (2", "give one SQL expression"),
        ("1) FROM rows WHERE (true", "syntax error"),
        ("*", "an expression cannot use"),
        ("COLUMNS('n')", "an expression cannot use"),
        ("(SELECT 1)", "an expression cannot use"),
        ("row_number() OVER ()", "an expression cannot use"),
        ("sum(n)", "an expression cannot use"),
        ("unnest([1])", "an expression cannot use"),
        ("unnest(tags)", "an expression cannot use"),
        ("getenv('HOME')", "getenv"),
        ("none", "none"),
        ("name", "write CAST"),
        ("now()", "write CAST"),
        ("CAST('x' AS BIGINT)", "Conversion Error"),
        ("170141183460469231731687303715884105727", "write CAST"),
    ],
)
def test_what_is_no_value_is_refused(text: str, named: str) -> None:
    with pytest.raises(Invalid, match=f"(?s)column n: .*{named}|column n is .*{named}"):
        assignments({"n": text}, SCHEMA).apply(ROWS)


def test_files_cannot_be_read() -> None:
    with pytest.raises(Invalid):
        assignments({"name": "(SELECT content FROM read_text('/etc/passwd'))"}, SCHEMA)


def test_a_value_that_overflows_is_refused() -> None:
    with pytest.raises(Invalid, match="column must"):
        assignments({"must": "n + 4000000000"}, SCHEMA).apply(ROWS)
    with pytest.raises(Invalid, match="column price"):
        assignments({"price": "must * 100000000"}, SCHEMA).apply(ROWS)
