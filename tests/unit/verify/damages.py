"""Real tables in a directory, and the hands to damage them with."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.api.lake import Table
from alluvia.verify.report import VerifyReport

Action = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)


def events(*numbers: int, day: int = 0) -> pa.Table:
    """Return events of one day, known by numbers."""
    when = START + timedelta(days=day)
    rows = [
        {"event_id": f"e{n}", "ts": when, "event": f"kind {n}", "n": n, "price": n / 4, "received_at": when}
        for n in numbers
    ]
    schema = pa.schema(
        [
            pa.field("event_id", pa.string()),
            pa.field("ts", pa.timestamp("us", "UTC")),
            pa.field("event", pa.string()),
            pa.field("n", pa.int64()),
            pa.field("price", pa.float64()),
            pa.field("received_at", pa.timestamp("us", "UTC")),
        ]
    )
    return pa.Table.from_pylist(rows, schema)


def make_events(lake: alluvia.api.lake.Lake, **properties: str) -> Table:
    """Create `events`: ingested, appended to, deleted from by vectors, with a checkpoint at version 5 of 8."""
    given = {"delta.enableDeletionVectors": "true", **properties}
    columns = pa.schema([("n", pa.int64()), ("price", pa.float64())])
    table = lake.create_events("events", columns, properties=given)
    table.ingest(events(1, 2, 3))
    table.ingest(events(4, 5, 6, day=1))
    table.ingest(events(7, 8, 9))
    table.append(events(10), txn=("loader", 1))
    table.delete("n = 2 or n = 5")
    table.checkpoint()
    table.ingest(events(11, 12, 13, day=1))
    table.delete("n = 12")
    table.ingest(events(14, 15))
    return table


class Hands:
    """What changes a table's files behind its back."""

    def __init__(self, lake: Path, name: str = "events") -> None:
        self.lake = lake
        self.name = name
        self.root = lake / name
        self.log = self.root / "_delta_log"

    def table(self) -> Table:
        """Open the table afresh."""
        return alluvia.connect(str(self.lake)).table(self.name)

    def verify(self, *, full: bool = False) -> VerifyReport:
        """Verify the table, opened afresh."""
        return self.table().verify(full=full)

    @property
    def newest(self) -> int:
        """Return the highest version of a commit."""
        return max(int(path.stem) for path in self.log.glob("*.json") if path.stem.isdigit())

    def commit(self, version: int) -> Path:
        """Return a commit's file."""
        return self.log / f"{version:020d}.json"

    def actions(self, version: int) -> list[Action]:
        """Return a commit's actions."""
        return [json.loads(line) for line in self.commit(version).read_text().splitlines()]

    def write(self, version: int, actions: list[Action]) -> None:
        """Write a commit."""
        self.commit(version).write_text("".join(json.dumps(action) + "\n" for action in actions))

    def edit(self, version: int, change: Callable[[list[Action]], object]) -> None:
        """Change a commit's actions in place."""
        actions = self.actions(version)
        change(actions)
        self.write(version, actions)

    def edit_add(self, version: int, change: Callable[[Action], object]) -> None:
        """Change the first add of a commit."""
        self.edit(version, lambda actions: change(next(each["add"] for each in actions if "add" in each)))

    def edit_stats(self, version: int, change: Callable[[Action], object]) -> None:
        """Change the statistics of the first add of a commit."""

        def changed(add: Action) -> None:
            stats = json.loads(add["stats"])
            change(stats)
            add["stats"] = json.dumps(stats)

        self.edit_add(version, changed)

    def add_commit(self, *actions: Action) -> int:
        """Put a well-formed commit on top."""
        before = next(each["commitInfo"] for each in self.actions(self.newest) if "commitInfo" in each)
        info = {"operation": "WRITE", "txnId": str(uuid.uuid4()), "timestamp": before["timestamp"] + 1}
        if "inCommitTimestamp" in before:
            info = {"inCommitTimestamp": before["inCommitTimestamp"] + 1, **info}
        version = self.newest + 1
        self.write(version, [{"commitInfo": info}, *actions])
        return version

    def first(self, version: int, kind: str) -> Action:
        """Return the first action of a kind in a commit."""
        found: Action = next(each[kind] for each in self.actions(version) if kind in each)
        return found

    def data_file(self, version: int) -> Path:
        """Return the first data file that a commit adds."""
        return self.root / str(self.first(version, "add")["path"]).replace("%3D", "=")

    def replace_file(self, version: int, rows: pa.Table) -> None:
        """Write other rows over the first data file that a commit adds, and set its size in the log."""
        path = self.data_file(version)
        pq.write_table(rows, path)
        self.edit_add(version, lambda add: add.update(size=path.stat().st_size))

    def checkpoint(self) -> Path:
        """Return the newest checkpoint's file."""
        return max(self.log.glob("*.checkpoint*.parquet"))

    def edit_checkpoint(self, change: Callable[[list[Action]], list[Action] | None], path: Path | None = None) -> None:
        """Change a checkpoint's rows: each an object with the actions that it holds, null for the others."""
        path = path or self.checkpoint()
        table = pq.read_table(path)
        rows = table.to_pylist()
        changed = change(rows)
        pq.write_table(pa.Table.from_pylist(rows if changed is None else changed, schema=table.schema), path)

    def flip(self, path: Path, at: int) -> None:
        """Invert a byte of a file."""
        data = bytearray(path.read_bytes())
        data[at] ^= 0xFF
        path.write_bytes(data)

    def truncate(self, path: Path, by: int) -> None:
        """Cut bytes off the end of a file."""
        path.write_bytes(path.read_bytes()[:-by])


def codes(report: VerifyReport) -> set[str]:
    """Return the kinds of what was found."""
    return set(report.found)


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake whose events table is sound: for others to copy."""
    lake = tmp_path_factory.mktemp("sound")
    make_events(alluvia.connect(str(lake)))
    return lake


@pytest.fixture
def hands(sound: Path, tmp_path: Path) -> Hands:
    """Hands on a copy of that table."""
    return Hands(Path(shutil.copytree(sound, tmp_path / "lake")))
