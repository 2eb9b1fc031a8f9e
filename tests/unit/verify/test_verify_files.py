"""Damage to data files, deletion vectors and what the log says of them: each kind is found by its own name."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.inline_vectors import inline_vector
from tests.unit.verify.damages import Hands, codes


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
    vector = inline_vector(*positions)
    return lambda hands: hands.edit_add(7, lambda add: add.update(deletionVector=vector))


def vector_file(hands: Hands) -> Path:
    """Return the file of the vector that version 7 wrote."""
    return max(hands.root.glob("deletion_vector_*.bin"), key=lambda path: path.stat().st_mtime_ns)


def list_twice(hands: Hands) -> None:
    hands.add_commit({"add": {**hands.first(7, "add"), "deletionVector": inline_vector(0)}})


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
    Damage("rows below zero", lambda h: h.edit_stats(8, lambda s: s.update(numRecords=-1)), {"statistics-impossible"}),
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
    table.optimize(full=True)
    gone = str(hands.first(4, "add")["path"])
    merges = [each.version for each in table.history() if each.operation == "OPTIMIZE"]
    removed = next(v for v in merges if any(each.get("remove", {}).get("path") == gone for each in hands.actions(v)))
    sound = hands.verify()
    assert codes(sound) == set()
    hands.data_file(4).unlink()
    report = hands.verify()
    assert (report.ok, codes(report)) == (True, {"tombstone-file-missing"})
    assert f"versions below {removed} cannot all be read" in report.findings[0].message


def test_tombstones_of_impossible_times(hands: Hands) -> None:
    hands.edit(8, lambda actions: actions[0]["commitInfo"].pop("operationMetrics"))
    remove = {"path": hands.first(8, "add")["path"], "dataChange": True}
    hands.add_commit({"remove": remove})
    assert codes(hands.verify()) == {"tombstone-time-wrong"}


def test_progress_is_told(hands: Hands) -> None:
    told: list[tuple[str, int, int]] = []
    hands.table().verify(full=True, progress=lambda *step: told.append(step))
    assert told == [("log", n, 10) for n in range(1, 11)] + [("files", n, 6) for n in range(1, 7)]


def test_statistics_may_be_absent_in_part(hands: Hands) -> None:
    hands.edit_add(8, lambda add: add.update(stats=json.dumps({"numRecords": 2, "minValues": {"n": 14}})))
    assert codes(hands.verify(full=True)) == set()
