"""What a job makes of ids that occur several times."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from alluvia.commit.event_window.id_runs import FINGERPRINT
from alluvia_spark.backfill_job.repeats import (
    CLASH,
    DUPLICATE,
    IDS,
    KIND,
    LIVE,
    TASK,
    divided,
    find_absent,
    find_repeats,
    ids_of,
)
from alluvia_spark.chunks import CONTENT, EVENT_ID, HEAD, ROW, SOURCE, TAIL, with_prints

Event = tuple[int, int, int, int, int]
"""Task, place, head, tail and content."""
Contents = dict[tuple[int, int], set[int]]
"""What a table knows: by head and tail, the contents; 0 is one that is not known."""


def _ids(events: list[Event]) -> pa.Table:
    rows = [dict(zip(IDS.names, event, strict=True)) for event in events]
    return pa.Table.from_pylist(rows, schema=IDS)


def _model(events: list[Event], known: Contents) -> tuple[set[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """Return what is lost, by task, place and kind, and what is kept of the job's rows."""
    lost, kept = set(), []
    first: dict[tuple[int, int], tuple[int, int, int]] = {}
    for task, place, head, tail, content in sorted(events):
        there = first.setdefault((head, tail), (task, place, content))
        if there == (task, place, content):
            if task != LIVE:
                kept.append((head, tail, content))
        elif task != LIVE:
            contents = known.get((head, tail), {0}) if there[0] == LIVE else {there[2]}
            lost.add((task, place, DUPLICATE if 0 in contents or content in contents else CLASH))
    return lost, sorted(kept)


IDENTITIES = st.sampled_from([0, 1, 2**63, 2**64 - 1]), st.integers(0, 1)


@given(
    st.lists(
        st.tuples(st.integers(LIVE, 2), st.integers(0, 1000), *IDENTITIES, st.integers(1, 3)),
        max_size=30,
        unique_by=lambda event: event[:2],
    ),
    st.dictionaries(st.tuples(*IDENTITIES), st.sets(st.integers(0, 3), min_size=1)),
)
def test_the_first_in_the_table_or_else_in_the_input_is_kept(events: list[Event], known: Contents) -> None:
    held = {
        FINGERPRINT.pack(*identity): {content.to_bytes(4, "little") for content in contents}
        for identity, contents in known.items()
    }
    lost, stored = find_repeats(_ids(events), lambda _: held)
    expected = _model(events, known)
    assert {(row[TASK], row[ROW], row[KIND]) for row in lost.to_pylist()} == expected[0]
    assert len(lost) == len(expected[0])
    assert stored[HEAD].to_pylist() == [head for head, _, _ in expected[1]]
    assert sorted((row[HEAD], row[TAIL], row[CONTENT]) for row in stored.to_pylist()) == expected[1]


def test_an_event_with_the_content_of_the_row_is_not_absent_where_another_came_before_it() -> None:
    live, other, same = (LIVE, 0, 7, 0, 1 << 24), (0, 0, 7, 0, 5), (0, 9, 7, 0, 6)
    row = {FINGERPRINT.pack(7, 0): {(6).to_bytes(4, "little")}}
    judged = find_absent(_ids([live, other, same]), lambda _: row).to_pylist()
    assert judged == [{TASK: 0, ROW: 0, KIND: CLASH}]
    unknown = find_absent(_ids([live, other, same])).to_pylist()
    assert unknown == [{TASK: 0, ROW: 9, KIND: CLASH}]


def test_an_event_is_absent_if_all_rows_of_its_id_are_known_with_other_content() -> None:
    one, other, event = (LIVE, 0, 7, 0, 1 << 24), (LIVE, 1, 7, 0, 1 << 24), (0, 3, 7, 0, 5)
    row = {FINGERPRINT.pack(7, 0): {(6).to_bytes(4, "little")}}
    both = {FINGERPRINT.pack(7, 0): {(6).to_bytes(4, "little"), (8).to_bytes(4, "little")}}
    clash = [{TASK: 0, ROW: 3, KIND: CLASH}]
    assert find_absent(_ids([one, event]), lambda _: row).to_pylist() == clash
    assert find_absent(_ids([one, event])).to_pylist() == []
    assert find_absent(_ids([one, other, event]), lambda _: row).to_pylist() == []
    assert find_absent(_ids([one, other, event]), lambda _: both).to_pylist() == clash


@given(
    st.lists(
        st.tuples(st.integers(LIVE, 2), st.integers(0, 1000), *IDENTITIES, st.integers(1, 3)),
        max_size=30,
        unique_by=lambda event: event[:2],
    ),
    st.dictionaries(st.tuples(*IDENTITIES), st.sets(st.integers(0, 3), min_size=1)),
)
def test_absent_is_what_is_not_live_or_has_other_content_than_the_rows(events: list[Event], known: Contents) -> None:
    held = {
        FINGERPRINT.pack(*identity): {content.to_bytes(4, "little") for content in contents}
        for identity, contents in known.items()
    }
    expected = set()
    ours = sorted(event for event in events if event[0] != LIVE)
    for task, place, *identity, content in ours:
        rows = [event for event in events if event[0] == LIVE and event[2:4] == tuple(identity)]
        contents = known.get((identity[0], identity[1]), set())
        first = next(event[4] for event in ours if event[2:4] == tuple(identity))
        if not rows:
            expected.add((task, place, DUPLICATE))
        elif content in contents:
            continue
        elif content != first or (len(contents) >= len(rows) and 0 not in contents):
            expected.add((task, place, CLASH))
    found = find_absent(_ids(events), lambda _: held).to_pylist()
    assert {(row[TASK], row[ROW], row[KIND]) for row in found} == expected
    assert len(found) == len(expected)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=50), st.integers(1, 7))
def test_equal_ids_meet_in_ascending_ranges(heads: list[int], parts: int) -> None:
    found = list(divided(_ids([(0, at, head, 0, 1) for at, head in enumerate(heads)]), parts))
    assert all(0 <= number < parts for number, _ in found)
    assert sorted(head for _, part in found for head in part[HEAD].to_pylist()) == sorted(heads)
    for (one, before), (other, after) in pairwise(found):
        assert one < other
        assert max(before[HEAD].to_pylist()) < min(after[HEAD].to_pylist())


def test_ids_count_within_their_source() -> None:
    sources, ids = ["a", "b", "a", None, "", "1", "", "a"], ["1", "1", "1", "1", "1", "1:x", "11:x", ":1"]
    columns = {EVENT_ID: ids, SOURCE: pa.array(sources), ROW: pa.array(range(8), pa.int32())}
    rows = with_prints(pa.table({**columns, CONTENT: pa.array([0] * 8, pa.uint32())}))
    lost, stored = find_repeats(ids_of(0, rows))
    assert lost[ROW].to_pylist() == [2]
    assert set(stored[CONTENT].to_pylist()) == {1 << 24}  # 0 stands for a content that is not known
