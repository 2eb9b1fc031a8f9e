"""The change feed: exactly the rows that each commit changed, however its files say so."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.changes import Changes
from alluvia.delta.log.actions import AddFile, RemoveFile
from alluvia.errors import Corrupt, Invalid, VersionExpired, VersionNotFound
from tests.unit.operations.row_samples import SCHEMA, make

FEEDS: dict[str, dict[str, str]] = {
    "copied": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "fed": {"delta.enableChangeDataFeed": "true"},
    "vectors, fed": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
}
every_feed = pytest.mark.parametrize("feed", FEEDS)
NET = {"insert": "insert", "update_postimage": "insert", "delete": "delete", "update_preimage": "delete"}


def make_fed(lake: Lake, feed: str) -> Table:
    return make(lake, properties=FEEDS[feed])


def of(table: Table, version: int, to: int | None = None) -> list[tuple[str, int, str, str]]:
    """Return the changes of a version as type, id, name and place; updates as a delete and an insert."""
    rows = table.changes(version, version if to is None else to).read_all().to_pylist()
    return [(NET[row["_change_type"]], row["id"], row["name"], row["place"]) for row in rows]


@every_feed
def test_every_operation(lake: Lake, feed: str) -> None:
    table = make_fed(lake, feed)
    assert of(table, 0) == []
    assert of(table, 1) == [("insert", n, f"n{n}", "a") for n in range(10)]
    table.delete("id IN (3, 13)")
    assert sorted(of(table, 4)) == [("delete", 3, "n3", "a"), ("delete", 13, "n13", "b")]
    table.update({"name": "'x'"}, where="id = 4")
    assert of(table, 5) == [("delete", 4, "n4", "a"), ("insert", 4, "x", "a")]
    table.update({"place": "'z'"}, where="id = 5")
    assert of(table, 6) == [("delete", 5, "n5", "a"), ("insert", 5, "n5", "z")]
    table.upsert(
        [{"id": 4, "name": "y", "place": "a"}, {"id": 100, "name": "new", "place": "b"}], on=["id"],
    )  # fmt: skip
    assert sorted(of(table, 7)) == sorted(
        [("delete", 4, "x", "a"), ("insert", 4, "y", "a"), ("insert", 100, "new", "b")]
    )
    table.delete("place = 'c'")
    assert sorted(of(table, 8)) == [("delete", n, f"n{n}", "c") for n in range(20, 30)]
    table.optimize(full=True)
    table.checkpoint()
    for version in range(9, table.snapshot().version + 1):
        assert of(table, version) == []
    before = Counter(of(table, 0, 3))
    table.restore(version=3)
    newest = table.snapshot().version
    everything = Counter(of(table, 0, newest))
    balance: Counter[tuple[int, str, str]] = Counter()
    for (kind, number, name, place), times in everything.items():
        balance[number, name, place] += times if kind == "insert" else -times
    assert +balance == Counter({key[1:]: times for key, times in before.items()})
    assert min(balance.values()) == 0


@every_feed
def test_a_delete_that_takes_files_whole_beside_others(lake: Lake, feed: str) -> None:
    table = make_fed(lake, feed)
    table.delete("place = 'b' OR id = 3")
    gone = [("delete", 3, "n3", "a"), *(("delete", n, f"n{n}", "b") for n in range(10, 20))]
    assert sorted(of(table, 4)) == sorted(gone)


@every_feed
def test_rows_that_only_moved_to_another_file_are_not_there(lake: Lake, feed: str) -> None:
    table = make_fed(lake, feed)
    table.append([{"id": 1, "name": "n1", "place": "a"}, {"id": 1, "name": "n1", "place": "a"}])
    table.update({"name": "name"}, where="id < 10")
    found = Counter(of(table, 5))
    assert {key for key, _ in found.items() if found[("delete", *key[1:])] != found[("insert", *key[1:])]} == set()


def test_a_row_that_stands_several_times_is_counted(lake: Lake) -> None:
    table = lake.create_table("t", {"x": "long"})
    table.append([{"x": 1}] * 5 + [{"x": 2}] * 2)
    file = next(iter(table.snapshot().files))
    writer = table._handle.writer(table.snapshot())
    adds = writer.write(pa.table({"x": [1, 1, 2, 2, 2, 2]}))
    transaction = table._handle.transaction(table.snapshot())
    transaction.commit(Changes("REPLACE", adds=adds, removes=[file.removed(0, data_change=True)]))
    rows = table.changes(2).read_all().to_pylist()
    assert [(row["_change_type"], row["x"]) for row in rows] == [("delete", 1)] * 3 + [("insert", 2)] * 2


def test_columns_and_types_of_the_feed(lake: Lake, clock: ManualClock) -> None:
    table = make(lake)
    clock.advance(60)
    table.delete("id = 3")
    found = table.changes(4)
    assert found.schema == pa.schema(
        [*SCHEMA, ("_change_type", pa.string()), ("_commit_version", pa.int64()),
         ("_commit_timestamp", pa.timestamp("us", tz="UTC"))]
    )  # fmt: skip
    row = found.read_all().to_pylist()[0]
    moment = datetime.fromtimestamp(table.snapshot().timestamp_ms / 1000, UTC)
    assert (row["_commit_version"], row["_commit_timestamp"]) == (4, moment)


@pytest.mark.parametrize("feed", ["fed", "vectors, fed"])
def test_updates_are_told_from_inserts_where_there_are_change_files(lake: Lake, feed: str) -> None:
    table = make_fed(lake, feed)
    table.upsert([{"id": 3, "name": "x", "place": "a"}, {"id": 100, "name": "y", "place": "a"}], on=["id"])
    rows = table.changes(4).read_all().to_pylist()
    assert sorted((row["_change_type"], row["id"], row["name"]) for row in rows) == [
        ("insert", 100, "y"),
        ("update_postimage", 3, "x"),
        ("update_preimage", 3, "n3"),
    ]
    commit = table._handle.log.read_commit(4)
    assert commit is not None
    assert [file.path.startswith("_change_data/place=a/cdc-") for file in commit.cdc] == [True]
    assert not any(file.path.startswith("_change_data") for file in table.snapshot().files)


def test_commits_that_need_no_change_files_have_none(lake: Lake) -> None:
    table = make_fed(lake, "fed")
    table.delete("place = 'b'")
    table.upsert([{"id": 100, "name": "y", "place": "a"}], on=["id"])
    table.append([{"id": 101, "name": "y", "place": "a"}])
    table.optimize(full=True)
    table.restore(version=3)
    assert list(lake.store.list("t/_change_data/")) == []


def test_columns_that_came_later_are_null_before(lake: Lake) -> None:
    table = make(lake)
    table.append([{"id": 100, "name": "x", "place": "a", "extra": 7}], evolve=True)
    table.delete("id = 3")
    rows = table.changes(3).read_all().to_pylist()
    assert {row["extra"] for row in rows if row["id"] != 100} == {None}
    assert [(row["_change_type"], row["extra"]) for row in rows if row["id"] in (3, 100)] == [
        ("insert", 7),
        ("delete", None),
    ]
    assert "extra" not in table.changes(3, 3).schema.names


def test_values_of_every_type_cancel_out(lake: Lake) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(38, 10)), ("b", pa.binary()),
         ("ts", pa.timestamp("us", tz="UTC")), ("l", pa.list_(pa.string())), ("s", pa.struct([("x", pa.int32())])),
         ("m", pa.map_(pa.string(), pa.int64()))]
    )  # fmt: skip
    values: dict[str, Any] = {
        "f": float("nan"), "d": Decimal("0.1"), "b": b"\x00", "ts": datetime(2024, 1, 1, microsecond=1, tzinfo=UTC),
        "l": ["a", None], "s": {"x": None}, "m": [("k", 1)],
    }  # fmt: skip
    table = lake.create_table("t", schema)
    table.append([{"id": 1, **values}, {"id": 2, **values}, {"id": 3}])
    table.delete("id = 3")
    assert [row["id"] for row in table.changes(2).read_all().to_pylist()] == [3]
    table.delete("id = 2")
    found = table.changes(3).read_all()
    assert found.select(schema.names).schema == table.snapshot().schema
    assert [row["id"] for row in found.to_pylist()] == [2]


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ((-1,), Invalid, "from_version"),
        (("1",), Invalid, "from_version"),
        ((4,), Invalid, "from_version: 4 is greater than the last version requested, 3"),
        ((3, 2), Invalid, "from_version: 3 is greater than the last version requested, 2"),
        ((0, 9), VersionNotFound, "version 9"),
    ],
)
def test_wrong_versions(lake: Lake, arguments: Any, error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        make(lake).changes(*arguments)


def test_a_table_with_a_column_of_the_feed(lake: Lake) -> None:
    table = lake.create_table("t", {"_change_type": "string"})
    with pytest.raises(Invalid, match="_change_type"):
        table.changes(0)
    fed = {"delta.enableChangeDataFeed": "true"}
    with pytest.raises(Invalid, match="column _change_type: change files use that name themselves"):
        table.evolve(properties=fed)
    with pytest.raises(Invalid, match="column _Commit_Version: change files use that name themselves"):
        lake.create_table("f", {"_Commit_Version": "long"}, properties=fed)
    plain = lake.create_table("g", {"x": "long"}, properties=fed)
    with pytest.raises(Invalid, match="column _commit_timestamp: change files use that name themselves"):
        plain.append([{"x": 1, "_commit_timestamp": "now"}], evolve=True)


@every_feed
def test_what_vacuum_has_taken_is_refused_by_name(lake: Lake, clock: ManualClock, feed: str) -> None:
    table = make_fed(lake, feed)
    table.delete("place = 'b' OR id = 3")
    clock.advance(60)
    table.vacuum(timedelta(0))
    if "fed" in feed:  # the change files are younger than a day, and hold all that is needed
        assert len(of(table, 4)) == 11
        clock.advance(25 * 3600)
        table.vacuum(timedelta(0))
        assert list(lake.store.list("t/_change_data/")) == []
    with pytest.raises(VersionExpired, match="changes of version 4 of t have expired"):
        table.changes(4, 4).read_all()


def test_what_vacuum_has_taken_is_refused_where_rows_are_compared(lake: Lake, clock: ManualClock) -> None:
    table = lake.create_table("t", {"id": "long"})
    table.append([{"id": 1}, {"id": 2}])
    table.update({"id": "id + 10"}, where="id = 1")
    clock.advance(60)
    table.vacuum(timedelta(0))
    with pytest.raises(VersionExpired, match="changes of version 2 of t have expired"):
        table.changes(2).read_all()


def test_change_files_are_kept_as_long_as_removed_files(lake: Lake, clock: ManualClock) -> None:
    table = make_fed(lake, "fed")
    table.update({"name": "'x'"}, where="id = 3")
    clock.advance(6 * 24 * 3600)
    assert table.vacuum(dry_run=True).change_files == ()
    clock.advance(2 * 24 * 3600)
    report = table.vacuum()
    assert len(report.change_files) == 1
    with pytest.raises(VersionExpired, match="changes of version 4"):
        table.changes(4, 4).read_all()


def test_a_missing_file_that_should_be_there_is_damage(lake: Lake) -> None:
    table = make(lake)
    table.append([{"id": 100, "name": "x", "place": "a"}])
    file = next(file for file in table.snapshot().files if file.num_records == 1)
    lake.store.delete([f"t/{file.path}"])
    with pytest.raises(Corrupt, match=f"data file {file.path}, which version 4 names, is missing"):
        table.changes(4).read_all()


def test_a_log_that_was_cleaned_up(lake: Lake, clock: ManualClock) -> None:
    table = make(lake, properties={"delta.logRetentionDuration": "1 day"})
    clock.advance(3 * 24 * 3600)
    table.append([{"id": 100, "name": "x", "place": "a"}])
    table.checkpoint()
    clock.advance(3 * 24 * 3600)
    table.append([{"id": 101, "name": "x", "place": "a"}])
    table.vacuum()
    fresh = Lake(lake.store, clock).table("t")
    with pytest.raises(VersionExpired, match="changes of version 1 of t have expired; the log begins with version 4"):
        fresh.changes(1)
    assert [row["id"] for row in fresh.changes(5, 5).read_all().to_pylist()] == [101]


def test_tombstones_that_say_too_little(lake: Lake) -> None:
    table = make(lake)
    file: AddFile = next(each for each in table.snapshot().files if each.partition_values == {"place": "b"})
    bare = RemoveFile(file.path, 0, data_change=True)
    table._handle.transaction(table.snapshot()).commit(Changes("DELETE", removes=[bare]))
    assert sorted(of(table, 4)) == [("delete", n, f"n{n}", "b") for n in range(10, 20)]


@pytest.mark.parametrize("said", ['"operation":"CREATE OR REPLACE TABLE AS SELECT"', '"operation":"WRITE","x":1'])
@pytest.mark.parametrize("parameters", ['"operationParameters":"damaged"', '"operationParameters":{}'])
def test_a_first_commit_may_say_anything_of_its_operation(lake: Lake, said: str, parameters: str) -> None:
    lake.create_table("t", {"id": "long"}).append([{"id": 1}])
    key = "t/_delta_log/00000000000000000000.json"
    text = lake.store.get(key).decode()
    changed = text.replace('"operation":"CREATE TABLE"', said).replace(
        '"operationParameters":', f'{parameters},"y":', 1
    )
    assert said in changed
    assert parameters in changed
    lake.store.put(key, changed.encode())
    found = Lake(lake.store, lake.clock)["t"].changes(0).read_all()
    assert [row["id"] for row in found.to_pylist()] == [1]
