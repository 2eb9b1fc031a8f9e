"""Nothing of an event is lost: its row or its reject has all of it, in any company."""

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

from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.event_rows import to_rows
from alluvia.events.ingest.identity import contents_of
from alluvia.events.ingest.values import NO_FIELDS, EventRows, Fields, Given, Limits, RawEvent
from alluvia.json_values.jsontext import decode_all
from alluvia.json_values.time_texts import instant
from tests.unit.events.ingest.rows import ANY_TYPE, ARRIVAL_US, DEFAULT, HEAD, MOMENT, NOON, NOON_US, TAIL, TYPED

DATA = Path(__file__).parents[4] / "events" / "data"

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
