"""What SQL reads of a promoted field in one text is what ingestion makes of it, or is left to this library."""

from __future__ import annotations

import json

import duckdb
import pyarrow as pa
import pytest

from alluvia.delta.log.actions import AddFile
from alluvia.delta.promoted_fields import TAG, PromotedField, shown
from alluvia.engine.duck.database import scratch_database
from alluvia.engine.duck.failures import UNREAD
from alluvia.engine.duck.promoted_sql import shown_columns, trust
from alluvia.engine.duck.relation import duckdb_type
from tests.property.test_promoted_fields import TEXTS, TYPES

Row = tuple[str | None, object]
OF_BEFORE = AddFile("old", {}, 0, 0, data_change=False)
MOVED = AddFile("new", {}, 0, 0, data_change=False, tags={TAG: "1"})
PLAIN = {
    "string": ['"x"', '""', "1", "null", "{}", "true"],
    "long": ["1", "2.0", "1.5", '"x"', "9223372036854775808", "12345678901234567890123"],
    "byte": ["127", "128", "-129"],
    "double": ["1", "0.1", "1.5", "true", '"x"'],
    "float": ["0.1", "16777217", "0.100000001"],
    "boolean": ["true", "false", "1", '"x"'],
    "date": ['"2026-11-20"', '"2026-02-30"', '"yesterday"', "1"],
    "timestamp": ['"2026-11-20T10:00:00Z"', "1700000000", "1700000000000", '"yesterday"', "true"],
    "timestamp_ntz": ['"2026-11-20T10:00:00"', "1700000000"],
    "binary": ['"aGVsbG8="', '"a b="', "1"],
    "decimal(10,2)": ["1", "1.5", '"12.50"', '"12.505"', '"123456789012"', '"x"'],
}


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    return scratch_database()


def queried(
    database: duckdb.DuckDBPyConnection, text: str | None, stored: object, kind: str, file: AddFile
) -> Row | None:
    """Return (properties, k) as SQL shows them of a row; None where that is left to this library."""
    field = PromotedField("k", "k", 1, TYPES[kind])
    name = duckdb_type(field.kind)
    rows = pa.table({"properties": pa.array([text], pa.string()), "k": pa.array([stored], field.kind)})
    database.register("f", rows)
    sql = {"properties": "f.properties", "k": f"CAST(f.k AS {name})"}
    columns = sql | shown_columns((field,), trust((field,), file), sql, {"properties": "VARCHAR", "k": name})
    try:
        [row] = (
            database.execute(f"SELECT {columns['properties']} p, {columns['k']} k FROM f").to_arrow_table().to_pylist()
        )
    except duckdb.Error as error:
        if UNREAD not in str(error):
            raise
        return None
    return row["p"], row["k"]


def scanned(text: str | None, stored: object, kind: str, file: AddFile) -> Row:
    field = PromotedField("k", "k", 1, TYPES[kind])
    rows = pa.record_batch({"properties": pa.array([text], pa.string()), "k": pa.array([stored], field.kind)})
    [row] = shown(rows, (field,), file).to_pylist()
    return row["properties"], row["k"]


def read(row: Row) -> object:
    """Return a row with its text as JSON, if it is: a number may be spelled in two ways."""
    text, stored = row
    return (json.loads(text) if text and text.startswith("{") else text), stored


@pytest.mark.parametrize("kind", TYPES)
def test_sql_reads_each_value_as_a_scan_does_or_leaves_it(database: duckdb.DuckDBPyConnection, kind: str) -> None:
    for value in TEXTS:
        text = f'{{"a":1,"k":{value}}}'
        found = queried(database, text, None, kind, OF_BEFORE)
        assert found is None or found == scanned(text, None, kind, OF_BEFORE), value
        assert found is not None or value not in PLAIN.get(kind, ()), f"left: {value}"


@pytest.mark.parametrize("kind", TYPES)
def test_sql_writes_each_value_as_a_scan_does_or_leaves_it(database: duckdb.DuckDBPyConnection, kind: str) -> None:
    for value in TEXTS:
        _, stored = scanned(f'{{"k":{value}}}', None, kind, OF_BEFORE)
        for text in (None, "{}", ' { "a" : 1 } ', '{"a":1}', "[1]", "x"):
            found = queried(database, text, stored, kind, MOVED)
            assert found is not None, value
            assert read(found) == read(scanned(text, stored, kind, MOVED)), value
