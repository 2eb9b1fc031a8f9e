"""Verifying rows: rules, bounds, partition values, files of changes and events that stand there twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.store import MemoryStore
from alluvia.verify.event_ids import EventIds
from tests.unit.verify.damages import Action, Hands, codes, events


@pytest.fixture
def ruled(tmp_path: Path) -> Hands:
    """A table with partitions, constraints, a change feed, and a column of every kind of bounds."""
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("place", pa.string(), nullable=False),
            pa.field("day", pa.date32()),
            pa.field("amount", pa.decimal128(20, 2)),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("ratio", pa.float64()),
            pa.field("text", pa.string()),
            pa.field("point", pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.int32())])),
            pa.field("tags", pa.list_(pa.string())),
        ]
    )
    properties = {"delta.constraints.positive": "id > 0", "delta.enableChangeDataFeed": "true"}
    table = alluvia.connect(str(tmp_path / "lake")).create_table(
        "events", schema, partition_by=["place", "day"], properties=properties
    )
    moment = datetime(2026, 1, 1, 0, 0, 0, 123_456, UTC)
    rows: list[Action] = [
        {
            "id": n,
            "place": "here",
            "day": date(2026, 1, 1),
            "amount": Decimal(n) / 4,
            "at": moment + timedelta(microseconds=n),
            "ratio": float("nan") if n == 3 else n / 3,
            "text": "long " * 20 + str(n),
            "point": {"x": n, "y": None},
            "tags": None if n == 1 else [None, "t"],
        }
        for n in range(1, 6)
    ]
    table.append(rows)
    table.update({"text": "'x'"}, where="id = 1")
    hands = Hands(tmp_path / "lake")
    for full in (False, True):
        assert codes(hands.verify(full=full)) == set()
    return hands


def rewrite(hands: Hands, **columns: list[Any]) -> None:
    """Set columns of the table's only live file, without statistics."""
    rows = pq.read_table(hands.data_file(2), partitioning=None)
    for name, values in columns.items():
        at = rows.schema.get_field_index(name)
        kind = rows.schema.field(at).type
        rows = rows.set_column(at, pa.field(name, kind), pa.array(values, kind))
    hands.replace_file(2, pa.table({name: rows[name] for name in rows.column_names}))
    hands.edit_add(2, lambda add: add.pop("stats"))


def test_a_broken_constraint(ruled: Hands) -> None:
    rewrite(ruled, id=[-1, 2, 3, 4, 5])
    assert codes(ruled.verify()) == set()
    report = ruled.verify(full=True)
    assert codes(report) == {"constraint-broken"}
    assert "CHECK constraint positive (id > 0)" in report.findings[0].message


def test_a_constraint_that_cannot_be_checked(ruled: Hands) -> None:
    metadata = ruled.first(0, "metaData")
    metadata["configuration"]["delta.constraints.odd"] = "hash(id) > 0"
    ruled.add_commit({"metaData": metadata})
    assert codes(ruled.verify()) == set()
    report = ruled.verify(full=True)
    assert (report.ok, codes(report)) == (True, {"constraint-unchecked"})


def test_a_value_with_more_digits_than_its_column(ruled: Hands) -> None:
    rows = pq.read_table(ruled.data_file(2), partitioning=None)
    at = rows.schema.get_field_index("amount")
    data = b"".join((10**20 + n).to_bytes(16, "little") for n in range(5))
    longer = pa.Array.from_buffers(pa.decimal128(20, 2), 5, [None, pa.py_buffer(data)])
    ruled.replace_file(2, rows.set_column(at, "amount", longer))
    ruled.edit_add(2, lambda add: add.pop("stats"))
    assert codes(ruled.verify()) == set()
    report = ruled.verify(full=True)
    assert codes(report) == {"value-out-of-range"}
    assert [(each.column, "has more digits than decimal(20,2)" in each.message) for each in report.findings] == [
        ("amount", True)
    ]


def test_bounds_with_more_digits_than_their_column(ruled: Hands) -> None:
    ruled.edit_stats(2, lambda stats: stats["maxValues"].update(amount=10**20))
    report = ruled.verify()
    assert codes(report) == {"statistics-impossible"}
    assert "the maximum 100000000000000000000 has more digits than decimal(20,2) allows" in report.findings[0].message


def test_a_field_that_must_not_be_null(ruled: Hands) -> None:
    rows = pq.read_table(ruled.data_file(2), partitioning=None)
    kind = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    points = pa.array([{"x": None, "y": 1}] * 5, kind)
    ruled.replace_file(2, rows.set_column(rows.schema.get_field_index("point"), "point", points))
    ruled.edit_add(2, lambda add: add.pop("stats"))
    report = ruled.verify(full=True)
    assert codes(report) == {"null-in-required-column"}
    assert [finding.column for finding in report.findings] == ["point"]


def test_partition_values(ruled: Hands) -> None:
    ruled.edit_add(2, lambda add: add["partitionValues"].update(place=None, day="yesterday"))
    report = ruled.verify()
    assert {(finding.kind, finding.column) for finding in report.findings} == {
        ("null-in-required-column", "place"),
        ("partition-value-unreadable", "day"),
    }
    assert codes(ruled.verify(full=True)) == codes(report)


