"""The golden tables of the reference implementation: each gives the rows that it should, or the refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import alluvia
from alluvia.errors import AlluviaError, Corrupt, TableNotFound, Unsupported
from tests.golden.reading import conditions, folders, rows, types, written

READ = (
    "124-decimal-decode-bug",
    "basic-decimal-table",
    "basic-with-inserts-deletes-checkpoint",
    "basic-with-inserts-overwrite-restore",
    "basic-with-vacuum-protocol-check-feature",
    "corrupted-last-checkpoint-kernel",
    "data-reader-array-complex-objects",
    "data-reader-date-types-America",
    "data-reader-date-types-Etc",
    "data-reader-date-types-Jst",
    "data-reader-date-types-utc",
    "data-reader-map",
    "data-reader-nullable-field-invalid-schema-key",
    "data-reader-primitives",
    "data-reader-timestamp_ntz-id-mode",
    "data-skipping-basic-stats-all-types",
    "data-skipping-basic-stats-all-types-columnmapping-id",
    "data-skipping-change-stats-collected-across-versions",
    "decimal-various-scale-precision",
    "dv-with-columnmapping",
    "kernel-timestamp-int96",
    "kernel-timestamp-timestamp_micros",
    "log-replay-dv-key-cases",
    "log-replay-special-characters",
    "parquet-all-types",
    "snapshot-data0",
    "snapshot-data2",
    "snapshot-data3",
    "snapshot-vacuumed",
    "table-with-columnmapping-mode-name",
    "time-travel-partition-changes-b",
    "time-travel-schema-changes-b",
    "time-travel-start-start20",
    "v2-checkpoint-parquet",
)

CHECKPOINT = "_delta_log/00000000000000000010.checkpoint.parquet"
REFUSED: dict[str, tuple[type[AlluviaError], str]] = {
    "deltalog-invalid-protocol-version": (Unsupported, "the table needs reader version 99"),
    "deltalog-state-reconstruction-from-checkpoint-missing-protocol": (
        Corrupt,
        f"checkpoint {CHECKPOINT} holds no protocol action",
    ),
    "deltalog-state-reconstruction-without-protocol": (Corrupt, "the log holds no protocol action up to version 0"),
    "no-delta-log-folder": (TableNotFound, "no table 'delta'"),
}
FILES_ONLY = (
    "canonicalized-paths-normal-b",
    "canonicalized-paths-special-b",
    "deltalog-commit-info",
    "log-replay-special-characters-b",
    "update-deleted-directory",
)
"""Cases of the log alone: their data files were never written."""


def open_case(golden: Path, case: str) -> alluvia.Table:
    return alluvia.open_table(str(golden / case / "delta"))


def test_every_case_is_here(golden: Path) -> None:
    assert sorted((*READ, *REFUSED, *FILES_ONLY)) == folders(golden)
    assert len(list(folders(golden))) == 43


@pytest.mark.parametrize("case", READ)
def test_a_table_gives_the_expected_rows(golden: Path, case: str) -> None:
    table = open_case(golden, case)
    expected = written(golden / case / "expected")
    found = table.scan().read_all()
    assert types(found.schema) == types(expected.schema)
    assert rows(found) == rows(expected)
    assert rows(table.lake.sql("SELECT * FROM delta")) == rows(expected)
    assert table.lake.sql("SELECT count(*) AS n FROM delta").to_pylist() == [{"n": len(expected)}]


@pytest.mark.usefixtures("light_queries")
@pytest.mark.slow
@pytest.mark.parametrize("case", READ)
def test_a_condition_on_any_column_finds_the_rows_that_it_should(golden: Path, case: str) -> None:
    table = open_case(golden, case)
    for where, wanted in conditions(written(golden / case / "expected")):
        assert rows(table.scan(where=where).read_all()) == wanted, where
        assert rows(table.lake.sql(f"SELECT * FROM delta WHERE {where}")) == wanted, where


@pytest.mark.parametrize(("case", "refusal"), REFUSED.items())
def test_a_table_is_refused_by_name(golden: Path, case: str, refusal: tuple[type[AlluviaError], str]) -> None:
    kind, message = refusal
    table = open_case(golden, case)
    for read in (table.snapshot, table.scan, lambda: table.lake.sql("SELECT * FROM delta")):
        with pytest.raises(kind, match=message if read != table.scan else None):
            read()


@pytest.mark.parametrize("case", ["canonicalized-paths-normal-b", "canonicalized-paths-special-b"])
def test_one_file_may_be_named_in_several_ways(golden: Path, case: str) -> None:
    table = open_case(golden, case)
    assert table.snapshot().version == 1
    assert len(table.snapshot().files) == 0
    assert len(table.scan().read_all()) == 0
    assert len(table.snapshot(version=0).files) == 1


def test_a_path_is_decoded_once(golden: Path) -> None:
    table = open_case(golden, "log-replay-special-characters-b")
    assert [file.path for file in table.snapshot().files] == ["special p@#h"]
    reads: list[Callable[[], object]] = [
        lambda: table.scan().read_all(),
        lambda: table.lake.sql("SELECT * FROM delta"),
    ]
    for read in reads:
        with pytest.raises(Corrupt, match=r"data file special p@#h .*is missing|data file special p@#h is missing"):
            read()


def test_a_commit_tells_who_made_it(golden: Path) -> None:
    table = open_case(golden, "deltalog-commit-info")
    (entry,) = table.history()
    commit = golden / "deltalog-commit-info" / "delta" / "_delta_log" / f"{0:020}.json"
    assert (entry.version, entry.operation) == (0, "WRITE")
    assert entry.timestamp.timestamp() == pytest.approx(commit.stat().st_mtime, abs=0.001)
    assert [file.path for file in table.snapshot().files] == ["abc"]
    with pytest.raises(Corrupt, match="the table's metaData has no schemaString"):
        table.scan()


def test_a_log_whose_folder_was_made_anew_is_read_from_its_checkpoint(golden: Path) -> None:
    table = open_case(golden, "update-deleted-directory")
    assert table.snapshot().version == 0
    assert sorted(file.path for file in table.snapshot().files) == sorted(str(number) for number in range(1, 11))
    with pytest.raises(Corrupt, match="the table's metaData has no schemaString"):
        table.scan()
