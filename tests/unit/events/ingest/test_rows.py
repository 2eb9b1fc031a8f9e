"""Events to rows of a table: what every column gets, and that nothing of an event is lost."""

from __future__ import annotations

import gzip
import json
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.errors import Invalid
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.event_rows import to_rows
from alluvia.events.ingest.event_time import instant
from alluvia.events.ingest.identity import contents_of
from alluvia.events.ingest.jsontext import decode_all
from alluvia.events.ingest.values import NO_FIELDS, EventRows, Fields, Given, Limits, Origin, RawEvent

DATA = Path(__file__).parents[4] / "events" / "data"
MOMENT = pa.timestamp("us", "UTC")
HEAD = [pa.field("event_id", pa.string(), nullable=False), pa.field("ts", MOMENT, nullable=False)]
NAMES = [pa.field("event", pa.string()), pa.field("source", pa.string())]
TAIL = [pa.field("properties", pa.string()), pa.field("received_at", MOMENT, nullable=False)]
DEFAULT = pa.schema([*HEAD, *NAMES, *TAIL])
TYPED = pa.schema([
    *HEAD, *NAMES, pa.field("status", pa.int64()), pa.field("score", pa.float64()),
    pa.field("tags", pa.list_(pa.string())), pa.field("id", pa.string()), *TAIL,
])  # fmt: skip
ARRIVAL_US = 1_700_000_000_000_000
NOON, NOON_US = "2020-01-01T12:00:00Z", 1_577_880_000_000_000
CLOUD_EVENT: dict[str, object] = {"specversion": "1.0", "type": "t", "source": "/s", "id": "A234"}


def rows_of(
    *values: dict[str, object],
    schema: pa.Schema = DEFAULT,
    key: str | None = None,
    raws: list[bytes] | None = None,
    fields: Fields = NO_FIELDS,
) -> EventRows:
    events = [RawEvent(at, value, raws[at] if raws else None) for at, value in enumerate(values)]
    ids = (f"new-{at}" for at in count())
    rows = to_rows(events, schema, arrival_us=ARRIVAL_US, idempotency_key=key, new_id=lambda: next(ids), fields=fields)
    assert len(rows.taken) == len(rows.table)
    assert rows.table.schema.equals(schema)
    rows.table.validate(full=True)
    return rows


def row(value: dict[str, object], schema: pa.Schema = DEFAULT) -> dict[str, Any]:
    rows = rows_of(value, schema=schema)
    assert rows.rejects == []
    [found] = rows.table.cast(
        pa.schema([(f.name, pa.int64() if f.type == MOMENT else f.type) for f in schema])
    ).to_pylist()
    return dict(found)


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
        (10**18, ARRIVAL_US, '{"ts":1000000000000000000}'),
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


KEYS = st.sampled_from(["a", "b", "_event", "ts", "time", "timestamp", "id", "event_id", "messageId", "event", "source",
                        "properties", "received_at", "status", "score", "tags", "specversion"])  # fmt: skip
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
SIMPLE = st.none() | st.booleans() | NUMBERS | st.text(st.characters(codec="utf-8"), max_size=4)
VALUES = SIMPLE | st.sampled_from(["2020-01-01T00:00:00Z", 1_577_880_000.5, "e1"]) | st.lists(SIMPLE, max_size=2)
EVENTS = st.dictionaries(KEYS, VALUES | st.dictionaries(KEYS, VALUES, max_size=3), max_size=6)


def exact(value: object) -> object:
    """Make 1, 1.0 and true three different values, however deep."""
    return json.dumps(value)


def assert_recoverable(sent: dict[str, Any], found: dict[str, Any], schema: pa.Schema) -> None:
    """Every field of the event stands in the row: in its column, in properties, or under properties' own `_event`."""
    kept = json.loads(found["properties"] or "{}")
    inner = sent.get("properties")
    inner = inner if isinstance(inner, dict) else {}
    own: dict[str, Any] = next(
        (kept[key] for key in ("____event", "___event", "__event", "_event") if isinstance(kept.get(key), dict)), {}
    )
    cloud = all(isinstance(sent.get(name), str) and sent[name] for name in ("specversion", "id", "source"))
    declared = [name for name in ("event_id", "messageId") if sent.get(name) not in (None, "")]
    id_field = next(iter(declared), "id" if cloud else None)
    for name, value in sent.items():
        in_rest = exact(own.get(name)) if name in inner else exact(kept.get(name))
        if value is None or in_rest == exact(value):
            continue
        if name == id_field:
            assert value == (found["event_id"] if isinstance(value, str) else json.loads(found["event_id"]))
        elif name in ("ts", "timestamp", "time"):
            assert (found["ts"], True) == instant(value)
        elif name == "properties":
            taken = {key for key in inner if key in schema.names and key not in kept}  # by a column
            assert all(found[key] == inner[key] for key in taken)
            assert all(exact(kept[key]) == exact(item) for key, item in inner.items() if key not in taken)
        else:
            assert name in schema.names
            assert name != "received_at"
            assert found[name] == value


