"""Events that are what the columns want, but that the table refuses: they are rejects, and their neighbours rows."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import alluvia
from alluvia.api.lake import Table
from alluvia.clock import ManualClock
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import IngestOutcome, Limits

NUMBERS = count()
ARRIVAL_US = 1_700_000_000_000_000
SCHEMA = pa.schema([pa.field("event_id", pa.string(), nullable=False), ("plan", pa.string()), ("seats", pa.int64())])
SEATS = {"delta.constraints.seats": "seats > 0"}


@pytest.fixture
def lake() -> alluvia.Lake:
    return alluvia.connect(f"memory://refused-{next(NUMBERS)}", clock=ManualClock(ARRIVAL_US, next(NUMBERS)))


def send(lake: alluvia.Lake, *events: dict[str, object]) -> IngestOutcome:
    found = split(json.dumps(events).encode(), content_type=None, content_encoding=None, limits=Limits())
    return ingest_batch(lake.catalog, "orders", found.events, found.rejects, arrival_us=ARRIVAL_US)


def ids(table: Table) -> list[str]:
    found: list[str] = table.scan(["event_id"]).read_all()["event_id"].to_pylist()
    return sorted(found)


def reasons(lake: alluvia.Lake) -> dict[str, str]:
    rows = lake.table("orders/_rejects").scan().read_all().to_pylist()
    return {row["event_id"].partition("#")[0]: row["reason"] for row in rows}


def test_a_row_that_breaks_a_constraint_is_a_reject(lake: alluvia.Lake) -> None:
    table = lake.create_table("orders", SCHEMA, properties=SEATS)
    events: list[dict[str, object]] = [{"event_id": f"e{n}", "seats": 0 if n in (3, 40) else 1} for n in range(50)]
    answer = send(lake, *events)
    assert (answer.accepted, answer.duplicates, answer.rejected) == (48, 0, 2)
    assert [reject.position for reject in answer.rejects] == [3, 40]
    assert ids(table) == sorted(f"e{n}" for n in range(50) if n not in (3, 40))
    found = reasons(lake)
    assert sorted(found) == ["e3", "e40"]
    assert "CHECK constraint seats (seats > 0)" in found["e3"]
    again = send(lake, *events)
    assert (again.accepted, again.duplicates, again.rejected) == (48, 48, 2)
    assert sorted(reasons(lake)) == ["e3", "e40"]


def test_a_value_that_no_partition_can_have_is_a_reject(lake: alluvia.Lake) -> None:
    table = lake.create_table("orders", SCHEMA, partition_by=["plan"])
    answer = send(
        lake,
        {"event_id": "a", "plan": "pro"},
        {"event_id": "b", "plan": ""},
        {"event_id": "c", "seats": "x"},
        {"event_id": "d"},
    )
    assert (answer.accepted, answer.rejected) == (2, 2)
    assert ids(table) == ["a", "d"]
    assert reasons(lake)["b"] == "column plan: the empty string cannot be a partition value; use null"


def test_a_request_of_nothing_but_refused_rows(lake: alluvia.Lake) -> None:
    table = lake.create_table("orders", SCHEMA, properties=SEATS)
    answer = send(lake, {"event_id": "a", "seats": 0}, {"event_id": "b"})
    assert (answer.accepted, answer.rejected, answer.version) == (0, 2, None)
    assert (ids(table), sorted(reasons(lake))) == ([], ["a", "b"])


def test_each_event_is_judged_by_itself_however_many_are_bad(lake: alluvia.Lake) -> None:
    table = lake.create_table("orders", SCHEMA, partition_by=["plan"], properties=SEATS)
    bad: list[dict[str, object]] = [{"event_id": f"bad{n}", "plan": "pro", "seats": -n} for n in range(3000)]
    bad += [{"event_id": f"empty{n}", "plan": "", "seats": 1} for n in range(3000)]
    good: list[dict[str, object]] = [{"event_id": f"good{n}", "plan": "pro", "seats": 1} for n in range(10)]
    answer = send(lake, *good[:5], *bad, *good[5:])
    assert (answer.stored, answer.rejected) == (10, 6000)
    assert ids(table) == sorted(str(event["event_id"]) for event in good)
    found = reasons(lake)
    assert len(found) == 6000
    assert found["bad7"].startswith("the row breaks the CHECK constraint seats (seats > 0): {'seats': -7}")
    assert found["empty7"].startswith("column plan: the empty string")


def test_a_row_on_which_a_constraint_fails_is_a_reject(lake: alluvia.Lake) -> None:
    table = lake.create_table("orders", SCHEMA, properties={"delta.constraints.price": "seats * seats > 0"})
    huge: list[dict[str, object]] = [{"event_id": f"huge{n}", "seats": 2**62} for n in range(50)]
    answer = send(lake, {"event_id": "a", "seats": 1}, *huge, {"event_id": "b", "seats": 2})
    assert (answer.stored, answer.rejected) == (2, 50)
    assert ids(table) == ["a", "b"]
    assert "CHECK constraint price" in reasons(lake)["huge3"]


@pytest.mark.parametrize("value", ["x" * 300, "é" * 2000, "a/b" * 90])
def test_a_long_partition_value_is_one(tmp_path: Path, value: str) -> None:
    lake = alluvia.connect(str(tmp_path))
    table = lake.create_table("orders", SCHEMA, partition_by=["plan"])
    answer = send(
        lake, {"event_id": "a", "plan": value}, {"event_id": "b", "plan": f"{value}."}, {"event_id": "c", "plan": "pro"}
    )
    assert (answer.accepted, answer.rejected) == (3, 0)
    assert lake.sql("SELECT event_id, plan FROM orders ORDER BY 1").to_pylist() == [
        {"event_id": "a", "plan": value},
        {"event_id": "b", "plan": f"{value}."},
        {"event_id": "c", "plan": "pro"},
    ]
    assert len({file.path.rpartition("/")[0] for file in table.snapshot().files}) == 3
