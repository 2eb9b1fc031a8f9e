"""Rejected events that get other values of their fields before they are ingested again."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.events.ingest.replay import Replayed, Staying
from alluvia.store import CountingStore, MemoryStore
from tests.unit.events.ingest.sent import ARRIVAL_US, NUMBERS, another, ids, rows, send

COMMA = {"amount": "replace(amount, ',', '.')::double"}
BROKEN = '{"event_id":"a","amount":"12,50"}'


@pytest.fixture
def lake() -> alluvia.Lake:
    made = alluvia.connect(f"memory://repair-{next(NUMBERS)}", clock=ManualClock(ARRIVAL_US, next(NUMBERS)))
    made.create_events("clicks", pa.schema([("amount", pa.float64())]))
    return made


def rejected(lake: alluvia.Lake) -> list[str]:
    return sorted(row["raw"].decode() for row in rows(lake, "clicks/_rejects"))


def amounts(lake: alluvia.Lake) -> dict[str, Any]:
    return {row["event_id"]: row["amount"] for row in rows(lake)}


def test_repaired_events_are_rows_and_each_other_stays_with_its_reason(lake: alluvia.Lake) -> None:
    others = ['{"event_id":"b","amount":"x,50"}', '{"event_id":"c","amount":[1]}', '{"event_id":"d"']
    send(lake, "\n".join([BROKEN, *others, '{"event_id":"e","properties":{"amount":"0,5","plan":"pro"}}']))
    done = lake["clicks"].replay_rejects(values=COMMA)
    assert done == Replayed(looked_at=5, settled=2, stored=2, remaining=3)
    assert {(each.reason, each.rejects, each.sample) for each in done.staying} == {
        ("set amount: Conversion Error: Could not convert string 'x.50' to DOUBLE", 1, others[0]),
        ("set amount: Conversion Error: Could not convert string '[1]' to DOUBLE", 1, others[1]),
        ("not valid JSON: Expecting ',' delimiter at character 15", 1, others[2]),
    }
    assert amounts(lake) == {"a": 12.5, "e": 0.5}
    assert rows(lake)[1]["properties"] == '{"plan":"pro"}'
    assert rejected(lake) == sorted(others)
    assert lake["clicks"].replay_rejects(values=COMMA) == Replayed(looked_at=3, remaining=3)


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("body", [BROKEN, '{"amount":"12,50"}', f'[{BROKEN},{{"event_id":"b","amount":1}}]'])
def test_the_broken_event_that_comes_again_is_a_duplicate(lake: alluvia.Lake, key: str | None, body: str) -> None:
    send(lake, body, key=key)
    assert lake["clicks"].replay_rejects(values=COMMA).stored == 1
    before = rows(lake)
    for of in (lake, another(lake)):
        answer = send(of, body, key=key)
        assert (answer.stored, answer.rejected, answer.duplicates) == (0, 0, len(before))
    assert (rows(lake), rejected(lake)) == (before, [])
    lake["clicks"].evolve(rename={"amount": "amount_number"})  # now it fits as it was sent
    if key is None and "event_id" not in body:
        return  # then it has no identity
    assert (send(lake, body, key=key).duplicates, rows(lake, "clicks/_rejects")) == (len(before), [])


def test_a_corrected_event_under_the_same_id_is_another_event(lake: alluvia.Lake) -> None:
    corrected = '{"event_id":"a","amount":12.5}'
    send(lake, BROKEN)
    lake["clicks"].replay_rejects(values=COMMA)
    assert send(lake, corrected).conflicting == 1
    assert amounts(lake) == {"a": 12.5}
    lake.drop_table("clicks")
    lake.create_events("clicks", pa.schema([("amount", pa.float64())]))
    send(lake, BROKEN)
    assert send(lake, corrected).stored == 1
    done = lake["clicks"].replay_rejects(values={"amount": "0"})
    assert done == Replayed(looked_at=1, remaining=1)
    assert done.staying == (Staying("the content differs: another event with its id came first", 1, BROKEN),)
    assert (amounts(lake), rejected(lake)) == ({"a": 12.5}, [BROKEN])


def test_a_dry_run_says_what_would_be_and_writes_nothing() -> None:
    store = CountingStore(MemoryStore(f"repair-{next(NUMBERS)}"))
    lake = alluvia.Lake(store, ManualClock(ARRIVAL_US, next(NUMBERS)))
    lake.create_events(
        "clicks", pa.schema([("amount", pa.float64())]), properties={"delta.constraints.few": "amount < 9"}
    )
    send(lake, "\n".join(['{"event_id":"known","amount":"1"}', '{"event_id":"same","amount":1}']))
    lake["clicks"].replay_rejects(values=COMMA)
    lake.table("clicks/_rejects").restore(version=1)
    bad = ['{"event_id":"same","amount":"2"}', '{"event_id":"many","amount":"10,5"}', '{"event_id":"x","amount":"y"}']
    send(lake, "\n".join([*bad, *(f'{{"event_id":"n{at}","amount":"{at},5"}}' for at in range(8))]))
    before, writes = rejected(lake), sum("put" in kind for kind, _ in store.keys)
    done = lake["clicks"].replay_rejects(values=COMMA, dry_run=True)
    assert done == Replayed(looked_at=12, settled=9, stored=8, duplicates=1, remaining=3, dry_run=True)
    assert [(row["event_id"], row["amount"]) for row in done.rows] == [(f"n{at}", at + 0.5) for at in range(5)]
    assert sorted(each.sample for each in done.staying) == sorted(bad)
    assert (rejected(lake), sum("put" in kind for kind, _ in store.keys)) == (before, writes)
    assert lake["clicks"].replay_rejects(values=COMMA) == Replayed(12, 9, 8, 1, 3)


def test_several_fields_and_those_that_an_event_lacks(lake: alluvia.Lake) -> None:
    lake["clicks"].evolve({"at": "timestamp", "tags": "array<string>", "count": "long"})
    event = {"event_id": "a", "ts": "20.11.2026 10:00", "amount": "1,5", "at": "noon", "tags": "x|y", "count": "1e3"}
    send(lake, json.dumps(event) + '\n{"event_id":"b","amount":"2,5"}')
    sets = {
        **COMMA,
        "ts": "strptime(ts, '%d.%m.%Y %H:%M')",
        "at": "TIMESTAMPTZ '2026-11-20 12:00:00+00'",
        "tags": "string_split(tags, '|')",
        "count": "count::double::bigint",
    }
    assert lake["clicks"].replay_rejects("event_id LIKE 'a#%'", sets).stored == 1
    [row] = rows(lake)
    assert (row["ts"].isoformat(), row["at"].isoformat()) == ("2026-11-20T10:00:00+00:00", "2026-11-20T12:00:00+00:00")
    assert (row["amount"], row["tags"], row["count"]) == (1.5, ["x", "y"], 1000)
    assert row["properties"] == '{"tags":["x","y"],"count":1000,"at":"2026-11-20 12:00:00+00"}'
    assert lake["clicks"].replay_rejects(values=sets).stored == 1
    assert (amounts(lake)["b"], rows(lake)[1]["tags"]) == (2.5, None)


def test_a_field_that_no_event_has_sets_nothing_and_is_named(lake: alluvia.Lake) -> None:
    send(lake, BROKEN)
    done = lake["clicks"].replay_rejects(values={"amount": "amout::double"})
    assert (done.stored, done.remaining, done.unknown_fields) == (0, 1, ("amout",))
    assert done.staying[0].reason.startswith("amount: expected a number (double), got a string")
    assert lake["clicks"].replay_rejects(values={"amount": "coalesce(amout, '7')::double"}).remaining == 1
    assert lake["clicks"].replay_rejects(values={"amount": "coalesce(amout, amount, '7').len()"}).stored == 1


def test_a_set_field_that_neither_an_event_nor_the_table_has_is_named(lake: alluvia.Lake) -> None:
    send(lake, '{"event_id":"a","amount":"1,5","properties":{"plan":"x"}}\n{"event_id":"b","amount":"y","note":null}')
    sets = {**COMMA, "amuont": "1", "plan": "'pro'", "note": "amount", "event": "'paid'", "unset": "nosuch"}
    for dry_run in (True, False):
        done = lake["clicks"].replay_rejects(values=sets, dry_run=dry_run)
        assert (done.stored, done.remaining, done.new_fields, done.unknown_fields) == (1, 1, ("amuont",), ("nosuch",))
    assert json.loads(rows(lake)[0]["properties"]) == {"plan": "pro", "amuont": 1, "note": "1,5"}


def test_the_text_of_a_time_can_be_kept_under_another_name(lake: alluvia.Lake) -> None:
    lake["clicks"].evolve(properties={"alluvia.unreadable_time": "reject"})
    send(lake, '{"event_id":"a","ts":"yesterday"}')
    done = lake["clicks"].replay_rejects(values={"ts": "NULL", "sent_ts": "ts"})
    assert (done.stored, done.new_fields) == (1, ("sent_ts",))
    assert (rows(lake)[0]["ts"], rows(lake)[0]["properties"]) == (
        rows(lake)[0]["received_at"],
        '{"sent_ts":"yesterday"}',
    )


def test_rows_of_csv_and_the_time_that_a_format_could_not_read(lake: alluvia.Lake) -> None:
    lake["clicks"].evolve(properties={"alluvia.unreadable_time": "reject"})
    from alluvia.events.formats.body_format import SentBody, by_name
    from alluvia.events.ingest.pipeline import ingest_batch
    from alluvia.events.ingest.values import Limits

    csv = SentBody({"content-type": "text/csv"}, b'event_id,ts,amount\na,20.11.2026,"1,5"\n', ARRIVAL_US)
    bit = SentBody({"content-type": "application/json"}, b'{"date":"20.11.2026","event_id":"b"}', ARRIVAL_US)
    for name, sent in (("csv", csv), ("fluentbit", bit)):
        split = by_name(name).read(sent, Limits())
        assert ingest_batch(lake.catalog, "clicks", split.events, arrival_us=ARRIVAL_US).rejected == 1
    sets = {**COMMA, "ts": "strptime(ts, '%d.%m.%Y')", "date": "strptime(date, '%d.%m.%Y')"}
    assert lake["clicks"].replay_rejects(values=sets).stored == 2
    assert {row["event_id"]: row["amount"] for row in rows(lake)} == {"a": 1.5, "b": None}
    assert rows(lake)[0]["ts"].isoformat() == "2026-11-20T00:00:00+00:00"


@pytest.mark.parametrize(
    ("name", "expression", "message"),
    [
        ("event_id", "'x'", "set event_id: the field identifies the event"),
        ("messageId", "'x'", "identifies"),
        ("source", "'x'", "identifies"),
        ("order", "'x'", "set order: the field identifies"),
        ("amount", "1 AS x", "set amount: "),
        ("amount", "(SELECT 1)", "subqueries"),
        ("amount", "sum(amount)", "set amount: "),
        ("amount", "count(*)", "set amount: an expression cannot use"),
        ("amount", "amount::double)", "set amount: "),
        ("amount", "nosuch(amount)", "set amount: Catalog Error"),
        ("amount", "getenv('HOME')", r"set amount: the function getenv\(\) is not allowed here"),
        ("amount", "read_text('/etc/passwd')", "set amount: "),
        ("amount", "?", "set amount: "),
    ],
)
def test_expressions_that_are_refused(lake: alluvia.Lake, name: str, expression: str, message: str) -> None:
    lake["clicks"].evolve(properties={"alluvia.id_field": "order.id"})
    send(lake, BROKEN)
    with pytest.raises(Invalid, match=message):
        lake["clicks"].replay_rejects(values={name: expression})
    assert rejected(lake) == [BROKEN]


def test_the_identity_of_a_cloud_event_stays_and_a_bare_id_is_data(lake: alluvia.Lake) -> None:
    lake["clicks"].evolve({"id": "long"})
    cloud = '{"specversion":"1.0","id":"1x","source":"s","type":"t"}'
    send(lake, f'{{"event_id":"a","id":"7"}}\n{cloud}')
    done = lake["clicks"].replay_rejects(values={"id": "left(id, 1)::bigint"})
    assert (done.stored, done.staying[0].reason) == (
        1,
        "set id: the field identifies the event, so a repair cannot change it",
    )
    assert (ids(lake), rejected(lake)) == (["a"], [cloud])


def test_many_failures_each_have_a_reason(lake: alluvia.Lake) -> None:
    send(lake, "\n".join(f'{{"event_id":"e{at}","amount":"x{at}"}}' for at in range(250)) + "\n" + BROKEN)
    done = lake["clicks"].replay_rejects(values=COMMA)
    assert (done.stored, done.remaining, len(done.staying)) == (1, 250, 20)
    assert done.staying[0].reason == "set amount: it fails"
    assert done.staying[1].reason.startswith("set amount: Conversion Error: Could not convert string 'x")
