"""Actions in Parquet files of any layout: whatever rows stand together, they come out whole and in order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files import parquet as action_file
from alluvia.delta.log.files.action_rows import FileRows
from alluvia.delta.log.files.parquet import ActionFile, bodies
from alluvia.errors import Corrupt

BOUNDS = pa.struct([("numRecords", pa.int64()), ("minValues", pa.struct([("x", pa.int64())]))])
SCHEMA = pa.schema(
    {
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": pa.map_(pa.string(), pa.string()),
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "stats_parsed": BOUNDS,
                "deletionVector": pa.struct({"storageType": pa.string(), "pathOrInlineDv": pa.string()}),
            }
        ),
    }
)


def row(number: int) -> dict[str, Any]:
    """Return a row: an add, with statistics in JSON or as a struct; every fifth row is something else."""
    if number % 5 == 0:
        return {"protocol": {"minReaderVersion": 1, "minWriterVersion": number}} if number == 10 else {}
    text = f'{{"numRecords":{number}}}' if number % 3 else None
    vector = {"storageType": "u", "pathOrInlineDv": f"v{number}"} if number % 4 == 0 else None
    add = {
        "path": f"a%20b/{number}" if number % 7 == 0 else f"p{number}",
        "partitionValues": [("p", str(number))],
        "size": number,
        "modificationTime": 1,
        "dataChange": False,
        "stats": text,
        "stats_parsed": {"numRecords": number, "minValues": {"x": number}},
        "deletionVector": vector,
    }
    return {"add": add}


def made(group_rows: int, **options: Any) -> ActionFile:
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist([row(number) for number in range(40)], schema=SCHEMA)
    pq.write_table(table, sink, row_group_size=group_rows, **options)
    return ActionFile("checkpoint", sink.getvalue().to_pybytes())


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("group_rows", [40, 7])
@pytest.mark.parametrize("batch_rows", [1, 3, 4096])
def test_rows_of_several_kinds_come_out_in_order(
    monkeypatch: pytest.MonkeyPatch, batch_rows: int, group_rows: int, statistics: bool
) -> None:
    monkeypatch.setattr(action_file, "BATCH_ROWS", batch_rows)
    file = made(group_rows, write_statistics=statistics)
    rows = FileRows(file, "add", AddFile.from_json)
    numbers = [number for number in range(40) if number % 5]
    vectors = {"path": pa.string(), "deletionVector": pa.struct({"storageType": pa.string(), "offset": pa.int32()})}
    found = pa.chunked_array(list(rows.structs(vectors))).to_pylist()
    assert [each["path"] for each in found] == [f"a%20b/{n}" if n % 7 == 0 else f"p{n}" for n in numbers]
    kinds = [None if n % 4 else {"storageType": "u", "offset": None} for n in numbers]
    assert [each["deletionVector"] for each in found] == kinds
    files = list(rows.actions())
    assert [each.size for each in files] == numbers
    assert [each.path for each in files] == [f"a b/{n}" if n % 7 == 0 else f"p{n}" for n in numbers]
    assert [each.num_records for each in files] == numbers
    assert [each.deletion_vector is not None for each in files] == [n % 4 == 0 for n in numbers]
    assert rows.keys.to_pylist() == [each.key for each in files]
    assert rows.held(pa.array(["p1", "p4", "a b/7", "p5"])) == {"p1", "a b/7"}
    for at in ([], [0], [31], [3, 4, 5, 20], list(range(32))):
        assert [each.size for each in rows.actions(at)] == [numbers[each] for each in at]
    assert pa.chunked_array(list(rows.structs({"size": pa.int64()}))).to_pylist() == [{"size": n} for n in numbers]
    again = made(group_rows, write_statistics=statistics)
    few = again.few()
    assert bodies(few.pop("protocol")) == [{"minReaderVersion": 1, "minWriterVersion": 10}]
    assert not any(few.values())
    assert [again.count("add", group) for group in again.groups] == [file.count("add", group) for group in file.groups]
    assert (len(rows), rows.size("size")) == (len(numbers), sum(numbers))


def test_actions_that_lack_what_all_have_are_corrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    file = made(40)
    assert file.count("add", 0) == 32
    monkeypatch.setattr(file, "_counts", {("add", 0): 31})
    with pytest.raises(Corrupt, match="32 add actions in row group 0, of which 31 have a modificationTime"):
        file.read("add", 0, [("path",)])


def test_an_action_without_a_path_is_corrupt_before_it_is_counted() -> None:
    sink = pa.BufferOutputStream()
    adds = [{"path": path, "modificationTime": 1} for path in ("a", None)]
    pq.write_table(pa.table({"add": pa.array(adds)}), sink)
    rows = FileRows(ActionFile("checkpoint", sink.getvalue().to_pybytes()), "add", AddFile.from_json)
    with pytest.raises(Corrupt, match="1 add actions in row group 0, of which 2 have a modificationTime"):
        list(rows.structs({"path": pa.string()}))


def test_a_name_that_is_no_text_is_damage() -> None:
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist([row(number) for number in range(40)], schema=SCHEMA)
    pq.write_table(table, sink, store_schema=False)
    data = sink.getvalue().to_pybytes()
    assert b"dataChange" in data
    with pytest.raises(Corrupt, match="checkpoint is not a readable Parquet file"):
        ActionFile("checkpoint", data.replace(b"dataChange", b"data\xec\xecange")).fields("add")
