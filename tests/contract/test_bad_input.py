"""Tables that are damaged, as users meet them: an error names the file and what is wrong, and no rows are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.api.lake import Table
from alluvia.errors import Corrupt, Unsupported

PROPERTIES: dict[str, dict[str, str]] = {
    "v1": {},
    "v2": {"delta.checkpointPolicy": "v2"},
    "any writer": {"alluvia.writers": "any"},
}
USES: dict[str, Callable[[Table], object]] = {
    "scan": lambda table: table.scan().read_all(),
    "sql": lambda table: table.lake.sql("SELECT sum(n) FROM t"),
    "merge": lambda table: table.optimize(full=True),
    "delete": lambda table: table.delete("n % 2 = 1"),
    "update": lambda table: table.update({"n": "n + 1"}, where="n > 0"),
    "upsert": lambda table: table.upsert([{"n": 15, "s": "x"}], on=["n"]),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "t"


def fill(root: Path, **properties: str) -> Table:
    """Create a table of four appends of ten rows each, and a version that removes a file."""
    table = alluvia.connect(str(root.parent)).create_table("t", {"n": "long", "s": "string"}, properties=properties)
    for part in range(4):
        table.append([{"n": 10 * part + at, "s": f"{at}"} for at in range(10)])
    table.delete("n BETWEEN 30 AND 39")
    return table


def reopened(root: Path) -> Table:
    return alluvia.connect(str(root.parent)).table("t")


def commit(root: Path, version: int) -> Path:
    return root / "_delta_log" / f"{version:020d}.json"


def actions(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rewrite(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def checkpoint_files(root: Path) -> list[Path]:
    return sorted((root / "_delta_log").glob("*.checkpoint*.parquet"))


@pytest.mark.parametrize("length", [1, 40, -3])
def test_a_truncated_commit(root: Path, length: int) -> None:
    fill(root)
    path = commit(root, 3)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(Corrupt, match=r"_delta_log/0{19}3.json, line \d+"):
        reopened(root).snapshot()


def test_the_table_of_a_damaged_log_is_named(root: Path) -> None:
    table = fill(root)
    table.lake.create_table("other", {"n": "long"})
    path = commit(root, 3)
    path.write_bytes(path.read_bytes()[:40])
    lake = alluvia.connect(str(root.parent))
    with pytest.raises(Corrupt, match=r"^table t: _delta_log/"):
        lake.sql("SELECT count(*) FROM other, t")


def test_a_table_that_was_dropped_once_and_is_damaged_is_listed(root: Path) -> None:
    lake = alluvia.connect(str(root.parent))
    fill(root)
    lake.create_table("other", {"n": "long"})
    lake.drop_table("t")
    lake.create_table("t", {"n": "long"})
    path = commit(root, 3)
    path.write_bytes(path.read_bytes()[:40])
    assert alluvia.connect(str(root.parent)).tables() == ["other", "t"]


@pytest.mark.parametrize("tag", ["metaData", "protocol"])
def test_two_of_what_a_commit_may_hold_once(root: Path, tag: str) -> None:
    fill(root)
    lines = actions(commit(root, 0))
    rewrite(commit(root, 0), [*lines, next(line for line in lines if tag in line)])
    with pytest.raises(Corrupt, match=rf"_delta_log/0{{20}}.json holds 2 {tag} actions; a commit may hold one"):
        reopened(root).snapshot()


@pytest.mark.parametrize("kind", PROPERTIES)
def test_a_checkpoint_that_holds_another_schema_than_its_commit(root: Path, kind: str) -> None:
    table = fill(root, **PROPERTIES[kind])
    table.evolve(add={"more": "string"})
    table.checkpoint()
    lines = actions(commit(root, 6))
    for line in lines:
        if "metaData" in line:
            line["metaData"]["schemaString"] = line["metaData"]["schemaString"].replace('"more"', '"less"')
    rewrite(commit(root, 6), lines)
    with pytest.raises(Corrupt, match=r"checkpoint .*0{19}6.checkpoint.* disagrees with .*0{19}6.json: .* metaData"):
        reopened(root).scan()


def test_a_checkpoint_that_lacks_a_file_of_its_commit(root: Path) -> None:
    table = fill(root)
    table.append([{"n": 100, "s": "late"}])
    table.checkpoint()
    [path] = checkpoint_files(root)
    rows = pq.read_table(path)
    added = next(line["add"]["path"] for line in actions(commit(root, 6)) if "add" in line)
    kept = [row for row in rows.to_pylist() if row["add"] is None or row["add"]["path"] != added]
    pq.write_table(pa.Table.from_pylist(kept, rows.schema), path)
    with pytest.raises(Corrupt, match=f"disagrees with .*: it lacks data file {added}, which that version added"):
        reopened(root).scan()


def test_a_checkpoint_that_holds_a_file_that_its_commit_removed(root: Path) -> None:
    table = fill(root)
    table.checkpoint()
    removed = next(line["remove"]["path"] for line in actions(commit(root, 5)) if "remove" in line)
    [path] = checkpoint_files(root)
    rows = pq.read_table(path)
    bodies = rows.to_pylist()
    another = next(row["add"] for row in bodies if row["add"] is not None)
    nothing = dict.fromkeys(rows.schema.names)
    pq.write_table(pa.Table.from_pylist([*bodies, {**nothing, "add": {**another, "path": removed}}], rows.schema), path)
    with pytest.raises(Corrupt, match=f"it holds data file {removed}, which that version removed"):
        reopened(root).scan()


def test_a_checkpoint_that_lacks_older_files(root: Path) -> None:
    """`_last_checkpoint` counts them."""
    table = fill(root)
    table.checkpoint()
    first = next(line["add"]["path"] for line in actions(commit(root, 1)) if "add" in line)
    [path] = checkpoint_files(root)
    rows = pq.read_table(path)
    kept = [row for row in rows.to_pylist() if row["add"] is None or row["add"]["path"] != first]
    pq.write_table(pa.Table.from_pylist(kept, rows.schema), path)
    with pytest.raises(Corrupt, match=f"disagrees with the commits up to its version: it lacks data file {first}"):
        reopened(root).scan()


@pytest.mark.parametrize("use", USES)
def test_a_missing_data_file(root: Path, use: str) -> None:
    fill(root)
    [gone] = [line["add"]["path"] for line in actions(commit(root, 2)) if "add" in line]
    (root / gone).unlink()
    with pytest.raises(Corrupt, match=f"{gone}.* is missing"):
        USES[use](reopened(root))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("damage", ["footer", "length", "empty", "cut", "other"])
def test_a_damaged_data_file(root: Path, use: str, damage: str) -> None:
    fill(root)
    [path] = [root / line["add"]["path"] for line in actions(commit(root, 2)) if "add" in line]
    data = path.read_bytes()
    path.write_bytes(
        {
            "footer": data[:-60] + b"\xff" * 52 + data[-8:],
            "length": data[:-8] + b"\xff\xff\xff\x7f" + data[-4:],
            "empty": b"",
            "cut": data[: len(data) // 2],
            "other": b"no Parquet at all" * 20,
        }[damage]
    )
    with pytest.raises(Corrupt, match=path.name):
        USES[use](reopened(root))


@pytest.mark.parametrize("use", ["scan", "delete", "update", "upsert"])
def test_a_compression_that_arrow_lacks_is_no_damage(root: Path, use: str) -> None:
    table = fill(root, **{"alluvia.codec": "snappy"})
    for path in root.glob("*.parquet"):
        data = path.read_bytes()
        assert data.count(b"\x18\x01n\x15\x02") == 1
        path.write_bytes(data.replace(b"\x18\x01n\x15\x02", b"\x18\x01n\x15\x06"))
    with pytest.raises(Unsupported, match=r"data file part-.*\.parquet cannot be read by this library: .*LZO"):
        USES[use](table)


@pytest.mark.parametrize("use", ["scan", "sql", "delete", "update"])
@pytest.mark.parametrize(
    "lie",
    [
        {"numRecords": 10, "minValues": {"n": "ten", "s": 5}, "maxValues": {"n": [1], "s": {}}},
        {"numRecords": 10, "minValues": {"n": True}, "maxValues": {"n": 1.5}, "nullCount": {"n": "none"}},
        {"numRecords": 10, "minValues": [], "maxValues": "x", "nullCount": 7},
        {"numRecords": 10, "minValues": {"n": {"a": 1}}, "maxValues": {"n": None}, "nullCount": {"n": -1}},
    ],
)
def test_statistics_of_the_wrong_types_skip_nothing(root: Path, lie: dict[str, Any], use: str) -> None:
    """A bound that is no value of its column's type says nothing of the file."""
    fill(root, **PROPERTIES["any writer"])
    lines = actions(commit(root, 2))
    for line in lines:
        if "add" in line:
            line["add"]["stats"] = json.dumps(lie)
    rewrite(commit(root, 2), lines)
    table = reopened(root)
    finds: dict[str, Callable[[], object]] = {
        "scan": lambda: table.scan(where="n = 15").read_all().num_rows,
        "sql": lambda: table.lake.sql("SELECT count(*) AS c FROM t WHERE n = 15 AND s = '5'")["c"][0].as_py(),
        "delete": lambda: table.delete("n = 15").rows_deleted,
        "update": lambda: table.update({"s": "'new'"}, where="n = 15").rows_updated,
    }
    assert finds[use]() == 1


