from __future__ import annotations

import pytest

from alluvia.delta.log.replay import Segment, find_segment, oldest_version, read_listing
from alluvia.errors import Corrupt, VersionExpired, VersionNotFound

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def commits(*versions: int) -> list[str]:
    return [f"{version:020d}.json" for version in versions]


def single(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def parts(version: int, of: int, *numbers: int) -> list[str]:
    return [f"{version:020d}.checkpoint.{number:010d}.{of:010d}.parquet" for number in numbers]


def segment(names: list[str], version: int | None = None) -> Segment:
    return find_segment(read_listing(names), version)


def names(found: Segment) -> list[str]:
    return [part.name for part in found.checkpoint]


def test_without_a_checkpoint_all_commits_are_read() -> None:
    found = segment(commits(0, 1, 2))
    assert (found.version, names(found), found.commits) == (2, [], (0, 1, 2))
    assert segment(commits(0, 1, 2), 1).commits == (0, 1)
    assert segment(commits(0, 1, 2), 0).commits == (0,)


def test_the_newest_checkpoint_at_or_below_the_version_is_taken() -> None:
    log = [*commits(0, 1, 2, 3, 4, 5), single(2), single(4)]
    assert (names(segment(log)), segment(log).commits) == ([single(4)], (5,))
    assert (names(segment(log, 4)), segment(log, 4).commits) == ([single(4)], ())
    assert (names(segment(log, 3)), segment(log, 3).commits) == ([single(2)], (3,))
    assert (names(segment(log, 1)), segment(log, 1).commits) == ([], (0, 1))


def test_a_checkpoint_without_its_commit_still_makes_its_version() -> None:
    found = segment([single(7)])
    assert (found.version, found.commits) == (7, ())
    assert segment([single(7), *commits(8)]).commits == (8,)


def test_a_multi_part_checkpoint_counts_when_it_is_complete() -> None:
    log = [*commits(0, 1, 2), *parts(1, 3, 3, 1, 2)]
    assert names(segment(log)) == parts(1, 3, 1, 2, 3)
    for incomplete in (parts(1, 3, 1, 2), parts(1, 3, 2, 3, 4), parts(1, 3, 0, 1, 2)):
        found = segment([*commits(0, 1, 2), *incomplete])
        assert (names(found), found.commits) == ([], (0, 1, 2))


def test_a_name_that_promises_a_thousand_million_parts_is_one_name() -> None:
    assert names(segment([*commits(0, 1), *parts(1, 9_999_999_999, 1)])) == []


@pytest.mark.parametrize(
    "name",
    [
        f"{2**63:020d}.json",
        f"{10**20 - 1:020d}.checkpoint.parquet",
        f"{1:020d}.json\n",
        f"{1:020d}.checkpoint.parquet\n",
        "\N{ARABIC-INDIC DIGIT ZERO}" * 19 + "1.json",
        "0" * 19 + "\N{FULLWIDTH DIGIT ONE}.checkpoint.parquet",
    ],
)
def test_what_only_looks_like_a_file_of_the_log_is_passed_over(name: str) -> None:
    assert segment([*commits(0), name]).version == 0


def test_parts_of_two_checkpoints_of_one_version_do_not_mix() -> None:
    log = [*commits(0, 1), *parts(1, 2, 1), *parts(1, 3, 2, 3)]
    assert names(segment(log)) == []


def test_the_plainest_checkpoint_of_a_version_is_taken() -> None:
    second = f"{1:020d}.checkpoint.{UUID}.parquet"
    several = parts(1, 2, 1, 2)
    assert names(segment([*commits(0, 1), second, single(1), *several])) == [single(1)]
    assert names(segment([*commits(0, 1), second, *several])) == several
    assert names(segment([*commits(0, 1), second])) == [second]


@pytest.mark.parametrize(
    ("log", "version", "missing"),
    [
        (commits(0, 2), None, 1),
        (commits(0, 1, 3), 3, 2),
        ([single(2), *commits(2, 4)], None, 3),
        ([single(2), *commits(4)], None, 3),
        ([*commits(0, 2), single(2), *commits(3)], 1, 1),
        (commits(1, 2), None, 0),
    ],
)
def test_a_gap_is_an_error_that_names_the_file(log: list[str], version: int | None, missing: int) -> None:
    with pytest.raises(Corrupt, match=f"_delta_log/{missing:020d}.json is missing"):
        segment(log, version)


def test_a_gap_after_the_version_asked_for_does_not_matter() -> None:
    assert segment(commits(0, 1, 3), 1).commits == (0, 1)


def test_a_version_before_the_first_checkpoint_that_is_left_has_expired() -> None:
    log = [*commits(3, 4, 5, 6), single(4)]
    assert oldest_version(read_listing(log)) == 4
    for version in (0, 2, 3):
        with pytest.raises(VersionExpired, match=f"version {version} has expired; .* is 4"):
            segment(log, version)
    assert segment(log, 4).commits == ()


@pytest.mark.parametrize("version", [3, 100, -1])
def test_a_version_that_never_was_is_not_found(version: int) -> None:
    with pytest.raises(VersionNotFound, match=f"version {version} does not exist; the newest is 2"):
        segment(commits(0, 1, 2), version)


def test_an_empty_listing_is_no_table() -> None:
    assert oldest_version(read_listing(["_last_checkpoint", "x.crc"])) is None
    with pytest.raises(Corrupt, match="no commit"):
        segment(["_last_checkpoint"])
