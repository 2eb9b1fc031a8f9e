"""What a v1 checkpoint holds, and that what came from an earlier one goes over as columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import alluvia
from alluvia.api.lake import Table
from alluvia.delta.log.actions import AddFile, RemoveFile
from alluvia.delta.log.checkpoints import writer
from alluvia.delta.log.checkpoints.reader import read_checkpoint
from alluvia.delta.log.checkpoints.writer import Form, write_checkpoint
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.log.paths import checkpoint_name
from alluvia.delta.log.replay import replay
from alluvia.operations.checkpointing import form_of
from tests.judges import deltalake_rows, duckdb_rows, ours
from tests.unit.delta.log.build import PROTOCOL, add, fields_of, metadata

TIME = datetime(2024, 5, 6, 12, 30, 0, 123456, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("small", pa.int8()), ("f", pa.float32()), ("s", pa.string()), ("b", pa.bool_()),
        ("d", pa.decimal128(12, 3)), ("ts", pa.timestamp("us", tz="UTC")), ("day", pa.date32()),
        ("raw", pa.binary()), ("st", pa.struct([("x", pa.int32())])), ("l", pa.list_(pa.int64())), ("p", pa.string()),
    ]
)  # fmt: skip


def rows(number: int, partition: str | None = "a") -> pa.Table:
    at = TIME + timedelta(days=number)
    row: dict[str, Any] = {
        "id": number, "small": number % 100, "f": number + 0.5, "s": f"text {number}", "b": True, "d": number,
        "ts": at, "day": at.date(), "raw": b"x", "st": {"x": number}, "l": [number], "p": partition,
    }  # fmt: skip
    return pa.Table.from_pylist([row, {**row, "s": None}], schema=SCHEMA)


def new_table(folder: Path, **properties: str) -> Table:
    """Return a table of three files in two partitions, partitioned by `p`."""
    named = {f"delta.checkpoint.{name}": value for name, value in properties.items()}
    table = alluvia.connect(str(folder)).create_table("t", SCHEMA, partition_by=["p"], properties=named)
    for number, partition in enumerate(("a", None, "c")):
        table.append(rows(number, partition))
    return table


def stored(table: Table) -> tuple[pa.StructArray, pa.Schema]:
    """Return the adds of a table's checkpoint, by pyarrow, and the schema of the file."""
    version = table.checkpoint()
    path = Path(table.lake.uri.removeprefix("file://")) / "t/_delta_log" / f"{version:020d}.checkpoint.parquet"
    whole = pq.read_table(path)
    adds = whole["add"].combine_chunks()
    assert isinstance(adds, pa.StructArray)
    return adds.filter(adds.field("path").is_valid()), whole.schema


def test_statistics_stand_in_json_and_in_the_columns_types(tmp_path: Path) -> None:
    adds, schema = stored(new_table(tmp_path))
    kind = schema.field("add").type.field("stats_parsed").type
    bounded = {field.name: field.type for field in fields_of(kind.field("minValues").type)}
    assert bounded == {name: SCHEMA.field(name).type for name in ("id", "small", "f", "s", "d", "ts", "day")} | {
        "st": pa.struct([("x", pa.int32())])
    }
    assert [field.name for field in fields_of(kind.field("nullCount").type)] == [
        name for name in SCHEMA.names if name != "p"
    ]
    second = adds[1].as_py()
    bounds = {"id": 1, "small": 1, "f": 1.5, "s": "text 1", "d": 1, "day": date(2024, 5, 7), "st": {"x": 1}}
    assert second["stats_parsed"] == {
        "numRecords": 2,
        "tightBounds": None,
        "minValues": {**bounds, "ts": datetime(2024, 5, 7, 12, 30, 0, 123000, UTC)},
        "maxValues": {**bounds, "ts": datetime(2024, 5, 7, 12, 30, 0, 124000, UTC)},
        "nullCount": {"id": 0, "small": 0, "f": 0, "s": 1, "b": 0, "d": 0, "ts": 0, "day": 0, "raw": 0, "st": {"x": 0},
                      "l": 0},
    }  # fmt: skip
    assert orjson.loads(second["stats"])["maxValues"]["ts"] == "2024-05-07T12:30:00.124Z"
    assert [each["partitionValues_parsed"] for each in adds.to_pylist()] == [{"p": "a"}, {"p": None}, {"p": "c"}]


def test_every_field_is_nullable(tmp_path: Path) -> None:
    _, schema = stored(new_table(tmp_path))

    def check(field: pa.Field, path: str) -> None:
        assert field.nullable or path.endswith(".key_value.key"), path
        for at in range(field.type.num_fields if pa.types.is_struct(field.type) else 0):
            check(field.type.field(at), f"{path}.{field.type.field(at).name}")

    for field in schema:
        check(field, field.name)


