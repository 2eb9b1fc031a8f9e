"""What vacuum and log clean-up choose, from listings and states alone."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.delta.log.actions import AddFile, RemoveFile
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.replay import replay
from alluvia.delta.partitioning.values import HOLDS_NO_DATA, holds_no_data
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, Unsupported
from alluvia.operations.retention.log_cleanup import expired_log
from alluvia.operations.retention.path_hashes import NO_HASHES, hashed
from alluvia.operations.retention.vacuum_keys import Needed, Run, needed
from alluvia.operations.retention.vacuum_plan import Cutoffs, Kept, listed, plan_vacuum
from alluvia.store import ListedPage, ObjectInfo
from tests.unit.delta.log.build import PROTOCOL, metadata


def info(key: str, modified_ms: int = 0) -> ObjectInfo:
    return ObjectInfo(key, 1, modified_ms)


def snapshot(files: list[str], removed: dict[str, int]) -> Snapshot:
    first = CommitActions(0, {}, PROTOCOL, metadata())
    adds = [AddFile(path, {}, 1, 1, data_change=True) for path in files]
    removes = [RemoveFile(path, time, data_change=True) for path, time in removed.items()]
    commits = [first, CommitActions(1, removes=removes), CommitActions(2, adds=adds)]
    return Snapshot(replay(None, commits), "t/", "t")


def test_the_plan_by_itself() -> None:
    objects = [info(key) for key in ("live", "p=a%20b/live", "back", "gone", "young", "orphan")]
    objects += [info("fresh", 500), info("_x/y"), info(".x"), info("_delta_log/00000000000000000000.json")]
    objects += [info("_change_data/old"), info("_change_data/new", 100), info("young orphan", 700)]
    found = plan_vacuum(
        needed(snapshot(["live", "p=a%20b/live", "back"], {"gone": 99, "young": 100, "back": 5})),
        listed([page(sorted(objects, key=lambda each: each.key))], "t/"),
        Cutoffs(removed=100, orphans=400, log=0, now=1000),
    )
    assert found.data_files["key"].to_pylist() == ["gone"]
    assert found.orphans["key"].to_pylist() == ["orphan"]
    assert found.change_files["key"].to_pylist() == ["_change_data/old"]
    assert found.removed_ms == 99
    assert list(found.kept) == [
        Kept("live", 3, 3),
        Kept("removed", 1, 1, datetime.fromtimestamp(1, UTC)),
        Kept("young", 2, 2, datetime.fromtimestamp(1.3, UTC)),
        Kept("changes", 1, 1, datetime.fromtimestamp(1, UTC)),
        Kept("other", 2, 2),
    ]


def page(objects: list[ObjectInfo]) -> ListedPage:
    return ListedPage.of(objects).moved("", "t/")


@given(st.lists(st.text("a._=/\n", min_size=1), min_size=1))
def test_hidden_means_the_same_in_columns(paths: list[str]) -> None:
    assert pc.match_substring_regex(pa.array(paths), HOLDS_NO_DATA).to_pylist() == [
        holds_no_data(path) for path in paths
    ]


def test_a_plan_is_not_made_where_a_live_file_could_be_mistaken_for_an_orphan() -> None:
    elsewhere = snapshot(["gs://b/t/live"], {})
    with pytest.raises(Unsupported, match="gs://b/t/live"):
        needed(elsewhere)


def hashes(keys: Iterable[str]) -> pa.Array:
    return hashed(pa.array(keys, pa.string()))


@given(st.sets(st.text("ab./%: ", min_size=1)))
def test_live_files_are_found_under_any_name(paths: set[str]) -> None:
    version = snapshot([], {})
    known = {}
    for path in paths:
        with suppress(Unsupported, Invalid):
            known[version.locate(path)] = path
    found = needed(snapshot(list(known.values()), {}))
    assert all(found.is_live(hashes(known)).to_pylist())
    assert not any(found.is_live(hashes(f"{key}x" for key in known if f"{key}x" not in known)).to_pylist())


@given(st.lists(st.lists(st.integers(0, 300), min_size=1), max_size=20), st.sets(st.integers(0, 300), min_size=1))
def test_live_keys_are_the_same_with_and_without_their_range(runs: list[list[int]], wanted: set[int]) -> None:
    def keys(numbers: Iterable[int]) -> list[str]:
        return [f"{number:03}" for number in numbers]

    made = [Run(min(keys(run)), max(keys(run)), hashes(keys(run))) for run in runs]
    found = Needed(0, made, NO_HASHES, NO_HASHES, NO_HASHES)
    names = sorted(keys(wanted))
    expected = [number in set(chain.from_iterable(runs)) for number in sorted(wanted)]
    assert found.is_live(hashes(names)).to_pylist() == expected
    assert found.is_live(hashes(names), (names[0], names[-1])).to_pylist() == expected


def log(*names: str, **times: int) -> list[ObjectInfo]:
    return [info(f"_delta_log/{name}", times.get(f"t{number}", 0)) for number, name in enumerate(names)]


def commit(version: int) -> str:
    return f"{version:020d}.json"


def checkpoint(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


@pytest.mark.parametrize(
    ("ages", "checkpoints", "before", "kept_from"),
    [
        ([0, 10, 20, 30, 40], [2], 40, 2),
        ([0, 10, 20, 30, 40], [2], 31, 2),
        ([0, 10, 20, 30, 40], [2], 21, 2),
        ([0, 10, 20, 30, 40], [2], 20, 0),
        ([0, 10, 20, 30, 40], [1, 3], 100, 3),
        ([0, 10, 20, 30, 40], [1, 3], 25, 1),
        ([0, 10, 20, 30, 40], [], 100, 0),
        ([0, 10, 20, 30, 40], [0], 100, 0),
    ],
)
def test_the_log_is_kept_from_a_checkpoint_on(
    ages: list[int], checkpoints: list[int], before: int, kept_from: int
) -> None:
    """The checkpoint is the newest at or below the version that was current at the cut-off."""
    files = [info(f"_delta_log/{commit(version)}", age) for version, age in enumerate(ages)]
    files += [info(f"_delta_log/{checkpoint(version)}", ages[version]) for version in checkpoints]
    files.append(info("_delta_log/_last_checkpoint"))
    gone = {each.key.removeprefix("_delta_log/") for each in expired_log(files, before)}
    assert gone == {commit(version) for version in range(kept_from)} | {
        checkpoint(version) for version in checkpoints if version < kept_from
    }


def test_a_checkpoint_that_is_young_makes_no_older_one_needless() -> None:
    names = {commit(0): 0, commit(1): 10, checkpoint(1): 10, commit(2): 20, checkpoint(2): 90}
    files = [info(f"_delta_log/{name}", age) for name, age in names.items()]
    assert {each.key for each in expired_log(files, 50)} == {f"_delta_log/{commit(0)}"}
    assert len(expired_log(files, 90)) == 3
