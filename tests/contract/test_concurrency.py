"""Many processes on one table: none fails, nothing is lost, nothing is there twice."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.delta.log.paths import LOG_FOLDER, parse_name
from alluvia.store import CountingStore
from alluvia.store.s3.bucket import S3Store
from tests.contract.workers import race, workers
from tests.judges import deltalake_rows, duckdb_rows, options_of, ours

pytestmark = pytest.mark.slow


def arguments(lake: Lake, **more: Any) -> dict[str, Any]:
    store = lake.store
    assert isinstance(store, CountingStore)
    options: dict[str, str] = {}
    if isinstance(store.inner, S3Store):
        options = options_of(store.inner)
    return {"uri": store.uri, "options": options, "table": "t", **more}


def gapless(lake: Lake) -> int:
    """Assert that the log holds every version once; return the newest."""
    names = [info.key.removeprefix(f"t/{LOG_FOLDER}") for info in lake.store.list(f"t/{LOG_FOLDER}")]
    versions = [file.version for name in names if (file := parse_name(name)) is not None and name.endswith(".json")]
    assert versions == list(range(len(versions)))
    return len(versions) - 1


def judged(table: Table) -> Counter[str]:
    """Return the ids of the newest version's rows, which both judges see too."""
    rows = ours(table)
    assert deltalake_rows(table) == rows
    assert duckdb_rows(table) == rows
    return Counter(str(dict(row).get("event_id", dict(row).get("id"))) for row in rows)


def test_sixteen_processes_append_to_one_table(shared_lake: Lake) -> None:
    table = shared_lake.create_table("t", pa.schema([("id", pa.string()), ("worker", pa.int64())]))
    writers, commits, rows = 16, 4, 3
    jobs = [("append", arguments(shared_lake, worker=worker, commits=commits, rows=rows)) for worker in range(writers)]
    versions = race(jobs)
    assert sorted(version for each in versions for version in each) == list(range(1, writers * commits + 1))
    assert all(each == sorted(each) for each in versions)
    assert gapless(shared_lake) == writers * commits
    sent = [f"{w}-{c}-{at}" for w in range(writers) for c in range(commits) for at in range(rows)]
    assert judged(table) == Counter(sent)


def test_the_same_events_from_several_processes_are_there_once(shared_lake: Lake) -> None:
    table = shared_lake.create_events("t", partition_by=())
    sources = 6
    batches = [[f"e{number}" for number in range(start, start + 8)] for start in range(0, 60, 4)]
    jobs = [
        ("ingest", arguments(shared_lake, batches=batches if worker % 2 else batches[::-1]))
        for worker in range(sources)
    ]
    answers = race(jobs)
    distinct = {each for batch in batches for each in batch}
    assert judged(table) == Counter(distinct)
    assert sum(rows for each in answers for _, rows, _ in each) == len(distinct)
    for each in answers:
        assert [rows + duplicates for _, rows, duplicates in each] == [8] * len(batches)
    gapless(shared_lake)


def test_merges_and_appends_at_once_lose_and_double_nothing(shared_lake: Lake) -> None:
    table = shared_lake.create_table(
        "t", pa.schema([("id", pa.string()), ("worker", pa.int64())]), properties={"delta.checkpointInterval": "5"}
    )
    for number in range(10):
        table.append([{"id": f"first-{number}", "worker": -1}])
    jobs = [("append", arguments(shared_lake, worker=worker, commits=8, rows=2)) for worker in range(3)]
    jobs += [("maintain", arguments(shared_lake, rounds=6, vacuum=False)) for _ in range(2)]
    results = race(jobs)
    sent = [f"{w}-{c}-{at}" for w in range(3) for c in range(8) for at in range(2)]
    expected = Counter([*sent, *(f"first-{number}" for number in range(10))])
    assert judged(table) == expected
    assert sum(sum(each) for each in results[3:]) > 0
    for version in range(gapless(shared_lake) + 1):
        ids = Counter(str(dict(row)["id"]) for row in ours(table, version))
        assert not ids - expected


def test_ingest_with_merge_and_vacuum_at_once(shared_lake: Lake) -> None:
    table = shared_lake.create_events("t", partition_by=(), properties={"delta.checkpointInterval": "4"})
    batches = [[f"{start}-{at}" for at in range(3)] for start in range(12)]
    jobs = [("ingest", arguments(shared_lake, batches=batches)) for _ in range(3)]
    jobs += [("maintain", arguments(shared_lake, rounds=4, vacuum=True)) for _ in range(2)]
    answers = race(jobs)[:3]
    expected = Counter(each for batch in batches for each in batch)
    assert judged(table) == expected
    assert sum(rows for each in answers for _, rows, _ in each) == expected.total()


@pytest.mark.parametrize("seed", [1])
def test_killed_writers_leave_every_acknowledged_event_once(shared_lake: Lake, seed: int) -> None:
    table = shared_lake.create_events("t", partition_by=(), properties={"delta.checkpointInterval": "3"})
    acknowledged: set[str] = set()
    sent: set[str] = set()
    kills = 6
    for attempt in range(kills):
        batches = [[f"{attempt}-{batch}-{at}" for at in range(2)] for batch in range(400)]
        again = sorted(sent)
        jobs = [
            ("ingest", arguments(shared_lake, batches=[again, *batches] if again else batches)),
            ("maintain", arguments(shared_lake, rounds=1000, vacuum=False)),
        ]
        with workers(jobs) as (writer, keeper):
            answers = [writer.line() for _ in range(2)]
            time.sleep(0.05 * (1 + (seed + attempt) % 4))
            answers += writer.kill()
            keeper.kill()
        done = [again, *batches][: len(answers)] if again else batches[: len(answers)]
        assert all(answers)
        acknowledged |= {each for batch in done for each in batch}
        sent |= acknowledged | set(batches[len(answers) - bool(again)])
        found = Counter(
            Lake(shared_lake.store, shared_lake.clock).table("t").scan(["event_id"]).read_all()["event_id"].to_pylist()
        )
        assert acknowledged <= set(found) <= sent
        assert set(found.values()) == {1}
    gapless(shared_lake)
    assert judged(table).keys() >= acknowledged
