"""Events into a lake: rows and rejects, each once, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alluvia
from alluvia.clock import ManualClock
from alluvia.commit.handle import TableHandle
from alluvia.errors import Unavailable
from alluvia.events.ingest import pipeline
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import Sent, ingest_batch, ingest_together, keep_rejects
from alluvia.events.ingest.values import IngestOutcome, Limits, Origin, RawEvent, Reject
from alluvia.operations.append.ingest import ingest
from tests.unit.events.ingest.sent import ARRIVAL_US, NUMBERS, another, ids, rows, send


@pytest.fixture
def lake() -> alluvia.Lake:
    return alluvia.connect(f"memory://pipeline-{next(NUMBERS)}", clock=ManualClock(ARRIVAL_US, next(NUMBERS)))


def test_good_and_bad_events_of_one_request(lake: alluvia.Lake) -> None:
    answer = send(
        lake, '{"event_id":"a"}\n{"event_id":\n{"event_id":"b","event":5}\n{"event_id":"c"}\n{"event_id":"a"}'
    )
    assert (answer.accepted, answer.duplicates, answer.rejected) == (3, 1, 2)
    assert [(reject.position, reject.reason.split(":")[0]) for reject in answer.rejects] == [
        (1, "not valid JSON"),
        (2, "event"),
    ]
    assert ids(lake) == ["a", "c"]
    first, second = sorted(rows(lake, "clicks/_rejects"), key=lambda row: int(row["position"]))
    assert (first["raw"], first["position"], first["reason"]) == (b'{"event_id":', 1, answer.rejects[0].reason)
    assert first["event_id"].startswith("reject-")
    assert (second["event_id"].partition("#")[0], second["raw"]) == ("b", b'{"event_id":"b","event":5}')
    assert second["received_at"].timestamp() * 1_000_000 == ARRIVAL_US
    assert lake.table("clicks").snapshot().version == answer.version


def test_a_request_sent_again_changes_nothing(lake: alluvia.Lake) -> None:
    body = '{"event_id":"a"}\n{"broken\n{"x":1}\n{"source":5}'
    first = send(lake, body, key="k")
    again = send(another(lake), body, key="k", create=False)
    assert (first.accepted, first.stored, first.duplicates, first.rejected) == (2, 2, 0, 2)
    assert (again.accepted, again.stored, again.duplicates, again.rejected) == (2, 0, 2, 2)
    assert again.version == first.version
    assert ids(lake) == ["a", "k/2"]
    assert len(rows(lake, "clicks/_rejects")) == 2


def test_a_crash_between_rejects_and_rows_is_healed_by_the_retry(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_events("clicks")
    real = ingest

    def crash(handle: TableHandle, *given: Any) -> Any:
        if handle.name == "clicks":
            raise Unavailable("the store went away")
        return real(handle, *given)

    body = '{"event_id":"a"}\n{"broken'
    with monkeypatch.context() as broken:
        broken.setattr(pipeline, "ingest", crash)
        with pytest.raises(Unavailable):
            send(lake, body)
    assert (len(rows(lake, "clicks/_rejects")), ids(lake)) == (1, [])
    answer = send(lake, body)
    assert (answer.accepted, answer.duplicates, answer.rejected) == (1, 0, 1)
    assert (len(rows(lake, "clicks/_rejects")), ids(lake)) == (1, ["a"])


@pytest.mark.parametrize("lost", ["new", "repeated", "clashes"])
def test_an_answer_that_does_not_count_every_event_is_none(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    lake.create_events("clicks")
    send(lake, '{"event_id":"a","n":1}\n{"event_id":"b"}')
    nothing: dict[str, Any] = {lost: ()}
    monkeypatch.setattr(pipeline, "ingest", lambda *given: replace(ingest(*given), **nothing))
    with pytest.raises(AssertionError, match="clicks: 3 events were sent"):
        send(lake, '{"event_id":"a","n":2}\n{"event_id":"b"}\n{"event_id":"c"}')


def test_nothing_but_rejects(lake: alluvia.Lake) -> None:
    lake.create_events("clicks")
    answer = send(lake, "[5]")
    assert (answer.accepted, answer.rejected, answer.version, answer.kept) == (0, 1, None, True)
    assert (ids(lake), len(rows(lake, "clicks/_rejects"))) == ([], 1)


@pytest.mark.parametrize("body", ["[5]", '{"event":5}', '{"broken', '{"event_id":[1]}\nnot JSON'])
def test_rejects_alone_create_no_table(lake: alluvia.Lake, body: str) -> None:
    answer = send(lake, body)
    assert (answer.accepted, answer.kept, answer.version) == (0, False, None)
    assert answer.rejected == len(answer.rejects) == len(body.splitlines())
    assert lake.tables(rejects=True) == []
    again = send(lake, f'{body}\n{{"event_id":"good"}}')
    assert (again.stored, again.kept) == (1, True)
    assert len(rows(lake, "clicks/_rejects")) == again.rejected


def test_nothing_at_all(lake: alluvia.Lake) -> None:
    assert send(lake, "[]") == IngestOutcome(0, 0, 0, 0, None, [])
    assert lake.tables() == []


def test_rejects_are_kept_once_each(lake: alluvia.Lake) -> None:
    lake.create_events("clicks")
    rejects = [
        Reject(0, "why", b"x"),
        Reject(1, "why", b"x"),
        Reject(2, "why", b"y", "own"),
        Reject(3, "why", b"z", "own"),
    ]
    for key in (None, None, "k"):
        keep_rejects(lake.catalog, "clicks", rejects, Origin(ARRIVAL_US, key))
    found = rows(lake, "clicks/_rejects")
    assert len(found) == 5
    assert [row["raw"] for row in found if row["event_id"] == "own"] == [b"y"]


def test_declared_columns_of_every_kind(lake: alluvia.Lake) -> None:
    columns = pa.schema(
        [
            ("price", pa.decimal128(10, 2)),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("blob", pa.binary()),
            ("tags", pa.list_(pa.string())),
            ("who", pa.struct([("name", pa.string()), ("age", pa.int16())])),
            ("extra", pa.map_(pa.string(), pa.float64())),
        ]
    )
    lake.create_events("typed", columns)
    event = {
        "event_id": "a", "price": 1.5, "day": "2026-11-20", "at": 1_700_000_000, "blob": "AAE=", "tags": ["x", None],
        "who": {"name": "Ann", "age": 7}, "extra": {"x": 1.5}, "other": True,
    }  # fmt: skip
    answer = send(lake, json.dumps([event, event | {"event_id": "b", "who": {"age": "x"}}]), table="typed")
    assert (answer.accepted, [reject.reason for reject in answer.rejects]) == (
        1,
        ["who.age: expected a number (short), got a string"],
    )
    [row] = rows(lake, "typed")
    assert (str(row["price"]), str(row["day"]), row["blob"], row["tags"]) == (
        "1.50",
        "2026-11-20",
        b"\0\1",
        ["x", None],
    )
    assert (row["who"], row["extra"], row["properties"]) == (event["who"], [("x", 1.5)], '{"other":true}')


def test_events_without_an_id_get_one_each(lake: alluvia.Lake) -> None:
    for _ in range(2):
        assert send(lake, "[{},{}]").duplicates == 0
    assert len(set(ids(lake))) == 4


def test_many_processes_and_the_same_events(lake: alluvia.Lake) -> None:
    processes: Sequence[alluvia.Lake] = [lake, *(another(lake) for _ in range(3))]
    for number in range(12):
        events = [RawEvent(at, {"event_id": f"e{number // 2 + at}"}) for at in range(3)]
        ingest_batch(processes[number % 4].catalog, "clicks", events, arrival_us=ARRIVAL_US, create=True)
    assert ids(lake) == [f"e{at}" for at in range(8)]


def test_a_bare_id_is_data(lake: alluvia.Lake) -> None:
    for kind in ("order_created", "order_paid", "order_shipped"):
        answer = send(lake, json.dumps({"id": 42, "event": kind}))
        assert (answer.stored, answer.duplicates, answer.rejected) == (1, 0, 0)
    assert {row["event"]: row["properties"] for row in rows(lake)} == {
        "order_created": '{"id":42}', "order_paid": '{"id":42}', "order_shipped": '{"id":42}',
    }  # fmt: skip


def test_ids_count_within_their_source(lake: alluvia.Lake) -> None:
    body = '[{"event_id":"1","source":"shop"},{"event_id":"1","source":"crm"},{"event_id":"1"}]'
    assert send(lake, body).stored == 3
    assert send(another(lake), body).duplicates == 3
    event = {"specversion": "1.0", "type": "t", "source": "/a", "id": "1"}
    assert send(lake, json.dumps([event, event | {"source": "/b"}])).stored == 2
    assert send(lake, json.dumps(event)).duplicates == 1
    assert [row["source"] for row in sorted(rows(lake), key=lambda row: str(row["source"]))] == [
        "/a", "/b", None, "crm", "shop",
    ]  # fmt: skip


def test_the_same_id_with_other_content_is_a_reject(lake: alluvia.Lake) -> None:
    assert send(lake, '{"event_id":"a","source":"web","n":1}').stored == 1
    other = '{"event_id":"a","source":"web","n":2}'
    for sender in (lake, another(lake)):
        answer = send(sender, f'{other}\n{{"event_id":"b"}}')
        assert (answer.accepted, answer.rejected, answer.conflicting) == (1, 1, 1)
        [reject] = answer.rejects
        assert reject.position == 0
        assert reject.reason == ("the content differs: another event with event_id 'a' and source 'web' came first")
    alone = send(lake, other)
    assert (alone.accepted, alone.rejected, alone.conflicting, alone.version) == (0, 1, 1, None)
    [kept] = rows(lake, "clicks/_rejects")
    assert (kept["raw"], kept["event_id"].partition("#")[0]) == (other.encode(), "a")
    third = send(lake, '[{"event_id":"a","source":"web","n":3},{"event_id":"c","n":1},{"event_id":"c","n":2}]')
    assert (third.stored, third.conflicting, [each.position for each in third.rejects]) == (1, 2, [0, 2])
    assert len(rows(lake, "clicks/_rejects")) == 3
    assert {row["event_id"]: row["properties"] for row in rows(lake)} == {"a": '{"n":1}', "b": None, "c": '{"n":1}'}


def test_an_event_written_otherwise_is_the_same(lake: alluvia.Lake) -> None:
    send(lake, '{"event_id":"a","x":{"p":1,"q":[1.50,12345678901234567890123]},"y":"é"}')
    for again in (
        '{ "y": "é", "x": {"q": [1.5, 12345678901234567890123], "p": 1},\n "event_id": "a"}',
        '[{"x":{"p":1,"q":[15e-1,12345678901234567890123]},"y":"\\u00e9","event_id":"a"}]',
    ):
        answer = send(lake, again, key="k")
        assert (answer.duplicates, answer.rejected) == (1, 0)
    answer = send(lake, '{"event_id":"a","x":{"p":1,"q":[1.50,12345678901234567890124]},"y":"é"}')
    assert (answer.conflicting, answer.accepted) == (1, 0)


def test_a_key_stands_for_one_body(lake: alluvia.Lake) -> None:
    assert send(lake, '{"x":1}', key="k").stored == 1
    assert send(lake, '{"x":1}', key="k").duplicates == 1
    answer = send(lake, '{"x":2}', key="k")
    assert (answer.conflicting, "'k/0'" in answer.rejects[0].reason) == (1, True)
    assert send(lake, '{"x":2}', key="k").conflicting == 1
    assert [row["raw"] for row in rows(lake, "clicks/_rejects")] == [b'{"x":2}']


def test_when_segment_sends_a_message_again_it_is_the_same(lake: alluvia.Lake) -> None:
    message = {"messageId": "m", "type": "track", "event": "Bought", "sentAt": "2026-01-01T00:00:00Z"}
    assert send(lake, json.dumps(message)).stored == 1
    assert send(lake, json.dumps(message | {"sentAt": "2026-01-01T00:00:09Z"})).duplicates == 1
    for at in ("2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"):
        assert send(lake, json.dumps(message | {"event": "Sold", "sentAt": at})).conflicting == 1
        assert send(lake, json.dumps(message | {"event": 5, "sentAt": at})).rejected == 1
    assert len(rows(lake, "clicks/_rejects")) == 2


def test_broken_events_under_one_id_are_a_reject_each(lake: alluvia.Lake) -> None:
    lake.create_events("clicks")
    body = '{"event_id":"a","event":1}\n{"event_id":"a","event":2}\n{"event":1,"event_id":"a"}'
    for _ in range(2):
        assert send(lake, body).rejected == 3
    assert sorted(row["raw"] for row in rows(lake, "clicks/_rejects")) == [
        b'{"event_id":"a","event":1}', b'{"event_id":"a","event":2}',
    ]  # fmt: skip


def test_the_fields_that_a_table_names(lake: alluvia.Lake) -> None:
    lake.create_events("clicks", properties={"alluvia.id_field": "data.id", "alluvia.time_field": "data.at"})
    body = '{"event_id":"x","data":{"id":7,"at":"2020-01-01T00:00:00Z"}}'
    assert send(lake, body).stored == 1
    assert send(another(lake), body).duplicates == 1
    [row] = rows(lake)
    assert (row["event_id"], row["ts"].isoformat()) == ("7", "2020-01-01T00:00:00+00:00")
    assert json.loads(row["properties"]) == json.loads(body)
    another(lake).table("clicks").evolve(properties={"alluvia.id_field": "order"})
    assert send(lake, '{"order":"o","data":{"id":8}}').stored == 1
    assert ids(lake) == ["7", "o"]


@given(st.binary(max_size=40) | st.text(max_size=10).map(lambda text: ('{"' + text * 500 + '": 1').encode()))
def test_a_reason_is_cut(body: bytes) -> None:
    found = split(body, content_type=None, content_encoding=None, limits=Limits())
    assert all(len(reject.reason) <= 200 for reject in found.rejects)
    names = {f"{'x' * 300}{at}": at for at in range(50)}
    lake = alluvia.connect(f"memory://pipeline-{next(NUMBERS)}")
    lake.create_table("bare", {"event_id": "string"})
    [reject] = send(lake, json.dumps(names), table="bare").rejects
    assert len(reject.reason) == 200


LINE = st.sampled_from(
    [
        *({"event_id": f"e{at}", "ts": at} for at in range(4)),
        {"event_id": "wrong", "event": 5},
        {"x": "no id"},
        {"event_id": "e0", "other": "content"},
        {"event": [1]},
        [1],
        "not JSON",
    ]
).map(json.dumps)


@settings(max_examples=25)
@given(st.lists(LINE, min_size=1, max_size=8), st.integers(1, 3))
def test_each_event_is_in_one_row_or_one_reject_however_often_it_is_sent(lines: list[str], times: int) -> None:
    lake = alluvia.connect(f"memory://pipeline-{next(NUMBERS)}", clock=ManualClock(ARRIVAL_US, next(NUMBERS)))
    body = "\n".join(['{"event_id":"first"}', *lines])
    for turn in range(times):
        answer = send(lake if turn % 2 else another(lake), body, key="k")
        assert answer.accepted + answer.rejected == len(lines) + 1
    good = [
        (at, json.loads(line))
        for at, line in enumerate(lines, 1)
        if line.startswith('{"event_id": "e') or "no id" in line
    ]
    assert ids(lake) == sorted({str(event.get("event_id", f"k/{at}")) for at, event in good} | {"first"})
    bad = [line for line in lines if line.startswith('{"event"') or not line.startswith("{")]
    bad += [line for line in lines if "wrong" in line][:1]
    bad += list(dict.fromkeys(line for line in lines if '"e0"' in line))[1:]
    rejects = rows(lake, "clicks/_rejects") if lake.tables(rejects=True) != ["clicks"] else []
    assert sorted(row["raw"].decode() for row in rejects) == sorted(bad)


@pytest.mark.parametrize("key", [None, "k"])
def test_a_stored_event_that_comes_again_is_a_duplicate_whatever_the_columns_are_now(
    lake: alluvia.Lake, key: str | None
) -> None:
    body = '[{"event_id":"a","amount":"12,50"},{"amount":"much"},{"event_id":"c","amount":3}]'
    events = body if key else body.replace('{"amount"', '{"event_id":"b","amount"')
    assert send(lake, events, key=key).stored == 3
    lake["clicks"].evolve(add={"amount": "double"})
    before = ids(lake)
    for known in (lake, another(lake)):
        again = send(known, events, key=key)
        assert (again.stored, again.duplicates, again.rejected, again.rejects) == (0, 3, 0, [])
        assert again.version is not None
    assert ids(lake) == before
    assert "clicks/_rejects" not in lake
    mixed = send(lake, '[{"event_id":"a","amount":"12,50"},{"event_id":"a","amount":"x"},{"event_id":"d"}]')
    assert (mixed.stored, mixed.duplicates, mixed.rejected) == (1, 1, 1)
    assert [reject["raw"] for reject in rows(lake, "clicks/_rejects")] == [b'{"event_id":"a","amount":"x"}']


def test_requests_together_get_each_their_own_duplicates(lake: alluvia.Lake) -> None:
    send(lake, '{"event_id":"a","amount":"12,50"}')
    lake["clicks"].evolve(add={"amount": "double"})
    bodies = ['{"event_id":"a","amount":"12,50"}', '{"event_id":"x","amount":"?"}', '{"event_id":"y","amount":1}']
    sent = [
        Sent(split(body.encode(), content_type=None, content_encoding=None, limits=Limits()).events, (), Origin(at))
        for at, body in enumerate(bodies)
    ]
    answers = ingest_together(lake.catalog, "clicks", sent, create=False, tables_max=None)
    counts = [(each.stored, each.duplicates, each.rejected) for each in answers if isinstance(each, IngestOutcome)]
    assert counts == [(0, 1, 0), (0, 0, 1), (1, 0, 0)]


def test_a_new_constraint_makes_no_reject_of_what_is_stored(lake: alluvia.Lake) -> None:
    send(lake, '{"event_id":"a","event":"odd"}')
    lake.sql("UPDATE clicks SET event = 'even'")
    lake.sql("ALTER TABLE clicks ADD CONSTRAINT even CHECK (event = 'even')")
    again = send(lake, '{"event_id":"a","event":"odd"}\n{"event_id":"b","event":"odd"}')
    assert (again.stored, again.duplicates, again.rejected) == (0, 1, 1)
    assert [reject["event_id"].partition("#")[0] for reject in rows(lake, "clicks/_rejects")] == ["b"]
