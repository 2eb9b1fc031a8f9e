"""Footers at which the library aborts harm no process of ours, whichever way a table comes to their files."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.delta.statistics.footer import footer_bytes
from alluvia.delta.statistics.vetting import vetted_footers
from alluvia.errors import Corrupt, Invalid
from tests.damaged_parquet import of_another_type, with_false_levels

DAMAGES = [of_another_type, with_false_levels]


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": range(20), "s": ["x", None] * 10}), sink)
    return sink.getvalue()


def footer(data: bytes) -> bytes:
    return footer_bytes(lambda start, end: data[start:end], len(data))


def test_damaged_footers_are_told_from_those_around_them() -> None:
    whole, short = footer(parquet()), footer(parquet())[8:]
    footers = [whole, footer(of_another_type(parquet())), short, whole, footer(with_false_levels(parquet())), whole]
    found = ["damaged" if isinstance(each, Invalid) else each.num_rows for each in vetted_footers(footers)]
    assert found == [20, "damaged", "damaged", 20, "damaged", 20]
    assert vetted_footers([]) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_external_tables_and_conversions(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.parquet").write_bytes(damage(parquet()))
    lake = alluvia.connect(tmp_path / "lake", outside=[str(files)])
    with pytest.raises(Invalid, match=r"a\.parquet cannot be part of a table: its footer is damaged"):
        lake.sql(f"CREATE EXTERNAL TABLE x USING parquet LOCATION '{files}/a.parquet'")
    folder = tmp_path / "lake" / "c"
    folder.mkdir(parents=True)
    (folder / "a.parquet").write_bytes(damage(parquet()))
    with pytest.raises(Invalid, match=r"a\.parquet cannot be part of a table: its footer is damaged"):
        lake.convert("c", "c")
    assert lake.tables() == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_files_of_a_table(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    lake = alluvia.connect(tmp_path / "lake")
    lake.create_table("t", pa.schema([("id", pa.int64())])).append(pa.table({"id": range(20)}))
    [path] = (tmp_path / "lake" / "t").glob("**/*.parquet")
    before, damaged = path.read_bytes(), damage(path.read_bytes())
    path.write_bytes(damaged)
    commit = tmp_path / "lake" / "t" / "_delta_log" / f"{1:020}.json"
    commit.write_text(commit.read_text().replace(f'"size":{len(before)}', f'"size":{len(damaged)}'))
    lake = alluvia.connect(tmp_path / "lake")
    with pytest.raises(Corrupt, match="its footer is damaged"):
        lake.sql("SELECT * FROM row_groups('t')")
    findings = lake.table("t").verify(full=True).findings
    assert [each.kind for each in findings] == ["data-file-unreadable"]
    assert "cannot be read" in findings[0].message
