"""A guarded table takes commits from us alone: deltalake and delta-spark refuse to write it, by the guard's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

import alluvia
from alluvia.api.lake import Table
from tests import judges
from tests.reach.delta_spark import DeltaSpark, SparkRefuses, named
from tests.reach.tables import numbers, simple

ROWS = pa.table({"n": [1, 9], "name": ["new", "new"]})
DELTALAKE: dict[str, Callable[[str], object]] = {
    "append": lambda uri: write_deltalake(uri, ROWS, mode="append"),
    "overwrite": lambda uri: write_deltalake(uri, ROWS, mode="overwrite"),
    "delete": lambda uri: DeltaTable(uri).delete("n = 1"),
    "update": lambda uri: DeltaTable(uri).update({"name": "'x'"}),
    "merge": lambda uri: DeltaTable(uri).merge(ROWS, "s.n = t.n", "s", "t").when_matched_update_all().execute(),
    "optimize": lambda uri: DeltaTable(uri).optimize.compact(),
    "z-order": lambda uri: DeltaTable(uri).optimize.z_order(["n"]),
    "vacuum": lambda uri: DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
    "restore": lambda uri: DeltaTable(uri).restore(1),
    "property": lambda uri: DeltaTable(uri).alter.set_table_properties({"delta.appendOnly": "true"}),
}
SPARK = {
    "append": "INSERT INTO {0} VALUES (9, 'new')",
    "overwrite": "INSERT OVERWRITE {0} VALUES (9, 'new')",
    "delete": "DELETE FROM {0} WHERE n = 1",
    "update": "UPDATE {0} SET name = 'x'",
    "merge": "MERGE INTO {0} t USING (SELECT 1 AS n) s ON t.n = s.n WHEN MATCHED THEN DELETE",
    "optimize": "OPTIMIZE {0}",
    "vacuum": "VACUUM {0} RETAIN 0 HOURS",
    "restore": "RESTORE TABLE {0} TO VERSION AS OF 1",
    "property": "ALTER TABLE {0} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "column": "ALTER TABLE {0} ADD COLUMN more INT",
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A guarded table of two files, of which one version more has been merged away."""
    made = simple(alluvia.connect(str(tmp_path)))
    made.append(numbers(1, 2))
    made.append(numbers(3))
    made.optimize()
    made.append(numbers(4))
    return made


def _files(table: Table) -> dict[Path, bytes]:
    folder = Path(judges.uri_of(table))
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("write", DELTALAKE.values(), ids=DELTALAKE.keys())
def test_deltalake_refuses(write: Callable[[str], object], table: Table) -> None:
    before = _files(table)
    with pytest.raises(CommitFailedError, match=r'Unsupported table features required: .*Unknown\("alluvia"\)'):
        write(judges.uri_of(table))
    assert _files(table) == before


@pytest.mark.slow
@pytest.mark.xdist_group("delta-spark")
def test_delta_spark_refuses(table: Table, delta_spark: DeltaSpark) -> None:
    before = _files(table)
    for name, statement in SPARK.items():
        with pytest.raises(SparkRefuses, match=r"unsupported by Delta Lake .*: alluvia\."):
            delta_spark.run(statement.format(named(table)))
        after = _files(table)
        left = set(after) - set(before)
        assert {path: after[path] for path in before} == before, name
        assert not any(path.parts[0] == "_delta_log" for path in left), name
    assert judges.canonical(delta_spark.read(table)) == judges.ours(table)


def test_a_checkpoint_is_no_commit_and_the_guard_does_not_hold_deltalake_from_writing_one(table: Table) -> None:
    before, rows = _files(table), judges.ours(table)
    DeltaTable(judges.uri_of(table)).create_checkpoint()
    DeltaTable(judges.uri_of(table)).compact_logs(0, 3)
    assert sorted(map(str, set(_files(table)) - set(before))) == [
        "_delta_log/00000000000000000000.00000000000000000003.compacted.json",
        "_delta_log/00000000000000000004.checkpoint.parquet",
        "_delta_log/_last_checkpoint",
    ]
    opened = alluvia.connect(table.lake.uri).table(table.name)
    assert judges.ours(opened) == rows
    opened.append(numbers(5))
    judges.judges_agree(opened)
