"""Deleting rows: which files are read and written, and what concurrent commits make of it."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.delta.log.actions import AddFile
from alluvia.errors import Corrupt, Invalid
from alluvia.store import CountingStore
from tests.unit.operations.races import Race
from tests.unit.operations.row_samples import every_kind, ids, make

ALL = list(range(30))


def without(*gone: int) -> list[int]:
    return [number for number in ALL if number not in gone]


@every_kind
def test_rows_that_match_are_gone_and_the_past_stays(lake: Lake, kind: str) -> None:
    table = make(lake, kind)
    report = table.delete("id IN (3, 4, 13)")
    assert (report.version, report.rows_deleted, report.files_read, report.tries) == (4, 3, 2, 1)
    assert (report.files_removed, report.files_added) == (2, 2)
    assert ids(table) == without(3, 4, 13)
    assert ids(table, version=3) == ALL
    assert [len(table.scan(where=f"place = '{place}'").read_all()) for place in "abc"] == [8, 9, 10]


def test_a_file_written_again_keeps_order_statistics_and_partition(lake: Lake) -> None:
    table = make(lake, sort_by=("id",))
    report = table.delete("id = 0")
    assert report.rows_copied == 9
    new = next(file for file in table.snapshot().files if file.partition_values == {"place": "a"})
    assert new.path.startswith("place=a/part-")
    assert orjson.loads(new.stats or "") == {
        "numRecords": 9,
        "minValues": {"id": 1, "name": "n1"},
        "maxValues": {"id": 9, "name": "n9"},
        "nullCount": {"id": 0, "name": 0},
    }
    assert table.scan(["id"], where="place = 'a'").read_all()["id"].to_pylist() == list(range(1, 10))


def test_a_vector_marks_rows_of_a_file_that_stays(lake: Lake, store: CountingStore) -> None:
    table = make(lake, "vectors")
    before = {file.path for file in table.snapshot().files}
    store.reset()
    assert table.delete("id IN (3, 13)").rows_copied == 0
    assert store.requests == {"get": 3, "put": 2}  # new commits, two files; the vectors and the commit
    files = {file.path: file for file in table.snapshot().files}
    assert files.keys() == before
    marked = [file for file in files.values() if file.deletion_vector]
    assert [file.deletion_vector["cardinality"] for file in marked if file.deletion_vector] == [1, 1]
    assert all(orjson.loads(file.stats or "")["tightBounds"] is False for file in marked)
    assert [file.num_records for file in marked] == [10, 10]
    table.delete("id = 4")
    assert ids(table) == without(3, 4, 13)


def test_only_files_that_can_match_are_read(lake: Lake, store: CountingStore) -> None:
    table = make(lake)
    store.reset()
    table.delete("id = 25")
    assert store.requests == {"get": 2, "put": 2}
    store.reset()
    assert table.delete("id = 99").version == 4
    assert store.requests == {"get": 1}


@every_kind
def test_where_no_row_matches_nothing_is_committed(lake: Lake, kind: str) -> None:
    table = make(lake, kind)
    report = table.delete("id = 5 AND name = 'n50'")
    assert (report.version, report.rows_deleted, report.files_read, report.files_removed) == (3, 0, 1, 0)
    assert table.snapshot().version == 3


@every_kind
@pytest.mark.parametrize(
    ("where", "gone"),
    [
        ("place = 'b'", range(10, 20)),
        ("place IN ('a', 'c')", [*range(10), *range(20, 30)]),
        ("id >= 10 AND id < 20", range(10, 20)),
        ("NOT (id < 10 OR id > 19)", range(10, 20)),
        ("place = 'b' AND id > 5", range(10, 20)),
        ("place = 'b' OR id = 99", range(10, 20)),
        ("id IS NOT NULL AND place <> 'a' AND place <> 'c'", range(10, 20)),
        ("true", ALL),
        ("name >= 'n0' AND id BETWEEN 0 AND 9", range(10)),
    ],
)
def test_files_that_go_whole_go_by_the_log_alone(
    lake: Lake, store: CountingStore, kind: str, where: str, gone: range
) -> None:
    table = make(lake, kind)
    store.reset()
    report = table.delete(where)
    assert store.requests == {"get": 1, "put": 1}
    assert (report.rows_deleted, report.files_read) == (len(gone), 0)
    assert ids(table) == without(*gone)


def test_what_a_vector_deleted_is_not_counted_again(lake: Lake) -> None:
    table = make(lake, "vectors")
    table.delete("id IN (10, 11)")
    assert table.delete("place = 'b'").rows_deleted == 8


def test_rows_of_a_file_without_statistics_are_not_counted(lake: Lake) -> None:
    table = make(lake)
    plain = [AddFile("x", {"place": "z"}, 1, lake.clock.now_ms(), data_change=True)]
    table.commit_files(plain)
    assert table.delete("place = 'z'").rows_deleted is None
    assert "numDeletedRows" not in table.history(1)[0].metrics


LONG = "x" * 40
NOT_PROVEN: list[tuple[pa.DataType, list[Any], str, list[Any]]] = [
    # text is cut in the bounds: a row between the cut and the value must stay
    (pa.string(), [LONG + "a", LONG + "c"], f"v >= '{LONG}b'", [LONG + "a"]),
    (pa.string(), [LONG + "a", LONG + "c"], f"v <= '{LONG}b'", [LONG + "c"]),
    (pa.string(), [LONG + "a"], f"v = '{LONG}'", [LONG + "a"]),
    # nulls match nothing
    (pa.int64(), [1, 2, None], "v > 0", [None]),
    (pa.int64(), [1, 2, None], "NOT v > 5", [None]),
    (pa.int64(), [1, None], "v = v", [None]),
    (pa.int64(), [None, None], "v > 0", [None, None]),
    (pa.int64(), [None, None], "v IS NULL", []),
    (pa.int64(), [1, 0], "1 / v > 0", []),
    (pa.int64(), [1, 0], "10 % v = 0", [0]),
    # NaN is in no bound, and above all numbers
    (pa.float64(), [1.0, math.nan], "v < 5", ["nan"]),
    (pa.float64(), [1.0, math.nan], "v <= 5", ["nan"]),
    (pa.float64(), [1.0, math.nan], "NOT v > 5", ["nan"]),
    (pa.float64(), [6.0, math.nan], "v > 5", []),
    (pa.float64(), [1.0, math.inf], "v < 5", [math.inf]),
    (pa.float64(), [math.nan], "v > 5", []),
    # times are cut to the millisecond
    (
        pa.timestamp("us", tz="UTC"),
        [datetime(2024, 1, 1, microsecond=500, tzinfo=UTC)],
        "v > '2024-01-01 00:00:00.0006'",
        [datetime(2024, 1, 1, microsecond=500, tzinfo=UTC)],
    ),
    (pa.bool_(), [True, False], "v", [False]),
    (pa.struct([("x", pa.int64())]), [{"x": 1}, {"x": None}, None], "v.x > 0", [{"x": None}, None]),
]


@every_kind
@pytest.mark.parametrize(("type_", "values", "where", "left"), NOT_PROVEN)
def test_bounds_that_prove_nothing_are_not_believed(
    lake: Lake, kind: str, type_: pa.DataType, values: list[Any], where: str, left: list[Any]
) -> None:
    properties = {"delta.enableDeletionVectors": "true"} if kind == "vectors" else {}
    table = lake.create_table("t", pa.schema([("v", type_)]), properties=properties)
    table.append([{"v": value} for value in values])
    table.delete(where)
    found = table.scan().read_all()["v"].to_pylist()
    assert ["nan" if isinstance(value, float) and math.isnan(value) else value for value in found] == left


def test_an_append_only_table_is_refused_by_name(lake: Lake) -> None:
    table = make(lake, properties={"delta.appendOnly": "true"})
    with pytest.raises(Invalid, match=r"delete: table t is append-only; set delta\.appendOnly"):
        table.delete("id = 1")
    table.evolve(properties={"delta.appendOnly": "false"})
    assert table.delete("id = 1").rows_deleted == 1


@pytest.mark.parametrize("where", ["none = 1", "id =", "(SELECT true)", "count(*) > 1", "id = 1; SELECT 1"])
def test_a_bad_condition_is_refused(lake: Lake, where: str) -> None:
    table = make(lake)
    with pytest.raises(Invalid):
        table.delete(where)
    assert table.snapshot().version == 3


def test_the_commit_says_what_was_done(lake: Lake) -> None:
    table = make(lake)
    table.delete("id < 3")
    entry = table.history(1)[0]
    assert (entry.operation, entry.parameters) == ("DELETE", {"predicate": "id < ?"})
    numbers = {name: entry.metrics[name] for name in ("numDeletedRows", "numCopiedRows", "numRemovedFiles")}
    assert numbers == {"numDeletedRows": "3", "numCopiedRows": "7", "numRemovedFiles": "1"}


def test_a_missing_data_file_is_named(lake: Lake) -> None:
    table = make(lake)
    file = next(iter(table.snapshot().files))
    lake.store.delete([f"t/{file.path}"])
    with pytest.raises(Corrupt, match="is missing"):
        table.delete("id % 7 = 1")


# Concurrent commits: they win right before ours is put.


@every_kind
def test_a_compaction_that_wins_makes_it_plan_again(lake: Lake, kind: str) -> None:
    make(lake, kind).append([{"id": 100, "name": "x", "place": "a"}])
    race = Race(lake)
    report = race.table(lambda table: table.optimize()).delete("id IN (3, 25)")
    assert (report.tries, report.rows_deleted) == (2, 2)
    assert ids(race.theirs.table("t")) == [*without(3, 25), 100]


@every_kind
def test_a_delete_of_other_rows_of_the_same_file_that_wins(lake: Lake, kind: str) -> None:
    make(lake, kind)
    race = Race(lake)
    report = race.table(lambda table: table.delete("id IN (4, 14)")).delete("id IN (3, 25)")
    assert (report.tries, report.rows_deleted) == (2, 2)
    assert ids(race.theirs.table("t")) == without(3, 4, 14, 25)


@every_kind
def test_a_delete_of_the_same_rows_that_wins(lake: Lake, kind: str) -> None:
    make(lake, kind)
    race = Race(lake)
    report = race.table(lambda table: table.delete("id = 3")).delete("id = 3")
    assert (report.tries, report.rows_deleted, report.version) == (2, 0, 4)
    assert ids(race.theirs.table("t")) == without(3)


def test_two_deletes_of_one_file_merge_their_vectors_without_reading_it_again(lake: Lake) -> None:
    make(lake, "vectors")
    race = Race(lake)
    table = race.table(lambda theirs: theirs.delete("id = 4"))
    data = [file.path for file in table.snapshot().files if file.partition_values == {"place": "a"}]
    race.store.reset()
    assert table.delete("id = 3").tries == 2
    assert race.store.keys.count(("get", f"t/{data[0]}")) == 1
    marked = [file.deletion_vector for file in table.snapshot().files if file.deletion_vector]
    assert [vector["cardinality"] for vector in marked] == [2]


@every_kind
def test_an_append_that_wins_with_matching_rows_is_deleted_from_too(lake: Lake, kind: str) -> None:
    make(lake, kind)
    race = Race(lake)
    row = {"id": 7, "name": "late", "place": "b"}
    report = race.table(lambda table: table.append([row])).delete("id IN (3, 7)")
    assert (report.tries, report.rows_deleted) == (2, 3)
    assert ids(race.theirs.table("t")) == without(3, 7)


@every_kind
def test_an_append_that_cannot_match_does_not_disturb(lake: Lake, kind: str) -> None:
    make(lake, kind)
    race = Race(lake)
    row = {"id": 99, "name": "late", "place": "a"}
    report = race.table(lambda table: table.append([row])).delete("id = 3")
    assert (report.tries, report.version) == (1, 5)
    assert ids(race.theirs.table("t")) == [*without(3), 99]


def test_only_what_winners_changed_is_worked_on_again(lake: Lake) -> None:
    make(lake)
    race = Race(lake)
    table = race.table(*[lambda theirs, n=n: theirs.delete(f"id = {n}") for n in (10, 11, 12)])
    table.snapshot()
    race.store.reset()
    report = table.delete("id IN (3, 15, 25)")
    assert (report.tries, report.rows_deleted) == (4, 3)
    data = [key for kind, key in race.store.keys if kind == "put" and "/part-" in key]
    assert len(data) == 3 + 3
    assert ids(table) == without(3, 10, 11, 12, 15, 25)


@pytest.mark.parametrize("winner", [{"add": {"extra": "long"}}, {"properties": {"team": "x"}}])
def test_a_change_of_metadata_that_wins(lake: Lake, winner: dict[str, Any]) -> None:
    make(lake)
    race = Race(lake)
    assert race.table(lambda table: table.evolve(**winner)).delete("id = 3").tries == 2
    assert ids(race.theirs.table("t")) == without(3)


def test_a_table_that_becomes_append_only_is_left_alone(lake: Lake) -> None:
    make(lake)
    race = Race(lake)
    ours = race.table(lambda table: table.evolve(properties={"delta.appendOnly": "true"}))
    with pytest.raises(Invalid, match="append-only"):
        ours.delete("id = 3")
    assert ids(race.theirs.table("t")) == ALL


def test_a_transaction_over_its_age_starts_again(lake: Lake, clock: ManualClock) -> None:
    make(lake)
    race = Race(lake)

    def winner(theirs: Table) -> None:
        theirs.append([{"id": 99, "name": "late", "place": "a"}])
        clock.advance(3601)

    report = race.table(winner).delete("id = 3")
    assert report.tries == 2
    assert ids(race.theirs.table("t")) == [*without(3), 99]


def test_a_file_that_vacuum_took_after_a_compaction_is_no_damage(lake: Lake, clock: ManualClock) -> None:
    make(lake).append([{"id": 100, "name": "x", "place": "a"}])
    ours = Race(lake).ours.table("t")
    stale = ours.snapshot()
    clock.advance(1)
    theirs = lake.table("t")
    theirs.optimize()
    clock.advance(30 * 24 * 3600)
    theirs.vacuum()
    assert stale.version < theirs.snapshot().version
    assert ours.delete("id = 3").rows_deleted == 1
    assert ids(theirs) == [*without(3), 100]


def test_rows_stay_deleted_when_files_with_vectors_are_merged(lake: Lake) -> None:
    table = make(lake, "vectors")
    table.delete("id = 3")
    table.append([{"id": 100, "name": "x", "place": "a"}])
    table.optimize(full=True)
    assert ids(table) == [*without(3), 100]


def test_on_a_directory_and_with_several_row_groups(tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path))
    table = lake.create_table("t", {"id": "long"}, sort_by=["id"], properties={"alluvia.row_group_rows": "1000"})
    table.append(pa.table({"id": range(200_000)}))
    report = table.delete("id % 3 = 0 OR id > 199990")
    expected = [number for number in range(200_000) if number % 3 and number <= 199_990]
    assert table.scan().read_all()["id"].to_pylist() == expected
    assert report.rows_copied == len(expected)
    stats = orjson.loads(next(iter(table.snapshot().files)).stats or "")
    assert (stats["numRecords"], stats["minValues"], stats["maxValues"]) == (len(expected), {"id": 1}, {"id": 199_990})


def test_decimals_that_another_writer_rounded_are_compared_by_their_own_digits(tmp_path: Path) -> None:
    """deltalake brings the decimals of its statistics through floating-point numbers: they leave out their own rows."""
    kind = pa.decimal128(38, 18)
    values = [Decimal("1.000000000000000001"), Decimal("99999999999999999999.999999999999999999")]
    for value in values:
        write_deltalake(str(tmp_path / "t"), pa.table({"d": pa.array([value], kind)}), mode="append")
    table = alluvia.connect(str(tmp_path)).table("t")
    for value in values:
        assert table.scan(where=f"d = {value}").read_all()["d"].to_pylist() == [value]
    assert table.delete("d <= 1.0").rows_deleted == 0
    assert table.delete("d >= 99999999999999999999.999999999999999999").rows_deleted == 1
    assert table.scan().read_all()["d"].to_pylist() == values[:1]
