"""Damage to data files, deletion vectors and what the log says of them: each kind is found by its own name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.clock import ManualClock
from alluvia.lake import Lake
from alluvia.operations.audit.event_ids import EventIds
from alluvia.store import MemoryStore
from alluvia.table.deletion_vectors import encode_inline
from tests.unit.operations.damages import Action, Hands, codes, events, make_events


@dataclass(frozen=True)
class Damage:
    """What is done to the table, what quick mode finds then, and what full mode finds as well."""

    name: str
    inflict: Callable[[Hands], object]
    quick: set[str]
    more: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return self.name


def stored(hands: Hands, version: int = 8) -> pa.Table:
    return pq.read_table(hands.data_file(version), partitioning=None)


def set_column(hands: Hands, name: str, values: list[Any], kind: pa.DataType) -> None:
    rows = stored(hands)
    hands.replace_file(8, rows.set_column(rows.schema.get_field_index(name), name, pa.array(values, kind)))


def set_stat(group: str, column: str, value: object) -> Callable[[Hands], None]:
    return lambda hands: hands.edit_stats(8, lambda stats: stats[group].update({column: value}))


def set_vector(**fields: object) -> Callable[[Hands], None]:
    return lambda hands: hands.edit_add(7, lambda add: add["deletionVector"].update(fields))


def inline(*positions: int) -> Callable[[Hands], None]:
    vector = encode_inline(pa.array(positions, pa.int64()))
    return lambda hands: hands.edit_add(7, lambda add: add.update(deletionVector=vector))


def vector_file(hands: Hands) -> Path:
    """Return the file of the vector that version 7 wrote."""
    return max(hands.root.glob("deletion_vector_*.bin"), key=lambda path: path.stat().st_mtime_ns)


def list_twice(hands: Hands) -> None:
    hands.add_commit({"add": {**hands.first(7, "add"), "deletionVector": encode_inline(pa.array([0], pa.int64()))}})


def noise(hands: Hands) -> None:
    path = hands.data_file(8)
    path.write_bytes(b"PAR1" + os.urandom(path.stat().st_size - 8) + b"PAR1")


def flip_page(hands: Hands) -> None:
    for at in range(4, 60):
        hands.flip(hands.data_file(8), at)


def lie_in_footer(hands: Hands) -> None:
    """Raise the minimum that the file's own footer has of a column above one of its values."""
    set_column(hands, "n", [1_234_567_890_123, 1_234_567_890_124], pa.int64())
    hands.edit_add(8, lambda add: add.pop("stats"))
    path = hands.data_file(8)
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    low, high = ((1_234_567_890_123 + more).to_bytes(8, "little") for more in (0, 1))
    assert low in data[footer:]
    path.write_bytes(data[:footer] + data[footer:].replace(low, high))


def compress_by_lzo(hands: Hands) -> None:
    """Have the file's footer say that a column is compressed in a way that Arrow does not know."""
    hands.replace_file(8, stored(hands))
    path = hands.data_file(8)
    snappy, lzo = b"\x18\x01n\x15\x02", b"\x18\x01n\x15\x06"
    assert path.read_bytes().count(snappy) == 1
    path.write_bytes(path.read_bytes().replace(snappy, lzo))


def copy_rows(hands: Hands) -> None:
    """Bring the rows of the last file into the table once more."""
    add = hands.first(8, "add")
    shutil.copy(hands.data_file(8), hands.root / "again.parquet")
    hands.add_commit({"add": {**add, "path": "again.parquet"}})


def absolute(hands: Hands) -> None:
    hands.edit_add(8, lambda add: add.update(path=f"file://{hands.lake.parent}/elsewhere.parquet"))


