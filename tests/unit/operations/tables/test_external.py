"""External tables: files outside the lake as they were when they were declared, read and never written."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.errors import Corrupt, Forbidden, Invalid, ReadOnly, TableExists
from alluvia.operations.tables.attach import glob_pattern
from tests.judges import deltalake_sql_table

WRITES: dict[str, Callable[[Table], object]] = {
    "append": lambda table: table.append([{"id": 1, "name": "x"}]),
    "delete": lambda table: table.delete("true"),
    "update": lambda table: table.update({"name": "'b'"}),
    "evolve": lambda table: table.evolve({"more": "long"}),
    "optimize": lambda table: table.optimize(full=True),
    "restore": lambda table: table.restore(0),
    "erase": lambda table: table.erase("id = 1"),
}
READS: tuple[Callable[[Lake], pa.Table], ...] = (
    lambda lake: lake["t"].to_arrow(),
    lambda lake: lake.sql("SELECT * FROM t"),
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return alluvia.connect(tmp_path / "lake")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with three Parquet files of two rows each, in Hive's partitions, and others."""
    folder = tmp_path / "their files"
    for year in (2024, 2025, 2026):
        path = folder / f"year={year}" / "part é.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"id": [year, year + 100], "name": ["a", "b"]}), path)
    (folder / "_temporary").mkdir()
    (folder / "_temporary" / "x.parquet").write_bytes(b"none")
    (folder / "readme.txt").write_text("none")
    return folder


def ids(lake: Lake, name: str = "t") -> list[int]:
    fresh = alluvia.connect(lake.uri)
    found = sorted(fresh.table(name).to_arrow()["id"].to_pylist())
    assert sorted(fresh.sql(f"SELECT id FROM {name}")["id"].to_pylist()) == found
    return found


def test_parquet_files_are_read_where_they_are(lake: Lake, files: Path) -> None:
    (done,) = lake.sql(f"CREATE EXTERNAL TABLE t USING parquet LOCATION '{files}/**/*.parquet'").to_pylist()
    assert (done["version"], done["files"]) == (0, 3)
    assert ids(lake) == [2024, 2025, 2026, 2124, 2125, 2126]
    assert lake["t"].schema.names == ["id", "name", "year"]
    assert lake.sql("SELECT sum(id) AS s FROM t WHERE year = 2025").to_pylist() == [{"s": 4150}]
    assert [path.suffix for path in (files.parent / "lake" / "t").rglob("*") if path.is_file()] == [".json"]
    assert lake["t"].verify(full=True).findings == ()
    assert lake["t"].count() == 6
    with pytest.raises(TableExists):
        lake.create_external("t", f"{files}/*.parquet")
    lake.sql(f"CREATE EXTERNAL TABLE IF NOT EXISTS t STORED AS PARQUET LOCATION '{files}/**'")


def test_other_readers_read_parquet_files_too(lake: Lake, files: Path) -> None:
    lake.create_external("t", f"{files}/*/part*.parquet")
    theirs = deltalake_sql_table(lake["t"])
    assert sorted(theirs["id"].to_pylist()) == ids(lake)


def test_what_is_new_shows_after_a_refresh(lake: Lake, files: Path) -> None:
    lake.create_external("t", f"{files}/**/*.parquet")
    (files / "year=2027").mkdir()
    pq.write_table(pa.table({"id": [1], "name": ["new"]}), files / "year=2027" / "x.parquet")
    assert len(ids(lake)) == 6
    (done,) = lake.sql("REFRESH TABLE t").to_pylist()
    assert (done["version"], done["files"]) == (1, 4)
    assert len(ids(lake)) == 7
    assert lake["t"].count(version=0) == 6
    assert not lake.refresh_external("t").changed
    (files / "year=2024" / "part é.parquet").unlink()
    assert lake.refresh_external("t").files == 3
    assert ids(lake) == [1, 2025, 2026, 2125, 2126]


