"""Files whose columns the log knows are read without comparing their schemas, with the same result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia import connect
from alluvia.api.lake import Lake, Table
from alluvia.delta.file_columns import COLUMNS_TAG, columns_digest, columns_tag
from alluvia.delta.log.actions import AddFile
from alluvia.engine.duck import arrow_values, views
from alluvia.engine.duck.arrow_values import DuckType
from alluvia.engine.duck.file_kinds import COLUMN_SETS_MAX, FileKinds
from alluvia.engine.duck.relation import RelationPart, relation_parts
from alluvia.recent import Recent
from tests.judges import canonical

WIDE = pa.schema([("p", pa.string()), *((f"c{number}", pa.int64()) for number in range(40))])


def parts(table: Table, files: Sequence[AddFile] | None = None) -> list[RelationPart]:
    snapshot = table.snapshot()
    chosen = list(snapshot.files) if files is None else files
    schemas = snapshot.schema, snapshot.physical_schema
    kinds = FileKinds(*schemas, snapshot.partition_columns, chosen, (), snapshot.columns_digest)
    paths = [file.path for file in chosen]
    return relation_parts(schemas[0], snapshot.partition_columns, chosen, paths, kinds, schemas[1])


def compares(table: Table) -> list[bool]:
    """Whether DuckDB has to compare the schemas of files, for each part of the table."""
    return ["union_by_name" in part.source for part in parts(table)]


def check(table: Table) -> pa.Table:
    """Compare what SQL shows with a scan, and return it."""
    found = table.lake.sql(f'SELECT * FROM "{table.name}"')
    assert canonical(found) == canonical(table.scan().read_all())
    assert table.verify(full=True).ok
    return found


def wide_table(lake: Lake, **properties: str) -> Table:
    table = lake.create_table("t", WIDE, partition_by=["p"], properties=properties)
    table.append([{"p": "a", "c1": 1, "c39": 5}, {"p": "b", "c2": 2}])
    table.append([{"p": "a", "c1": 3, "c39": 7}])
    return table


def test_the_digest_depends_on_names_and_types_but_not_their_order() -> None:
    inner = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.struct([("z", pa.string())])))])
    columns = [pa.field("a", pa.int64()), pa.field("b", inner)]
    digest = columns_digest(columns)
    assert columns_digest([columns[1], pa.field("a", pa.int64(), nullable=False)]) == digest
    others: list[list[pa.Field]] = [
        columns[:1],
        [*columns, pa.field("c", pa.int64())],
        [pa.field("A", pa.int64()), columns[1]],
        [pa.field("a", pa.int32()), columns[1]],
        [columns[0], pa.field("b", pa.struct([("x", pa.int64()), ("y", pa.list_(pa.struct([("w", pa.string())])))]))],
    ]
    assert digest not in map(columns_digest, others)
    assert len({*map(columns_digest, others)}) == len(others)


def test_a_file_is_tagged_only_if_its_statistics_do_not_name_all_columns() -> None:
    few = pa.schema([("a", pa.int64()), ("b", pa.struct([("x", pa.int64()), ("y", pa.int64())]))])
    assert columns_tag(few, 3) == {}
    assert columns_tag(few, 2) == {COLUMNS_TAG: columns_digest(few)}
    in_list = pa.schema([("a", pa.list_(pa.struct([("x", pa.int64())])))])
    assert columns_tag(in_list, 32) == {COLUMNS_TAG: columns_digest(in_list)}


WRITES: dict[str, Callable[[Table], Any]] = {
    "append": lambda table: table.append([{"p": "a", "c39": 1}]),
    "one row": lambda table: table.append([{"p": "c"}]),
    "delete": lambda table: table.delete("c1 = 1"),
    "update": lambda table: table.update({"c39": "c1"}, where="c1 = 1"),
    "upsert": lambda table: table.upsert([{"p": "a", "c1": 1, "c38": 9}, {"p": "a", "c1": 8}], on=["c1"]),
    "optimize": lambda table: table.optimize(),
    "restore": lambda table: table.restore(version=1),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_every_write_to_a_wide_table_tags_the_columns_of_its_files(
    tmp_path: Path, write: Callable[[Table], Any]
) -> None:
    table = wide_table(connect(str(tmp_path)))
    write(table)
    snapshot = table.snapshot()
    assert {file.tags.get(COLUMNS_TAG) for file in snapshot.files} == {snapshot.columns_digest}
    assert compares(table) == [False]
    check(table)


def test_files_of_events_and_converted_files_are_tagged(tmp_path: Path) -> None:
    lake = connect(str(tmp_path))
    events = lake.create_events("e", pa.schema([(f"c{number}", pa.int64()) for number in range(40)]))
    events.ingest([{"event_id": "a", "event": "x", "c39": 1}, {"event_id": "b", "event": "y"}])
    assert compares(events) == [False]
    check(events)
    for day in (1, 2):
        (tmp_path / f"old/day={day}").mkdir(parents=True)
        rows = pa.table({name: [day] for name in WIDE.names[1:]})
        pq.write_table(rows, tmp_path / f"old/day={day}/x.parquet")
    old = lake.convert("old", "old")
    assert compares(old) == [False]
    check(old)


def test_files_from_before_a_new_column_are_parts_of_their_own(tmp_path: Path) -> None:
    table = wide_table(connect(str(tmp_path)))
    table.evolve(add={"new": "string"})
    table.append([{"p": "a", "c1": 4, "new": "x"}])
    table.append([{"p": "b", "new": "y"}])
    assert compares(table) == [False, False]
    assert check(table)["new"].to_pylist().count(None) == 3
    assert table.lake.sql("SELECT new FROM t WHERE new IS NOT NULL ORDER BY 1")["new"].to_pylist() == ["x", "y"]
    table.update({"new": "'z'"}, where="c1 = 1")
    check(table)
    table.optimize()
    assert compares(table) == [False]
    check(table)


def test_columns_that_are_renamed_dropped_and_added_again_are_told_apart(tmp_path: Path) -> None:
    table = wide_table(connect(str(tmp_path)))
    table.evolve(rename={"c39": "last"})
    table.evolve(drop=["c1"])
    table.evolve(add={"c1": "long", "c39": "long"})
    table.append([{"p": "a", "c1": 40, "last": 41, "c39": 42}])
    found = check(table).sort_by([("c1", "ascending"), ("last", "ascending")])
    rows = found.select(["c1", "last", "c39"]).to_pylist()
    assert rows[0] == {"c1": 40, "last": 41, "c39": 42}
    assert [row["last"] for row in rows[1:]] == [5, 7, None]
    assert {row["c1"] for row in rows[1:]} == {None}
    clone = table.lake.clone("t", "copy")
    clone.append([{"p": "z", "c1": 43}])
    check(clone)


def test_more_sets_of_columns_than_parts(tmp_path: Path) -> None:
    table = wide_table(connect(str(tmp_path)))
    for number in range(COLUMN_SETS_MAX + 3):
        table.evolve(add={f"n{number}": "long"})
        table.append([{"p": "a", f"n{number}": number}])
    assert len(compares(table)) <= COLUMN_SETS_MAX + 2
    assert sum(compares(table)) == 1
    check(table)


def test_old_and_foreign_files_have_no_tag_and_are_compared(tmp_path: Path) -> None:
    table = connect(str(tmp_path)).create_table("t", WIDE, properties={"alluvia.writers": "any"})
    table.append([{"c1": 1, "c39": 2}])
    uri = str(tmp_path / "t")
    deltalake.write_deltalake(uri, pa.Table.from_pylist([{"c1": 2, "c39": 3}], WIDE), mode="append")
    assert sorted(compares(table)) == [False, True]
    check(table)
    assert deltalake.DeltaTable(uri).to_pyarrow_table().num_rows == 2  # deltalake ignores tags


def test_a_tag_that_claims_too_many_columns_changes_no_answer(tmp_path: Path) -> None:
    table = wide_table(connect(str(tmp_path)))
    table.evolve(add={"new": "string"})
    table.append([{"p": "a", "new": "x"}])
    snapshot = table.snapshot()
    lying = [replace(file, tags={COLUMNS_TAG: snapshot.columns_digest}, uri=None) for file in snapshot.files]
    table.commit_files(lying)
    found = table.lake.sql("SELECT * FROM t")
    assert canonical(found) == canonical(table.scan().read_all())
    assert wrong_files(table) == [file.path for file in snapshot.files if file.tags != lying[0].tags]


def wrong_files(table: Table) -> list[str | None]:
    """Return the files whose tags `verify` finds wrong, and check that it finds nothing else."""
    findings = table.verify(full=True).findings
    assert {finding.kind for finding in findings} <= {"columns-wrong"}
    return [finding.file for finding in findings]


def test_verify_reports_wrong_tags(tmp_path: Path) -> None:
    table = wide_table(connect(str(tmp_path)))
    assert wrong_files(table) == []
    first, *others = table.snapshot().files
    table.commit_files([replace(first, tags={COLUMNS_TAG: columns_digest(WIDE)}, uri=None), *others])
    assert wrong_files(table) == [first.path]


def test_statistics_alone_show_that_narrow_files_are_alike(tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path))
    table = lake.create_table("t", pa.schema([("a", pa.int64()), ("b", pa.struct([("x", pa.int64())]))]))
    table.append([{"a": 1, "b": {"x": 1}}])
    assert all(COLUMNS_TAG not in file.tags for file in table.snapshot().files)
    assert compares(table) == [False]
    table.evolve(add={"c": "long"})
    table.append([{"a": 2, "c": 3}])
    assert sorted(compares(table)) == [False, True]
    check(table)


def test_the_columns_of_all_files_are_checked_after_any_earlier_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = connect(str(tmp_path))
    table = lake.create_table("t", {"p": "string", "a": "long"}, partition_by=["p"])
    table.append([{"p": "x", "a": 1}])
    table.evolve(add={"b": "string"})
    table.append([{"p": "x", "a": 2, "b": "y"}])
    table.evolve(add={"c": "long"})
    assert lake.sql("SELECT p, count(*) AS n FROM t GROUP BY p").to_pylist() == [{"p": "x", "n": 2}]
    seen: list[tuple[str, pa.DataType]] = []

    def fits(stored: DuckType, kind: pa.DataType) -> bool:
        seen.append((stored.id, kind))
        return arrow_values.fits(stored, kind)

    monkeypatch.setattr(views, "fits", fits)
    assert lake.sql("SELECT a, b, c FROM t ORDER BY a").to_pylist() == [
        {"a": 1, "b": None, "c": None},
        {"a": 2, "b": "y", "c": None},
    ]
    assert seen == [("bigint", pa.int64()), ("varchar", pa.string())]


def test_no_file_is_copied_for_a_column_that_hides_the_file_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = connect(str(tmp_path))
    table = lake.create_table("t", {"p": "string", "a": "long", "File_Index": "long"}, partition_by=["p"])
    table.append([{"p": "x", "a": 1, "File_Index": 7}, {"p": "y", "a": 2, "File_Index": 7}])
    monkeypatch.delattr(views, "read_file")
    for columns in ("p, a", "*"):
        found = lake.sql(f"SELECT {columns} FROM t ORDER BY a").to_pylist()
        assert [(row["p"], row["a"]) for row in found] == [("x", 1), ("y", 2)]


def test_the_cache_of_file_columns_has_a_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known: Recent[Any, Any] = Recent(3000)
    monkeypatch.setattr(views, "_KNOWN_COLUMNS", known)
    table = wide_table(connect(str(tmp_path)))
    for number in range(4):
        table.append([{"p": f"q{number}", "c1": number}])
        table.lake.sql("SELECT sum(c1) FROM t")
    assert 0 < len(known._values) < 4


def test_verify_knows_the_variants_of_a_column_that_was_dropped(tmp_path: Path) -> None:
    columns = pa.schema([(f"c{number}", pa.int64()) for number in range(40)])
    events = connect(str(tmp_path)).create_events("e", columns, properties={"alluvia.properties": "variant"})
    events.ingest([{"event_id": str(n), "event": "x", "c39": n, "properties": {"k": n}} for n in range(1000)])
    events.ingest([{"event_id": "few", "event": "x", "properties": {"k": [1]}}])
    assert wrong_files(events) == []
    events.evolve(drop=["properties"])
    assert wrong_files(events) == []
    check(events)