@given(st.lists(EVENTS, max_size=4), st.sampled_from([DEFAULT, TYPED]), st.sampled_from(["array", "lines"]))
def test_every_event_is_recoverable_from_its_row_or_its_reject(
    sent: list[dict[str, Any]], schema: pa.Schema, shape: str
) -> None:
    texts = [json.dumps(event) for event in sent]
    body = f"[{','.join(texts)}]" if shape == "array" else "\n".join(texts)
    found = split(body.encode(), content_type="application/x-ndjson", content_encoding=None, limits=Limits())
    ids = (f"new-{at}" for at in count())
    rows = to_rows(found.events, schema, arrival_us=ARRIVAL_US, idempotency_key=None, new_id=lambda: next(ids))
    rejects = {reject.position: reject for reject in (*found.rejects, *rows.rejects)}
    assert len(rows.table) + len(rejects) == len(sent)
    plain = pa.schema([(f.name, pa.int64() if f.type == MOMENT else f.type) for f in schema])
    table = iter(rows.table.cast(plain).to_pylist())
    for position, event in enumerate(sent):
        if position in rejects:
            assert exact(json.loads(rejects[position].raw)) == exact(event)
        else:
            assert_recoverable(event, next(table), schema)


@pytest.mark.parametrize(("name", "events"), [("access_log", 9_999), ("github_webhooks", 255)])
def test_real_events(name: str, events: int) -> None:
    body = (DATA / f"{name}.ndjson.gz").read_bytes()
    found = split(body, content_type="application/x-ndjson", content_encoding="gzip", limits=Limits())
    assert (len(found.events), found.rejects) == (events, [])
    rows = to_rows(found.events, DEFAULT, arrival_us=ARRIVAL_US, idempotency_key=name, new_id=lambda: "never")
    assert rows.rejects == []
    for line, kept in zip(gzip.decompress(body).splitlines(), rows.table.to_pylist(), strict=True):
        event = json.loads(line)
        rest = {field: value for field, value in event.items() if field not in ("event_id", "ts", "event", "source")}
        assert json.loads(kept["properties"]) == rest
        assert kept["event"] == event["event"]
        if "ts" in event:
            assert (kept["event_id"], kept["ts"].isoformat()) == (event["event_id"], event["ts"].replace("Z", "+00:00"))


def test_what_the_request_says_comes_first_and_nothing_is_lost() -> None:
    said = Given("delivery", NOON_US, "push", "github")
    body: dict[str, object] = {"event_id": "own", "ts": "2021-01-01", "event": {"a": 1}, "source": "web", "x": 1}
    found = to_rows(
        [RawEvent(0, body, given=said), RawEvent(1, {"event_id": "b", "ts": NOON, "event": "click"})],
        DEFAULT, arrival_us=ARRIVAL_US, idempotency_key="key", new_id=lambda: "never",
        fields=Fields(("x",), ("x",)),
    )  # fmt: skip
    assert found.rejects == []
    first, second = found.table.drop_columns(["ts", "received_at"]).to_pylist()
    assert first.pop("properties") == '{"event_id":"own","ts":"2021-01-01","event":{"a":1},"source":"web","x":1}'
    assert first == {"event_id": "delivery", "event": "push", "source": "github"}
    assert second == {"event_id": "b", "event": "click", "source": None, "properties": None}
    assert found.table["ts"].cast(pa.int64()).to_pylist() == [NOON_US, NOON_US]


def test_what_the_request_repeats_is_kept_once() -> None:
    body: dict[str, object] = {"event_id": "e", "event": "push", "source": None}
    [found] = rows_given((body, Given("e", None, "push", "github"))).table.to_pylist()
    assert (found["event_id"], found["event"], found["source"], found["properties"]) == ("e", "push", "github", None)


def test_what_the_request_leaves_open_comes_from_the_event() -> None:
    body: dict[str, object] = {"event_id": "e", "ts": NOON, "event": "push", "source": "web"}
    found = rows_given((body, Given()), ({"event_id": "f"}, Given(ts_us=5, event="", event_id=""))).table
    assert found["event_id"].to_pylist() == ["e", "f"]
    assert found["ts"].cast(pa.int64()).to_pylist() == [NOON_US, 5]
    assert found["event"].to_pylist() == ["push", None]
    assert found["properties"].to_pylist() == [None, None]


def test_names_that_no_column_takes_are_kept_in_properties() -> None:
    without = pa.schema([*HEAD, *TAIL])
    rows = rows_given(({"source": "web", "x": 1}, Given("e", None, "push", "github")), schema=without)
    assert rows.table["properties"].to_pylist() == ['{"source":"web","x":1,"event":"push"}']
    strict = pa.schema(HEAD)
    assert rows_given(({}, Given("e", None, "push", "github")), schema=strict).table["event_id"].to_pylist() == ["e"]


