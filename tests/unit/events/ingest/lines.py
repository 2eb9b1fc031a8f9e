"""Lines of events of many shapes, and what is made of them by columns and otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
from hypothesis import strategies as st

from alluvia.events.ingest.columnar_parser import ParsedLines, parse_columns
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.event_rows import to_rows
from alluvia.events.ingest.values import Fields, Limits, Split
from tests.unit.events.ingest.rows import ANY_TYPE, ARRIVAL_US, DEFAULT, NOON, NOON_US, TYPED

NDJSON = "application/x-ndjson"
BASE: dict[str, object] = {
    "event_id": "e", "ts": NOON, "event": "click", "ip": "1.2.3.4", "user": None, "status": 200, "ok": True, "n": -7,
}  # fmt: skip


def taken_apart(body: bytes, limits: Limits = Limits()) -> Split:  # noqa: B008 - it never changes
    return split(body, content_type=NDJSON, content_encoding=None, limits=limits)


def made(body: bytes, schema: pa.Schema, fields: Fields, limits: Limits) -> tuple[Any, ...]:
    found = taken_apart(body, limits)
    rows = to_rows(
        found.events, schema, arrival_us=ARRIVAL_US, idempotency_key="key", new_id=lambda: "new", fields=fields
    )
    rows.table.validate(full=True)
    whole = (list(rows.refused), list(rows.taken), list(rows.contents), rows.rejects, rows.odd_times)
    return (rows.table.to_pylist(), rows.table.schema, *whole, list(found.events), found.rejects, found.too_large)


def parsed(lines: list[bytes]) -> ParsedLines | None:
    text = b"\n".join(lines)
    return parse_columns(text)


def line(number: int, **changes: object) -> bytes:
    return orjson.dumps({**BASE, "event_id": f"e{number}"} | changes)


def with_message_id(sent: bytes) -> bytes:
    """Return a line as Segment's libraries write it."""
    return sent.replace(b'"event_id"', b'"messageId"').replace(b'"ip":"1.2.3.4"', b'"sentAt":"%d"' % hash(sent))


def spaced(compact: bytes) -> bytes:
    """Return a line as Python's json module writes it."""
    return json.dumps(orjson.loads(compact), ensure_ascii=False).encode()


