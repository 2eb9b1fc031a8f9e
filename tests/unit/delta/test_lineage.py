"""Which versions of a log are a table's own, and what a drop means to whoever writes at the same time."""

from __future__ import annotations

import pytest

from alluvia.commit.conflicts import Attempt, find_conflict
from alluvia.delta.lineage import (
    DROPPED,
    DROPPED_TABLES,
    VERSION_GAPS,
    DroppedTable,
    below_gap,
    dropped_tables,
    first_version,
    in_gap,
    is_dropped,
    is_own_commit,
    marked,
    version_gaps,
    with_gap,
)
from alluvia.delta.log.actions import AddFile, Metadata
from alluvia.delta.log.commit import CommitActions
from alluvia.errors import Corrupt, MetadataChanged, TableDropped

GAPS = ((0, 3), (6, 8))
SCHEMA = '{"type":"struct","fields":[]}'


def test_versions_in_gaps_are_not_the_tables_own() -> None:
    assert [version for version in range(11) if not in_gap(GAPS, version)] == [4, 5, 9, 10]
    assert [version for version in range(11) if is_own_commit(GAPS, version)] == [4, 5, 6, 9, 10]
    assert not in_gap((), 0)
    assert [below_gap(GAPS, version) for version in (10, 8, 6, 5, 3, 0)] == [10, 5, 5, 5, -1, -1]
    assert [first_version(gaps) for gaps in ((), GAPS, ((2, 3),))] == [0, 4, 0]


@pytest.mark.parametrize(
    ("gaps", "first", "last", "expected"),
    [
        ((), 0, 3, ((0, 3),)),
        (((0, 3),), 6, 8, ((0, 3), (6, 8))),
        (((0, 3),), 4, 8, ((0, 8),)),
    ],
)
def test_a_gap_is_added_above_the_others(
    gaps: tuple[tuple[int, int], ...], first: int, last: int, expected: tuple[tuple[int, int], ...]
) -> None:
    assert with_gap(gaps, first, last) == expected


def test_marks_are_properties_that_replace_earlier_marks() -> None:
    tables = (DroppedTable(4, "a", 1000), DroppedTable(9, "b", 2000, "parent"))
    first = marked({"owner": "me"}, tables, GAPS, 9)
    assert (first["owner"], first[DROPPED], is_dropped(first)) == ("me", "9", True)
    assert (dropped_tables(first), version_gaps(first)) == (tables, GAPS)
    assert marked(first, ()) == {"owner": "me"}


@pytest.mark.parametrize("text", ["{", "{}", "5", "[1]", '[{"version":"x","id":"a","droppedMs":1}]', "[[1,2,3]]"])
def test_broken_marks_are_named(text: str) -> None:
    with pytest.raises(Corrupt, match=DROPPED_TABLES):
        dropped_tables({DROPPED_TABLES: text})
    with pytest.raises(Corrupt, match=VERSION_GAPS):
        version_gaps({VERSION_GAPS: text if text != '[{"version":"x","id":"a","droppedMs":1}]' else "[{}]"})


LIVE = Metadata("id", SCHEMA)
GONE = Metadata("id", SCHEMA, configuration={DROPPED: "1"})
ADD = AddFile("f", {}, 1, 1, True)


def test_a_drop_beats_whatever_was_begun_before_it() -> None:
    drop = CommitActions(1, metadata=GONE)
    for attempt in (
        Attempt(LIVE, adds=[ADD]),
        Attempt(LIVE, adds=[ADD], can_match=lambda _: True),
        Attempt(LIVE, removes=[ADD.removed(1, data_change=False)]),
        Attempt(LIVE, metadata=GONE),
    ):
        assert isinstance(find_conflict(attempt, drop), TableDropped)


def test_what_is_done_with_a_dropped_table_conflicts_with_its_return() -> None:
    attempt = Attempt(GONE)  # vacuum's record
    assert isinstance(find_conflict(attempt, CommitActions(2, metadata=LIVE)), MetadataChanged)
    assert find_conflict(attempt, CommitActions(2, metadata=GONE)) is None