def test_the_identity_of_what_the_request_identifies() -> None:
    one: dict[str, object] = {"event_id": "own", "tries": 1}
    two: dict[str, object] = {"event_id": "own", "tries": 2}
    once, again = (RawEvent(0, value, given=Given("g", unstable=("tries",))) for value in (one, two))
    first, second, *others = contents_of([once, again, RawEvent(0, one), RawEvent(0, two)])
    assert first == second != others[0] != others[1]
    said = Given("g", event="x", unstable=("tries",))
    rejects = rows_given(({**one, "ts": "never"}, said), ({**two, "ts": "never"}, said), schema=pa.schema(HEAD)).rejects
    assert len({reject.event_id for reject in rejects}) == 1
    assert str(rejects[0].event_id).startswith("g#")
    [reject] = rows_given(({}, Given("g" * 1025))).rejects
    assert reject.reason == "event_id: the id is longer than 1024 characters"


def rows_given(*sent: tuple[dict[str, object], Given], schema: pa.Schema = DEFAULT) -> EventRows:
    events = [RawEvent(at, value, given=said) for at, (value, said) in enumerate(sent)]
    return to_rows(events, schema, arrival_us=ARRIVAL_US, idempotency_key=None, new_id=lambda: "new")


ANY_TYPE = pa.schema([
    *HEAD, ("ip", pa.string()), ("status", pa.int16()), ("score", pa.float64()), ("price", pa.decimal128(9, 2)),
    ("at", MOMENT), ("day", pa.date32()), ("ok", pa.bool_()), ("tags", pa.list_(pa.string())), *TAIL,
])  # fmt: skip
PLAIN_EVENT: dict[str, object] = {
    "ts": NOON, "ip": "1.2.3.4", "status": 200, "score": 0.5, "price": 1, "at": NOON, "day": "2020-01-01", "ok": True,
    "tags": ["a"], "other": 1,
}  # fmt: skip
ODD_VALUES = (
    VALUES | st.sampled_from([NOON, "2020-01-01T12:00:00", 40_000, "x" * 1025, "2020-02-30", "0000-01-01T00:00:00Z"])
) | st.dictionaries(KEYS, VALUES, max_size=2)
ODD_EVENTS = st.builds(
    lambda odd, without, own: {name: value for name, value in (PLAIN_EVENT | odd | own).items() if name not in without},
    st.dictionaries(KEYS | st.sampled_from([*PLAIN_EVENT]), ODD_VALUES, max_size=4),
    st.sets(st.sampled_from([*PLAIN_EVENT]), max_size=4),
    st.sampled_from(
        [{}, {"event_id": "own"}, {"messageId": "m"}, {"event_id": 7}, {"event_id": None, "messageId": "m"}]
    ),
)
GIVEN = st.none() | st.builds(
    Given, st.sampled_from([None, "", "g", "own", "x" * 1025]), st.sampled_from([None, NOON_US]),
    st.sampled_from([None, "e1"]), st.sampled_from([None, "s"]),
)  # fmt: skip


@given(
    st.lists(st.tuples(ODD_EVENTS, GIVEN), min_size=1, max_size=3),
    st.sampled_from([0, 1, 70]),
    st.sampled_from([DEFAULT, ANY_TYPE, pa.schema([field for field in ANY_TYPE if field.name != "properties"])]),
    st.sampled_from([NO_FIELDS, Fields(("other",), ("at",)), Fields(("properties", "a"), ("score",))]),
    st.sampled_from([3, 2048]),
)
def test_company_does_not_change_an_event(
    odd: list[tuple[dict[str, object], Given | None]], company: int, schema: pa.Schema, fields: Fields, at_once: int
) -> None:
    plain = [RawEvent(at, PLAIN_EVENT | {"event_id": str(at)}) for at in range(company)]
    values: list[Any] = decode_all([json.dumps(value).encode() for value, _ in odd])
    strange = [
        RawEvent(company + at, value, given=said) for at, (value, (_, said)) in enumerate(zip(values, odd, strict=True))
    ]

    def made(events: list[RawEvent]) -> list[tuple[Any, ...]]:
        with patch("alluvia.events.ingest.event_rows._AT_ONCE", at_once):
            rows = to_rows(
                events, schema, arrival_us=ARRIVAL_US, idempotency_key="key", new_id=lambda: "never", fields=fields
            )
        assert [events[at].position for at in rows.refused] == [reject.position for reject in rows.rejects]
        kept = [(events[at].position, row) for at, row in zip(rows.taken, rows.table.to_pylist(), strict=True)]
        return kept + [(each.position, each.reason, each.raw, each.event_id) for each in rows.rejects]

    apart = made(plain) + [each for event in strange for each in made([event])]
    assert sorted(made(plain + strange), key=lambda each: each[0]) == apart
    assert contents_of(plain + strange) == contents_of(plain) + [contents_of([event])[0] for event in strange]
    assert values == decode_all([json.dumps(value).encode() for value, _ in odd])
