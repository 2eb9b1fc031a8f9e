"""Streams from tables: what each change of the table, and each kind of upkeep, does to them."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import Invalid, TableNotFound, VersionExpired
from alluvia_spark.data_source import AlluviaSource
from tests import judges
from tests.examples import seeds_from
from tests.spark.following import Follower, Row
from tests.spark.streams import run

START = datetime.now(UTC)  # vacuum compares times of files, too


@pytest.fixture
def clock() -> ManualClock:
    clock = ManualClock()
    clock.advance(START.timestamp() - clock.now_us() / 1e6)
    return clock


@pytest.fixture
def table(tmp_path: Path, clock: ManualClock) -> Table:
    return alluvia.connect(str(tmp_path / "lake"), clock=clock).create_table("t", {"n": "long"})


def append(table: Table, *numbers: int) -> None:
    table.append([{"n": n} for n in numbers])


def numbers(rows: list[Row]) -> list[int]:
    return sorted(row["n"] for row in rows)


def all_numbers(follower: Follower) -> list[list[int]]:
    """Return the numbers of the batches that are left, without those that have none."""
    return [numbers(rows) for rows in follower.batches() if rows]


def test_a_stream_begins_with_all_rows_and_goes_on_with_those_that_are_added(table: Table) -> None:
    append(table, 1, 2)
    append(table, 3)
    table.delete("n = 2")
    follower = Follower(table)
    assert all_numbers(follower) == [[1, 3]]
    assert all_numbers(follower) == []
    append(table, 4)
    append(table, 5)
    assert all_numbers(follower) == [[4, 5]]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_batch_has_as_many_files_as_the_limits_allow(table: Table, restarts: bool) -> None:
    for n in range(5):
        append(table, n)
    follower = Follower(table, maxFilesPerTrigger="2")
    found = []
    for _ in range(3):
        found.append(len(follower.batch()))
        if restarts:
            follower.start()
    assert found == [2, 2, 1]
    table.append([{"n": 10}])
    table.evolve(properties={"alluvia.target_file_size": "1 MB"})
    append(table, 11)
    append(table, 12)
    assert all_numbers(follower) == [[10, 11], [12]]
    sizes = Follower(table, maxBytesPerTrigger="1", startingVersion="0")
    assert all_numbers(sizes) == [[n] for n in (0, 1, 2, 3, 4, 10, 11, 12)]
    assert len(all_numbers(Follower(table, maxBytesPerTrigger="1g"))) == 1


def test_rows_that_come_while_a_stream_begins_are_read_once(table: Table) -> None:
    append(table, 1)
    follower = Follower(table, maxFilesPerTrigger="1")
    end = json.dumps(follower.stream.latestOffset())
    append(table, 2)
    follower.offset = end
    assert numbers(follower.rows(json.dumps(follower.stream.initialOffset()), end)) == [1]
    assert all_numbers(follower) == [[2]]


def test_where_a_stream_begins(table: Table, clock: ManualClock) -> None:
    append(table, 1)
    clock.advance(3600)
    append(table, 2)
    append(table, 3)
    for options, wanted in (
        ({"startingVersion": "2"}, [2, 3]),
        ({"startingVersion": "4"}, []),
        ({"startingVersion": "latest"}, []),
        ({"startingTimestamp": (START + timedelta(minutes=30)).isoformat()}, [2, 3]),
        ({"startingTimestamp": "2020-01-01"}, [1, 2, 3]),
        ({"startingTimestamp": "2030-01-01"}, []),
    ):
        follower = Follower(table, **options)
        assert [n for batch in all_numbers(follower) for n in batch] == wanted, options
    for options, message in (
        ({"startingVersion": "9"}, "table t has no version 9: the newest is 3"),
        ({"startingVersion": "x"}, "option startingVersion: 'x' is not a whole number"),
        ({"startingVersion": "1", "startingTimestamp": "2026-01-01"}, "startingTimestamp: give one of them"),
        ({"startingTimestamp": "soon"}, "'soon' is not an ISO 8601 time"),
        ({"maxFilesPerTrigger": "0"}, "option maxFilesPerTrigger: 0 would read nothing"),
        ({"maxBytesPerTrigger": "many"}, "'many' is not a number of bytes, such as '64m'"),
        ({"readChangeFeed": "true", "ignoreDeletes": "true"}, "a change feed has all changes"),
    ):
        with pytest.raises(Invalid, match=message):
            Follower(table, **options).batch()


def test_options_of_batch_reads_are_refused(table: Table) -> None:
    for option, message in (("where", "use filter"), ("version", "use startingVersion")):
        source = AlluviaSource({"path": judges.uri_of(table), option: "1"})
        with pytest.raises(Invalid, match=message):
            source.streamReader(StructType())


def test_changes_stop_a_stream_of_appended_rows_unless_told_otherwise(table: Table) -> None:
    append(table, 1, 2, 3)
    followers = {
        name: Follower(table, **{name: "true"} if name else {}) for name in ("", "ignoreDeletes", "skipChangeCommits")
    }
    for follower in followers.values():
        follower.batch()
    append(table, 4)
    table.delete("true")
    append(table, 5)
    strict = followers[""]
    assert numbers(strict.batch()) == [4]  # all that comes before
    for _ in range(2):
        with pytest.raises(
            Invalid, match=r"version 3 of table t changes earlier rows .*DELETE.*skipChangeC.*ignoreDel"
        ):
            strict.batch()
        strict.start()
    strict.options["ignoreDeletes"] = "true"
    strict.start()
    assert all_numbers(strict) == [[5]]
    assert all_numbers(followers["ignoreDeletes"]) == [[4, 5]]
    table.update({"n": "50"}, where="n = 5")
    append(table, 6)
    with pytest.raises(Invalid, match=r"version 5 .*UPDATE.*skipChangeCommits.* out; or read all changes"):
        followers["ignoreDeletes"].batch()
    assert all_numbers(followers["skipChangeCommits"]) == [[4, 5, 6]]
    table.restore(version=2)
    append(table, 7)
    assert all_numbers(followers["skipChangeCommits"]) == [[7]]


def test_upkeep_does_not_disturb_a_stream(tmp_path: Path, clock: ManualClock) -> None:
    lake = alluvia.connect(str(tmp_path / "lake"), clock=clock)
    given = {"alluvia.ttl": "2 days", "delta.enableDeletionVectors": "true"}
    table = lake.create_table("t", {"n": "long", "day": "date"}, ["day"], properties=given)
    day = START.date()
    table.append([{"n": 1, "day": day - timedelta(days=1)}, {"n": 2, "day": day}])
    plain, feed = Follower(table), Follower(table, readChangeFeed="true")
    assert [numbers(each.batch()) for each in (plain, feed)] == [[1, 2], [1, 2]]
    table.append([{"n": 3, "day": day}])
    table.append([{"n": 4, "day": day}])
    assert [all_numbers(each) for each in (plain, feed)] == [[[3, 4]], [[3, 4]]]
    table.optimize(full=True)
    clock.advance(86400 * 2)
    assert table.expire().rows == 1
    table.checkpoint()
    table.evolve(properties={"delta.checkpointInterval": "10"})
    table.erase("n = 4")
    table.append([{"n": 5, "day": day}])
    lake.drop_table("t")
    for each in (plain, feed):
        with pytest.raises(TableNotFound, match="it was dropped"):
            each.start()
    lake.undrop("t")
    table.append([{"n": 6, "day": day}])
    for each in (plain, feed):
        each.start()
        assert all_numbers(each) == [[5, 6]]
    for options, message in (({}, "vacuum or an erasure has deleted"), ({"readChangeFeed": "true"}, "have expired")):
        with pytest.raises(VersionExpired, match=message):
            all_numbers(Follower(table, startingVersion="1", **options))


def test_a_stream_that_is_too_far_behind_says_so(table: Table, clock: ManualClock) -> None:
    append(table, 1)
    behind = Follower(table, startingVersion="1")
    append(table, 2)
    table.optimize(full=True)
    clock.advance(86400 * 40)
    assert len(table.vacuum().data_files) == 2
    gone = r"come to version 1 of table t, whose file .* vacuum or an erasure has deleted: start with a new checkpoint"
    with pytest.raises(VersionExpired, match=gone):
        behind.batch()
    for n in range(3, 30):
        append(table, n)
        if n % 10 == 0:
            table.checkpoint()
    clock.advance(86400 * 60)
    append(table, 30)
    table.checkpoint()
    table.vacuum()
    behind.start()
    left = r"goes on with version 1 of table t, and the oldest that is left is 33: .* option\('startingVersion', '33'\)"
    with pytest.raises(VersionExpired, match=left):
        behind.batch()


def test_a_table_with_other_columns(table: Table) -> None:
    append(table, 1)
    follower = Follower(table)
    follower.batch()
    append(table, 2)
    table.evolve({"more": "string"})
    table.append([{"n": 3, "more": "x"}])
    assert follower.batch() == [{"n": 2}]
    with pytest.raises(Invalid, match="version 3 changes the columns of table t: start the query again"):
        follower.batch()
    follower.start()
    assert follower.batch() == [{"n": 3, "more": "x"}]
    append(table, 4)
    table.evolve(rename={"n": "number"})
    table.evolve(drop=["more"])
    follower.start()
    assert follower.batch() == [{"number": 4}]
    table.lake.drop_table("t")
    new = table.lake.create_table("t", {"number": "long"})
    new.append([{"number": 1}])
    with pytest.raises(Invalid, match="was dropped and created again since the stream began: start with a new check"):
        follower.start()


@pytest.mark.parametrize("seed", seeds_from(0, 6))
def test_the_changes_add_up_to_the_table(tmp_path: Path, clock: ManualClock, seed: int) -> None:
    """Whatever happens to the table, wherever batches end, and whenever the query starts again."""
    chance = random.Random(seed)
    lake = alluvia.connect(str(tmp_path / "lake"), clock=clock)
    given = {"delta.enableChangeDataFeed": "true"} if chance.random() < 0.3 else {}
    table = lake.create_table("t", {"n": "long"}, properties=given)
    append(table, *range(4))
    limits = {"maxBytesPerTrigger": "1"} if chance.random() < 0.5 else {}
    follower = Follower(table, readChangeFeed="true", **limits)
    held: Counter[int] = Counter()
    steps: dict[str, Callable[[], object]] = {
        "append": lambda: append(table, *(chance.randrange(20) for _ in range(chance.randrange(1, 4)))),
        "delete": lambda: table.delete(f"n % 5 = {chance.randrange(5)}"),
        "update": lambda: table.update({"n": "n + 1"}, where=f"n % 4 = {chance.randrange(4)}"),
        "optimize": lambda: table.optimize(full=True),
        "restore": lambda: table.restore(version=chance.randrange(1, table.version + 1)),
        "start": follower.start,
        "batch": lambda: held.update(_net(follower.batch())),
    }
    for _ in range(20):
        steps[chance.choice(list(steps))]()
    for rows in follower.batches():
        held.update(_net(rows))
    assert +held == Counter(table.to_arrow()["n"].to_pylist())
    assert min(held.values(), default=0) >= 0


def _net(rows: list[Row]) -> Counter[int]:
    net: Counter[int] = Counter()
    for row in rows:
        net[row["n"]] += 1 if row["_change_type"] in ("insert", "update_postimage") else -1
    return net


def test_spark_reads_a_table_into_another_and_goes_on(registered: SparkSession, lake: Lake, tmp_path: Path) -> None:
    source = lake.create_table("source", {"n": "long"})
    append(source, 0, 1)
    append(source, 2, 3)
    path, copy, checkpoint = f"{lake.uri}/source", f"{lake.uri}/copy", tmp_path / "checkpoint"
    rows = registered.readStream.format("alluvia").option("maxFilesPerTrigger", "1").load(path)
    run(rows, copy, checkpoint)
    assert lake["copy"].count() == (2 if pyspark.__version__.startswith("4.1.") else 4)  # 4.1 ends a run after a batch
    run(rows, copy, checkpoint)
    assert sorted(lake["copy"].to_arrow()["n"].to_pylist()) == [0, 1, 2, 3]
    source.delete("n = 1")
    feed = registered.readStream.format("alluvia").option("readChangeFeed", "true").option("table", "source")
    run(feed.option("startingVersion", "1").load(lake.uri), f"{lake.uri}/feed", tmp_path / "feed")
    found = lake["feed"].to_arrow(["n", "_change_type"], where="n < 2").to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [(0, "insert"), (1, "delete"), (1, "insert")]
    with pytest.raises(PySparkException, match="option startingVersion is for streams"):
        registered.read.format("alluvia").option("startingVersion", "1").load(path).collect()
