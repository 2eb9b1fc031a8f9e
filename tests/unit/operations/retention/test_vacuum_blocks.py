"""How vacuum goes through a table: in blocks, with a note of how far it has come, and with a report of what it did."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import NotDeleted
from alluvia.operations.retention import vacuum as vacuuming
from alluvia.operations.retention.vacuum_plan import Kept
from alluvia.store import CountingStore, Store, Wrapper, base
from tests.unit.operations.vacuuming import DAY, cold, history, readable, values
from tests.unit.operations.vacuuming import table as table  # noqa: PLC0414 - a fixture


def blocks_of(monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    monkeypatch.setattr(vacuuming, "BLOCK_KEYS", keys)
    monkeypatch.setattr(base, "PAGE_KEYS", keys)


@pytest.mark.parametrize("keys", [1, 3, 7])
def test_blocks_change_nothing(
    table: Table, clock: ManualClock, store: CountingStore, monkeypatch: pytest.MonkeyPatch, keys: int
) -> None:
    history(table, clock, 5)
    table.optimize()
    history(table, clock, 2)
    for name in ("a.parquet", "zz.parquet"):
        store.put(f"t/{name}", b"x")
    clock.advance(8 * DAY)
    whole = table.vacuum(timedelta(0), dry_run=True)
    blocks_of(monkeypatch, keys)
    told = table.vacuum(timedelta(0), dry_run=True)
    assert (told.data_files, told.orphans, told.bytes_freed) == (whole.data_files, whole.orphans, whole.bytes_freed)
    assert sorted(told.kept, key=str) == sorted(whole.kept, key=str)
    done = table.vacuum(timedelta(0))
    assert (done.data_files, done.orphans) == (whole.data_files, ("a.parquet", "zz.parquet"))
    assert done.complete
    assert store.head("t/_alluvia/vacuum.json") is None
    assert values(table) == [0, 0, 1, 1, 2, 3, 4]
    assert readable(table)[0] == done.oldest_version == 6


def test_a_vacuum_without_time_is_continued_by_the_next(
    table: Table, clock: ManualClock, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(table, clock, 1)
    orphans = [f"orphan-{number}.parquet" for number in range(10)]
    for name in orphans:
        store.put(f"t/{name}", b"x")
    clock.advance(8 * DAY)
    blocks_of(monkeypatch, 3)
    gone: list[str] = []
    runs = 0
    while not (report := cold(table).vacuum(time_limit=timedelta(0))).complete:
        runs += 1
        assert len(report.orphans) <= 3
        gone += report.orphans
    assert sorted([*gone, *report.orphans]) == orphans
    assert runs > 3
    assert values(table) == [0]
    assert store.head("t/_alluvia/vacuum.json") is None


def test_a_note_from_a_crash_is_where_the_next_run_goes_on(
    table: Table, clock: ManualClock, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(table, clock, 1)
    for name in ("b.parquet", "m.parquet", "y.parquet"):
        store.put(f"t/{name}", b"x")
    store.put("t/_alluvia/vacuum.json", b'{"after": "n"}')
    clock.advance(8 * DAY)
    blocks_of(monkeypatch, 1)
    assert cold(table).vacuum().orphans == ("y.parquet",)
    assert cold(table).vacuum().orphans == ("b.parquet", "m.parquet")
    store.put("t/_alluvia/vacuum.json", b"{")
    assert cold(table).vacuum().complete


class Refusing(Wrapper):
    """Refuses to delete some keys, as often as said."""

    def __init__(self, inner: Store, refused: dict[str, int]) -> None:
        super().__init__(inner)
        self.refused = refused

    def delete(self, keys: Iterable[str]) -> None:
        batch = list(keys)
        failed = [key for key in batch if self.refused.get(key, 0) > 0]
        for key in failed:
            self.refused[key] -= 1
        super().delete([key for key in batch if key not in failed])
        if failed:
            raise NotDeleted(failed, "AccessDenied")


def test_what_the_store_does_not_delete_is_tried_again_and_then_reported(
    table: Table, clock: ManualClock, store: CountingStore
) -> None:
    history(table, clock, 1)
    for name in ("a", "b", "c"):
        store.put(f"t/{name}.parquet", b"x")
    clock.advance(8 * DAY)
    refusing = Refusing(store, {"t/a.parquet": 1, "t/b.parquet": 100})
    report = Lake(refusing, clock).table("t").vacuum()
    assert (report.orphans, report.not_deleted) == (("a.parquet", "c.parquet"), ("b.parquet",))
    assert [store.head(f"t/{name}.parquet") is None for name in ("a", "b", "c")] == [True, False, True]
    assert table.vacuum().orphans == ("b.parquet",)


def test_names_can_be_limited_and_counts_are_not(table: Table, clock: ManualClock, store: CountingStore) -> None:
    for name in ("a", "b", "c"):
        store.put(f"t/{name}.parquet", b"xx")
    clock.advance(8 * DAY)
    report = table.vacuum(names_max=1)
    assert (report.orphans, report.counts["orphans"], report.bytes_freed) == (("a.parquet",), 3, 6)


def test_a_dry_run_tells_why_the_rest_stays(table: Table, clock: ManualClock, store: CountingStore) -> None:
    history(table, clock, 3)
    table.optimize()
    removed_s = clock.now_us() / 1e6
    clock.advance(2 * DAY)
    store.put("t/young.parquet", b"12345")
    young_s = clock.now_us() / 1e6
    store.put("t/_rejects/x", b"1")
    kept = {each.reason: each for each in table.vacuum(dry_run=True).kept}
    (file,) = table.snapshot().files
    assert kept["live"] == Kept("live", 1, file.size)
    assert kept["young"] == Kept("young", 1, 5, datetime.fromtimestamp(young_s + 7 * DAY, UTC))
    assert (kept["removed"].objects, kept["log"].objects, kept["other"].objects) == (3, 5, 1)
    until = kept["removed"].until
    assert until is not None
    assert abs(until.timestamp() - removed_s - 7 * DAY) < 1
