"""Hypothesis drives the public API against a plain model in memory: rows, versions, expiry and vacuum included."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import VersionExpired, VersionNotFound
from alluvia.store import MemoryStore
from tests.examples import examples

HOUR, DAY = 3600, 24 * 3600
KEYS = st.integers(0, 7).map(lambda number: f"k{number}")
AMOUNTS = st.integers(-3, 3)
SCHEMA = pa.schema(
    [
        pa.field("event_id", pa.string(), nullable=False),
        pa.field("amount", pa.int64()),
        pa.field("kind", pa.string()),
    ]
)
PROPERTIES = {
    "alluvia.dedup_window": "3 hours",
    "delta.checkpointInterval": "3",
    "delta.logRetentionDuration": "interval 2 days",
    "delta.deletedFileRetentionDuration": "interval 6 hours",
}
Row = tuple[Any, ...]


class LakeMachine(RuleBasedStateMachine):
    """Two handles on one table, one of them often cold, and what every version must hold."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(seed=5)
        self.store = MemoryStore("stateful", self.clock)
        self.versions: list[Counter[Row]] = []
        self.times_ms: list[int] = []
        self.known: dict[str, tuple[int, int]] = {}
        self.known_at: list[dict[str, tuple[int, int]]] = []
        self.oldest = 0
        self.columns: tuple[str, ...] = tuple(SCHEMA.names)
        self.schemas: list[tuple[str, ...]] = []

    @initialize(partitioned=st.booleans(), vectors=st.booleans())
    def create(self, partitioned: bool, vectors: bool) -> None:
        properties = PROPERTIES | ({"delta.enableDeletionVectors": "true"} if vectors else {})
        lake = Lake(self.store, self.clock)
        lake.create_table("t", SCHEMA, ["kind"] if partitioned else (), ["amount"], properties)
        self.warm = lake.table("t")
        self.commit(Counter())

    def table(self, *, cold: bool) -> Table:
        return Lake(self.store, self.clock).table("t") if cold else self.warm

    def note_time(self) -> None:
        self.times_ms.append(max(self.clock.now_ms(), self.times_ms[-1] + 1 if self.times_ms else 0))

    def commit(self, rows: Counter[Row]) -> None:
        """Note a version that came."""
        self.versions.append(+rows)
        self.schemas.append(self.columns)
        self.known_at.append(self.known)
        self.note_time()

    @property
    def rows(self) -> Counter[Row]:
        return self.versions[-1]

    def row(self, key: str, amount: int | None, kind: str | None) -> Row:
        return (key, amount, kind, *([None] * (len(self.columns) - 3)))

    @rule(batch=st.lists(st.tuples(KEYS, AMOUNTS), min_size=1, max_size=4), cold=st.booleans())
    def ingest(self, batch: list[tuple[str, int]], cold: bool) -> None:
        now_ms = self.times_ms[-1]
        self.known = {key: known for key, known in self.known.items() if known[1] >= now_ms - 3 * HOUR * 1000}
        new: dict[str, int] = {}
        for key, amount in batch:
            if key not in self.known:
                new.setdefault(key, amount)
        first = {key: amount for key, (amount, _) in self.known.items()} | new
        clashes = tuple(at for at, (key, amount) in enumerate(batch) if amount != first[key])
        rows = pa.table({"event_id": [key for key, _ in batch], "amount": [amount for _, amount in batch]})
        done = self.table(cold=cold).ingest(rows)
        assert done.clashes == clashes
        assert (done.appended, done.duplicates) == (len(new), len(batch) - len(new) - len(clashes))
        if new:
            self.commit(self.rows + Counter(self.row(key, amount, None) for key, amount in new.items()))
            self.known |= {key: (amount, self.times_ms[-1]) for key, amount in new.items()}
            self.known_at[-1] = self.known
        assert done.version == len(self.versions) - 1

    @rule(batch=st.lists(st.tuples(KEYS, AMOUNTS, st.sampled_from(["a", "b", None])), max_size=3), cold=st.booleans())
    def append(self, batch: list[tuple[str, int, str | None]], cold: bool) -> None:
        rows = [{"event_id": key, "amount": amount, "kind": kind} for key, amount, kind in batch]
        self.table(cold=cold).append(rows)
        if batch:
            self.commit(self.rows + Counter(self.row(*each) for each in batch))

    @rule(amount=AMOUNTS, cold=st.booleans())
    def delete(self, amount: int, cold: bool) -> None:
        kept = Counter({row: n for row, n in self.rows.items() if row[1] is None or row[1] > amount})
        self.table(cold=cold).delete(f"amount <= {amount}")
        if kept != self.rows:
            self.commit(kept)

    @rule(amount=AMOUNTS, kind=st.sampled_from(["a", "b"]), cold=st.booleans())
    def update(self, amount: int, kind: str, cold: bool) -> None:
        hit = [row for row in self.rows if row[1] == amount]
        self.table(cold=cold).update({"kind": f"'{kind}'", "amount": "amount + 1"}, where=f"amount = {amount}")
        if hit:
            rows = Counter(self.rows)
            for row in hit:
                rows[row[0], amount + 1, kind, *row[3:]] += rows.pop(row)
            self.commit(rows)

    @precondition(lambda self: self.versions and len({row[0] for row in self.rows}) == self.rows.total())
    @rule(batch=st.dictionaries(KEYS, AMOUNTS, min_size=1, max_size=3), cold=st.booleans())
    def upsert(self, batch: dict[str, int], cold: bool) -> None:
        given = [{"event_id": key, "amount": amount} for key, amount in batch.items()]
        self.table(cold=cold).upsert(given, on=["event_id"])
        by_key = {row[0]: row for row in self.rows}
        for key, amount in batch.items():
            old = by_key.get(key, self.row(key, None, None))
            by_key[key] = (key, amount, *old[2:])
        self.commit(Counter(by_key.values()))

    @rule(full=st.booleans(), cold=st.booleans())
    def merge(self, full: bool, cold: bool) -> None:
        report = self.table(cold=cold).optimize(full=full)
        for _ in report.versions:
            self.commit(self.rows)

    @rule(cold=st.booleans())
    def checkpoint(self, cold: bool) -> None:
        assert self.table(cold=cold).checkpoint() == len(self.versions) - 1

    @rule(seconds=st.sampled_from([1, HOUR, 2 * HOUR, 7 * HOUR, 3 * DAY]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(hours=st.sampled_from([None, 0, 1, 100]), cold=st.booleans(), dry=st.booleans())
    def vacuum(self, hours: int | None, cold: bool, dry: bool) -> None:
        now_ms, newest = self.clock.now_ms(), len(self.versions) - 1
        retention = None if hours is None else timedelta(hours=hours)
        report = self.table(cold=cold).vacuum(retention, dry_run=dry)
        kept_ms = (6 if hours is None else min(hours, 6)) * HOUR * 1000
        for version in range(newest):
            if kept_ms and self.times_ms[version + 1] > now_ms - kept_ms:
                assert report.oldest_version <= max(version, self.oldest), "a version within the retention went"
        if not dry:
            self.oldest = max(self.oldest, report.oldest_version)
            if self.warm.snapshot().version > newest:
                self.commit(self.rows)

    @precondition(lambda self: len(self.versions) > 2)
    @rule(share=st.floats(0, 1), cold=st.booleans())
    def restore(self, share: float, cold: bool) -> None:
        version = int(share * (len(self.versions) - 1))
        table = self.table(cold=cold)
        try:
            report = table.restore(version=version)
        except VersionExpired:
            assert version < self.oldest
            return
        self.columns = self.schemas[version]
        if report.version == len(self.versions):
            self.known = self.known_at[version]
            self.commit(self.versions[version])
        assert self.columns == tuple(table.snapshot().schema.names)

    @precondition(lambda self: len(self.columns) < 6)
    @rule(cold=st.booleans())
    def add_column(self, cold: bool) -> None:
        name = f"more{len(self.versions)}"
        self.table(cold=cold).evolve(add={name: "string"})
        self.columns = (*self.columns, name)
        self.commit(Counter({(*row, None): n for row, n in self.rows.items()}))

    @rule(share=st.floats(0, 1), cold=st.booleans())
    def travel(self, share: float, cold: bool) -> None:
        version = int(share * (len(self.versions) - 1))
        self.compare(self.table(cold=cold), version)

    @rule(share=st.floats(0, 1), late=st.booleans())
    def travel_in_time(self, share: float, late: bool) -> None:
        version = int(share * (len(self.versions) - 1))
        moment_ms = self.times_ms[version] + late
        wanted = max(at for at, time_ms in enumerate(self.times_ms) if time_ms <= moment_ms)
        moment = datetime.fromtimestamp(moment_ms // 1000, UTC) + timedelta(milliseconds=moment_ms % 1000)
        try:
            found = self.warm.snapshot(timestamp=moment)
        except (VersionExpired, VersionNotFound):
            assert wanted < self.oldest
            return
        assert found.version == wanted

    def compare(self, table: Table, version: int) -> None:
        try:
            rows = table.scan(version=version).read_all()
        except VersionExpired:
            assert version < self.oldest
            return
        found = Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        assert found == self.versions[version]

    @invariant()
    def the_newest_version_is_seen(self) -> None:
        if self.versions:
            for cold in (False, True):
                table = self.table(cold=cold)
                assert table.snapshot().version == len(self.versions) - 1
                self.compare(table, len(self.versions) - 1)


LakeMachine.TestCase.settings = settings(
    max_examples=examples(25), stateful_step_count=30, suppress_health_check=list(HealthCheck)
)
test_the_table_is_what_the_model_says = pytest.mark.slow(LakeMachine.TestCase)