@pytest.mark.parametrize("number", ["ten", -1, 1.5, None, [], True])
def test_a_count_of_rows_that_is_none(root: Path, number: object) -> None:
    fill(root, **PROPERTIES["any writer"])
    lines = actions(commit(root, 2))
    for line in lines:
        if "add" in line:
            line["add"]["stats"] = json.dumps({"numRecords": number})
    rewrite(commit(root, 2), lines)
    table = reopened(root)
    assert table.scan().read_all().num_rows == 30
    assert table.lake.sql("SELECT count(*) AS c FROM t")["c"].to_pylist() == [30]


def test_statistics_that_are_no_json(root: Path) -> None:
    fill(root, **PROPERTIES["any writer"])
    lines = actions(commit(root, 2))
    for line in lines:
        if "add" in line:
            line["add"]["stats"] = '{"numRecords": 1'
    rewrite(commit(root, 2), lines)
    table = reopened(root)
    assert table.scan(where="n = 15").read_all().num_rows == 1
    assert table.lake.sql("SELECT count(*) AS c FROM t")["c"].to_pylist() == [30]


def test_a_count_of_rows_that_is_wrong(root: Path) -> None:
    fill(root)
    lines = actions(commit(root, 2))
    for line in lines:
        if "add" in line:
            line["add"]["stats"] = json.dumps({"numRecords": 7})
    rewrite(commit(root, 2), lines)
    with pytest.raises(Corrupt, match="holds 10 rows, but its statistics say 7"):
        reopened(root).optimize(full=True)


@pytest.mark.parametrize("feature", ["catalogManaged", "somethingNew"])
def test_a_feature_that_readers_must_know_is_named_before_data_is_read(root: Path, feature: str) -> None:
    fill(root)
    lines = actions(commit(root, 0))
    for line in lines:
        if "protocol" in line:
            line["protocol"] |= {"minReaderVersion": 3, "readerFeatures": [feature]}
            line["protocol"]["writerFeatures"].append(feature)
    rewrite(commit(root, 0), lines)
    for data in root.glob("*.parquet"):
        data.unlink()
    with pytest.raises(Unsupported, match=feature):
        reopened(root).scan()


def test_a_log_with_a_gap(root: Path) -> None:
    fill(root)
    commit(root, 2).unlink()
    with pytest.raises(Corrupt, match=r"_delta_log/0{19}2.json is missing"):
        reopened(root).snapshot()
