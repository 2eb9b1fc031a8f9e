"""Files of event ids: verify finds those that are missing, and ids that ingestion would not find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.event_window.id_files import ID_BYTES, ID_FOLDER, IdFiles
from alluvia.commit.event_window.index import index_name
from alluvia.store import MemoryStore
from tests.unit.operations.bringing import bring
from tests.unit.operations.ingesting import ingest

FILES = IdFiles(f"{ID_FOLDER}job/", 400, 2, 2, 64)
KEY = f"t/{FILES.name(1)}"


@pytest.fixture
def table(clock: ManualClock) -> Table:
    lake = Lake(MemoryStore("m", clock), clock)
    table = lake.create_events("t", partition_by=(), properties={"delta.logRetentionDuration": "interval 1 day"})
    ingest(table, "a")
    bring(table, *(f"e{number}" for number in range(400)), files=FILES)
    ingest(table, "b")
    return table


def found(table: Table, *, full: bool) -> list[tuple[str, str | None]]:
    return [(each.kind, each.file) for each in table.verify(full=full).findings]


def swapped(data: bytes) -> bytes:
    """Return an object whose first and last id have changed places."""
    first, last = FILES.header_bytes, len(data) - ID_BYTES
    return b"".join((data[:first], data[last:], data[first + ID_BYTES : last], data[first : first + ID_BYTES]))


def unfiltered(data: bytes) -> bytes:
    """Return an object whose first filter excludes every id."""
    start = 4 * (FILES.pages + 1)
    return data[:start] + bytes(FILES.filter_bytes) + data[start + FILES.filter_bytes :]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_is_sound_has_no_findings(table: Table, *, checkpoint: bool) -> None:
    if checkpoint:
        table.checkpoint()
    assert found(table, full=True) == []


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize(
    ("damage", "kind", "full"),
    [
        (None, "id-file-missing", False),
        (lambda data: data[:-ID_BYTES], "id-file-wrong", False),
        (lambda data: data[:-1], "id-file-wrong", False),
        (swapped, "id-file-wrong", True),
        (unfiltered, "id-file-wrong", True),
    ],
)
def test_damage_is_found(
    table: Table, clock: ManualClock, damage: Callable[[bytes], bytes] | None, kind: str, *, full: bool, expired: bool
) -> None:
    store = table._handle.store
    if expired:  # only the index of a checkpoint names them by now
        table.evolve(properties={"alluvia.dedup_window": "30 days"})
        clock.advance(5 * 24 * 3600)
        table.checkpoint()
        clock.advance(2 * 24 * 3600)
        table.vacuum()
        assert store.head("t/_delta_log/00000000000000000002.json") is None
    if damage is None:
        store.delete([KEY])
    else:
        store.put(KEY, damage(store.get(KEY)))
    kinds = [each for each in found(table, full=full) if each[0].startswith("id-file")]
    assert kinds == [(kind, FILES.name(0) if kind == "id-file-wrong" and not full else FILES.name(1))]


def test_files_that_vacuum_has_deleted_are_no_damage(table: Table, clock: ManualClock) -> None:
    clock.advance(2 * 24 * 3600)
    table.vacuum()
    assert not list(table._handle.store.list(f"t/{ID_FOLDER}"))
    assert not [each for each in found(table, full=True) if each[0].startswith("id-file")]
    table.evolve(properties={"alluvia.dedup_window": "30 days"})
    assert not [each for each in found(table, full=True) if each[0].startswith("id-file")]


def test_an_index_that_names_other_files_is_wrong(table: Table) -> None:
    version, store = table.checkpoint(), table._handle.store
    key = f"t/{index_name(version)}"
    store.put(key, store.get(key).replace(b"ids/job/", b"ids/jab/"))
    kinds = [each for each in table.verify().findings if each.kind == "window-index-wrong"]
    assert [each.message for each in kinds] == [
        f"{index_name(version)}: its files of event ids of version 2 are not those of the commit"
    ]
