"""Opening and following a log, in requests; what a damaged or changing log does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from alluvia.delta.log.log import Log, version_at
from alluvia.delta.log.paths import LAST_CHECKPOINT, checkpoint_name, commit_name
from alluvia.delta.log.reading import LISTINGS_MAX
from alluvia.errors import Corrupt, ObjectNotFound, TableNotFound, Unavailable, VersionExpired, VersionNotFound
from alluvia.store import CountingStore, MemoryStore, ObjectInfo
from tests.unit.delta.log.build import ROOT, START_MS, add, new_log, paths, put_commit


def cold(store: CountingStore, log: Log) -> Log:
    store.reset()
    return Log(store, ROOT, log.clock)


def test_no_log_is_no_table() -> None:
    _, store, log = new_log(0)
    for attempt in (log.open, log.refresh, log.listing, log.oldest, lambda: log.at(0), lambda: version_at(log, 0)):
        with pytest.raises(TableNotFound, match="'t'"):
            attempt()
    store.put(f"{ROOT}_delta_log/_last_checkpoint", b"{}")
    with pytest.raises(TableNotFound):
        log.open()


def test_opening_reads_the_hint_the_listing_and_the_commits() -> None:
    _, store, log = new_log(5)
    store.reset()
    assert log.open().version == 4
    assert paths(log) == ["f1", "f2", "f3", "f4"]
    assert store.requests == {"get": 1 + 5, "list": 1}


def test_opening_from_a_checkpoint_reads_nothing_before_it() -> None:
    clock, store, log = new_log(5)
    log.checkpoint(log.open(), 0)
    log = cold(store, log)
    state = log.open()
    assert (state.version, state.timestamp_ms, log.checkpoint_version) == (4, START_MS + 40_000, 4)
    assert store.requests == {"get": 3, "list": 1}
    assert not {name for _, name in store.keys} & {f"{ROOT}{commit_name(version)}" for version in range(4)}
    put_commit(store, 5, [add("f5")], clock.now_ms())
    log = cold(store, log)
    assert log.open().version == 5
    assert paths(log) == ["f1", "f2", "f3", "f4", "f5"]
    assert store.requests == {"get": 4, "list": 1}  # the checkpoint's own commit bears it witness


@pytest.mark.parametrize(
    "hint",
    [b"", b"garbage", b'{"version":', b'{"version":2}', b'{"version":4000}', b'{"version":"4"}', b'{"version":-4}'],
)
def test_the_hint_may_be_stale_truncated_or_garbage(hint: bytes) -> None:
    _, store, log = new_log(5)
    log.checkpoint(log.open(), 0)
    store.put(ROOT + LAST_CHECKPOINT, hint)
    log = cold(store, log)
    assert log.open().version == 4
    assert paths(log) == ["f1", "f2", "f3", "f4"]
    assert log.checkpoint_version == 4
    assert store.requests["list"] <= 2


def test_a_hint_may_name_a_checkpoint_that_is_gone() -> None:
    _, store, log = new_log(5)
    log.checkpoint(log.open(), 0)
    store.delete([ROOT + checkpoint_name(4)])
    assert cold(store, log).open().version == 4


def test_a_damaged_checkpoint_is_an_error_and_not_an_empty_table() -> None:
    _, store, log = new_log(3)
    log.checkpoint(log.open(), 0)
    body = store.get(ROOT + checkpoint_name(2))
    store.put(ROOT + checkpoint_name(2), body[: len(body) // 2])
    again = cold(store, log)
    assert again.open().version == 2
    assert paths(again) == ["f1", "f2"]
    store.delete([ROOT + commit_name(1)])
    with pytest.raises(Corrupt, match=checkpoint_name(2)):
        cold(store, log).open()


def test_an_incomplete_checkpoint_in_parts_is_left_alone() -> None:
    _, store, log = new_log(3)
    log.checkpoint(log.open(), 0)
    body = store.get(ROOT + checkpoint_name(2))
    store.delete([ROOT + checkpoint_name(2)])
    name = f"{ROOT}_delta_log/{2:020d}.checkpoint.{1:010d}.{2:010d}.parquet"
    store.put(name, body)
    log = cold(store, log)
    assert log.open().version == 2
    assert (ROOT + commit_name(0)) in {key for _, key in store.keys}


def test_a_truncated_commit_is_named() -> None:
    _, store, log = new_log(3)
    log.open()
    body = store.get(ROOT + commit_name(1))
    store.put(ROOT + commit_name(1), body[:-30])
    with pytest.raises(Corrupt, match=f"{commit_name(1)}, line 2"):
        cold(store, log).open()
    store.put(ROOT + commit_name(1), b"")
    with pytest.raises(Corrupt, match=f"{commit_name(1)} is empty"):
        cold(store, log).open()


def test_a_missing_commit_is_named() -> None:
    _, store, log = new_log(4)
    store.delete([ROOT + commit_name(2)])
    with pytest.raises(Corrupt, match=f"{commit_name(2)} is missing"):
        log.open()


def test_a_log_from_which_commits_go_while_it_is_opened_is_listed_again() -> None:
    class Cleaned(MemoryStore):
        """A store that lists a commit, and has none."""

        def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
            if key == ROOT + commit_name(1):
                raise ObjectNotFound(key)
            return super().get(key, start, end)

    _, store, log = new_log(3, store=Cleaned("m"))
    store.reset()
    with pytest.raises(Unavailable, match="open the table again"):
        log.open()
    assert store.requests["list"] == LISTINGS_MAX


def test_following_costs_a_request_a_commit_and_one_that_finds_nothing() -> None:
    clock, store, log = new_log(3)
    before = log.open()
    store.reset()
    assert log.refresh() == before
    assert store.requests == {"get": 1}
    for version in (3, 4):
        put_commit(store, version, [add(f"f{version}")], clock.now_ms())
    store.reset()
    assert log.refresh().version == 4
    assert store.requests == {"get": 3}
    assert paths(log) == ["f1", "f2", "f3", "f4"]
    assert [commit.version for commit in log.since(2) or ()] == [3, 4]
    assert [commit.version for commit in log.since(-1) or ()] == [0, 1, 2, 3, 4]
    assert log.since(4) == []
    assert log.since(5) is None


@pytest.mark.parametrize(("new", "most", "requests"), [
    (0, None, {"get": 1}),
    (1, None, {"get": 2}),
    (2, None, {"get": 2, "list": 1}),
    (10, None, {"get": 10, "list": 1}),
    (10, 1, {"get": 1}),
    (10, 5, {"get": 5, "list": 1}),
])  # fmt: skip
def test_in_a_store_elsewhere_commits_after_the_first_few_are_listed_and_read_at_once(
    new: int, most: int | None, requests: dict[str, int]
) -> None:
    clock, store, log = new_log(3)
    store.parallel = True
    log.open()
    for version in range(3, 3 + new):
        put_commit(store, version, [add(f"f{version}")], clock.now_ms())
    put_commit(store, 3 + new + 1, [add("of a log with a gap")], clock.now_ms())
    store.put(f"{ROOT}{checkpoint_name(5)}", b"unread")
    store.put(f"{ROOT}_delta_log/_sidecars/a.parquet", b"unread")
    store.reset()
    read = new if most is None else most
    assert log.refresh(most=most).version == 2 + read
    assert {*paths(log)} == {f"f{version}" for version in range(1, 3 + read)}
    assert store.requests == requests


@pytest.mark.parametrize(("told", "requests"), [
    (1, {"get": 10, "list": 1}),
    (11, {"get": 11}),
    (12, {"get": 11}),
    (20, {"get": 18}),
    (10**18, {"get": 100}),
])  # fmt: skip
def test_commits_that_a_message_tells_of_are_read_at_once_and_need_no_list(told: int, requests: dict[str, int]) -> None:
    clock, store, log = new_log(3)
    store.parallel = True
    log.open()
    for version in range(3, 13):
        put_commit(store, version, [add(f"f{version}")], clock.now_ms())
    store.reset()
    log.expect(told)
    assert log.refresh().version == 12
    assert store.requests == requests
    store.reset()
    log.refresh()
    assert store.requests == {"get": 1}


def test_a_commit_that_goes_once_it_was_listed_ends_what_is_read() -> None:
    class Cleaned(MemoryStore):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            found = [*super().list(prefix, start_after)]
            self.delete([f"{ROOT}{commit_name(6)}"])
            yield from found

    clock, store, log = new_log(3, store=Cleaned("m"))
    store.parallel = True
    for version in range(3, 9):
        put_commit(store, version, [add(f"f{version}")], clock.now_ms())
    assert [commit.version for commit in log.following(2)] == [3, 4, 5]


def test_a_handle_that_slept_opens_afresh() -> None:
    clock, store, log = new_log(3)
    log.open()
    clock.advance(3600)
    store.reset()
    log.refresh()
    assert store.requests == {"get": 1}
    clock.advance(3601)
    assert log.stale
    log.refresh()
    assert store.requests["list"] == 1


def test_commits_from_before_the_checkpoint_are_not_at_hand() -> None:
    clock, store, log = new_log(3)
    log.checkpoint(log.open(), 0)
    put_commit(store, 3, [add("f3")], clock.now_ms())
    log = cold(store, log)
    log.open()
    assert [commit.version for commit in log.since(2) or ()] == [3]
    assert log.since(1) is None


def test_any_version_is_read_whether_or_not_there_is_a_checkpoint_before_it() -> None:
    _, store, log = new_log(6)
    log.checkpoint(log.at(2), 0)
    log.checkpoint(log.at(4), 0)
    for version in range(6):
        state = cold(store, log).at(version)
        assert state.version == version
        assert sorted(file.path for file in state.files) == [f"f{at}" for at in range(1, version + 1)]
        assert state.timestamp_ms == START_MS + 10_000 * version


@pytest.mark.parametrize("in_commit", [True, False])
def test_the_version_at_a_moment_is_the_last_one_before_it(*, in_commit: bool) -> None:
    _, store, log = new_log(9, in_commit=in_commit)
    for version in range(9):
        for offset, expected in ((0, version), (1, version), (9_999, version), (10_000, min(8, version + 1))):
            assert version_at(log, START_MS + 10_000 * version + offset) == expected
    assert version_at(log, START_MS + 10**12) == 8
    with pytest.raises(VersionNotFound, match="did not exist yet"):
        version_at(log, START_MS - 1)
    if in_commit:
        store.reset()
        version_at(log, START_MS)
        assert store.requests["get"] <= 4


def test_a_moment_before_the_oldest_version_has_expired() -> None:
    _, store, log = new_log(6)
    log.checkpoint(log.at(3), 0)
    store.delete([ROOT + commit_name(version) for version in range(3)])
    log = cold(store, log)
    assert log.oldest() == 3
    assert version_at(log, START_MS + 30_000) == 3
    with pytest.raises(VersionExpired, match="oldest version that can be read is 3"):
        version_at(log, START_MS + 29_999)
    with pytest.raises(VersionExpired, match="oldest version that can be read is 5"):
        version_at(log, START_MS + 49_999, oldest_readable=5)
    with pytest.raises(VersionExpired, match="version 2 has expired; the oldest version that can be read is 3"):
        log.at(2)


def test_file_times_are_made_to_increase() -> None:
    clock, store, log = new_log(1, in_commit=False)
    clock.advance(-10)
    for version in (1, 2):
        put_commit(store, version, [add(f"f{version}")], START_MS)
    assert [version_at(log, START_MS + offset) for offset in (0, 1, 2, 3)] == [0, 1, 2, 2]


def test_a_version_that_clean_up_takes_while_it_is_read_has_expired() -> None:
    """Seeds 34430 and 45344 of the simulation."""
    _, store, log = new_log(6)
    log.checkpoint(log.at(4), 0)
    taken: list[str] = []

    class Cleaned(CountingStore):
        def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
            if key.endswith(commit_name(0)) and not taken:
                taken.extend(ROOT + commit_name(version) for version in range(4))
                self.inner.delete(taken)
            return super().get(key, start, end)

    with pytest.raises(VersionExpired, match="version 2 has expired; the oldest version that can be read is 4"):
        Log(Cleaned(store.inner), ROOT, log.clock).at(2)
    assert len(taken) == 4


@pytest.mark.parametrize("gone", range(6))
def test_a_version_at_a_moment_is_none_too_old_though_clean_up_takes_commits_meanwhile(gone: int) -> None:
    """Seed 87338 of the simulation: vacuum found too old a version, and recorded it."""

    class Cleaned(CountingStore):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            found = list(super().list(prefix, start_after))
            self.inner.delete([ROOT + commit_name(version) for version in range(gone)])
            return iter(found)

    for version in range(7):
        _, store, log = new_log(7)
        log.checkpoint(log.at(5), 0)
        log.open()
        log.store = Cleaned(store.inner)
        assert version_at(log, START_MS + 10_000 * version) == max(version, gone - 1)
