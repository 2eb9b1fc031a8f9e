"""What a table of many files costs, in requests and bytes: opens, refreshes, checkpoints and queries."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock, SystemClock
from alluvia.commit.changes import Changes
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.checkpoints import v2 as checkpoint_v2
from alluvia.delta.log.checkpoints.reader import HEAD_BYTES
from alluvia.delta.skipping.predicate import Comparison
from alluvia.engine.conditions.condition import condition
from alluvia.store import CountingStore, MemoryStore, open_store
from benchmarks import duck
from tests.peer_duckdb import Peer
from tests.s3server import S3Server

FILES = 24_000
FILES_A_DAY = 2_000
ROWS = 100
SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string()), ("day", pa.string())])
SIDECARS = "t/_delta_log/_sidecars/"


@pytest.fixture(autouse=True)
def _smaller_sidecars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_v2, "SIDECAR_ROWS", 512)


MADE_MS = 1_700_000_000_000
"""When the files were made: as a `ManualClock` begins."""


class Recording(CountingStore):
    """A store that counts, and remembers which sidecars are read."""

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        if key.startswith(SIDECARS):
            self.sidecars.append(key)
        return super().get(key, start, end)

    def reset(self) -> None:
        super().reset()
        self.sidecars: list[str] = []


class Place:
    """A lake with a table of many files (their log, that is), a day's in a partition, and a checkpoint of it."""

    def __init__(self, policy: str, files: int = FILES) -> None:
        self.clock = ManualClock()
        self.store = Recording(MemoryStore("m", self.clock))
        properties = {"delta.checkpointPolicy": policy, "delta.checkpointInterval": "1000000"}
        self.table = self.lake().create_table("t", SCHEMA, partition_by=["day"], properties=properties)
        self.table.commit_files([add(number) for number in range(files)])
        self.append("1999-12-31")
        self.table.checkpoint()

    def lake(self) -> Lake:
        return Lake(self.store, self.clock)

    def cold(self) -> Table:
        return self.lake().table("t")

    def append(self, day: str = "2024-12-31") -> None:
        self.table.append([{"id": -5, "s": "x", "day": day}])

    def cost(self, action: Callable[[], Any]) -> dict[str, int]:
        self.store.reset()
        action()
        return dict(self.store.requests)

    def replace(self, number: int) -> None:
        """Replace one file by another, as a delete of some of its rows does."""
        snapshot = self.table.snapshot()
        (file,) = Scan(snapshot, Comparison(("id",), "=", number * ROWS)).files
        new = replace(file, path=file.path.replace("part-", "new-"), uri=None)
        changes = Changes("DELETE", removes=[file.removed(0, data_change=True)], adds=[new])
        self.table._handle.transaction(snapshot).commit(changes)


def add(number: int) -> AddFile:
    day = f"2024-01-{1 + number // FILES_A_DAY:02d}"
    first, last = ({"id": number * ROWS + at, "s": f"name {number:06d} {at:02d}"} for at in (0, ROWS - 1))
    stats = {"numRecords": ROWS, "minValues": first, "maxValues": last, "nullCount": {"id": 0, "s": 0}}
    path = f"day={day}/part-{uuid.uuid5(uuid.NAMESPACE_OID, str(number))}.parquet"
    size = 1000 + number
    return AddFile(path, {"day": day}, size, MADE_MS, data_change=True, stats=orjson.dumps(stats).decode())


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_cold_open_is_one_listing_and_few_gets_however_many_files_there_are(policy: str) -> None:
    """The hint, the checkpoint, and the commit of its version, to compare it with."""
    place = Place(policy)
    assert place.cost(lambda: len(place.cold().snapshot().files)) == {"get": 3, "list": 1}
    for _ in range(5):
        place.append()
    assert place.cost(lambda: len(place.cold().snapshot().files)) == {"get": 3 + 5, "list": 1}
    assert place.store.sidecars == []


@pytest.mark.parametrize("first_line_bytes", [100, HEAD_BYTES])
def test_of_a_big_commit_beside_its_checkpoint_the_start_is_read_alone(first_line_bytes: int) -> None:
    place = Place("classic", 0)
    place.table.commit_files([add(number) for number in range(5000)], txn=("a", 1))
    place.table.checkpoint()
    name = "t/_delta_log/00000000000000000002.json"
    first, _, rest = place.store.get(name).partition(b"\n")
    padded = first[:-2] + b',"note":"' + b"x" * first_line_bytes + b'"}}'
    place.store.put(name, padded + b"\n" + rest)
    place.store.reset()
    snapshot = place.cold().snapshot()
    assert (len(snapshot.files), snapshot.timestamp_ms) == (5001, place.table.snapshot().timestamp_ms)
    checkpoint = len(place.store.inner.get("t/_delta_log/00000000000000000002.checkpoint.parquet"))
    commit = len(padded) + 1 + len(rest)
    again = commit if first_line_bytes == HEAD_BYTES else 0
    assert commit > 4 * HEAD_BYTES
    assert place.store.bytes_read <= checkpoint + 100 + HEAD_BYTES + again


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_warm_refresh_is_a_get_for_each_commit_of_others_and_one_that_finds_none(policy: str) -> None:
    place = Place(policy, 3000)
    warm = place.cold()
    warm.snapshot()
    for commits in (0, 1, 12):
        for _ in range(commits):
            place.append()
        assert place.cost(warm.snapshot) == {"get": commits + 1}
    place.replace(7)
    place.table.checkpoint()
    assert place.cost(warm.snapshot) == {"get": 1 + 1}


