from __future__ import annotations

import pyarrow as pa
import pytest

import alluvia
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.engine.queries.parse import parse
from alluvia.query.describe import TYPE_CHARS_MAX, delta_name, in_our_terms
from alluvia.query.engine import run, run_rendered
from alluvia.query.formats import NDJSON, PARQUET, Format
from tests.unit.query.conftest import query

PLACE = pa.struct([("city", pa.string()), ("zips", pa.list_(pa.int32()))])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("small", pa.int16()),
        ("price", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("naive", pa.timestamp("us")),
        ("place", PLACE),
        ("tags", pa.map_(pa.string(), pa.float64())),
        ("raw", pa.binary()),
    ]
)
TYPES = [
    *("long", "short", "decimal(10,2)", "timestamp", "timestamp_ntz"),
    *("struct<city:string,zips:array<integer>>", "map<string,double>", "binary"),
]


@pytest.fixture
def typed(own_lake: alluvia.Lake) -> alluvia.Lake:
    own_lake.create_table("typed", SCHEMA)
    return own_lake


@pytest.mark.parametrize(
    "text", ["DESCRIBE typed", "desc typed", "DESCRIBE FROM typed", "DESCRIBE SELECT * FROM typed"]
)
def test_a_table_is_described_in_deltas_types_and_by_what_may_be_null(typed: alluvia.Lake, text: str) -> None:
    rows = run(typed.catalog, text).read_all().select(["column_name", "column_type", "null"]).to_pylist()
    assert [row["column_name"] for row in rows] == SCHEMA.names
    assert [row["column_type"] for row in rows] == TYPES
    assert [row["null"] for row in rows] == ["NO"] + ["YES"] * 7


def test_a_query_is_described_in_deltas_types_where_delta_has_one(typed: alluvia.Lake) -> None:
    text = "DESCRIBE SELECT *, 1::HUGEINT AS huge, [INTERVAL 1 DAY] AS spans, count(*) OVER () AS n FROM typed"
    assert [row[:2] for row in query(typed, text)][-3:] == [
        ("huge", "HUGEINT"),
        ("spans", "array<INTERVAL>"),
        ("n", "long"),
    ]
    assert [row[1] for row in query(typed, text)][:-3] == TYPES
    renamed = query(typed, "DESCRIBE SELECT id AS small, small AS id FROM typed")
    assert [row[:3] for row in renamed] == [("small", "long", "YES"), ("id", "short", "YES")]


def test_a_table_is_summarized_in_deltas_types(typed: alluvia.Lake) -> None:
    assert [row[1] for row in query(typed, "SUMMARIZE typed")] == TYPES


def test_sqls_names_of_types_are_understood(own_lake: alluvia.Lake) -> None:
    given = {
        "a": "BIGINT", "b": "varchar", "c": "Text", "d": "INT", "e": "TIMESTAMPTZ", "f": "timestamp", "g": "bool",
        "h": "NUMERIC (10, 2)", "i": "double precision", "j": "TIMESTAMP WITH TIME ZONE", "k": "Blob", "l": "STRING",
    }  # fmt: skip
    own_lake.create_table("given", given)
    assert [row[1] for row in query(own_lake, "DESCRIBE given")] == [
        *("long", "string", "string", "integer", "timestamp", "timestamp", "boolean", "decimal(10,2)", "double"),
        *("timestamp", "binary", "string"),
    ]


@pytest.mark.parametrize(
    "text", ["SELECT 1::VARIANT", "SELECT get_type(1)", "SELECT [NULL::TYPE]", "SELECT {'a': 1::VARIANT}"]
)
def test_a_value_that_arrow_has_no_type_for_is_refused(lake: alluvia.Lake, text: str) -> None:
    with pytest.raises(alluvia.errors.Invalid, match=r"of the type (VARIANT|TYPE), which .*(cast it|CAST)"):
        run(lake.catalog, text)


@pytest.mark.parametrize("form", [None, NDJSON, PARQUET])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1, '101'::BIT AS b",
        "SELECT [{'x': MAP {'k': '101'::BIT}}] AS b",
        "SELECT 1::BIGNUM AS b",
        "SELECT union_value(k := ['101'::BIT]::BIT[1]) AS b",
    ],
)
def test_a_value_that_only_duckdb_reads_is_refused(lake: alluvia.Lake, text: str, form: Format | None) -> None:
    refused = (
        r"the column b has values of the type (BIT|BIGNUM), "
        r"which an answer cannot contain: select CAST\(… AS VARCHAR\)"
    )
    with pytest.raises(alluvia.errors.Invalid, match=refused):
        run(lake.catalog, text) if form is None else run_rendered(lake.catalog, text, form, 1_000_000)


def test_bits_are_sent_as_text(lake: alluvia.Lake) -> None:
    assert query(lake, "SELECT CAST('101'::BIT AS VARCHAR) AS b, {'BIT': 1} AS c") == [("101", {"BIT": 1})]


def test_types_are_named_within_the_time_limit() -> None:
    def time_is_up() -> None:
        msg = "time is up"
        raise QueryTooCostly(msg)

    rows = pa.record_batch({"column_name": ["a"], "column_type": ["BIGINT"]})
    named = in_our_terms(parse("DESCRIBE SELECT 1 AS a").root, {}, [rows], time_is_up, {}, lambda _: {})
    with pytest.raises(QueryTooCostly, match="time is up"):
        next(named)


def test_a_type_too_long_to_parse_keeps_its_name() -> None:
    fields = [f"f{number} BIGINT" for number in range(2000)]
    assert delta_name(f"STRUCT({', '.join(fields[:2])})") == "struct<f0:long,f1:long>"
    assert len(f"STRUCT({', '.join(fields)})") > TYPE_CHARS_MAX
    assert delta_name(f"STRUCT({', '.join(fields)})") == f"STRUCT({', '.join(fields)})"
