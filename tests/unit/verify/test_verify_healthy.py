"""Sound tables raise no false alarm, whoever wrote them and whatever has been done to them."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import alluvia
from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import TableNotFound, Unsupported
from alluvia.store import MemoryStore
from tests.golden.test_golden import READ
from tests.reach.every_type import LOWEST, ORDINARY, SCHEMA
from tests.reach.tables import FEATURES, Feature
from tests.unit.verify.damages import Hands, codes, events, make_events

GOLDEN = Path(__file__).parents[2] / "golden" / "golden_tables.tar.gz"
KNOWN = {
    "corrupted-last-checkpoint-kernel": {"last-checkpoint-unreadable"},
    "data-skipping-basic-stats-all-types": {"orphan-files"},
    "data-skipping-basic-stats-all-types-columnmapping-id": {"orphan-files"},
    "data-skipping-change-stats-collected-across-versions": {"orphan-files"},
    "dv-with-columnmapping": {"orphan-files"},
}
"""What there is to say of golden tables, though their rows are sound."""


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    with tarfile.open(GOLDEN) as tar:
        tar.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize("case", READ)
def test_golden_tables(golden: Path, case: str) -> None:
    table = alluvia.open_table(str(golden / case / "delta"))
    rows = len(table.scan().read_all())
    for full in (False, True):
        report = table.verify(full=full)
        assert (report.ok, codes(report)) == (True, KNOWN.get(case, set()))
        assert report.rows == rows or (report.rows is None and not full)


@pytest.mark.parametrize(
    ("case", "found"),
    [
        ("deltalog-commit-info", {"schema-unreadable"}),
        ("update-deleted-directory", {"schema-unreadable"}),
        ("deltalog-state-reconstruction-without-protocol", {"protocol-missing"}),
        (
            "deltalog-state-reconstruction-from-checkpoint-missing-protocol",
            {"schema-unreadable", "checkpoint-unreadable"},
        ),
        ("log-replay-special-characters-b", {"data-file-missing"}),
        ("canonicalized-paths-normal-b", set()),
        ("canonicalized-paths-special-b", set()),
    ],
)
def test_golden_logs(golden: Path, case: str, found: set[str]) -> None:
    report = alluvia.open_table(str(golden / case / "delta")).verify(full=True)
    assert (report.ok, codes(report)) == (not found, found)


def test_golden_tables_that_cannot_be_verified(golden: Path) -> None:
    with pytest.raises(Unsupported, match="reader version 99"):
        alluvia.open_table(str(golden / "deltalog-invalid-protocol-version" / "delta")).verify()
    with pytest.raises(TableNotFound, match="no table 'delta'"):
        alluvia.open_table(str(golden / "no-delta-log-folder" / "delta")).verify()


@pytest.mark.parametrize("feature", FEATURES, ids=str)
def test_tables_of_every_feature(tmp_path: Path, feature: Feature) -> None:
    table = feature.build(alluvia.connect(str(tmp_path / "lake")))
    for full in (False, True):
        report = table.verify(full=full)
        assert (report.ok, report.findings) == (True, ())
        assert report.rows == len(table.scan().read_all())


def rows_of(count: int) -> pa.Table:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "double": [float("nan") if n % 7 == 0 else n / 3 for n in range(count)],
            "single": pa.array([n / 3 for n in range(count)], pa.float32()),
            "text": ["x" * (n % 80) + "ü" for n in range(count)],
            "at": [moment + timedelta(microseconds=n * 1_234_567) for n in range(count)],
            "bytes": [b"\xff" * 40] * count,
            "part": [str(n % 3) for n in range(count)],
            "nested": [{"a": n, "b": None if n % 5 else {"c": str(n)}} for n in range(count)],
            "several": [None if n % 3 else [1, None] for n in range(count)],
            "empty": pa.nulls(count, pa.string()),
        }
    )


def everything(path: str) -> None:
    """Write a table with `deltalake`, in all the ways that it knows."""
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(path, rows_of(300), partition_by=["part"], configuration=feed)
    write_deltalake(path, rows_of(300), mode="append")
    DeltaTable(path).delete("id < 100")
    DeltaTable(path).update(updates={"text": "'new'"}, predicate="id > 250")
    DeltaTable(path).optimize.compact()
    DeltaTable(path).create_checkpoint()
    merge = DeltaTable(path).merge(rows_of(10), "a.id = b.id", "b", "a")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    wider = rows_of(5).append_column("more", pa.array(range(5)))
    write_deltalake(path, wider, mode="append", schema_mode="merge")
    DeltaTable(path).restore(4)
    DeltaTable(path).optimize.z_order(["id"])
    DeltaTable(path).create_checkpoint()


def test_tables_of_deltalake(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    everything(path)
    table = alluvia.open_table(path)
    for full in (False, True):
        report = table.verify(full=full)
        assert (report.ok, report.findings, report.checkpoints) == (True, (), 2)
        assert report.rows == len(table.scan().read_all())
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    DeltaTable(path).cleanup_metadata()
    report = table.verify(full=True)
    assert (report.ok, codes(report)) == (True, {"tombstone-file-missing"})


def test_types_and_constraints_of_deltalake(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    for row in (ORDINARY, LOWEST):
        write_deltalake(path, pa.Table.from_pylist([row], SCHEMA), mode="append")
    report = alluvia.open_table(path).verify(full=True)
    assert (report.ok, codes(report)) == (True, {"bounds-rounded"})
    assert {finding.column for finding in report.findings} == {"big"}
    path = str(tmp_path / "constrained")
    write_deltalake(path, pa.table({"x": [1, 2]}))
    DeltaTable(path).alter.add_constraint({"positive": "x > 0"})
    write_deltalake(path, pa.table({"x": [3]}), mode="append")
    assert alluvia.open_table(path).verify(full=True).findings == ()


@pytest.mark.parametrize("digits", [28, 29, 38])
def test_decimals_of_many_digits(digits: int) -> None:
    lake = alluvia.connect(f"memory://decimals-{digits}")
    table = lake.create_table("amounts", pa.schema({"amount": pa.decimal128(digits, 2)}))
    for text in ("1234567890" * 4, "9" * 40):
        amount = f"{text[: digits - 2]}.{text[:2]}"
        table.append([{"amount": Decimal(amount)}, {"amount": Decimal(f"-{amount}")}])
    assert table.verify(full=True).findings == ()


def test_other_writers_on_our_table(tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path))
    table = make_events(lake, **{"alluvia.writers": "any", "delta.enableDeletionVectors": "false"})
    path = str(tmp_path / "events")
    more = table.scan().read_all().slice(0, 3)
    DeltaTable(path).delete("n = 4")
    write_deltalake(path, more.set_column(0, "event_id", pa.array(["x", "y", "z"])), mode="append")
    DeltaTable(path).create_checkpoint()
    table.ingest(events(20, 21))
    table.optimize(full=True)
    assert Hands(tmp_path).verify(full=True).findings == ()


class Life:
    """A lake on a clock that is moved on, and a verification after each thing that is done to its table."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lake = Lake(MemoryStore("m", self.clock), self.clock)

    def does(self, *steps: Callable[[], Any]) -> None:
        for number, step in enumerate(steps):
            step()
            self.clock.advance(3600)
            for full in (False, True):
                report = self.lake.table("events").verify(full=full)
                assert (report.ok, report.findings) == (True, ()), number


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_a_long_life(policy: str) -> None:
    life = Life()
    properties = {
        "delta.enableChangeDataFeed": "true",
        "delta.checkpointPolicy": policy,
        "delta.checkpointInterval": "3",
        "delta.logRetentionDuration": "2 days",
        "delta.deletedFileRetentionDuration": "1 day",
    }
    table = make_events(life.lake, **properties)
    day, handle = 86_400, life.lake.table("events")
    life.does(
        lambda: table.optimize(full=True),
        lambda: table.ingest(events(20, 21)),
        lambda: table.update({"price": "n * 2"}, "n > 20"),
        lambda: table.upsert(events(21, 22), on=["event_id"]),
        lambda: table.checkpoint(),
        lambda: table.evolve({"more": "long"}, {"alluvia.dedup_window": "6 hours"}),
        lambda: table.ingest(events(23, 24)),
        lambda: table.checkpoint(),
        lambda: table.restore(version=9),
        lambda: life.clock.advance(3 * day),
        lambda: table.append(
            [{"event_id": "z", "ts": datetime(2026, 1, 1, tzinfo=UTC), "received_at": datetime(2026, 1, 1, tzinfo=UTC)}]
        ),
        lambda: table.vacuum(),
        lambda: table.ingest(events(25)),
        lambda: table.checkpoint(),
        lambda: life.clock.advance(3 * day),
        lambda: table.ingest(events(26)),
        lambda: table.checkpoint(),
        lambda: table.vacuum(timedelta(0)),
        lambda: handle.delete("true"),
        lambda: table.vacuum(timedelta(0)),
        lambda: handle.ingest(events(27)),
    )


def test_dropped_and_brought_back() -> None:
    life = Life()
    make_events(life.lake)
    lake = life.lake
    lake.drop_table("events")
    report = lake.table("events").verify(full=True)
    assert (report.ok, codes(report), report.files) == (True, {"table-dropped"}, 0)
    life.does(
        lambda: lake.undrop("events"),
        lambda: lake.table("events").ingest(events(30)),
        lambda: lake.table("events").checkpoint(),
        lambda: [lake.drop_table("events"), make_events(lake)],
        lambda: lake.table("events").checkpoint(),
        lambda: lake.table("events").vacuum(timedelta(0)),
        lambda: lake.table("events").ingest(events(31)),
    )


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match="there is no table 'events'"):
        alluvia.connect(str(tmp_path)).table("events").verify()