@pytest.mark.slow
def test_a_checkpoint_after_a_change_writes_what_changed() -> None:
    full, parts = Place("classic"), Place("v2")
    for place in (full, parts):
        place.replace(FILES // 2)
    assert full.cost(full.table.checkpoint) == {"get": 1, "put": 2}
    cost = parts.cost(parts.table.checkpoint)
    assert cost == {"get": 1, "put": 5}  # the sidecars that lost a file, of what is new, of what went; manifest; hint
    assert parts.store.bytes_written < 0.05 * full.store.bytes_written
    assert list(parts.cold().snapshot().files.keys()) == [file.key for file in parts.table.snapshot().files]


def test_a_cold_writer_opens_the_sidecars_that_a_change_may_touch() -> None:
    place = Place("v2")
    place.replace(FILES // 2)
    place.table.checkpoint()
    place.table = place.cold()
    place.store.reset()
    place.replace(FILES // 3)
    place.table.checkpoint()
    of_a_day, small = 2 + FILES_A_DAY // 512, 3
    assert 1 <= len(place.store.sidecars) <= of_a_day + small
    assert len(list(place.store.list(SIDECARS))) > FILES // 512


def test_a_checkpoint_reads_no_commits_where_there_are_no_events() -> None:
    place = Place("classic", 100)
    for _ in range(20):
        place.append()
    cold = place.cold()
    cold.snapshot()
    assert place.cost(cold.checkpoint) == {"get": 1, "put": 2}


@pytest.mark.parametrize(
    ("where", "sidecars"),
    [
        (f"id = {12_345 * ROWS + 12}", 1),
        (f"id >= {5_000 * ROWS} AND id < {6_000 * ROWS}", 3),
        ("day = '2024-01-07' AND id > 0", 5),
        ("day = '1998-01-07'", 0),
        ("id < -5", 0),
    ],
)
def test_a_filtered_scan_opens_the_sidecars_that_can_match(where: str, sidecars: int) -> None:
    place = Place("v2", 12_288 + 2_000)
    predicate = condition(where, SCHEMA).predicate
    snapshot = place.cold().snapshot()
    place.store.reset()
    found = Scan(snapshot, predicate).files
    assert len(place.store.sidecars) == sidecars
    assert [file.key for file in found] == [file.key for file in Scan(place.table.snapshot(), predicate).files]


def test_a_selective_query_asks_for_less_than_delta_scan(s3_server: S3Server) -> None:
    """Our query asks once for each matching file, and whether there is a newer commit; the next one only for that."""
    s3_server.inject()
    bucket = s3_server.new_bucket()
    clock = SystemClock()

    def lake() -> Lake:
        return Lake(open_store(f"s3://{bucket}", clock, **s3_server.options), clock)

    table = lake().create_table("t", SCHEMA, partition_by=["day"], properties={"delta.checkpointInterval": "1000"})
    writer = table._handle.writer(table.snapshot())
    real = [writer.write(rows(number))[0] for number in range(40, 43)]
    others = [add(number) for number in range(200) if number not in range(40, 43)]
    table.commit_files([*real, *(replace(each, modification_time=clock.now_ms()) for each in others)])
    table.checkpoint()
    query = f"SELECT count(*), min(s) FROM {{}} WHERE id BETWEEN {40 * ROWS} AND {43 * ROWS - 1}"
    urls = [f"s3://{bucket}/t/{file.path}" for file in real]
    warm = lake()
    warm.sql(query.format("t"))
    ours = _requests(s3_server, lambda: _rows(warm.sql(query.format("t"))))
    cold = _requests(s3_server, lambda: _rows(lake().sql(query.format("t"))))
    with duck.connect(s3_server.options) as connection:
        by_hand = _requests(s3_server, lambda: _fetched(connection, query.format(f"read_parquet({urls})")))
    with duck.connect(s3_server.options, "delta") as connection:
        scan = _requests(s3_server, lambda: _fetched(connection, query.format(f"delta_scan('s3://{bucket}/t')")))
    assert ours[0] == cold[0] == by_hand[0] == scan[0] == [(3 * ROWS, "name 000040 00")]
    assert ours[1] == Counter({"GET": 1})
    assert cold[1] == Counter({"GET": 3 + len(real), "LIST": 1})
    assert ours[1].total() < cold[1].total() <= by_hand[1].total() + 4 < scan[1].total()


def rows(number: int) -> pa.Table:
    ids = range(number * ROWS, (number + 1) * ROWS)
    names = [f"name {number:06d} {at:02d}" for at in range(ROWS)]
    return pa.table([pa.array(ids, pa.int64()), names, ["2024-01-01"] * ROWS], schema=SCHEMA)


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def _fetched(connection: Peer, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query).fetchall()


def _requests(server: S3Server, action: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], Counter[str]]:
    server.requests()
    return action(), server.requests()
