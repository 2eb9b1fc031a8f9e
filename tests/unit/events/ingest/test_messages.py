"""Events through a queue: what comes out makes the rows that would have been made at once."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.errors import Invalid
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.event_rows import to_rows
from alluvia.events.ingest.identity import contents_of
from alluvia.events.ingest.messages import LIMIT_BYTES, batches, pack, unpack
from alluvia.events.ingest.values import Given, Limits, Origin, RawEvent
from alluvia.json_values.jsontext import ExactNumber

SCHEMA = pa.schema(
    [
        ("event_id", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("event", pa.string()),
        ("properties", pa.string()),
        ("received_at", pa.timestamp("us", "UTC")),
    ]
)


def numbered() -> Any:
    numbers = count()
    return lambda: f"new-{next(numbers)}"


def events_of(body: str) -> list[RawEvent]:
    return list(split(body.encode(), content_type=None, content_encoding=None, limits=Limits()).events)


def rows(events: list[RawEvent], key: str | None, arrival_us: int) -> list[dict[str, Any]]:
    found = to_rows(events, SCHEMA, arrival_us=arrival_us, idempotency_key=key, new_id=numbered())
    assert found.rejects == []
    return [dict(row) for row in found.table.to_pylist()]


TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
VALUE = st.recursive(
    TEXT | st.integers(-(2**70), 2**70) | st.none(), lambda inner: st.lists(inner, max_size=2), max_leaves=3
)
EVENT = st.dictionaries(TEXT | st.sampled_from(["event_id", "id", "x"]), VALUE, max_size=3).filter(
    lambda event: not isinstance(event.get("event_id"), list) and isinstance(event.get("event", ""), str)
)


GIVEN = st.none() | st.builds(
    Given, st.none() | TEXT, st.none() | st.integers(0, 10**15), st.none() | TEXT, st.none() | TEXT,
    st.lists(st.sampled_from(["x", "id"]), max_size=2).map(tuple),
)  # fmt: skip


@given(
    st.lists(st.tuples(EVENT, GIVEN), min_size=1, max_size=5),
    st.sampled_from([None, "key \ufffe/1"]),
    st.integers(400, 800),
)
def test_the_same_rows_come_out_however_often(
    sent: list[tuple[dict[str, Any], Given | None]], key: str | None, limit_bytes: int
) -> None:
    events = events_of(json.dumps([event for event, _ in sent], ensure_ascii=False))
    events = [event._replace(given=said) for event, (_, said) in zip(events, sent, strict=True)]
    packed = pack("clicks", events, Origin(7, key), numbered(), limit_bytes)
    assert packed.rejects == []
    assert all(len(message) <= limit_bytes for message in packed.messages)
    for _ in range(2):
        received = [unpack(message.decode()) for message in packed.messages]
        assert {message.table for message in received} == {"clicks"}
        after = [event for message in received for event in message.events]
        assert contents_of(after) == contents_of(events)
        assert rows(after, "another", 9) == rows(events, key, 7)


def test_only_messages_with_what_requests_say_have_the_new_format() -> None:
    """Readers of an earlier release would lose it: they leave such a message to others."""
    plain, said = RawEvent(0, {"event_id": "a"}), RawEvent(1, {"event_id": "b"}, given=Given("c"))
    heads = [
        json.loads(pack("t", events, Origin(1), numbered()).messages[0].split(b"\n")[0])
        for events in ([plain], [plain, said])
    ]
    assert [(head["format"], head.get("given")) for head in heads] == [
        (1, None),
        (2, [None, ["c", None, None, None, [], False]]),
    ]


def test_what_xml_cannot_hold_is_escaped() -> None:
    events = events_of('{"event_id": "a\uffff", "x": "\ufffe\u007f\\t"}')
    [message] = pack("t", events, Origin(1, "\uffff"), numbered()).messages
    text = message.decode()
    assert not set(text) & {"\ufffe", "\uffff"}
    [event] = unpack(text).events
    assert event.value == {"event_id": "a\uffff", "x": "\ufffe\u007f\t"}


def test_an_event_on_many_lines_becomes_one_line() -> None:
    [message] = pack(
        "t", events_of('{\n "event_id": "a",\r\n "n": 18446744073709551616\n}'), Origin(1), numbered()
    ).messages
    assert message.split(b"\n")[1:] == [b'{"event_id":"a","n":18446744073709551616}']
    assert unpack(message.decode()).events[0].value["n"] == ExactNumber("18446744073709551616")


def test_the_deepest_event_comes_through() -> None:
    deep = '{"a":' * 252 + "{}" + "}" * 252
    [message] = pack("t", events_of(deep), Origin(1), numbered()).messages
    assert len(unpack(message.decode()).events) == 1


def test_an_event_that_no_message_holds_is_a_reject() -> None:
    body = '[{"event_id": "big", "x": "' + "y" * 400 + '"}, {"event_id": "small"}]'
    packed = pack("t", events_of(body), Origin(1), numbered(), 400)
    assert [event.value["event_id"] for event in unpack(packed.messages[0].decode()).events] == ["small"]
    [reject] = packed.rejects
    assert (reject.position, len(packed.messages)) == (0, 1)
    assert str(reject.event_id).startswith("big#")
    assert json.loads(reject.raw)["x"] == "y" * 400


@given(st.lists(st.integers(1, 60), max_size=40))
def test_batches_fit_a_call(sizes: list[int]) -> None:
    messages = [b"x" * size for size in sizes]
    groups = list(batches(messages, 100))
    assert [message for group in groups for message in group] == messages
    assert all(1 <= len(group) <= 10 and sum(map(len, group)) <= 100 for group in groups)


def test_the_limit_leaves_room_below_what_sqs_takes() -> None:
    assert LIMIT_BYTES < 1024 * 1024 - 1024


@pytest.mark.parametrize(
    ("line", "key", "expected"),
    [
        ('{"id":7}', None, "7"),
        ('{"id":"a","messageId":"m"}', None, "m"),
        ('{"id":"a"}', "k", "a"),
    ],
)
def test_a_message_of_an_earlier_release_keeps_its_ids(line: str, key: str | None, expected: str) -> None:
    """Then a bare `id` was an identity, so that such events were given none."""
    [event] = unpack(json.dumps(HEAD | {"idempotency_key": key}) + "\n" + line).events
    for _ in range(2):
        assert rows([event], None, 9)[0]["event_id"] == expected


HEAD = {"format": 1, "table": "t", "arrival_us": 1, "idempotency_key": None, "positions": [0], "ids": [None]}


@pytest.mark.parametrize(
    "body",
    [
        "",
        "hello",
        "[]",
        "{}",
        "\ud800",
        json.dumps(HEAD | {"format": 3}) + '\n{"a":1}',
        json.dumps(HEAD | {"format": 2}) + '\n{"a":1}',
        json.dumps(HEAD | {"format": 2, "given": []}) + '\n{"a":1}',
        json.dumps(HEAD | {"format": 2, "given": [["a", 1, "b", "c"]]}) + '\n{"a":1}',
        json.dumps(HEAD | {"format": 2, "given": [[5, 1, "b", "c", []]]}) + '\n{"a":1}',
        json.dumps(HEAD | {"format": 2, "given": [["a", 2**63, "b", "c", []]]}) + '\n{"a":1}',
        json.dumps(HEAD | {"format": 2, "given": [["a", 1, "b", "c", [5]]]}) + '\n{"a":1}',
        json.dumps(HEAD | {"format": 2, "given": [["a", 1, "b", "c", "d"]]}) + '\n{"a":1}',
        json.dumps(HEAD),
        json.dumps(HEAD) + '\n{"a":1}\n{"a":2}',
        json.dumps(HEAD) + '\n{"a":',
        json.dumps(HEAD) + "\n5",
        json.dumps(HEAD | {"ids": []}) + '\n{"a":1}',
        json.dumps(HEAD | {"positions": 5}) + '\n{"a":1}',
        json.dumps(HEAD | {"positions": ["x"]}) + '\n{"a":1}',
        json.dumps(HEAD | {"ids": [5]}) + '\n{"a":1}',
        json.dumps(HEAD | {"table": 5}) + '\n{"a":1}',
        json.dumps(HEAD | {"arrival_us": "now"}) + '\n{"a":1}',
        json.dumps(HEAD | {"arrival_us": 2**63}) + '\n{"a":1}',
        json.dumps(HEAD | {"idempotency_key": 5}) + '\n{"a":1}',
    ],
)
def test_a_message_of_another_kind_is_refused(body: str) -> None:
    with pytest.raises(Invalid, match="the message"):
        unpack(body)


def test_that_fields_are_text_survives_the_queue() -> None:
    """Typed columns read text only where the format says that all of it is text."""
    sent = RawEvent(0, {"event_id": "a", "n": "7"}, given=Given(text=True))
    schema = pa.schema([pa.field("event_id", pa.string(), nullable=False), ("n", pa.int64())])
    [message] = pack("t", [sent], Origin(1), numbered()).messages
    for event, rows in (
        (unpack(message.decode()).events[0], [{"event_id": "a", "n": 7}]),
        (sent._replace(given=None), []),
    ):
        made = to_rows([event], schema, arrival_us=1, idempotency_key=None, new_id=numbered())
        assert made.table.to_pylist() == rows