@pytest.mark.parametrize(("as_json", "as_struct"), [("true", "false"), ("false", "true"), ("false", "false")])
def test_the_properties_say_which_statistics_there_are(tmp_path: Path, as_json: str, as_struct: str) -> None:
    table = new_table(tmp_path, writeStatsAsJson=as_json, writeStatsAsStruct=as_struct)
    _, schema = stored(table)
    names = {field.name for field in fields_of(schema.field("add").type)}
    assert ("stats" in names) == (as_json == "true")
    assert ("stats_parsed" in names) == ("partitionValues_parsed" in names) == (as_struct == "true")
    fresh = alluvia.connect(str(tmp_path)).table("t")
    known = [file.num_records for file in fresh.snapshot().files]
    assert known == ([None] * 3 if as_json == as_struct == "false" else [2] * 3)
    assert fresh.scan(where="id = 1").read_all().num_rows == 2
    assert ours(fresh) == deltalake_rows(fresh) == duckdb_rows(fresh)


def test_other_readers_need_nothing_but_the_checkpoint(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    stored(table)
    for old in range(3):
        (tmp_path / "t/_delta_log" / f"{old:020d}.json").unlink()
    table.append(rows(7, "z"))
    table.delete("id = 0")
    fresh = alluvia.connect(str(tmp_path)).table("t")
    assert len(ours(fresh)) == 6
    assert ours(fresh) == ours(table) == deltalake_rows(fresh) == duckdb_rows(fresh)
    fresh.checkpoint()
    again = alluvia.connect(str(tmp_path)).table("t")
    assert ours(again) == ours(table) == deltalake_rows(again) == duckdb_rows(again)
    assert [file.path for file in again.snapshot().state.tombstones] == [
        file.path for file in table.snapshot().state.tombstones
    ]


def test_duckdb_skips_by_the_struct_statistics(tmp_path: Path) -> None:
    table = new_table(tmp_path, writeStatsAsJson="false")
    stored(table)
    path = table.lake.store.url("t/_delta_log/00000000000000000003.checkpoint.parquet")
    found = duckdb.sql(f"SELECT add.stats_parsed.maxValues.id AS i FROM '{path}' WHERE add IS NOT NULL ORDER BY i")
    assert found.fetchall() == [(0,), (1,), (2,)]


def test_rows_of_an_earlier_checkpoint_become_no_objects(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    stored(table)
    snapshot = alluvia.connect(str(tmp_path)).table("t").snapshot()

    def refuse(_: object) -> NoReturn:
        pytest.fail("an object was made of a row")

    parts = [replaced(part, refuse) for part in snapshot.state.files.parts]
    state = replace(snapshot.state, files=ActionSet(refuse, parts))
    data, count = write_checkpoint(state, 0, form_of(snapshot))
    assert count == 5
    assert list(read_checkpoint(3, [("x", data)]).files) == list(snapshot.files)


def replaced(part: Any, parse: Any) -> Any:
    return type(part)(part.file, part.kind, parse)


def test_another_writers_checkpoint_gets_struct_statistics(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"i": [1, 2], "s": ["a", None]}))
    write_deltalake(tmp_path / "t", pa.table({"i": [3], "s": ["c"]}), mode="append")
    DeltaTable(tmp_path / "t").create_checkpoint()
    table = alluvia.connect(str(tmp_path)).table("t")
    table.append(pa.table({"i": [5], "s": ["e"]}))
    adds, _ = stored(table)
    bounds = {each["minValues"]["i"]: each["maxValues"]["s"] for each in adds.field("stats_parsed").to_pylist()}
    assert bounds == {1: "a", 3: "c", 5: "e"}
    assert all(orjson.loads(text)["numRecords"] for text in adds.field("stats").to_pylist())


def test_json_statistics_come_back_from_structs(tmp_path: Path) -> None:
    table = new_table(tmp_path, writeStatsAsJson="false")
    before = [orjson.loads(file.stats or "") for file in table.snapshot().files]
    stored(table)
    fresh = alluvia.connect(str(tmp_path)).table("t")
    fresh.evolve(properties={"delta.checkpoint.writeStatsAsJson": "true"})
    adds, _ = stored(fresh)
    texts = [orjson.loads(text) for text in adds.field("stats").to_pylist()]
    assert [without_nulls(text) for text in texts] == before


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(part) for name, part in value.items() if part is not None}
    if isinstance(value, str) and value.endswith("000Z"):
        return f"{value[:-4]}Z"
    return value


