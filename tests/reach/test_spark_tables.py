"""We read what delta-spark wrote, whatever the feature, and write such a table only if we keep its rules."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import alluvia
from alluvia.api.lake import Table
from alluvia.errors import Invalid, Unsupported
from tests import judges
from tests.reach.delta_spark import BY_SPARK, DeltaSpark, named
from tests.reach.every_type import CONDITIONS
from tests.reach.made_by_spark import BySpark, archived_sources, sources
from tests.reach.spark_tables import TABLES, Made
from tests.reach.tables import APART, EVERY_TYPE

pytestmark = BY_SPARK

WRITES: list[Callable[[Table], object]] = [
    lambda table: table.append(table.scan().read_all()),
    lambda table: table.delete("true"),
    lambda table: table.update({table.snapshot().schema.names[0]: "NULL"}),
    lambda table: table.upsert(table.scan().read_all(), on=table.snapshot().schema.names[:1]),
    lambda table: table.evolve(properties={"some": "value"}),
    lambda table: table.restore(0),
    lambda table: table.checkpoint(),
    lambda table: table.vacuum(),
]
COMMIT = re.compile(r"\d{20}\.json")


def _log(table: Table) -> list[str]:
    return sorted(path.name for path in Path(judges.uri_of(table), "_delta_log").iterdir())


def test_the_archive_is_of_this_spark_and_of_these_statements() -> None:
    assert archived_sources() == sources(), "make it anew: python -m tests.reach.made_by_spark"


@pytest.mark.parametrize("made", TABLES, ids=str)
def test_what_spark_wrote(made: Made, by_spark: BySpark, delta_spark: DeltaSpark) -> None:
    by = by_spark(made)
    table = by.table
    assert [name for name in _log(table) if COMMIT.fullmatch(name)][-1] == f"{len(made.rows) - 1:020d}.json"
    for version, (theirs, count) in enumerate(zip(by.rows, made.rows, strict=True)):
        for mine in (table.scan(version=version).read_all(), _sql(table, version)):
            assert len(mine) == count, f"version {version}"
            assert judges.canonical(mine) == judges.canonical(theirs), f"version {version}"
            assert judges.kinds(mine.schema) == judges.kinds(theirs.schema), f"version {version}"
    _write(made, delta_spark, table)


def _write(made: Made, spark: DeltaSpark, table: Table) -> None:
    before = _log(table)
    if made.unwritten:
        for write in WRITES:
            with pytest.raises(Unsupported, match=made.unwritten):
                write(table)
        assert _log(table) == before
        return
    rows = table.scan().read_all()
    if made.no_rows:
        with pytest.raises(Invalid, match=made.no_rows):
            table.append(rows)
        return
    table.append(rows)
    assert judges.canonical(spark.read(table)) == sorted(2 * judges.canonical(rows), key=repr)


@pytest.mark.at_length
def test_sparks_statistics_lead_us_to_the_rows(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path))
    ours, made = EVERY_TYPE.build(lake), lake.table("made")
    rows = f"SELECT * FROM {named(ours)} VERSION AS OF {APART} WHERE long"
    delta_spark.run(
        f"CREATE TABLE {named(made)} USING delta TBLPROPERTIES ('delta.checkpoint.writeStatsAsStruct' = 'true', "
        f"'delta.checkpoint.writeStatsAsJson' = 'false', 'delta.checkpointInterval' = '4') AS {rows} = 1",
        *(f"INSERT INTO {named(made)} {rows} {which}" for which in ("> 1", "< 1", "IS NULL")),
        f"ALTER TABLE {named(made)} SET TBLPROPERTIES ('some' = 'value')",
    )
    assert [name for name in _log(made) if name.endswith(".parquet")] == [f"{4:020d}.checkpoint.parquet"]
    assert judges.ours(made) == judges.ours(ours)
    opened = alluvia.connect(str(tmp_path)).table("made")
    for version in (4, 3):
        found = [(where, len(opened.scan(where=where, version=version).read_all())) for where, _ in CONDITIONS]
        assert found == CONDITIONS
        assert [(where, len(_sql(opened, version, where))) for where, _ in CONDITIONS] == CONDITIONS


def test_spark_alone_pads_texts_of_a_fixed_length(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    table = alluvia.connect(str(tmp_path)).table("made")
    delta_spark.run(f"CREATE TABLE {named(table)} (c CHAR(3)) USING delta", f"INSERT INTO {named(table)} VALUES ('a')")
    assert delta_spark.read(table).to_pylist() == [{"c": "a  "}]
    assert judges.judges_agree(table)[1] == judges.canonical(pa.table({"c": ["a"]}))


def _sql(table: Table, version: int, where: str = "true") -> pa.Table:
    return table.lake.sql(f"SELECT * FROM made(version => {version}) WHERE {where}")