@pytest.mark.parametrize(
    ("column", "low", "high"),
    [
        ("amount", "0.26", "1.25"),
        ("amount", "0.25", "1.24"),
        ("at", "2026-01-01T00:00:00.124Z", "2026-01-01T00:00:00.124Z"),
        ("at", "2026-01-01T00:00:00.100Z", "2026-01-01T00:00:00.122Z"),
        ("ratio", 0.4, 2.0),
        ("text", "m", "z"),
        ("text", "a", "long long long long long long long long"),
    ],
)
def test_bounds_of_each_type(ruled: Hands, column: str, low: object, high: object) -> None:
    def change(stats: Action) -> None:
        for group, value in (("minValues", low), ("maxValues", high)):
            stats[group][column] = float(value) if column == "amount" and isinstance(value, str) else value

    ruled.edit_stats(2, change)
    report = ruled.verify(full=True)
    assert codes(report) == {"bounds-wrong"}
    assert [finding.column for finding in report.findings] == [column]


@pytest.mark.parametrize(
    ("column", "low", "high"),
    [
        ("at", "2026-01-01T00:00:00.123Z", "2026-01-01T00:00:00.123Z"),
        ("text", "long lon", "x"),
        ("text", "long long long lon", "x"),
    ],
)
def test_bounds_that_were_cut_are_true(ruled: Hands, column: str, low: object, high: object) -> None:
    ruled.edit_stats(
        2, lambda stats: [stats["minValues"].update({column: low}), stats["maxValues"].update({column: high})]
    )
    assert codes(ruled.verify(full=True)) == set()


def test_change_files(ruled: Hands) -> None:
    path = ruled.root / ruled.first(2, "cdc")["path"].replace("%3D", "=")
    ruled.truncate(path, 1)
    assert codes(ruled.verify()) == {"change-file-size-wrong"}
    path.unlink()
    assert codes(ruled.verify()) == {"change-file-missing"}


def test_older_change_files_may_have_gone_with_a_vacuum() -> None:
    clock = ManualClock()
    store = MemoryStore("m", clock)
    table = Lake(store, clock).create_table("t", {"x": "long"}, properties={"delta.enableChangeDataFeed": "true"})
    table.append([{"x": 1}, {"x": 2}])
    table.delete("x = 1")
    (change,) = store.list("t/_change_data/")
    store.delete([change.key])
    assert codes(table.verify()) == {"change-file-missing"}
    clock.advance(2 * 24 * 60 * 60)
    report = table.verify()
    assert (report.ok, codes(report)) == (True, {"change-file-gone"})
    clock.advance(8 * 24 * 60 * 60)
    assert codes(table.verify()) == set()


def test_events_beyond_the_window_are_a_warning() -> None:
    clock = ManualClock()
    table = Lake(MemoryStore("m", clock), clock).create_events(
        "events", pa.schema([("n", pa.int64()), ("price", pa.float64())])
    )
    table.ingest(events(1, 2))
    clock.advance(2 * 60 * 60)
    table.ingest(events(3, day=1))
    table.ingest(events(2, day=1))
    report = table.verify(full=True)
    assert (report.ok, codes(report)) == (True, {"event-repeated-later"})
    assert report.findings[0].message.startswith("event 'e2' has 2 rows, at least 86400000 ms apart")
    table.optimize(full=True)
    assert codes(table.verify(full=True)) == {"event-repeated-later"}
    table.delete("n = 2")
    assert codes(table.verify(full=True)) == set()


def test_ids_count_within_their_source() -> None:
    clock = ManualClock()
    table = Lake(MemoryStore("m", clock), clock).create_table(
        "t", {"event_id": "string", "source": "string"}, properties={"alluvia.dedup_window": "1 day"}
    )
    rows = pa.table({"event_id": ["a", "a", "a"], "source": ["x", "y", None]})
    assert table.ingest(rows).appended == 3
    assert codes(table.verify(full=True)) == set()
    table.append(rows.slice(1, 1))
    assert codes(table.verify(full=True)) == {"event-repeated"}


def test_rows_that_were_never_ingested_may_share_an_id() -> None:
    clock = ManualClock()
    table = Lake(MemoryStore("m", clock), clock).create_table("t", {"event_id": "string"})
    table.append([{"event_id": "a"}, {"event_id": "a"}, {"event_id": None}, {"event_id": None}])
    report = table.verify(full=True)
    assert (report.ok, codes(report), report.found["event-ids-shared"]) == (True, {"event-ids-shared"}, 1)


def test_many_event_ids_are_counted_on_disk() -> None:
    with EventIds() as ids:
        for start in range(0, 300_000, 100_000):
            names = [f"event-{n % 299_999:020d}" for n in range(start, start + 100_000)]
            ids.add(pa.RecordBatch.from_pydict({"event_id": names}), start)
        assert [(each.event_id, each.rows, each.apart_ms) for each in ids.repeated()] == [
            (f"event-{0:020d}", 2, 200_000)
        ]


def test_few_event_ids_are_compared_within_their_source() -> None:
    def repeated(*batches: Mapping[str, Sequence[str | None]]) -> list[tuple[str, int, int | None]]:
        with EventIds() as ids:
            for at, columns in enumerate(batches):
                ids.add(pa.RecordBatch.from_pydict(columns), 1000 * at)
            return [(each.event_id, each.rows, each.apart_ms) for each in ids.repeated()]

    assert repeated() == []
    assert repeated({"event_id": ["a", None, None]}, {"event_id": ["b"]}) == []
    assert repeated({"event_id": ["a", "b"]}, {"event_id": ["c", "a"]}) == [("a", 2, 1000)]
    assert repeated({"event_id": ["a", "a"], "source": ["x", "y"]}, {"event_id": ["b"], "source": ["x"]}) == []
    assert repeated({"event_id": ["a", "a"], "source": ["x", None]}, {"event_id": ["a"], "source": ["x"]}) == [
        ("a", 2, 1000)
    ]
