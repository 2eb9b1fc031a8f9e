"""Lines with the same keys: numbers, times and other values that are read as columns."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import product
from unittest.mock import patch

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.events.ingest.event_rows import _of_events
from alluvia.events.ingest.values import NO_FIELDS, Limits
from tests.unit.events.ingest.lines import BASE, line, made, parsed
from tests.unit.events.ingest.rows import DEFAULT, NOON, NOON_US

WIDE = {**BASE, "status": 100, "n": 1, "at": NOON}
KINDS = pa.schema([*(each.with_nullable(True) for each in DEFAULT), ("status", pa.int8()), ("n", pa.float64()),
                   ("at", DEFAULT.field("ts").type), pa.field("ip", pa.string(), nullable=False)])  # fmt: skip
NEED_A_LOOK: list[dict[str, object]] = [
    {"event_id": None}, {"event_id": ""}, {"event_id": "é" * 1024}, {"event_id": "é" * 1025}, {"ts": "yesterday"},
    {"ts": None}, {"ts": ""}, {"ts": "2020-02-30T12:00:00Z"}, {"ts": "2020-02-29T12:00:00Z"}, {"ts": "2020-01-01"},
    {"ts": "2020-01-01T12:00:00"}, {"ts": "0000-01-01T00:00:00Z"}, {"ts": "0000-12-31T12:59:59-23:59"},
    {"ts": "9999-12-31T23:59:59-23:59"},
    {"ts": "2020-01-01T12:00:00.1234567Z"}, {"ts": "2020-01-01T24:00:00Z"}, {"ts": "2020-01-01T12:00:60Z"},
    {"status": 127}, {"status": 128}, {"status": -129}, {"n": 2**53}, {"n": 2**53 + 1}, {"n": -(2**63)},
    {"n": 2**63 - 1}, {"n": None}, {"at": "no time"}, {"at": None}, {"at": "2020-01-01T12:00:00+01:00"}, {"ip": None},
    {"ip": ["a"]}, {"ip": {"a": 1}}, {"ok": None}, {"ok": 1}, {"ok": "true"}, {"status": 0.5},
    {"status": True}, {"status": 2**70},
]  # fmt: skip

INSTANTS = {
    "messageId": "e",
    "timestamp": NOON_US // 1000,
    "ms": NOON_US // 1000,
    "sentAt": NOON,
    "n": 1,
    "status": 100,
}
INSTANTS_KINDS = pa.schema([*DEFAULT, ("ms", DEFAULT.field("ts").type), ("messageId", pa.string())])
NO_PLAIN_INSTANTS: list[object] = [
    None, 0, -1, 10**8, 10**8 - 1, 1 - 10**8, -(10**8), 10**11, -(10**11), 10**14, 10**17 - 1, 10**17, 2**63 - 1,
    -(2**63), -62_135_596_800, -62_135_596_801, 99_999_999_999, 1_577_880_000.5, NOON, True,
]  # fmt: skip
NEED_ANOTHER_LOOK: list[dict[str, object]] = [
    {"messageId": None}, {"messageId": ""}, {"messageId": 7}, {"messageId": "x" * 1025}, {"event_id": "own"},
    *({name: found} for name, found in product(("timestamp", "ms"), NO_PLAIN_INSTANTS)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("usual", "schemas", "odd"),
    [
        *((WIDE, (DEFAULT, KINDS), odd) for odd in NEED_A_LOOK),
        *((INSTANTS, (DEFAULT, INSTANTS_KINDS), odd) for odd in NEED_ANOTHER_LOOK),
    ],
)
def test_values_that_need_a_look_are_looked_at_alone(
    usual: dict[str, object], schemas: tuple[pa.Schema, ...], odd: dict[str, object]
) -> None:
    own_id = next(iter(usual))
    for schema, every in product(schemas, (300, 100, 9, 3)):
        lines = [orjson.dumps(usual | {own_id: f"e{number}"}) for number in range(300)]
        for number in range(every // 2, 300, every):
            changed = usual | {own_id: f"e{number}"} | odd
            lines[number] = json.dumps(changed, separators=(",", ":"), ensure_ascii=False).encode()
        body = b"\n".join(lines)
        with patch("alluvia.events.ingest.columnar_batch.parse_columns", lambda *_: None):
            careful = made(body, schema, NO_FIELDS, Limits())
        with patch("alluvia.events.ingest.event_rows._of_events", wraps=_of_events) as looked_at:
            assert made(body, schema, NO_FIELDS, Limits()) == careful
        assert every == 3 or sum(len(call.args[0]) for call in looked_at.mock_calls) <= 300 // every + 1


NUMBERS = st.floats().map(repr) | st.floats(-1e6, 1e6).map(repr) | st.decimals(-(10**16), 10**16, places=3).map(str)


def of_number(number: int, text: str) -> bytes:
    return b'{"event_id":"e%d","n":%s}' % (number, text.encode())


@given(st.lists(NUMBERS | st.integers().map(str) | st.text("0123456789.-+eE xinfa", max_size=8), min_size=1))
def test_numbers_that_are_kept_have_the_value_that_was_sent(texts: list[str]) -> None:
    usual = [of_number(number, "0.5") for number in range(len(texts) * 4 + 64)]
    found = parsed([*usual, *(of_number(len(usual) + at, text) for at, text in enumerate(texts))])
    assert found is not None
    kept = [at for at in range(found.size) if at not in found.odd]
    for at, number in zip(kept, found.columns.texts({("n",): ("n",)}).to_pylist(), strict=True):
        text = "0.5" if at < len(usual) else texts[at - len(usual)].strip()
        assert number == '{"n":' + orjson.dumps(orjson.loads(text)).decode() + "}"
        assert Decimal(number[5:-1]) == Decimal(text)


@given(st.integers(-(10**9), 10**9), st.integers(0, 4))
def test_usual_numbers_are_kept(value: int, decimals: int) -> None:
    texts = [str(value), str(value / 10**decimals), "0.5"]
    found = parsed([of_number(number, texts[number % 3]) for number in range(300)])
    assert found is not None
    assert (found.odd, found.columns.columns["n",].cast(pa.string()).to_pylist()[:3]) == ({}, texts)


@pytest.mark.parametrize(
    "declared", [pa.float64(), pa.float32(), pa.int64(), pa.decimal128(20, 2), pa.string(), pa.binary()]
)
def test_numbers_with_fractions_fill_columns_of_each_type(declared: pa.DataType) -> None:
    sent = [line(number, n=[0.25, number, 7.0, number / 3, -1.5][number % 5]) for number in range(300)]
    sent[7] = line(7).replace(b"-7", b"9007199254740993")
    schema, body = pa.schema([*DEFAULT, ("n", declared)]), b"\n".join(sent)
    with patch("alluvia.events.ingest.columnar_batch.parse_columns", lambda *_: None):
        careful = made(body, schema, NO_FIELDS, Limits())
    assert made(body, schema, NO_FIELDS, Limits()) == careful
    found = parsed(sent)
    assert found is not None
    assert found.odd == {7: sent[7]}
