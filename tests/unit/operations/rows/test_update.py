"""Updating rows: values, places, and what concurrent commits make of it."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.errors import Invalid, Unsupported
from alluvia.store import CountingStore
from tests.unit.operations.races import Race
from tests.unit.operations.row_samples import by_id, every_kind, ids, make


@every_kind
def test_matching_rows_get_new_values_and_others_keep_theirs(lake: Lake, kind: str) -> None:
    table = make(lake, kind)
    before = by_id(table)
    report = table.update({"name": "name || '!'"}, where="id IN (3, 13)")
    assert (report.version, report.rows_updated, report.rows_deleted, report.files_read) == (4, 2, 0, 2)
    expected = before | {number: {**before[number], "name": f"n{number}!"} for number in (3, 13)}
    assert by_id(table) == expected


@every_kind
def test_expressions_see_the_row_as_it_was(lake: Lake, kind: str) -> None:
    table = make(lake, kind)
    table.update({"id": "id + 100", "name": "'was ' || CAST(id AS VARCHAR)"}, where="id < 2")
    rows = by_id(table)
    assert [rows[number]["name"] for number in (100, 101)] == ["was 0", "was 1"]
    assert ids(table) == [*range(2, 30), 100, 101]


@every_kind
def test_all_rows_without_a_condition(lake: Lake, kind: str) -> None:
    table = make(lake, kind)
    report = table.update({"name": "NULL"})
    assert (report.rows_updated, report.rows_copied, report.files_removed) == (30, 0, 3)
    assert {row["name"] for row in by_id(table).values()} == {None}


@every_kind
def test_a_new_partition_value_moves_the_row_to_its_partition(lake: Lake, kind: str) -> None:
    table = make(lake, kind)
    table.update({"place": "'z'"}, where="id IN (3, 13)")
    assert sorted(table.scan(["id"], where="place = 'z'").read_all()["id"].to_pylist()) == [3, 13]
    moved = [file for file in table.snapshot().files if file.partition_values == {"place": "z"}]
    assert [file.num_records for file in moved] == [2]
    assert moved[0].path.startswith("place=z/")
    assert ids(table) == list(range(30))


def test_rows_of_a_day_move_to_the_file_of_another(lake: Lake) -> None:
    table = lake.create_table("t", {"ts": "timestamp", "n": "long"}, partition_by=["day(ts)"])
    table.append(pa.table({"ts": pa.array([0, 10**6], pa.timestamp("us")), "n": [1, 2]}).cast(table.snapshot().schema))
    table.update({"ts": "ts + INTERVAL 2 DAY"}, where="n = 2")
    tags = sorted(file.tags["alluvia.partition"] for file in table.snapshot().files)
    assert tags == ['{"day(ts)":"1970-01-01"}', '{"day(ts)":"1970-01-03"}']


@every_kind
def test_files_stay_sorted(lake: Lake, kind: str) -> None:
    table = make(lake, kind, sort_by=("id",))
    table.update({"id": "1000 - id"}, where="id % 2 = 0")
    table.update({"name": "'x'"}, where="id % 3 = 0")
    for file in table.snapshot().files:
        found = table.scan(["id"]).read_all()["id"].to_pylist()
        stats = orjson.loads(file.stats or "")
        inside = [number for number in found if stats["minValues"]["id"] <= number <= stats["maxValues"]["id"]]
        assert inside
    for batch in table.scan(["id"]):
        numbers = batch["id"].to_pylist()
        assert numbers == sorted(numbers)
    assert ids(table) == sorted([*range(1, 30, 2), *(1000 - number for number in range(0, 30, 2))])


def test_only_files_that_can_match_are_read_and_only_those_that_change_are_written(
    lake: Lake, store: CountingStore
) -> None:
    table = make(lake)
    store.reset()
    table.update({"name": "'x'"}, where="id = 25")
    assert store.requests == {"get": 2, "put": 2}
    store.reset()
    assert table.update({"name": "'x'"}, where="id = 5 AND name = 'n50'").version == 4
    assert store.requests == {"get": 2}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"none": "1"}, "column none is not in the table"),
        ({"n": "name"}, "column n is long, but the expression gives string: write CAST"),
        ({"n": "n / 2"}, "column n is long, but the expression gives double"),
        ({"must": "NULL"}, "column must must not be null"),
        ({"must": "n"}, "column must must not be null, but 1 of 1 rows"),
        ({"small": "n + 1000"}, "column small: a value does not fit byte"),
        ({"name": "count(*)"}, "column name: an expression cannot use"),
        ({"n": "1, 2"}, "column n: a comma makes two expressions of '1, 2'"),
        ({"n": "1) FROM rows UNION SELECT (2"}, "column n: give one SQL expression"),
        ({"n": "(SELECT 1)"}, "column n: an expression cannot use"),
        ({"n": "CAST(name AS BIGINT)"}, "column n: Conversion Error"),
        ({}, "give the columns to set"),
        ({"n": 5}, "column n: expected an SQL expression as text"),
    ],
)
def test_values_that_do_not_fit_are_refused_by_name(lake: Lake, values: dict[str, Any], named: str) -> None:
    schema = pa.schema(
        [("n", pa.int64()), ("name", pa.string()), pa.field("must", pa.int64(), nullable=False), ("small", pa.int8())]
    )
    table = lake.create_table("t", schema)
    table.append([{"n": 1, "name": "x", "must": 1}, {"n": None, "name": "5", "must": 2}])
    with pytest.raises(Invalid, match=named):
        table.update(values, where="n IS NULL" if values.get("must") == "n" else None)
    assert table.snapshot().version == 1


def test_literals_take_the_type_of_their_column(lake: Lake) -> None:
    types = {"day": "date", "ts": "timestamp", "price": "decimal(10,2)", "ratio": "double", "n": "long"}
    table = lake.create_table("t", types)
    table.append([{"n": 1}])
    table.update({"day": "'2024-02-29'", "ts": "'2024-01-01 12:00:00'", "price": "1.5", "ratio": "2.5", "n": "7"})
    row = table.scan().read_all().to_pylist()[0]
    assert [str(row[name]) for name in types] == ["2024-02-29", "2024-01-01 12:00:00+00:00", "1.50", "2.5", "7"]


def test_nested_values_are_replaced_in_place(lake: Lake) -> None:
    schema = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string())), ("spot", pa.struct([("x", pa.int32())]))])
    table = lake.create_table("t", schema)
    table.append([{"id": n, "tags": ["a"], "spot": {"x": n}} for n in range(4)])
    table.update({"tags": "list_append(tags, 'b')", "spot": "{'x': 9}"}, where="spot.x IN (1, 2)")
    assert [row["tags"] for row in table.scan().read_all().to_pylist()] == [["a"], ["a", "b"], ["a", "b"], ["a"]]
    assert [row["spot"]["x"] for row in table.scan().read_all().to_pylist()] == [0, 9, 9, 3]


def test_an_append_only_table_is_refused_by_name(lake: Lake) -> None:
    table = make(lake, properties={"delta.appendOnly": "true"})
    with pytest.raises(Invalid, match="update: table t is append-only"):
        table.update({"name": "'x'"})


@every_kind
def test_check_constraints_hold_for_new_values(lake: Lake, kind: str) -> None:
    table = make(lake, kind, {"delta.constraints.small": "id < 100"})
    with pytest.raises(Invalid, match=r"1 of 1 rows break the CHECK constraint small \(id < 100\)"):
        table.update({"id": "id + 90"}, where="id = 10")
    assert table.update({"id": "id + 50"}, where="id = 10").rows_updated == 1
    with pytest.raises(Invalid, match="CHECK constraint small"):
        table.append([{"id": 100, "name": "x", "place": "a"}])
    with pytest.raises(Invalid, match="CHECK constraint small"):
        table.upsert([{"id": 100, "name": "x", "place": "a"}], on=["id"])
    with pytest.raises(Unsupported, match="CHECK constraint 'small'"):
        table.commit_files(list(table.snapshot().files))


def test_the_commit_says_what_was_done(lake: Lake) -> None:
    table = make(lake)
    table.update({"name": "'x'"}, where="id < 3")
    entry = table.history(1)[0]
    assert entry.operation == "UPDATE"
    assert (entry.metrics["numUpdatedRows"], entry.metrics["numCopiedRows"]) == ("3", "7")


@every_kind
def test_a_compaction_that_wins_makes_it_plan_again(lake: Lake, kind: str) -> None:
    make(lake, kind).append([{"id": 100, "name": "x", "place": "a"}])
    race = Race(lake)
    report = race.table(lambda table: table.optimize()).update({"name": "'new'"}, where="id IN (3, 100)")
    assert (report.tries, report.rows_updated) == (2, 2)
    rows = by_id(race.theirs.table("t"))
    assert [rows[number]["name"] for number in (3, 4, 100)] == ["new", "n4", "new"]


@every_kind
def test_an_update_of_the_same_row_that_wins_is_built_upon(lake: Lake, kind: str) -> None:
    make(lake, kind)
    race = Race(lake)
    ours = race.table(*[lambda table: table.update({"id": "id + 100"}, where="name = 'n3'")] * 3)
    assert ours.update({"id": "id + 1000"}, where="name = 'n3'").tries == 4
    assert 1303 in by_id(race.theirs.table("t"))


@every_kind
def test_rows_that_a_winner_makes_match_are_updated_too(lake: Lake, kind: str) -> None:
    make(lake, kind)
    race = Race(lake)
    ours = race.table(lambda table: table.update({"name": "'odd'"}, where="id = 15"))
    report = ours.update({"id": "id + 500"}, where="name = 'odd' OR id = 3")
    assert (report.tries, report.rows_updated) == (2, 2)
    assert {503, 515} <= by_id(race.theirs.table("t")).keys()


def test_the_condition_and_the_values_see_one_time(lake: Lake) -> None:
    """Exactly one row matches: it says what the time is to the condition."""
    table = lake.create_table("t", {"n": "long", "seen": "long"})
    table.append([{"n": number} for number in range(1000)])
    assert table.update({"seen": "epoch_us(now()) % 1000"}, "epoch_us(now()) % 1000 = n").rows_updated == 1
    assert table.count() == 1000
    [row] = table.to_arrow(where="seen IS NOT NULL").to_pylist()
    assert row["seen"] == row["n"]