def test_a_new_column_joins_the_structs(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    stored(table)
    table.evolve(add={"extra": "long"})
    table.append(pa.table({"extra": [41, 42], "p": ["n", "n"]}))
    adds, _ = stored(table)
    highest = [each["maxValues"]["extra"] for each in adds.field("stats_parsed").to_pylist()]
    assert highest == [None, None, None, 42]
    fresh = alluvia.connect(str(tmp_path)).table("t")
    assert len(fresh.scan(where="extra > 41").read_all()) == 1
    assert ours(fresh) == duckdb_rows(fresh)


@pytest.mark.parametrize(
    ("joined_rows_max", "wanted"),
    [
        (1024, [{"protocol", "metaData", "remove", "add"}]),
        (7, [{"protocol", "metaData", "remove", "add"}]),
        *((most, [{"protocol", "metaData"}, {"remove"}, {"add"}]) for most in (6, 0)),
    ],
)
def test_adds_stand_in_row_groups_of_their_own_unless_they_are_few(
    monkeypatch: pytest.MonkeyPatch, joined_rows_max: int, wanted: list[set[str]]
) -> None:
    monkeypatch.setattr(writer, "JOINED_ROWS_MAX", joined_rows_max)
    removes = [RemoveFile(f"r{number}", 50, data_change=True) for number in range(3)]
    state = replay(None, [CommitActions(0, {}, PROTOCOL, metadata(), adds=[add("a"), add("b")], removes=removes)])
    data, rows_written = write_checkpoint(state, 0, Form())
    file = pq.ParquetFile(pa.BufferReader(data))
    kinds = []
    for group in range(file.num_row_groups):
        table = file.read_row_group(group)
        kinds.append(
            {name for name in table.column_names for row in table[name].to_pylist() if row and any(row.values())}
        )
    assert kinds == wanted
    assert rows_written == 7
    again = read_checkpoint(0, [("checkpoint", data)])
    assert sorted(file.path for file in again.files) == ["a", "b"]
    assert sorted(file.path for file in again.tombstones) == ["r0", "r1", "r2"]


def test_a_handle_stands_on_the_checkpoint_that_it_wrote(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    before = table.snapshot()
    stored(table)
    after = table.snapshot()
    assert (len(before.files.layers), len(before.files.parts)) == (1, 0)
    assert (len(after.files.layers), len(after.files.parts)) == (0, 1)
    assert [replace(file, data_change=False) for file in before.files] == list(after.files)
    table.append(rows(9))
    assert len(table.snapshot().files) == 4
    assert len(before.files) == len(after.files) == 3


def test_the_hint_comes_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    put: list[str] = []

    def recorded(write: Callable[[str, bytes], None]) -> Callable[[str, bytes], None]:
        def record(key: str, data: bytes) -> None:
            put.append(key.rpartition("/")[2])
            write(key, data)

        return record

    for name in ("put", "put_new"):
        monkeypatch.setattr(table.lake.store, name, recorded(getattr(table.lake.store, name)))
    table.checkpoint()
    assert put == ["00000000000000000003.checkpoint.parquet", "_last_checkpoint"]
    hint = orjson.loads(table.lake.store.get("t/_delta_log/_last_checkpoint"))
    size = len(table.lake.store.get("t/_delta_log/00000000000000000003.checkpoint.parquet"))
    assert hint == {"version": 3, "size": 5, "sizeInBytes": size, "numOfAddFiles": 3}


def test_a_checkpoint_of_an_older_version_leaves_the_handle_alone(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    log = table._handle.log
    log.checkpoint(log.at(1), 0)
    assert log.state is not None
    assert log.state.version == 3
    assert checkpoint_name(1) in {info.key.removeprefix("t/") for info in table.lake.store.list("t/")}
    assert [file.path for file in log.at(1).files] == [file.path for file in log.state.files][:1]


def test_files_keep_their_order_and_everything_else(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    odd = AddFile("a b/100%.parquet", {"p": "x"}, 5, 7, data_change=True, tags={"k": "v"}, deletion_vector=vector)
    state = table.snapshot().state
    state = replay(state, [CommitActions(4, {}, adds=[odd])])
    data, _ = write_checkpoint(state, 0, form_of(table.snapshot()))
    loaded = read_checkpoint(4, [("x", data)])
    assert list(loaded.files) == [replace(file, data_change=False) for file in state.files]
    assert loaded.files.get(odd.key) == replace(odd, data_change=False)
    again, _ = write_checkpoint(loaded, 0, form_of(table.snapshot()))
    assert list(read_checkpoint(4, [("x", again)]).files) == list(loaded.files)
