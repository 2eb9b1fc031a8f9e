"""A table with `alluvia.writers = 'any'`: deltalake and delta-spark write it, we go on, and they go on from there."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import alluvia
from alluvia.api.lake import Table
from alluvia.errors import Corrupt
from tests import judges
from tests.reach.delta_spark import BY_SPARK, judged
from tests.reach.tables import OPEN
from tests.reach.writers import Deltalake, Spark, Writer, events_of

Step = tuple[Callable[[], object], str]
WRITERS = ["deltalake", pytest.param("delta-spark", marks=BY_SPARK)]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    lake = alluvia.connect(str(tmp_path))
    partition_by = ["place", "day(ts)"]
    return lake.create_events("events", pa.schema([("place", pa.string())]), partition_by=partition_by, properties=OPEN)


@pytest.fixture
def writer(request: pytest.FixtureRequest) -> Writer:
    return Deltalake() if request.param == "deltalake" else Spark(request.getfixturevalue("delta_spark"))


def _found(rows: pa.Table) -> str:
    """Return ids and the first letters of their events, in order."""
    return " ".join(sorted(row["event_id"] + row["event"][0] for row in rows.select(["event_id", "event"]).to_pylist()))


def _taken(table: Table, steps: list[Step]) -> dict[int, str]:
    """Take steps, each of which must leave what stands beside it; return that by version."""
    left = {table.snapshot().version: _found(table.scan().read_all())}
    for at, (step, expected) in enumerate(steps):
        step()
        opened = alluvia.connect(table.lake.uri).table(table.name)
        assert _found(table.scan().read_all()) == expected, f"step {at}"
        assert judges.ours(opened) == judges.ours(table), f"step {at}"
        left[table.snapshot().version] = expected
    return left


def _agree(table: Table, left: dict[int, str], writer: Writer, since: int = 0) -> None:
    """Assert that every reader sees the same at every version, and what was left at those where a step ended.

    Spark takes its time, and reads those of `judged`, without the ones before `since`, which are its own.
    """
    newest = table.snapshot().version
    assert newest in left
    for version, rows in judges.judges_agree(table, range(min(left), newest + 1)).items():
        if isinstance(writer, Spark) and version >= since and version in judged(newest):
            assert judges.canonical(writer.spark.read(table, version)) == rows, f"version {version}"
        if version in left:
            assert _found(table.scan(version=version).read_all()) == left[version], f"version {version}"


@pytest.mark.parametrize("writer", WRITERS, indirect=True)
def test_they_write_and_we_go_on(table: Table, writer: Writer) -> None:
    def upserted(ids: str) -> object:
        return table.upsert(events_of(table, ids, "new"), on=["event_id"])

    theirs: list[Step] = [
        (lambda: table.ingest(events_of(table, "abcd")), "av bv cv dv"),
        (lambda: writer.append(table, "efg"), "av bv cv dv ev fv gv"),
        (lambda: writer.delete(table, "a"), "bv cv dv ev fv gv"),
        (lambda: writer.update(table, "b", "click"), "bc cv dv ev fv gv"),
        (lambda: writer.upsert(table, "ch", "own"), "bc co dv ev fv gv ho"),
        (lambda: writer.add_column(table, "extra"), "bc co dv ev fv gv ho"),
        (lambda: writer.optimize(table), "bc co dv ev fv gv ho"),
        (lambda: writer.checkpoint(table), "bc co dv ev fv gv ho"),
    ]
    ours: list[Step] = [
        (lambda: table.ingest(events_of(table, "adi")), "bc co dv ev fv gv ho iv"),
        (lambda: table.append([{**event, "extra": 7} for event in events_of(table, "k").to_pylist()]),
         "bc co dv ev fv gv ho iv kv"),
        (lambda: table.delete("event_id = 'e'"), "bc co dv fv gv ho iv kv"),
        (lambda: table.update({"event": "'up'"}, where="extra = 7"), "bc co dv fv gv ho iv ku"),
        (lambda: upserted("fl"), "bc co dv fn gv ho iv ku ln"),
        (table.optimize, "bc co dv fn gv ho iv ku ln"),
        (table.checkpoint, "bc co dv fn gv ho iv ku ln"),
    ]  # fmt: skip
    again: list[Step] = [
        (lambda: writer.append(table, "m"), "bc co dv fn gv ho iv ku ln mv"),
        (lambda: writer.delete(table, "i"), "bc co dv fn gv ho ku ln mv"),
        (lambda: writer.optimize(table), "bc co dv fn gv ho ku ln mv"),
    ]
    log = Path(judges.uri_of(table), "_delta_log")
    left = _taken(table, theirs)
    assert list(log.glob("*.checkpoint.parquet"))
    since = table.snapshot().version
    left |= _taken(table, [*ours, *again])
    assert left[0] == ""
    _agree(table, left, writer, since)

    writer.vacuum(table)
    with pytest.raises(Corrupt, match=r"data file .* of version 1 is missing"):
        table.scan(version=1).read_all()
    left = _taken(table, [(lambda: table.ingest(events_of(table, "n")), "bc co dv fn gv ho ku ln mv nv")])
    table.vacuum(timedelta(0))
    left = _taken(table, [(lambda: writer.append(table, "o"), "bc co dv fn gv ho ku ln mv nv ov")])
    _agree(table, {table.snapshot().version: left[table.snapshot().version]}, writer)
