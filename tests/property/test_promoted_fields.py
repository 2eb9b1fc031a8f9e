"""A promoted field has one value under either name: by scans and by SQL, in files of both kinds, and after the move."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.delta.promoted_fields import TAG
from alluvia.json_values.convert import column
from alluvia.json_values.jsontext import exact_number
from alluvia.query.engine import run
from alluvia.store import MemoryStore

NUMBERS = count()
TYPES = {
    "string": pa.string(),
    "long": pa.int64(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "array<long>": pa.list_(pa.field("element", pa.int64())),
}
TEXTS = [
    '"x"',
    '""',
    '"a\\"b\\\\c"',
    '"\\u0000\\n\\u00e9"',
    '"é\U0001f600"',
    "1",
    "-0",
    "2.0",
    "1.5",
    "0.1",
    "16777217",
    "1e3",
    "1e-400",
    "1e400",
    "127",
    "128",
    "-129",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "12345678901234567890123",
    "0.12345678901234567890",
    "0.100000001",
    "3.4028235e38",
    "1e39",
    "true",
    "false",
    "null",
    "{}",
    "[1,2]",
    '{"k":1}',
    '"2026-11-20"',
    '"2026-02-30"',
    '"0000-01-01"',
    '"2026-11-20T10:00:00Z"',
    '"2026-11-20 10:00:00.25+02:00"',
    '"2026-11-20T10:00:00"',
    '"2026-11-20T24:00:00Z"',
    '"2026-11-20T10:00:00.1234567Z"',
    '"9999-12-31T23:59:59Z"',
    '"yesterday"',
    "1700000000",
    "1700000000000",
    "1700000000.25",
    '"aGVsbG8="',
    '"QR=="',
    '"a b="',
    '"12.50"',
    '"12.505"',
    '"1e1"',
    '"123456789012"',
]
VALUES = st.sampled_from(TEXTS) | st.integers(-(2**70), 2**70).map(str) | st.floats(allow_nan=False).map(json.dumps)
OTHERS = st.sampled_from(['"o":1', '"o":{"k":2}', '"o":"\\"k\\":3"', '"o":"x","o":"y"', '"o":[[[1.25]]]'])


def _object(value: str | None, others: Sequence[str], first: bool) -> str:
    members = [*others]
    if value is not None:
        members.insert(0 if first else len(members), f'"k":{value}')
    return "{" + ",".join(members) + "}"


OBJECTS = st.builds(_object, st.none() | VALUES, st.lists(OTHERS, max_size=2, unique=True), st.booleans())
ODD = st.sampled_from(
    [
        None,
        "[1]",
        "7",
        '"k"',
        ' { "k" : "x" , "z" : 1 } ',
        '{"k":"first","k":"second"}',
        '{"\\u006b":"spelled"}',
        '{"o":{"k":"inner"}}',
        '{"o":' + "[" * 300 + "]" * 300 + ',"k":"below"}',
    ]
)
BODIES = st.lists(OBJECTS | ODD, min_size=1, max_size=12)


def _lake(texts: Sequence[str | None], kind: str) -> Lake:
    lake = Lake(MemoryStore(f"promoted-{next(NUMBERS)}"), ManualClock(1_700_000_000_000_000, next(NUMBERS)))
    table = lake.create_table(
        "t", {"n": "long", "properties": "string"}, properties={"delta.enableDeletionVectors": "true"}
    )
    table.append(pa.table({"n": range(len(texts)), "properties": pa.array(texts, pa.string())}))
    table.evolve(add={"k": kind})
    return lake


def _scanned(lake: Lake) -> list[tuple[Any, Any]]:
    rows = sorted(lake["t"].scan().read_all().to_pylist(), key=lambda row: row["n"])
    return [(row["properties"], row["k"]) for row in rows]


def _queried(lake: Lake) -> list[tuple[Any, Any]]:
    rows = run(lake.catalog, "SELECT properties, k FROM t ORDER BY n").read_all().to_pylist()
    return [(row["properties"], row["k"]) for row in rows]


def _spelled(lake: Lake) -> list[Any]:
    found = "CASE WHEN TRY(json_type(properties)) = 'OBJECT' THEN properties->>'k' END"
    return run(lake.catalog, f"SELECT {found} FROM t ORDER BY n").read_all().column(0).to_pylist()


def _parsed(text: str | None) -> object:
    """Return what a text says, the order of keys and the spelling of numbers apart; itself if it is not JSON."""
    if text is None:
        return None
    try:
        return json.loads(
            text, parse_float=Decimal, object_pairs_hook=lambda pairs: sorted(dict(reversed(pairs)).items(), key=str)
        )
    except ValueError:
        return text


def _expected(text: str | None, kind: str) -> object:
    """Return the value that a text has under `k`, by ingestion's own conversion."""
    try:
        value = json.loads(
            text or "null",
            object_pairs_hook=lambda pairs: dict(reversed(pairs)),
            parse_int=exact_number,
            parse_float=exact_number,
        )
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or "k" not in value:
        return None
    array, reasons = column(pa.field("k", TYPES[kind]), [value["k"]])
    return None if reasons else array[0].as_py()


@given(st.sampled_from(sorted(TYPES)), BODIES)
@pytest.mark.parametrize("_", [0])
def test_either_name_has_the_value_before_and_after_the_move(_: int, kind: str, texts: list[str | None]) -> None:
    lake = _lake(texts, kind)
    before = _scanned(lake)
    assert before == [(text, _expected(text, kind)) for text in texts]
    assert _queried(lake) == before
    spelled = _spelled(lake)
    [old] = lake["t"].snapshot().files
    assert TAG not in old.tags
    lake["t"].upsert(lake["t"].scan().read_all(), on=["n"])
    [new] = lake["t"].snapshot().files
    assert new.tags[TAG] == "1"
    after, queried = _scanned(lake), _queried(lake)
    assert [value for _, value in after] == [value for _, value in queried] == [value for _, value in before]
    assert [_parsed(text) for text, _ in after] == [_parsed(text) for text, _ in queried]
    assert _spelled(lake) == spelled
