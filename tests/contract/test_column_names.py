"""A column may have any name, also one that the engine underneath gives a column of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.api.lake import Table
from alluvia.errors import Invalid
from tests.golden.test_foreign_logs import Made, add, field, meta
from tests.judges import canonical
from tests.light_engines import light as light  # noqa: PLC0414 - a fixture

NAMES = (
    *("Alluvia_File", "alluvia_file_0", "file_row_number", "file_index", "filename", "file", "position", "new_row"),
    *("alluvia_row", "f", "d"),
    *("p", "e0", "c0", "k0", "s", "number", "sign", "times", "range", "alluvia_count", "mask", "rows", "difference"),
)
PARTS = ("m", "n")
Json = dict[str, Any]


def row(part: str, number: int, amount: int) -> Json:
    """Return a row: what it may be partitioned by, its key, and a number."""
    return {"part": part, "id": f"{part}{number}", "amount": amount}


def make(folder: Path, names: dict[str, str], *, partitioned: bool, vectors: bool) -> Table:
    """A table of two files a partition, in which rows were deleted and updated. `names` are those of its columns.

    Besides it has a column of each other name, of no interest.
    """
    others = [name for name in NAMES if name.lower() not in {known.lower() for known in names.values()}]
    kinds = {"part": pa.string(), "id": pa.string(), "amount": pa.int64()}
    schema = pa.schema([*((names[key], kind) for key, kind in kinds.items()), *((name, pa.int8()) for name in others)])
    table = alluvia.connect(str(folder)).create_table(
        "t",
        schema,
        partition_by=[names["part"]] if partitioned else [],
        properties={"delta.enableDeletionVectors": str(vectors).lower()},
    )
    for numbers in ((0, 1, 2), (3, 4, 5)):
        table.append([named(row(part, n, n), names) for part in PARTS for n in numbers])
    table.delete(f'"{names["amount"]}" = 1')
    table.update({names["amount"]: f'"{names["amount"]}" * 10'}, where=f"\"{names['id']}\" = 'm4'")
    table.upsert([named(row("n", 5, 50), names), named(row("m", 6, 6), names)], on=[names["id"]])
    return table


def named(cells: Json, names: dict[str, str]) -> Json:
    return {names[key]: value for key, value in cells.items()}


def expected(names: dict[str, str]) -> list[Json]:
    kept = [row(part, n, n) for part in PARTS for n in (0, 2, 3, 4, 5)]
    changed = {"m4": 40, "n5": 50}
    rows = [{**each, "amount": changed.get(each["id"], each["amount"])} for each in [*kept, row("m", 6, 6)]]
    return [named(each, names) for each in rows]


def check(table: Table, names: dict[str, str]) -> None:
    wanted = canonical(pa.Table.from_pylist(expected(names), table.snapshot().schema))
    assert canonical(table.scan().read_all()) == wanted
    assert canonical(table.lake.sql("SELECT * FROM t")) == wanted


def check_changes(table: Table, names: dict[str, str]) -> None:
    """Inserts less deletes make the rows that there are."""
    net: dict[tuple[Any, ...], int] = {}
    for each in table.changes(0).read_all().to_pylist():
        key = tuple(each[name] for name in names.values())
        net[key] = net.get(key, 0) + {"insert": 1, "delete": -1}[each["_change_type"]]
    assert {key: times for key, times in net.items() if times} == {tuple(e.values()): 1 for e in expected(names)}


@pytest.mark.parametrize(("role", "vectors"), [("part", True), pytest.param("id", False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_a_column_of_any_name(name: str, role: str, vectors: bool, tmp_path: Path) -> None:
    names = {"part": "x", "id": "y", "amount": "z", role: name}
    table = make(tmp_path, names, partitioned=role == "part", vectors=vectors)
    check(table, names)
    check_changes(table, names)
    assert table.optimize(full=True).files_removed > 0
    check(table, names)
    assert table.verify(full=True).findings == ()


STRUCT: Json = {"type": "struct", "fields": [field(name, "long") for name in ("file", "position", "alluvia_file")]}
POINT = {"file": 1, "position": 2, "alluvia_file": 3}


@pytest.mark.parametrize("name", ["d", "f", "p", "e0", "alluvia_file", "alluvia_row"])
def test_a_struct_named_as_a_relation_is_inside(name: str, tmp_path: Path) -> None:
    """Fields of it are named as that relation's columns, and columns of files otherwise than the table's."""
    made = Made(tmp_path / "t")
    physical = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": name}
    kind = {"type": "array", "elementType": STRUCT, "containsNull": True}
    columns = [field("shown", kind, physical), field(f"{name}_", STRUCT), field("part", "string")]
    for at in range(2):
        rows = {name: [[POINT, None], None], f"{name}_": [POINT, None]}
        made.file(f"{at}.parquet", pa.table(rows))
    settings = {"delta.columnMapping.mode": "name"}
    made.commit(
        {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}},
        meta({"type": "struct", "fields": columns}, ["part"], configuration=settings),
        *(add(f"{at}.parquet", {"part": str(at)}, deletionVector=ROW_0) for at in range(2)),
    )
    table = alluvia.connect(str(tmp_path)).table("t")
    wanted = [{"shown": None, f"{name}_": None, "part": str(at)} for at in range(2)]
    assert sorted(table.scan().read_all().to_pylist(), key=repr) == wanted
    assert sorted(table.lake.sql("SELECT * FROM t").to_pylist(), key=repr) == wanted


def test_a_struct_named_as_the_relation_of_a_condition() -> None:
    """`rows.x` is its field in a condition, an assignment and a constraint, as it is in a query."""
    fields = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    schema = pa.schema([("x", pa.int64()), ("Rows", fields), ("rows_0", fields)])
    properties = {"delta.constraints.positive": "rows.x > 0"}
    lake = alluvia.connect("memory://relation")
    table = lake.create_table("t", schema, properties=properties)
    first, second = ({"x": at, "Rows": {"x": 3 - at, "y": at}, "rows_0": {"x": at, "y": 0}} for at in (1, 2))
    table.append([first])
    table.append([second])
    for where in ("rows.x = 1", "rows.y = 2", "rows.x = 1 AND rows_0.x = 2 AND x = 2"):
        assert table.scan(where=where).read_all().to_pylist() == [second]
        assert lake.sql(f"SELECT * FROM t WHERE {where}").to_pylist() == [second]
    with pytest.raises(Invalid, match="positive"):
        table.append([{"x": 1, "Rows": {"x": -1}}])
    table.update({"x": "rows.y * 100 + rows_0.x"}, where="rows.x = 2")
    assert sorted(table.scan(["x"]).read_all()["x"].to_pylist()) == [2, 101]
    table.delete("rows.x = 1")
    assert table.scan().read_all().to_pylist() == [{**first, "x": 101}]


ROW_0 = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000005c8Xg00000",
    "sizeInBytes": 34,
    "cardinality": 1,
}


@pytest.mark.parametrize("vector", [None, ROW_0])
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize(
    "name", ["alluvia_file", "ALLUVIA_ROW", "file_row_number", "file_index", "File_Index", "filename"]
)
def test_a_column_that_files_have_and_the_table_has_not(
    name: str, order: tuple[int, int], vector: Json | None, tmp_path: Path
) -> None:
    made = Made(tmp_path / "t")
    for at, columns in enumerate(({"n": [1, 2]}, {"n": [3, 4], name: [5, 6]})):
        made.file(f"{at}.parquet", pa.table(columns))
    kind: Json = {"type": "struct", "fields": [field("n", "long"), field("part", "string")]}
    adds = [add(f"{at}.parquet", {"part": str(at)}, deletionVector=vector) for at in order]
    features = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    made.commit({"protocol": protocol}, meta(kind, ["part"]), *adds)
    table = alluvia.connect(str(tmp_path)).table("t")
    whole = [{"n": 1, "part": "0"}, {"n": 2, "part": "0"}, {"n": 3, "part": "1"}, {"n": 4, "part": "1"}]
    wanted = whole if vector is None else whole[1::2]
    assert table.scan().read_all().sort_by("n").to_pylist() == wanted
    assert table.lake.sql("SELECT * FROM t ORDER BY n").to_pylist() == wanted
