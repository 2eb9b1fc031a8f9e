"""Values of promoted fields: as they were sent in `properties`, and as their type in the column."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.store import MemoryStore
from tests.promoted import ARRIVAL_US, rows, send, stored


def test_what_does_not_fit_the_column_stays_in_properties() -> None:
    lake = Lake(MemoryStore("promoted-misfit"), ManualClock(ARRIVAL_US, 7))
    lake.create_events("clicks")
    send(lake, [{"event_id": "a", "n": 1}, {"event_id": "b", "n": "many"}, {"event_id": "c", "n": 2.5}])
    lake["clicks"].evolve(add={"n": "long"})
    send(lake, [{"event_id": "d", "n": 4}])
    wanted = [("a", 1, "1"), ("b", None, "many"), ("c", None, "2.5"), ("d", 4, "4")]
    query = "SELECT event_id, n, properties->>'n' FROM clicks ORDER BY 1"
    assert rows(lake, query) == wanted
    lake["clicks"].optimize()
    assert rows(lake, query) == wanted


SPELLED: dict[str, list[Any]] = {
    "long": [2, 2.0, 1e3, -0.0],
    "double": [12, 12.0, 0.5, 1e21],
    "decimal(10,2)": [1, 1.5, "2.50", "3"],
    "timestamp": [1_700_000_000, "2026-01-02T03:04:05.000Z", "2026-01-02T03:04:05Z", "2026-01-02T04:04:05+01:00"],
}


@pytest.mark.parametrize("kind", SPELLED)
def test_properties_show_a_value_as_it_was_sent_before_and_after_it_has_a_column(kind: str) -> None:
    lake = Lake(MemoryStore(f"promoted-spelled-{kind}"), ManualClock(ARRIVAL_US, 7))
    lake.create_events("clicks")
    query = "SELECT properties->>'v' AS v, properties->'v' AS json, count(*) AS n FROM clicks GROUP BY 1, 2"
    lake.create_rollup("spellings", query)
    for place in ("old", "new"):
        send(lake, [{"event_id": f"{place}-{at}", "v": value, "k": 1} for at, value in enumerate(SPELLED[kind])])
        send(lake, [{"event_id": f"{place}-in", "k": 1, "properties": {"v": SPELLED[kind][0], "o": 1}}])
        if place == "old":
            once = rows(lake, f"{query} ORDER BY ALL")
            lake["clicks"].evolve(add={"v": kind})
            before = rows(lake, "SELECT v FROM clicks ORDER BY event_id")
    twice = [(text, json, 2 * n) for text, json, n in once]
    assert rows(lake, f"{query} ORDER BY ALL") == twice
    assert rows(lake, "SELECT v FROM clicks WHERE event_id LIKE 'new%' ORDER BY event_id") == before
    lake["spellings"].refresh()
    lake["clicks"].optimize(backfill=True)
    lake["clicks"].optimize(full=True)
    assert set(stored(lake)) == {"1"}
    assert rows(lake, f"{query} ORDER BY ALL") == twice
    lake["clicks"].delete("event_id LIKE 'new%'")
    lake["spellings"].refresh()
    assert rows(lake, "SELECT v, json, n FROM spellings ORDER BY ALL") == once
    lake["clicks"].update({"v": "NULL"}, "event_id = 'old-0'")
    assert rows(lake, "SELECT v, properties->>'v', properties->>'k' FROM clicks WHERE event_id = 'old-0'") == [
        (None, None, "1")
    ]


@pytest.mark.parametrize("null", [False, True])
def test_events_in_blocks_keep_the_spelling_too(null: bool) -> None:
    lake = Lake(MemoryStore(f"promoted-blocks-{null}"), ManualClock(ARRIVAL_US, 7))
    lake.create_events("clicks")
    lake["clicks"].evolve(add={"v": "double", "seen": "timestamp", "n": "integer"})
    times = ["2026-01-02T03:04:05.000Z", "2026-01-02T03:04:05Z"]
    sent = [
        {"event_id": f"e{at:04}", "v": at, "seen": times[at % 2], "n": at, "page": {"x": at}} for at in range(5_000)
    ]
    if null:
        sent[7]["v"] = None
    send(lake, sent)
    found = rows(lake, "SELECT event_id, v, epoch_ms(seen), n, properties FROM clicks ORDER BY 1")
    at_ms = 1_767_323_045_000
    assert [row[:4] for row in found] == [(each["event_id"], each["v"], at_ms, each["n"]) for each in sent]
    texts = [{key: value for key, value in each.items() if key != "event_id" and value is not None} for each in sent]
    assert [orjson.loads(row[4]) for row in found] == texts
    assert [type(orjson.loads(row[4]).get("v")) for row in found[8:]] == [int] * (len(sent) - 8)


def test_times_that_only_ingestion_reads_are_read_by_queries() -> None:
    lake = Lake(MemoryStore("promoted-times"), ManualClock(ARRIVAL_US, 7))
    lake.create_events("clicks")
    send(lake, [{"event_id": "a", "seen": "2026-11-20T10:00Z"}, {"event_id": "b", "seen": 1_700_000_000.25}])
    lake["clicks"].evolve(add={"seen": "timestamp"})
    found = rows(lake, "SELECT epoch_ms(seen) FROM clicks ORDER BY event_id")
    assert found == [(1_795_168_800_000,), (1_700_000_000_250,)]
