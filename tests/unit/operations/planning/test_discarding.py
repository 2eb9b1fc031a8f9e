"""Files of a commit that lost to a change of the table are deleted at once: nothing can need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.errors import MetadataChanged
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import RawEvent
from tests.erased import traces
from tests.unit.operations.races import Race

VICTIM = "mallory@example.org"
COLUMNS = {"u": "string", "n": "long"}
ROWS = [{"u": VICTIM, "n": 1}]


def partly_erased(lake: Lake) -> bool:
    report = lake.table("t").erase(f"u = '{VICTIM}'", prove=True)
    return report.ok and traces(lake.store, VICTIM) == []


def constrain(table: Table) -> None:
    table.evolve(properties={"alluvia.id_field": "n"})


def test_an_append_that_lost_to_a_new_rule_leaves_nothing(lake: Lake) -> None:
    lake.create_table("t", COLUMNS)
    race = Race(lake)
    table = race.table(constrain)
    with pytest.raises(MetadataChanged):
        table.append(ROWS)
    assert not list(lake.store.list("t/part-"))
    assert partly_erased(lake)


@pytest.mark.parametrize("change", ["update", "append evolving"])
def test_what_is_planned_again_leaves_no_files_of_the_plan_before(lake: Lake, change: str) -> None:
    lake.create_table("t", COLUMNS).append([{"u": "bob", "n": 2}, *ROWS])
    race = Race(lake)
    table = race.table(constrain)
    acts: dict[str, Callable[[], object]] = {
        "update": lambda: table.update({"n": "n + 1"}, where="n = 1"),
        "append evolving": lambda: table.append([{"u": VICTIM, "n": 1, "new": "x"}], evolve=True),
    }
    acts[change]()
    files = {f"t/{file.path}" for file in lake.table("t").files}
    written = {info.key for info in lake.store.list("t/part-")}
    assert len(written - files) == (1 if change == "update" else 0)  # what the update replaced
    assert partly_erased(lake)


def test_events_that_meet_a_new_column_leave_no_file_of_their_first_rows(lake: Lake, other: Lake) -> None:
    lake.create_events("t", pa.schema([("n", pa.int64())]))
    race = Race(lake)
    table = race.table(lambda theirs: theirs.evolve({"u": "string"}))
    sent: list[dict[str, Any]] = [{"event_id": "a", "u": VICTIM, "n": 1}]
    events = [RawEvent(at, event) for at, event in enumerate(sent)]
    assert ingest_batch(table.lake.catalog, "t", events, arrival_us=lake.clock.now_us()).stored == 1
    files = {f"t/{file.path}" for file in other.table("t").files}
    assert {info.key for info in lake.store.list("t/") if info.key.endswith(".parquet")} == files
    assert partly_erased(lake)
