"""Tables that delta-spark wrote, with every feature that we read: every version gives the rows that Spark saw."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

import alluvia
from tests.golden.reading import conditions, folders, rows, types, written
from tests.light_engines import light_engines

CASES = (
    "all_types",
    "all_types_legacy",
    "checkpoints_bare",
    "clone_source",
    "clustered",
    "codecs",
    "deep",
    "dict_decimals",
    "dv_big",
    "dv_map_id",
    "dv_partitioned",
    "dv_row_groups",
    "empty",
    "empty_file",
    "feature_mix",
    "floats",
    "int96_far",
    "legacy_decimals",
    "legacy_nested",
    "legacy_protocols",
    "map_id",
    "map_id_partitioned",
    "map_name",
    "map_removed",
    "map_renamed_to_another",
    "map_upgraded",
    "multipart",
    "nested_evolution",
    "ntz",
    "ntz_added",
    "overwrite",
    "pages_v2",
    "partition_extremes",
    "partition_only",
    "partition_types",
    "partition_values",
    "protocol_dropped",
    "rebased",
    "reserved_names",
    "reserved_plain",
    "row_ids",
    "shallow_clone",
    "stats_few",
    "stats_struct",
    "strings",
    "upper_case",
    "v2_json",
    "v2_parquet",
    "void_col",
    "wide",
    "widening",
    "widening_part",
    "writer_features",
)
VARIANT = "variant"
"""Spark cannot hand its rows to Arrow; `test_variant_tables.py` has more of the kind."""
MANY = ("dv_big", "wide")
"""Cases of so many rows or columns that a condition on each takes long, and shows nothing more."""


def test_every_case_is_here(spark_tables: Path) -> None:
    assert sorted((*CASES, VARIANT)) == folders(spark_tables)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_version_gives_the_rows_that_spark_saw(spark_tables: Path, case: str) -> None:
    table = alluvia.open_table(str(spark_tables / case / "delta"))
    versions = [int(name[1:]) for name in folders(spark_tables / case / "expected")]
    assert max(versions) == table.snapshot().version
    for version in versions:
        expected = written(spark_tables / case / "expected" / f"v{version}")
        found = table.scan(version=version).read_all()
        assert types(found.schema) == types(expected.schema), version
        assert rows(found) == rows(expected), version
        with nullcontext() if version == max(versions) else light_engines():
            assert rows(table.lake.sql(f"SELECT * FROM delta(version => {version})")) == rows(expected), version
            counted = table.lake.sql(f"SELECT count(*) AS n FROM delta(version => {version})").to_pylist()
            assert counted == [{"n": len(expected)}], version


@pytest.mark.usefixtures("light_queries")
@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case not in MANY])
def test_a_condition_on_any_column_finds_the_rows_that_it_should(spark_tables: Path, case: str) -> None:
    table = alluvia.open_table(str(spark_tables / case / "delta"))
    expected = written(spark_tables / case / "expected" / f"v{table.snapshot().version}")
    for where, wanted in conditions(expected, values_max=2):
        assert rows(table.scan(where=where).read_all()) == wanted, where
        assert rows(table.lake.sql(f"SELECT * FROM delta WHERE {where}")) == wanted, where


def test_variants_are_text(spark_tables: Path) -> None:
    table = alluvia.open_table(str(spark_tables / VARIANT / "delta"))
    wanted = [{"id": n, "v": "[1]"} for n in range(3)]
    assert table.scan().read_all().sort_by("id").to_pylist() == wanted
    assert table.lake.sql("SELECT * FROM delta ORDER BY id").to_pylist() == wanted