DAMAGES = [
    Damage("a data file is gone", lambda h: h.data_file(8).unlink(), {"data-file-missing"}),
    Damage(
        "a data file is cut off",
        lambda h: h.truncate(h.data_file(8), 9),
        {"data-file-size-wrong"},
        {"data-file-unreadable"},
    ),
    Damage("a data file is noise", noise, set(), {"data-file-unreadable"}),
    Damage("a page is damaged", flip_page, set(), {"data-file-unreadable"}),
    Damage(
        "the log has another size", lambda h: h.edit_add(8, lambda add: add.update(size=5)), {"data-file-size-wrong"}
    ),
    Damage("a file outside", absolute, {"file-outside-lake", "orphan-files"}),
    Damage("a file twice, with two vectors", list_twice, {"data-file-listed-twice"}, {"event-repeated"}),
    Damage(
        "fewer rows than promised",
        lambda h: h.replace_file(8, stored(h).slice(1)),
        set(),
        {"row-count-wrong", "bounds-loose", "null-count-wrong"},
    ),
    Damage(
        "a wrong number of rows",
        lambda h: h.edit_stats(8, lambda s: s.update(numRecords=3)),
        set(),
        {"row-count-wrong"},
    ),
    Damage("a minimum above a value", set_stat("minValues", "n", 15), set(), {"bounds-wrong"}),
    Damage("a maximum below a value", set_stat("maxValues", "n", 14), set(), {"bounds-wrong"}),
    Damage("a maximum far above", set_stat("maxValues", "n", 99), set(), {"bounds-loose"}),
    Damage("a maximum of text below", set_stat("maxValues", "event", "kind 14"), set(), {"bounds-wrong"}),
    Damage(
        "a maximum of a time below",
        set_stat("maxValues", "ts", "2025-12-31T23:59:59.998Z"),
        {"statistics-impossible"},
        {"bounds-wrong"},
    ),
    Damage("a minimum above the maximum", set_stat("minValues", "n", 16), {"statistics-impossible"}, {"bounds-wrong"}),
    Damage("a wrong number of nulls", set_stat("nullCount", "n", 1), set(), {"null-count-wrong"}),
    Damage("more nulls than rows", set_stat("nullCount", "n", 3), {"statistics-impossible"}, {"null-count-wrong"}),
    Damage(
        "rows below zero",
        lambda h: h.edit_stats(8, lambda s: s.update(numRecords=-1)),
        {"statistics-impossible"},
        {"row-count-wrong"},
    ),
    Damage(
        "statistics of noise", lambda h: h.edit_add(8, lambda add: add.update(stats="{")), {"statistics-unreadable"}
    ),
    Damage(
        "statistics that are a list",
        lambda h: h.edit_add(8, lambda add: add.update(stats="[]")),
        {"statistics-unreadable"},
    ),
    Damage(
        "a column of another type", lambda h: set_column(h, "n", ["14", "15"], pa.string()), set(), {"column-misfit"}
    ),
    Damage(
        "values too big for the column",
        lambda h: set_column(h, "n", [2**63, 15], pa.uint64()),
        set(),
        {"column-misfit"},
    ),
    Damage(
        "no value where one must be",
        lambda h: set_column(h, "event_id", [None, "e15"], pa.string()),
        set(),
        {"null-in-required-column", "null-count-wrong", "bounds-loose"},
    ),
    Damage("a footer that lies", lie_in_footer, set(), {"footer-wrong"}),
    Damage("a compression that Arrow lacks", compress_by_lzo, set(), {"data-file-unsupported"}),
    Damage("the same rows again", copy_rows, set(), {"event-repeated"}),
    Damage("a vector file is gone", lambda h: vector_file(h).unlink(), {"deletion-vector-missing"}),
    Damage("a vector file is cut off", lambda h: h.truncate(vector_file(h), 3), {"deletion-vector-cut-off"}),
    Damage("a byte of a vector", lambda h: h.flip(vector_file(h), 20), set(), {"deletion-vector-unreadable"}),
    Damage("a vector's checksum", lambda h: h.flip(vector_file(h), -1), set(), {"deletion-vector-unreadable"}),
    Damage("a vector of another size", set_vector(sizeInBytes=33), set(), {"deletion-vector-unreadable"}),
    Damage("a vector of other rows", set_vector(cardinality=2), set(), {"deletion-vector-unreadable"}),
    Damage("a vector of more rows than there are", set_vector(cardinality=4), {"deletion-vector-out-of-range"}),
    Damage("a vector without a number of rows", set_vector(cardinality=None), {"deletion-vector-unreadable"}),
    Damage("a vector of an unknown kind", set_vector(storageType="x"), {"deletion-vector-unreadable", "orphan-files"}),
    Damage(
        "a vector whose name is noise", set_vector(pathOrInlineDv="~"), {"deletion-vector-unreadable", "orphan-files"}
    ),
    Damage("an inline vector beyond the end", inline(3), {"deletion-vector-out-of-range", "orphan-files"}),
    Damage(
        "an inline vector of noise",
        set_vector(storageType="i", pathOrInlineDv="00000"),
        {"deletion-vector-unreadable", "orphan-files"},
    ),
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("sound")
    make_events(alluvia.connect(str(lake)))
    return lake


@pytest.fixture
def hands(sound: Path, tmp_path: Path) -> Hands:
    return Hands(Path(shutil.copytree(sound, tmp_path / "lake")))


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damage_is_found_by_name(hands: Hands, damage: Damage) -> None:
    damage.inflict(hands)
    assert codes(hands.verify()) == damage.quick
    assert codes(hands.verify(full=True)) == damage.quick | damage.more


def test_a_vector_beyond_the_rows_of_a_file_without_statistics(hands: Hands) -> None:
    inline(3)(hands)
    hands.edit_add(7, lambda add: add.pop("stats"))
    report = hands.verify()
    assert (codes(report), report.rows) == ({"orphan-files"}, None)
    assert codes(hands.verify(full=True)) == {"orphan-files", "deletion-vector-out-of-range"}


def test_rows_that_cannot_be_counted(hands: Hands) -> None:
    noise(hands)
    assert hands.verify().rows == 12
    assert hands.verify(full=True).rows is None


def test_findings_say_where_and_what(hands: Hands) -> None:
    set_stat("maxValues", "ts", "2025-12-31T00:00:00Z")(hands)
    set_stat("minValues", "ts", "2025-12-30T00:00:00Z")(hands)
    (finding,) = hands.verify(full=True).findings
    path = hands.first(8, "add")["path"].replace("%3D", "=")
    assert (finding.kind, finding.file, finding.column) == ("bounds-wrong", path, "ts")
    assert finding.message == (
        f"data file {path}: column ts: statistics bound it by 2025-12-30T00:00:00 and 2025-12-31T00:00:00, "
        "its values reach from 2026-01-01T00:00:00 to 2026-01-01T00:00:00"
    )


def test_orphans_are_counted_and_no_damage(hands: Hands) -> None:
    (hands.root / "left.parquet").write_bytes(b"12345")
    old = hands.root / "ts_day=2020-01-01" / "old.parquet"
    old.parent.mkdir()
    old.write_bytes(b"123")
    os.utime(old, (0, 0))
    report = hands.verify()
    assert (report.ok, report.orphans, report.orphan_bytes) == (True, 2, 8)
    (finding,) = report.findings
    assert finding.kind == "orphan-files"
    assert finding.message.startswith("no version names 2 files (8 bytes in all); 1 of them older than a day")


def test_files_of_earlier_versions_that_are_gone_are_a_warning(hands: Hands) -> None:
    table = hands.table()
    table.merge(full=True)
    sound = hands.verify()
    assert codes(sound) == set()
    hands.data_file(4).unlink()
    report = hands.verify()
    assert (report.ok, codes(report)) == (True, {"tombstone-file-missing"})
    assert "versions below 9 cannot all be read" in report.findings[0].message


def test_tombstones_of_impossible_times(hands: Hands) -> None:
    hands.edit(8, lambda actions: actions[0]["commitInfo"].pop("operationMetrics"))
    remove = {"path": hands.first(8, "add")["path"], "dataChange": True}
    hands.add_commit({"remove": remove})
    assert codes(hands.verify()) == {"tombstone-time-wrong"}


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
    table.merge(full=True)
    assert codes(table.verify(full=True)) == {"event-repeated-later"}
    table.delete("n = 2")
    assert codes(table.verify(full=True)) == set()


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


def test_progress_is_told(hands: Hands) -> None:
    told: list[tuple[str, int, int]] = []
    hands.table().verify(full=True, progress=lambda *step: told.append(step))
    assert told == [("log", n, 10) for n in range(1, 11)] + [("files", n, 6) for n in range(1, 7)]


def test_statistics_may_be_absent_in_part(hands: Hands) -> None:
    hands.edit_add(8, lambda add: add.update(stats=json.dumps({"numRecords": 2, "minValues": {"n": 14}})))
    assert codes(hands.verify(full=True)) == set()
