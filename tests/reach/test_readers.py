"""Other readers see the rows that we see, at every version of tables with every feature that we write."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import alluvia
from alluvia.api.lake import Table
from alluvia.errors import VersionExpired, VersionNotFound
from tests import judges
from tests.reach.delta_spark import BY_SPARK, judged
from tests.reach.every_type import CONDITIONS
from tests.reach.tables import APART, EVERY_TYPE, FEATURES, Feature

Build = Callable[[Feature], Table]
Read = Callable[..., pa.Table]


def _sql(table: Table, version: int | None = None, where: str = "true") -> pa.Table:
    at = "" if version is None else f"(version => {version})"
    return table.lake.sql(f"SELECT * FROM {table.name}{at} WHERE {where}")


READERS: dict[str, Read] = {
    "Alluvia": _sql,
    "deltalake": judges.deltalake_table,
    "deltalake SQL": judges.deltalake_sql_table,
    "DuckDB": judges.duckdb_table,
}
SPARK_NAME = "delta-spark"
SPARK = pytest.param(SPARK_NAME, marks=BY_SPARK)
WITHOUT_BOUNDS = ("single", "double", "flag")
"""Columns that have no bounds in some file: Delta has none for truth values, and JSON none for infinity."""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return what gives a feature's table, built once."""
    built: dict[str, Table] = {}

    def table_of(feature: Feature) -> Table:
        if feature.name not in built:
            built[feature.name] = feature.build(alluvia.connect(str(tmp_path_factory.mktemp("lake"))))
        return built[feature.name]

    return table_of


def _read(request: pytest.FixtureRequest, reader: str) -> Read:
    read: Read = READERS[reader] if reader in READERS else request.getfixturevalue("delta_spark").read
    return read


@pytest.mark.parametrize("feature", FEATURES, ids=str)
@pytest.mark.parametrize("reader", [*READERS, SPARK])
def test_every_version(request: pytest.FixtureRequest, reader: str, feature: Feature, build: Build) -> None:
    table, read = build(feature), _read(request, reader)
    assert table.snapshot().version == len(feature.rows) - 1
    if reader in feature.refused:
        with pytest.raises(Exception, match=feature.refused[reader]):
            read(table)
        return
    for version, rows in enumerate(feature.rows):
        if rows is None:
            with pytest.raises((VersionExpired, VersionNotFound)):
                table.scan(version=version)
            continue
        if reader == SPARK_NAME and version not in judged(len(feature.rows) - 1):
            continue
        mine, theirs = table.scan(version=version).read_all(), read(table, version)
        assert len(mine) == rows
        column, since = feature.nulls.get(reader, ("", version + 1))
        if version >= since:
            at = mine.schema.get_field_index(column)
            mine = mine.set_column(at, mine.schema.field(at), pa.nulls(rows, mine.schema.field(at).type))
        assert judges.canonical(theirs) == judges.canonical(mine), f"version {version}"
        assert judges.kinds(theirs.schema) == judges.kinds(mine.schema), f"version {version}"


@pytest.mark.parametrize(
    "reader",
    ["Alluvia", "deltalake SQL", "DuckDB", pytest.param(SPARK_NAME, marks=[*BY_SPARK, pytest.mark.at_length])],
)
def test_our_statistics_lead_every_reader_to_the_rows(
    request: pytest.FixtureRequest, reader: str, build: Build
) -> None:
    table, read = build(EVERY_TYPE), _read(request, reader)
    assert [(where, len(read(table, APART, where))) for where, _ in CONDITIONS] == CONDITIONS
    assert [(where, len(table.scan(where=where, version=APART).read_all())) for where, _ in CONDITIONS] == CONDITIONS


def test_our_statistics_lead_arrow_to_the_rows(build: Build) -> None:
    dataset = judges.open_deltalake(build(EVERY_TYPE), APART).to_pyarrow_dataset()
    rows = dataset.to_table()
    for name in rows.column_names:
        if name in WITHOUT_BOUNDS or pa.types.is_nested(rows[name].type):
            continue
        for value in rows[name].drop_null():
            found = dataset.to_table(filter=pc.field(name) == value)
            assert found[name].to_pylist() == [each for each in rows[name].to_pylist() if each == value.as_py()], name


def test_deltalake_takes_an_absent_bound_for_one_that_no_row_meets(build: Build) -> None:
    dataset = judges.open_deltalake(build(EVERY_TYPE), APART).to_pyarrow_dataset()
    assert dataset.to_table()["flag"].to_pylist().count(True) == 2
    assert len(dataset.to_table(filter=pc.field("flag") == pa.scalar(value=True))) == 0
