"""Events into a lake: rows and rejects, each once, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alluvia
from alluvia.clock import ManualClock
from alluvia.errors import Invalid, TableNotFound, Unavailable
from alluvia.ingest.envelope import split
from alluvia.ingest.pipeline import Answer, ingest_batch, keep_rejects
from alluvia.ingest.values import Limits, RawEvent, Reject

NUMBERS = count()
ARRIVAL_US = 1_700_000_000_000_000


@pytest.fixture
def lake() -> alluvia.Lake:
    return alluvia.connect(f"memory://pipeline-{next(NUMBERS)}", clock=ManualClock(ARRIVAL_US, next(NUMBERS)))


def another(lake: alluvia.Lake) -> alluvia.Lake:
    """The same lake as another process has it."""
    return alluvia.connect(lake.uri, clock=ManualClock(ARRIVAL_US, next(NUMBERS)))


def send(
    lake: alluvia.Lake, body: str, *, key: str | None = None, create: bool = True, table: str = "clicks"
) -> Answer:
    found = split(body.encode(), content_type=None, content_encoding=None, limits=Limits())
    return ingest_batch(
        lake, table, found.events, found.rejects, arrival_us=ARRIVAL_US, idempotency_key=key, create=create
    )


def rows(lake: alluvia.Lake, table: str = "clicks") -> list[dict[str, Any]]:
    return sorted(lake.table(table).scan().read_all().to_pylist(), key=lambda row: str(row["event_id"]))


def ids(lake: alluvia.Lake, table: str = "clicks") -> list[str]:
    return [row["event_id"] for row in rows(lake, table)]


def test_good_and_bad_events_of_one_request(lake: alluvia.Lake) -> None:
    answer = send(lake, '{"id":"a"}\n{"id":\n{"id":"b","event":5}\n{"id":"c"}\n{"id":"a"}')
    assert (answer.accepted, answer.duplicates, answer.rejected) == (3, 1, 2)
    assert [(reject.position, reject.reason.split(":")[0]) for reject in answer.rejects] == [
        (1, "not valid JSON"),
        (2, "event"),
    ]
    assert ids(lake) == ["a", "c"]
    first, second = sorted(rows(lake, "clicks/_rejects"), key=lambda row: int(row["position"]))
    assert (first["raw"], first["position"], first["reason"]) == (b'{"id":', 1, answer.rejects[0].reason)
    assert first["event_id"].startswith("reject-")
    assert (second["event_id"], second["raw"]) == ("b", b'{"id":"b","event":5}')
    assert second["received_at"].timestamp() * 1_000_000 == ARRIVAL_US
    assert lake.table("clicks").snapshot().version == answer.version


def test_a_request_sent_again_changes_nothing(lake: alluvia.Lake) -> None:
    body = '{"id":"a"}\n{"broken\n{"x":1}\n{"source":5}'
    first = send(lake, body, key="k")
    again = send(another(lake), body, key="k", create=False)
    assert (first.accepted, first.duplicates, first.rejected) == (2, 0, 2)
    assert (again.accepted, again.duplicates, again.rejected) == (2, 2, 2)
    assert again.version == first.version
    assert ids(lake) == ["a", "k/2"]
    assert len(rows(lake, "clicks/_rejects")) == 2


def test_a_crash_between_rejects_and_rows_is_healed_by_the_retry(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create_events("clicks")
    real = alluvia.Table.ingest

    def crash(self: alluvia.Table, given: pa.Table) -> Any:
        if self.name == "clicks":
            raise Unavailable("the store went away")
        return real(self, given)

    body = '{"id":"a"}\n{"broken'
    with monkeypatch.context() as broken:
        broken.setattr(alluvia.Table, "ingest", crash)
        with pytest.raises(Unavailable):
            send(lake, body)
    assert (len(rows(lake, "clicks/_rejects")), ids(lake)) == (1, [])
    answer = send(lake, body)
    assert (answer.accepted, answer.duplicates, answer.rejected) == (1, 0, 1)
    assert (len(rows(lake, "clicks/_rejects")), ids(lake)) == (1, ["a"])


def test_nothing_but_rejects(lake: alluvia.Lake) -> None:
    answer = send(lake, "[5]")
    assert (answer.accepted, answer.rejected, answer.version) == (0, 1, None)
    assert ids(lake) == []
    assert lake.tables(rejects=True) == ["clicks", "clicks/_rejects"]


def test_nothing_at_all(lake: alluvia.Lake) -> None:
    assert send(lake, "[]") == Answer(0, 0, 0, None, [])


def test_a_missing_table(lake: alluvia.Lake) -> None:
    with pytest.raises(TableNotFound, match="create it first"):
        send(lake, '{"id":"a"}', create=False)
    assert lake.tables(rejects=True) == []


@pytest.mark.parametrize("name", ["Clicks", "", "../x", "clicks/_rejects", "a" * 129, "clicks;drop"])
def test_a_bad_table_name(lake: alluvia.Lake, name: str) -> None:
    with pytest.raises(Invalid, match="table name"):
        send(lake, '{"id":"a"}', table=name)


def test_a_table_that_events_cannot_go_to(lake: alluvia.Lake) -> None:
    lake.create_table("plain", {"x": "long"})
    with pytest.raises(Invalid, match="event_id"):
        send(lake, '{"x":1}', table="plain")


def test_a_column_added_meanwhile_does_not_stop_the_events(lake: alluvia.Lake) -> None:
    send(lake, '{"id":"a"}')
    another(lake).table("clicks").evolve(add={"status": "long"})
    assert send(lake, '{"id":"b","status":200}').accepted == 1
    assert send(lake, '{"id":"c","status":200}').accepted == 1
    found = {row["event_id"]: (row["status"], row["properties"]) for row in rows(lake)}
    assert found == {"a": (None, None), "b": (None, '{"status":200}'), "c": (200, None)}


def test_a_table_changed_meanwhile_gets_rows_of_its_new_schema(lake: alluvia.Lake) -> None:
    send(lake, '{"id":"a"}')
    another(lake).table("clicks").evolve(add={"status": "long"}, properties={"delta.appendOnly": "true"})
    answer = send(lake, '[{"id":"b","status":200},{"id":"c","event":5},{"id":"d","status":"abc"},{"id":"e"}]')
    assert (answer.accepted, answer.rejected) == (2, 2)
    assert [reject.position for reject in answer.rejects] == [1, 2]
    assert {row["event_id"]: row["status"] for row in rows(lake)} == {"a": None, "b": 200, "e": None}
    kept = {row["event_id"]: row["reason"].split(":")[0] for row in rows(lake, "clicks/_rejects")}
    assert kept == {"c": "event", "d": "status"}


def test_a_table_that_never_rests_is_given_up(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    send(lake, '{"id":"a"}')
    other, real, tries = another(lake).table("clicks"), alluvia.Table.ingest, []

    def restless(self: alluvia.Table, given: pa.Table) -> Any:
        tries.append(len(given))
        other.evolve(properties={"delta.appendOnly": "true" if len(tries) % 2 else "false"})
        return real(self, given)

    monkeypatch.setattr(alluvia.Table, "ingest", restless)
    with pytest.raises(alluvia.errors.MetadataChanged):
        send(lake, '{"id":"b"}')
    assert (tries, ids(lake)) == ([1] * 5, ["a"])


def test_rejects_are_kept_once_each(lake: alluvia.Lake) -> None:
    lake.create_events("clicks")
    rejects = [
        Reject(0, "why", b"x"),
        Reject(1, "why", b"x"),
        Reject(2, "why", b"y", "own"),
        Reject(3, "why", b"z", "own"),
    ]
    for key in (None, None, "k"):
        keep_rejects(lake, "clicks", rejects, arrival_us=ARRIVAL_US, idempotency_key=key)
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
        "id": "a", "price": 1.5, "day": "2026-11-20", "at": 1_700_000_000, "blob": "AAE=", "tags": ["x", None],
        "who": {"name": "Ann", "age": 7}, "extra": {"x": 1.5}, "other": True,
    }  # fmt: skip
    answer = send(lake, json.dumps([event, event | {"id": "b", "who": {"age": "x"}}]), table="typed")
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
        events = [RawEvent(at, {"id": f"e{number // 2 + at}"}) for at in range(3)]
        ingest_batch(processes[number % 4], "clicks", events, arrival_us=ARRIVAL_US, create=True)
    assert ids(lake) == [f"e{at}" for at in range(8)]


LINE = st.sampled_from(
    [
        *({"id": f"e{at}", "ts": at} for at in range(4)),
        {"id": "wrong", "event": 5},
        {"x": "no id"},
        {"event": [1]},
        [1],
        "not JSON",
    ]
).map(json.dumps)


@settings(max_examples=25)
@given(st.lists(LINE, min_size=1, max_size=8), st.integers(1, 3))
def test_each_event_is_in_one_row_or_one_reject_however_often_it_is_sent(lines: list[str], times: int) -> None:
    lake = alluvia.connect(f"memory://pipeline-{next(NUMBERS)}", clock=ManualClock(ARRIVAL_US, next(NUMBERS)))
    body = "\n".join(['{"id":"first"}', *lines])
    for turn in range(times):
        answer = send(lake if turn % 2 else another(lake), body, key="k")
        assert answer.accepted + answer.rejected == len(lines) + 1
    good = [
        (at, json.loads(line)) for at, line in enumerate(lines, 1) if line.startswith('{"id": "e') or "no id" in line
    ]
    assert ids(lake) == sorted({str(event.get("id", f"k/{at}")) for at, event in good} | {"first"})
    bad = [line for line in lines if line.startswith('{"event"') or not line.startswith("{")]
    bad += [line for line in lines if "wrong" in line][:1]
    rejects = rows(lake, "clicks/_rejects") if lake.tables(rejects=True) != ["clicks"] else []
    assert sorted(row["raw"].decode() for row in rejects) == sorted(bad)