def test_a_file_that_changed_or_went_is_an_error_that_names_it(lake: Lake, files: Path) -> None:
    lake.create_external("t", f"{files}/**/*.parquet")
    path = files / "year=2025" / "part é.parquet"
    pq.write_table(pa.table({"id": [5], "name": ["changed"]}), path)
    for read in READS:
        with pytest.raises(
            Corrupt, match=r"part é.parquet, a file of an external table, has changed: refresh the table"
        ):
            read(lake)
    assert lake.sql("SELECT id FROM t WHERE year = 2024").num_rows == 2, "what is not read does not matter"
    (finding,) = lake["t"].verify().findings
    assert "part é.parquet has" in finding.message
    lake.refresh_external("t")
    assert ids(lake) == [5, 2024, 2026, 2124, 2126]
    path.unlink()
    for read in READS:
        with pytest.raises(Corrupt, match=r"part é\.parquet"):
            read(lake)


@pytest.mark.parametrize("write", WRITES)
def test_every_write_is_refused_by_name(lake: Lake, files: Path, write: str) -> None:
    lake.create_external("t", f"{files}/**/*.parquet")
    with pytest.raises(ReadOnly, match="'t' is external"):
        WRITES[write](alluvia.connect(lake.uri)["t"])
    assert len(ids(lake)) == 6


def test_sql_reads_it_in_transactions_and_writes_nothing_to_it(lake: Lake, files: Path) -> None:
    lake.create_external("t", f"{files}/**/*.parquet")
    lake.create_table("mine", {"id": "long"})
    lake.sql("INSERT INTO mine SELECT id FROM t WHERE year < 2026")
    assert lake["mine"].count() == 4
    for text in (
        "INSERT INTO t VALUES (1, 'x', 2024)",
        "DELETE FROM t",
        "BEGIN; DELETE FROM t; DELETE FROM mine; COMMIT",
    ):
        with pytest.raises(ReadOnly, match="'t' is external"):
            lake.sql(text)
    lake.sql("DROP TABLE t")
    assert len(list(files.rglob("part*.parquet"))) == 3
    lake.undrop("t")
    assert len(ids(lake)) == 6


