"""What is no directory of a table, and is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.errors import AlluviaError, Invalid, TableExists
from alluvia.store import DirectoryStore
from tests.unit.operations.converting import Write, xs


@pytest.mark.parametrize(
    ("second", "named"),
    [
        ({"x": ["a"]}, r"2.parquet: column x is string, but int64 in 1.parquet"),
        ({"x": pa.array([1], pa.int32())}, r"2.parquet: column x is int32, but int64 in 1.parquet"),
        ({"X": [1]}, r"2.parquet: column X differs from x in 1.parquet only in case"),
        ({"st": pa.array([{"a": "b"}])}, r"2.parquet: column st.a is string, but int64 in 1.parquet"),
        ({"st": pa.array([{"A": 1}])}, r"2.parquet: column st.A differs from st.a"),
        ({"l": [["a"]]}, r"2.parquet: column l.element is string, but int64 in 1.parquet"),
        ({"y": pa.array([1], pa.uint64())}, r"2.parquet .* column y: Delta has no type for uint64"),
        ({"y": pa.array([1], pa.timestamp("ns"))}, r"2.parquet .* column y has nanoseconds"),
        ({"y": pa.array([1], pa.time64("us"))}, r"2.parquet .* column y: Delta has no type for time64"),
        ({"y": pa.array([1], pa.duration("us"))}, r"2.parquet .* column y: Delta has no type for duration"),
        ({"y": pa.array([1], pa.float16())}, r"2.parquet .* column y has numbers of 16 bits"),
        ({"y": pa.nulls(1)}, r"2.parquet .* column y: all its values are null"),
        ({"y": pa.array([Decimal(1)], pa.decimal256(50, 2))}, r"2.parquet .* column y: Delta has no type for decimal"),
    ],
)
def test_contradicting_files_are_refused(disk: Lake, write: Write, second: dict[str, Any], named: str) -> None:
    write("1.parquet", {"x": [1], "st": pa.array([{"a": 1}]), "l": [[1]]})
    write("2.parquet", second)
    with pytest.raises(Invalid, match=named):
        disk.convert("t", "t")
    assert disk.tables() == []


@pytest.mark.parametrize(
    ("paths", "named"),
    [
        (["p=1/a", "b"], "p=1/a: its folders name the partition columns p, but those of b none"),
        (["p=1/q=2/a", "q=2/p=1/a"], "q=2/p=1/a: its folders name the partition columns q, p"),
        (["p=1/q=2/p=3/a"], "p=1/q=2/p=3/a: its folders name the partition column p twice"),
        (["x=1/P=2/a"], "x=1/P=2/a: all its columns are partition columns"),
    ],
)
def test_folders_that_disagree_are_refused(disk: Lake, write: Write, paths: list[str], named: str) -> None:
    for path in paths:
        write(path, {"x": [1]})
    with pytest.raises(Invalid, match=named):
        disk.convert("t", "t")


def test_a_partition_column_that_differs_by_case_from_a_stored_one_is_refused(disk: Lake, write: Write) -> None:
    write("X=1/a", {"x": [1]})
    with pytest.raises(Invalid, match="column x of the files and a partition column differ only in case"):
        disk.convert("t", "t")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda _: b"", "it is not a Parquet file"),
        (lambda _: b"a,b\n1,2\n", "it is not a Parquet file"),
        (lambda data: data[: len(data) // 2], "it is not a Parquet file"),
        (lambda data: data[:-8] + b"\xff\xff\xff\x7fPAR1", "it is truncated or damaged"),
        (lambda data: data[:-40] + b"\xff" * 32 + data[-8:], "its footer cannot be read"),
        (lambda data: data[:-4] + b"PARE", "its footer is encrypted"),
    ],
)
def test_unreadable_files_are_refused_by_name(
    disk: Lake, write: Write, tmp_path: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    write("a.parquet", {"x": [1]})
    write("p/bad.parquet", {"x": [1]})
    path = tmp_path / "lake/t/p/bad.parquet"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(Invalid, match=rf"p/bad.parquet cannot be part of a table: {reason}"):
        disk.convert("t", "t")
    assert disk.tables() == []


def test_a_place_that_is_no_directory_of_parquet_is_refused(disk: Lake, write: Write, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="'t' in the lake holds no Parquet files"):
        disk.convert("t", "t")
    write("_hidden.parquet", {"x": [1]})
    with pytest.raises(Invalid, match="holds no Parquet files"):
        disk.convert("t", "t")
    Lake(DirectoryStore(tmp_path / "lake" / "t"), disk.clock).create_table("sub", {"x": "long"})
    with pytest.raises(Invalid, match="sub is itself a table"):
        disk.convert("t", "t")


def test_a_table_is_not_converted_again(disk: Lake, write: Write) -> None:
    write("a.parquet", {"x": [1]})
    table = disk.convert("t", "t")
    with pytest.raises(TableExists, match="'t' is already a table"):
        disk.convert("t", "t")
    disk.drop_table("t")
    with pytest.raises(TableExists, match="a table or a dropped table"):
        disk.convert("t", "t")
    disk.undrop("t")
    assert xs(table) == [1]


def test_the_path_is_that_of_the_table(disk: Lake, write: Write, tmp_path: Path) -> None:
    for at in ("raw", str(tmp_path / "lake" / "raw"), (tmp_path / "lake" / "raw").as_uri(), "t/p"):
        with pytest.raises(
            Invalid, match=r"path: the table 't' belongs at 't' in the lake, not at '.*': move the directory"
        ):
            disk.convert(at, "t")
    for at in (str(tmp_path), "/elsewhere/t", "s3://bucket/t"):
        with pytest.raises(Invalid, match=r"path: '.*' is outside the lake .*: open the lake at the directory above"):
            disk.convert(at, "t")
    write("a.parquet", {"x": [1]})
    for number, at in enumerate((str(tmp_path / "lake" / "t"), (tmp_path / "lake" / "t/").as_uri(), "t/", "./t")):
        assert xs(disk.convert(at, "t")) == [1], at
        for file in (tmp_path / "lake" / "t" / "_delta_log").iterdir():
            file.unlink()
        assert number < 4
        disk = Lake(disk.store, disk.clock)


def test_errors_are_ours(disk: Lake) -> None:
    for path in ("", "/", "..", "../t", "t\0", "://"):
        with pytest.raises(AlluviaError):
            disk.convert(path, "t")
