"""Sidecars that crashes, clean-up and late readers and writers meet."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.delta.log.log import FOLLOW_AGE_MS_MAX
from alluvia.errors import Corrupt, Unavailable
from alluvia.store import CountingStore, MemoryStore, Store
from tests.unit.delta.log.sidecars import (
    DAY_MS,
    SCHEMA,
    SIDECARS,
    START,
    V2,
    cold,
    fill,
    new_table,
    paths,
    replace_file,
    written,
)
from tests.unit.delta.log.sidecars import small_sidecars as small_sidecars  # noqa: PLC0414 - a fixture


def sidecars(store: Store) -> set[str]:
    return {info.key.removeprefix(SIDECARS) for info in store.list(SIDECARS)}


T = TypeVar("T")


class Dying(CountingStore):
    """Refuses every put from the n-th on."""

    puts_left = 1 << 30

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        if kind in ("put", "put_new"):
            if self.puts_left <= 0:
                msg = "the process died"
                raise Unavailable(msg)
            self.puts_left -= 1
        return super().request(kind, key, send)


def test_a_crash_at_any_put_leaves_the_table_whole(tmp_path: Path) -> None:
    deaths = 0
    for after in range(20):
        clock = ManualClock(int(START.timestamp()) * 1_000_000)
        store = Dying(MemoryStore("m", clock))
        table = Lake(store, clock).create_table("t", SCHEMA, properties=V2)
        fill(table, range(30))
        table.checkpoint()
        replace_file(table, 3, 90)
        store.puts_left = after
        try:
            table.checkpoint()
        except Unavailable:
            deaths += 1
        store.puts_left = 1 << 30
        expected = [f"f{number:04d}" for number in (*range(3), *range(4, 30), 90)]
        assert paths(cold(store, table)) == paths(table) == expected
        table.checkpoint()
        assert paths(cold(store, table)) == expected
        if after > deaths:
            break
    assert deaths == 5


def test_clean_up_keeps_the_sidecars_that_checkpoints_name() -> None:
    clock, store, table = new_table({"delta.logRetentionDuration": "2 days"})
    fill(table, range(40))
    table.checkpoint()
    first = sidecars(store)
    clock.advance(DAY_MS / 1000)
    replace_file(table, 3, 90)
    table.checkpoint()
    second = sidecars(store) - first
    store.reset()
    table.vacuum()
    assert sidecars(store) == first | second
    assert not any(".checkpoint." in key for kind, key in store.keys if kind == "get")  # all sidecars are young
    clock.advance(1.5 * DAY_MS / 1000)
    table.vacuum()
    assert sidecars(store) == first | second  # version 1 is within the retention
    clock.advance(DAY_MS / 1000)
    fill(table, range(200, 201))
    store.put(f"{SIDECARS}abandoned.parquet", b"")
    report = table.vacuum()
    gone = {name.rpartition("/")[2] for name in report.log_files if "_sidecars" in name}
    assert len(gone) == 1
    assert gone < first
    assert sidecars(store) == (first | second | {"abandoned.parquet"}) - gone
    assert len(paths(cold(store, table))) == 41
    clock.advance(2.1 * DAY_MS / 1000)
    assert table.vacuum(dry_run=True).log_files == ("_delta_log/_sidecars/abandoned.parquet",)


def test_a_checkpoint_that_cannot_be_read_keeps_clean_up_from_guessing() -> None:
    clock, store, table = new_table({"delta.logRetentionDuration": "2 days"})
    fill(table, range(10))
    table.checkpoint()
    (name,) = [info.key for info in store.list("t/_delta_log/") if ".checkpoint." in info.key]
    store.put(name, b"garbage")
    clock.advance(5 * DAY_MS / 1000)
    fill(table, range(10, 11))
    clock.advance(5 * DAY_MS / 1000)
    with pytest.raises(Corrupt, match=re.escape(name.removeprefix("t/"))):
        table.vacuum()
    assert len(sidecars(store)) == 2


def test_a_writer_that_has_not_looked_for_long_opens_before_it_names_old_sidecars() -> None:
    clock, store, table = new_table()
    fill(table, range(40))
    table.checkpoint()
    fill(table, range(40, 41))
    for _ in range(3):
        clock.advance(FOLLOW_AGE_MS_MAX / 1000 * 0.6)
        table.snapshot()
    other = cold(store, table)
    replace_file(other, 3, 90)
    other.checkpoint()
    fill(other, range(41, 42))
    table.snapshot()
    store.reset()
    table.checkpoint()
    assert store.requests["list"] == 1
    assert len(written(store)) == 3
    assert len(paths(cold(store, table))) == 42


def test_a_sidecar_that_is_missing_is_named_with_its_checkpoint() -> None:
    _, store, table = new_table()
    fill(table, range(10))
    table.checkpoint()
    snapshot = cold(store, table).snapshot()
    (first, _) = sorted(sidecars(store))
    store.delete([SIDECARS + first])
    with pytest.raises(
        Corrupt, match=rf"{first} is missing, though checkpoint _delta_log/0{{19}}1.checkpoint.* names it"
    ):
        list(snapshot.files)


def test_a_reader_whose_checkpoint_was_cleaned_up_opens_anew() -> None:
    clock, store, table = new_table({"delta.logRetentionDuration": "1 day"})
    fill(table, range(40))
    table.checkpoint()
    reader = cold(store, table)
    reader.snapshot()
    for number in range(40):
        replace_file(table, number, number + 100)
    table.checkpoint()
    for _ in range(60):  # it follows the log all the time, and opens no sidecar
        clock.advance(FOLLOW_AGE_MS_MAX / 1000 * 0.9)
        snapshot = reader.snapshot()
    fill(table, range(300, 301))
    assert len(table.vacuum().log_files) > 5
    with pytest.raises(Unavailable, match="open the table again"):
        list(snapshot.files)
    assert len(paths(reader)) == 41
