"""Events to rows of a table: the value of each column, and rejects with their identities."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from alluvia.errors import Invalid
from alluvia.events.ingest.event_rows import to_rows
from alluvia.events.ingest.values import Fields, Origin, RawEvent
from tests.unit.events.ingest.rows import (
    ARRIVAL_US,
    DEFAULT,
    HEAD,
    MOMENT,
    NAMES,
    NOON,
    NOON_US,
    TAIL,
    TYPED,
    row,
    rows_of,
)

CLOUD_EVENT: dict[str, object] = {"specversion": "1.0", "type": "t", "source": "/s", "id": "A234"}


def reason(value: dict[str, object], schema: pa.Schema = DEFAULT) -> str:
    rows = rows_of(value, schema=schema)
    assert len(rows.table) == 0
    [reject] = rows.rejects
    return reject.reason


def test_every_default_column() -> None:
    assert row(
        {"event_id": 7, "ts": 1_600_000_000, "event": "click", "source": "web", "x": [1, {"y": None}], "a": "ü"}
    ) == {
        "event_id": "7",
        "ts": 1_600_000_000_000_000,
        "event": "click",
        "source": "web",
        "properties": '{"x":[1,{"y":null}],"a":"ü"}',
        "received_at": ARRIVAL_US,
    }
    assert row({}) == {
        "event_id": "new-0", "ts": ARRIVAL_US, "event": None, "source": None, "properties": None,
        "received_at": ARRIVAL_US,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "event_id", "properties"),
    [
        ({"event_id": "a", "id": "b", "messageId": "c"}, "a", '{"id":"b","messageId":"c"}'),
        ({"event_id": None, "id": "b", "messageId": "c"}, "c", '{"id":"b"}'),
        ({"event_id": "", "messageId": "c"}, "c", '{"event_id":""}'),
        ({"event_id": 12345678901234567890}, "12345678901234567890", None),
        ({"messageId": 1.5}, "1.5", None),
        ({"messageId": "", "event_id": None}, "new-0", '{"messageId":""}'),
        ({"event_id": "x" * 1024}, "x" * 1024, None),
        ({"id": "order 42"}, "new-0", '{"id":"order 42"}'),
        ({"id": {"any": "thing"}}, "new-0", '{"id":{"any":"thing"}}'),
        (CLOUD_EVENT, "A234", '{"specversion":"1.0","type":"t"}'),
        (CLOUD_EVENT | {"event_id": "own"}, "own", '{"specversion":"1.0","type":"t","id":"A234"}'),
        (CLOUD_EVENT | {"source": ""}, "new-0", '{"specversion":"1.0","type":"t","id":"A234"}'),
        (CLOUD_EVENT | {"id": ""}, "new-0", '{"specversion":"1.0","type":"t","id":""}'),
        ({"specversion": "1.0", "id": "A234"}, "new-0", '{"specversion":"1.0","id":"A234"}'),
    ],
)
def test_the_id_of_an_event(value: dict[str, object], event_id: str, properties: str | None) -> None:
    found = row(value)
    assert (found["event_id"], found["properties"]) == (event_id, properties)
    beside = rows_of({"event_id": 1}, value, {}).table["event_id"].to_pylist()
    assert beside == ["1", event_id, "new-1" if event_id == "new-0" else "new-0"]


@pytest.mark.parametrize(
    ("value", "event_id"),
    [
        ({"data": {"order": {"id": "o-1"}}, "event_id": "a"}, "o-1"),
        ({"data": {"order": {"id": 7}}}, "7"),
        ({"data": {"order": {"id": None}}, "event_id": "a"}, "a"),
        ({"data": {"order": {"id": ""}}, "messageId": "m"}, "m"),
        ({"data": {"order": [1]}}, "new-0"),
        ({"data": "text"}, "new-0"),
        ({"data.order.id": "flat"}, "new-0"),
    ],
)
def test_the_id_field_of_a_table_comes_first_and_stays_data(value: dict[str, object], event_id: str) -> None:
    fields = Fields(id_path=("data", "order", "id"))
    for others in ((), ({"data": {"order": {"id": "other"}}},)):
        rows = rows_of(value, *others, fields=fields)
        assert rows.table["event_id"][0].as_py() == event_id
        kept = json.loads(rows.table["properties"][0].as_py())
        taken = next((name for name in ("event_id", "messageId") if value.get(name) == event_id), None)
        assert kept == {name: sent for name, sent in value.items() if name != taken}
    [reject] = rows_of({"data": {"order": {"id": [1]}}}, fields=fields).rejects
    assert reject.reason == "data.order.id: expected a string or a number that identifies the event"


@pytest.mark.parametrize("bad", [True, {"a": 1}, ["x"], "x" * 1025])
def test_an_id_that_identifies_nothing_is_a_reject(bad: object) -> None:
    assert reason({"event_id": bad}).startswith("event_id: ")


def test_ids_from_the_idempotency_key() -> None:
    rows = rows_of({"event_id": "own"}, {}, {"x": 1}, key="req")
    assert rows.table["event_id"].to_pylist() == ["own", "req/1", "req/2"]


def test_what_the_queue_fixed_is_kept() -> None:
    origin = Origin(5, "earlier")
    events = [
        RawEvent(3, {}, origin=origin),
        RawEvent(4, {}, origin=Origin(6), fallback_id="fixed"),
        RawEvent(5, {"event_id": "own"}, origin=Origin(7), fallback_id="fixed"),
        RawEvent(6, {}),
    ]
    rows = to_rows(events, DEFAULT, arrival_us=9, idempotency_key="now", new_id=lambda: "never")
    assert rows.table["event_id"].to_pylist() == ["earlier/3", "fixed", "own", "now/6"]
    assert rows.table["received_at"].cast(pa.int64()).to_pylist() == [5, 6, 7, 9]
    assert rows.table["ts"].equals(rows.table["received_at"])


@pytest.mark.parametrize(
    ("ts", "expected", "kept"),
    [
        ("2020-01-01T12:00:00Z", 1_577_880_000_000_000, None),
        ("2020-01-01T12:00:00", 1_577_880_000_000_000, None),
        (None, ARRIVAL_US, None),
        ("next week", ARRIVAL_US, '{"ts":"next week"}'),
        ({"at": 1}, ARRIVAL_US, '{"ts":{"at":1}}'),
        (True, ARRIVAL_US, '{"ts":true}'),
        ("11/12/2026", ARRIVAL_US, '{"ts":"11/12/2026"}'),
        (10**18, 10**15, None),
        (10**18 + 1, 10**15, '{"ts":1000000000000000001}'),
        ("2020-01-01T12:00:00.000000001Z", 1_577_880_000_000_000, '{"ts":"2020-01-01T12:00:00.000000001Z"}'),
    ],
)
def test_the_time_of_an_event(ts: object, expected: int, kept: str | None) -> None:
    found = row({"ts": ts})
    assert (found["ts"], found["properties"]) == (expected, kept)


@pytest.mark.parametrize(
    ("value", "expected", "kept"),
    [
        ({"timestamp": NOON}, NOON_US, None),
        ({"@timestamp": NOON}, NOON_US, None),
        ({"time": NOON}, NOON_US, None),
        ({"timestamp": NOON_US // 10**6}, NOON_US, None),
        ({"time": NOON_US // 1000}, NOON_US, None),
        ({"ts": NOON, "timestamp": "2021-01-01", "time": "soon"}, NOON_US, {"timestamp": "2021-01-01", "time": "soon"}),
        ({"ts": None, "timestamp": NOON}, NOON_US, None),
        ({"ts": "noon", "timestamp": NOON}, NOON_US, {"ts": "noon"}),
        ({"timestamp": "noon", "@timestamp": NOON, "time": 5}, NOON_US, {"timestamp": "noon", "time": 5}),
        ({"timestamp": f"{NOON[:-1]}.0000001Z"}, NOON_US, {"timestamp": f"{NOON[:-1]}.0000001Z"}),
        ({"time": 35}, ARRIVAL_US, {"time": 35}),
        ({"time": 0.25}, ARRIVAL_US, {"time": 0.25}),
        ({"timestamp": None}, ARRIVAL_US, {"timestamp": None}),
        ({"ts": 35}, 35_000_000, None),
    ],
)
def test_the_time_under_its_usual_names(value: dict[str, object], expected: int, kept: object) -> None:
    plain: dict[str, object] = {"ts": NOON}
    for others in ((), (plain,), ({"timestamp": NOON},), ({"time": NOON},), ({},)):
        table = rows_of(value, *others).table
        assert table["ts"].cast(pa.int64())[0].as_py() == expected
        properties = table["properties"][0].as_py()
        assert (None if properties is None else json.loads(properties)) == kept


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"data": {"at": NOON}, "ts": "2021-01-01"}, NOON_US),
        ({"data": {"at": 35}}, 35_000_000),
        ({"data": {"at": "noon"}, "time": NOON}, NOON_US),
        ({"data": {}, "ts": NOON}, NOON_US),
        ({"data": {"at": {}}}, ARRIVAL_US),
    ],
)
def test_the_time_field_of_a_table_comes_first_and_stays_data(value: dict[str, object], expected: int) -> None:
    for others in ((), ({"data": {"at": NOON}},), ({"ts": NOON},)):
        table = rows_of(value, *others, fields=Fields(time_path=("data", "at"))).table
        assert table["ts"].cast(pa.int64())[0].as_py() == expected
        kept = json.loads(table["properties"][0].as_py())
        assert kept["data"] == value["data"]
        assert ("ts" in kept) == (value.get("ts") == "2021-01-01")


def test_a_declared_column_with_the_name_of_a_time_is_filled_too() -> None:
    schema = pa.schema([*HEAD, ("timestamp", pa.string()), ("time", pa.int64()), *TAIL])
    found = row({"timestamp": NOON, "time": 35}, schema)
    assert (found["ts"], found["timestamp"], found["time"], found["properties"]) == (NOON_US, NOON, 35, None)
    others: list[dict[str, object]] = [{}, {"timestamp": NOON}]
    for other in others:
        table = rows_of({"timestamp": NOON}, other, schema=schema).table
        assert (table["ts"].cast(pa.int64())[0].as_py(), table["timestamp"][0].as_py()) == (NOON_US, NOON)
    both = row({"time": NOON_US // 1000}, schema)
    assert (both["ts"], both["time"]) == (NOON_US, NOON_US // 1000)


@pytest.mark.parametrize(
    ("value", "properties"),
    [
        ({"properties": {"b": 1, "a": 2}, "c": 3}, '{"b":1,"a":2,"c":3}'),
        ({"c": 3, "properties": {}}, '{"c":3}'),
        ({"properties": {}}, "{}"),
        ({"properties": None}, None),
        ({"properties": "text", "c": 3}, '{"properties":"text","c":3}'),
        ({"properties": [1]}, '{"properties":[1]}'),
        ({"properties": {"properties": 1}}, '{"properties":1}'),
        ({"properties": {"a": 1}, "a": 2, "c": 3}, '{"a":1,"c":3,"_event":{"a":2}}'),
        (
            {"properties": {"a": 1, "_event": 5}, "a": 2, "__event": 6},
            '{"a":1,"_event":5,"__event":6,"___event":{"a":2}}',
        ),
        ({"properties": {"ts": "sent"}, "ts": "never"}, '{"ts":"sent","_event":{"ts":"never"}}'),
        ({"received_at": "mine", "properties": {"event": 5}}, '{"event":5,"received_at":"mine"}'),
    ],
)
def test_properties_lose_nothing(value: dict[str, object], properties: str | None) -> None:
    assert row(value)["properties"] == properties


def test_declared_columns_beside_the_rest() -> None:
    found = row({"event_id": "e1", "id": "o1", "status": 200, "score": 1, "tags": ["a"], "other": 1}, TYPED)
    assert (found["event_id"], found["id"]) == ("e1", "o1")
    assert row(CLOUD_EVENT, TYPED)["id"] == "A234"
    assert (found["status"], found["score"], found["tags"], found["properties"]) == (200, 1.0, ["a"], '{"other":1}')


def test_a_reject_names_every_field_and_keeps_the_bytes() -> None:
    sent = b'{ "event_id": "e1", "event": 5, "status": "abc", "score": 1 }'
    rows = rows_of(json.loads(sent), schema=TYPED, raws=[sent])
    [reject] = rows.rejects
    assert reject.reason == "event: expected a string, got a number; status: expected a number (long), got a string"
    assert (reject.position, reject.raw) == (0, sent)
    assert str(reject.event_id).startswith("e1#")


def test_the_others_stay_in_order() -> None:
    rows = rows_of(
        {"event_id": "a"}, {"event_id": "b", "event": 1}, {"event_id": "c"}, {"event_id": {}}, {"event_id": "d"}
    )
    assert rows.table["event_id"].to_pylist() == ["a", "c", "d"]
    assert [reject.position for reject in rows.rejects] == [1, 3]
    assert rows.rejects[0].raw == b'{"event_id":"b","event":1}'


def test_the_identity_of_a_reject_without_an_id_is_the_same_on_a_retry() -> None:
    first, second, third = (
        [reject.event_id for reject in rows_of({"event": 1}, {"event": 2}, {"event": 1}, key=key).rejects]
        for key in (None, None, "k")
    )
    assert first == second
    assert len({*first, *third}) == 6


def test_the_identity_of_a_reject_is_its_id_and_content_however_written() -> None:
    texts = [
        '{"event_id":"a","event":1,"x":2}',
        '{ "x": 2, "event": 1, "event_id": "a" }',
        '{"event_id":"a","event":2}',
    ]
    sent = [json.loads(text) for text in texts]
    one, same, other = (each.event_id for each in rows_of(*sent, raws=[text.encode() for text in texts]).rejects)
    assert one == same != other
    assert {str(each).partition("#")[0] for each in (one, other)} == {"a"}
    unnamed: list[dict[str, object]] = [{"event": 1, "x": 2}, {"x": 2, "event": 1}]
    first, second = (rows_of(value, raws=[json.dumps(value).encode()]).rejects[0].event_id for value in unnamed)
    assert first == second


def test_tables_without_properties_refuse_unknown_fields() -> None:
    schema = pa.schema([*HEAD, *NAMES])
    assert row({"messageId": "a", "event_id": None, "event": "x"}, schema)["event_id"] == "a"
    assert reason({"event_id": "a", "surprise": 1}, schema).startswith("surprise: the table has no such column")
    assert reason({"event_id": "a", "ts": "never"}, schema).startswith("ts: no moment")
    assert reason({"event_id": "a", "properties": {}}, schema).startswith("properties: the table has no such column")


def test_columns_of_other_types_than_the_default() -> None:
    kinds = {
        "event_id": pa.string(),
        "ts": pa.string(),
        "received_at": pa.int64(),
        "properties": pa.map_(pa.string(), pa.int64()),
    }
    schema = pa.schema(list(kinds.items()))
    found = row({"event_id": "a", "ts": "whenever", "received_at": 3, "properties": {"x": 1}}, schema)
    assert found == {"event_id": "a", "ts": "whenever", "received_at": 3, "properties": [("x", 1)]}
    naive = pa.schema([("event_id", pa.string()), ("ts", pa.timestamp("us"))])
    for sent in ("2020-01-01T12:00:00Z", 1_577_880_000):
        moments = rows_of({"event_id": "a", "ts": sent}, schema=naive).table["ts"].cast(pa.int64())
        assert moments.to_pylist() == [1_577_880_000_000_000]


def test_required_columns() -> None:
    schema = pa.schema([*HEAD, pa.field("user", pa.string(), nullable=False),
                        pa.field("properties", pa.string(), nullable=False)])  # fmt: skip
    assert row({"event_id": "a", "user": "u", "x": 1}, schema)["user"] == "u"
    assert reason({"event_id": "a", "x": 1}, schema) == "user: required, but missing or null"
    assert reason({"event_id": "a", "user": "u"}, schema) == "properties: required, but missing or null"


@pytest.mark.parametrize("fields", [[("ts", MOMENT)], [("event_id", pa.int64())]])
def test_a_table_without_an_event_id(fields: list[tuple[str, pa.DataType]]) -> None:
    with pytest.raises(Invalid, match="no column event_id of type string"):
        rows_of({}, schema=pa.schema(fields))


def test_no_events() -> None:
    assert len(rows_of().table) == 0