TEXTS = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    [
        NOON,
        "2020-01-01T12:00:00",
        "2020-02-30T00:00:00Z",
        "",
        '"',
        "\\",
        'x","n":1,"y":"',
        "\\\\",
        "\u2028",
        "é",
        "a" * 1025,
    ]
)
VALUES = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXTS | st.sampled_from([[], {"a": 1}])
)
STRANGE = st.one_of(
    st.tuples(st.sampled_from([*BASE, "properties", "messageId", "time", "sentAt", "other"]), VALUES).map(
        lambda pair: json.dumps(BASE | {"event_id": "s", pair[0]: pair[1]}, separators=(",", ":")).encode()
    ),
    st.tuples(st.sampled_from([*BASE]), TEXTS).map(
        lambda pair: json.dumps(BASE | {"event_id": "s", pair[0]: pair[1]}, ensure_ascii=False).encode()
    ),
    st.permutations([*BASE]).map(lambda names: orjson.dumps({name: BASE[name] for name in names[1:]})),
    st.tuples(st.integers(0, 100), st.sampled_from([bytes([code]) for code in b'"\\ \t\x00\x1f\xff0-,}'])).map(
        lambda edit: line(0)[: edit[0]] + edit[1] + line(0)[edit[0] :]
    ),
    st.sampled_from([
        line(1)[:-1] + b',"n":-7}', line(1)[:-1] + b',"event":"click"}', line(1).replace(b"-7", b"-0"), b"{}",
        b"5", b"", line(1).replace(b"200", b"200.0"), line(1).replace(b"-7", b"1.10"), line(1).replace(b"-7", b"-0.5"),
        line(1).replace(b"-7", b"0.1234567890123456789"), line(1).replace(b"-7", b"01.5"),
        line(1).replace(b"200", b"2e2"), line(1).replace(b"200", b"NaN"),
        line(1).replace(b"click", b"cl\\u0069ck"), line(1).replace(b'"ts"', b'"t\\u0073"'), line(1) + line(2),
        line(1).replace(b"200", b"9223372036854775807"), line(1).replace(b"200", b"9223372036854775808"),
        line(1) + b"\r", b" " + line(1), line(1)[:-1], line(1).replace(b"click", b"\xed\xa0\x80"),
        line(1).replace(b"click", b":null,"), line(1).replace(b'"click"', b'"\0\0"'), line(1).replace(b"-7", b"null"),
        line(1).replace(b"click", b"c\\nd"), line(1).replace(b"click", b"c\td"), spaced(line(1)),
    ]),
)  # fmt: skip
EVERY_SCHEMA = [
    DEFAULT, TYPED, ANY_TYPE, pa.schema([field for field in ANY_TYPE if field.name != "properties"]),
    pa.schema([*DEFAULT, ("user", pa.int32()), ("n", pa.int8()), ("status", pa.float64()), ("ok", pa.bool_())]),
    pa.schema([*DEFAULT.remove(4), ("z", pa.int64())]),
    pa.schema([*DEFAULT, ("z", pa.int64()), ("at", pa.int64()), ("plan", pa.string()), ("e", pa.bool_())]),
    pa.schema([*DEFAULT, pa.field("user", pa.string(), nullable=False)]), pa.schema(DEFAULT).remove(1),
    pa.schema([("event_id", pa.string()), *((name, pa.string()) for name in ("ts", "event", "ip", "user")),
               ("status", pa.int16()), ("ok", pa.bool_()), ("n", pa.int64()), ("received_at", pa.string())]),
]  # fmt: skip
SCHEMAS = st.sampled_from(EVERY_SCHEMA)
REJECTING = Fields(unreadable_time="reject", future_time="reject")
MOVING = Fields(future_time="arrival")
SHAPES: list[Callable[[int], bytes]] = [
    line,
    lambda at: spaced(line(at)),
    lambda at: line(at, user="u" if at % 2 else None),
    lambda at: line(at) + b"\r",
    lambda at: with_message_id(line(at)),
    lambda at: line(at, ts=NOON_US // 1000 + at),
    lambda at: line(at, ts=at * 10 ** (at % 19) % 2**63),
    lambda at: line(at).replace(b'"ts":', b'"time":'),
    lambda at: line(at, n=[0.5, at, 1e-4, at / 7, 5.0, 0.1 + 0.2, -0.0, 1e15, at * 1e9 + 0.1][at % 9]),
    lambda at: line(at, ip={"n": {"a": at, "b": None}}, ok={"z": "x", "a": at / 4, "e": {"e": True}}),
    lambda at: line(at, ip={"n": None if at % 2 else "x"}, ok={"z": None if at % 3 else 5}, n={"x": "x"}),
    lambda at: spaced(line(at, properties={"plan": "pro", "n": at, "ip": {"user": {"z": at, "a": "é"}}})).replace(
        b"ip", b"IP"
    ),
    lambda at: line(at, properties={"z": at, "status": at, "user": "u"}).replace(b'"user":null,', b""),
    lambda at: line(at, properties=None),
    lambda at: line(at, properties=None if at % 2 else "text"),
    lambda at: line(at, properties={"user": 5}),
    lambda at: line(at, properties={"status": 5, "n": "clash"}),
    lambda at: orjson.dumps({"properties": {"event": "a", "source": "b", "at": at}, "event_id": f"e{at}", "ts": NOON}),
    lambda at: orjson.dumps({"properties": {"z": at}, "event_id": f"e{at}", "ts": NOON}),
    lambda at: orjson.dumps({"event_id": {"a": 1}, "messageId": f"e{at}", "ts": NOON}),
    lambda at: line(at, ts={"a": at}),
    lambda at: line(at, ts={"a": at}, timestamp=NOON),
    lambda at: line(at, time={"a": at}),
    lambda at: line(at, messageId={"a": "b"}),
    lambda at: line(at, ts="yesterday" if at % 3 else "2999-01-01T00:00:00Z"),
    lambda at: line(at, ts="Wed, 01 Jan 2020 12:00:00 GMT" if at % 3 else NOON_US * 1000 + at),
    lambda at: line(at, ts=at * 9**at % 2**63, n=None).replace(b'"ts":', b'"timestamp":'),
]