def test_rows_of_text_files(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.csv").write_text("id,name,at\n1,x,2026-01-31\n2,,2026-02-01\n")
    (folder / "b.csv").write_text("id,name,at\n3,z,2026-02-02\n")
    (folder / "a.ndjson").write_text("\n".join(json.dumps({"id": n, "tags": ["a"]}) for n in range(4)))
    lake.sql(f"CREATE EXTERNAL TABLE t USING csv LOCATION '{folder}/*.csv'")
    assert ids(lake) == [1, 2, 3]
    assert str(lake["t"].schema.field("at").type) == "date32[day]"
    lake.create_external("lines", folder / "a.ndjson")
    assert ids(lake, "lines") == [0, 1, 2, 3]
    lake.sql(f"CREATE EXTERNAL TABLE declared (id STRING, name STRING, at STRING) USING csv LOCATION '{folder}/a.csv'")
    assert sorted(lake["declared"].to_arrow()["id"].to_pylist()) == ["1", "2"]
    (folder / "b.csv").write_text("id,name,at\n4,z,2026-02-02\n")
    assert ids(lake) == [1, 2, 3]
    assert lake.refresh_external("t").version == 1
    assert ids(lake) == [1, 2, 4]
    lake["t"].vacuum(timedelta(0))
    assert ids(lake) == [1, 2, 4]
    (folder / "b.csv").write_text("id,name,at\nnone,z,2026-02-02\n")
    with pytest.raises(Invalid, match=r"b.csv: row 1, column id"):
        lake.refresh_external("t")
    assert ids(lake) == [1, 2, 4]
    lake.create_external("numbers", folder / "a.csv", schema={"id": "long", "name": "string", "at": "date"})
    (folder / "a.csv").write_text("id,name,at\n007,x,2026-01-31\n")
    with pytest.raises(Invalid, match=r"a.csv: row 1, column id: it may be a code, which a long would store as 7"):
        lake.refresh_external("t")
    lake.refresh_external("numbers")
    assert ids(lake, "numbers") == [7]


def test_what_makes_no_table_is_refused_and_leaves_nothing(lake: Lake, files: Path) -> None:
    lake.create_table("mine", {"id": "long"}).append([{"id": 1}])
    for location, message in (
        (f"{files}/nothing.parquet", "there is no file"),
        (f"{files}/*.nothing", "unknown format"),
        (f"{files}/**/*", "unknown format"),
        (f"{files}/year=2024/*.csv", "there is no file"),
        ("/*.parquet", "must name a folder"),
        ("s3:///x.parquet", "must name a folder"),
        (f"{files.parent}/lake/mine/*.parquet", "is in this lake"),
        (f"{files.parent}/**/*.parquet", "contains the lake"),
        (f"{files}/_temporary/x.parquet", "x.parquet cannot be part of a table"),
        ("", "expected a path"),
    ):
        with pytest.raises(Invalid, match=message):
            lake.create_external("t", location)
    with pytest.raises(Invalid, match="is not external"):
        lake.refresh_external("mine")
    with pytest.raises(Invalid, match="takes no constraints"):
        lake.sql(f"CREATE EXTERNAL TABLE t (id INT CHECK (id > 0)) USING parquet LOCATION '{files}/**/*.parquet'")
    with pytest.raises(Invalid, match="column more is in none"):
        lake.create_external("t", f"{files}/**/*.parquet", schema={"more": "long"})
    assert lake.tables() == ["mine"]


def test_a_server_reads_only_below_the_places_that_it_may(lake: Lake, files: Path) -> None:
    lake.create_external("t", f"{files}/**/*.parquet")
    for outside in ([], [f"{files}/year=2024"]):
        served = alluvia.connect(lake.uri, outside=outside)
        with pytest.raises(Forbidden, match="not below a place that this server may read"):
            served.sql("SELECT * FROM t")
        for location in ("/etc/*.csv", f"{files}/**/*.parquet", f"{files}/year=2024/../year=2025/*.parquet"):
            with pytest.raises(Forbidden):
                served.sql(f"CREATE EXTERNAL TABLE u USING parquet LOCATION '{location}'")
    assert alluvia.connect(lake.uri, outside=[str(files)])["t"].count() == 6
    alluvia.connect(lake.uri, outside=[]).drop_table("t")
    assert "t" not in lake


def test_a_deep_clone_is_a_table_like_any(lake: Lake, files: Path) -> None:
    lake.create_external("t", f"{files}/**/*.parquet")
    with pytest.raises(Invalid, match="make a deep clone"):
        lake.clone("t", "shared")
    copy = lake.clone("t", "copy", deep=True)
    with pytest.raises(Invalid, match="make a deep clone"):  # before the name, which TableExists says is all
        lake.clone("t", "copy")
    for path in files.rglob("*.parquet"):
        path.unlink()
    copy.append([{"id": 1, "name": "own", "year": 2024}])
    assert ids(lake, "copy") == [1, 2024, 2025, 2026, 2124, 2125, 2126]
    assert copy.verify(full=True).findings == ()


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("/a/*.csv", "/a/x.csv", True),
        ("/a/*.csv", "/a/b/x.csv", False),
        ("/a/**/*.csv", "/a/b/c/x.csv", True),
        ("/a/**/*.csv", "/a/x.csv", True),
        ("/a/x?.csv", "/a/x1.csv", True),
        ("/a/x?.csv", "/a/x/.csv", False),
        ("/a/[ab].csv", "/a/b.csv", True),
        ("/a/[!ab].csv", "/a/c.csv", True),
        ("/a/[!ab].csv", "/a/a.csv", False),
        ("/a/[0-9].csv", "/a/7.csv", True),
        ("/a.b/*", "/aXb/c", False),
        ("/a/**", "/a/b/c", True),
        ("/a/**/**/b/*c*", "/a/x/b/y/b/xcx", True),
        ("/a/**/b/**/c", "/a/b/b/b/c", True),
        ("/a/**/b/**/c", "/a/b/c/b", False),
        ("/a/b*b*c", "/a/bxbbxc", True),
        ("/a/" + "*?" * 20 + "!", "/a/" + "x" * 200, False),
        ("/a/" + "**/x/" * 20 + "y", "/a/" + "x/" * 200, False),
    ],
)
def test_globs(glob: str, path: str, matches: bool) -> None:
    assert (glob_pattern(glob).fullmatch(path) is not None) == matches
