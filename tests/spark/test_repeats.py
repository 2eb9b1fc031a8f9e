"""What a job makes of ids that occur several times."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from alluvia_spark.chunks import CONTENT, EVENT_ID, HEAD, ROW, SOURCE, TAIL, with_prints
from alluvia_spark.job import REJECTS, ROWS
from alluvia_spark.repeats import CLASH, CLASH_AGAIN, DUPLICATE, IDS, KIND, LIVE, TASK, divided, find_repeats, ids_of

Event = tuple[int, int, int, int, int, int]
"""Table, task, place, head, tail and content."""


def _ids(events: list[Event]) -> pa.Table:
    rows = [dict(zip(IDS.names, event, strict=True)) for event in events]
    return pa.Table.from_pylist(rows, schema=IDS)


def _model(events: list[Event]) -> tuple[set[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """Return what is lost, by task, place and kind, and what is kept of the job's rows."""
    lost, kept, clashed = set(), [], set()
    first: dict[tuple[int, int, int], tuple[int, int, int]] = {}
    for table, task, place, head, tail, content in sorted(events):
        known = first.setdefault((table, head, tail), (task, place, content))
        if known == (task, place, content):
            if table == ROWS and task != LIVE:
                kept.append((head, tail, content))
        elif task != LIVE:
            clash = table == ROWS and known[0] != LIVE and known[2] != content
            kind = (CLASH_AGAIN if (head, tail, content) in clashed else CLASH) if clash else DUPLICATE
            clashed |= {(head, tail, content)} if clash else set()
            lost.add((task, place, kind))
    return lost, sorted(kept)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([ROWS, REJECTS]),
            st.integers(LIVE, 2),
            st.integers(0, 1000),
            st.sampled_from([0, 1, 2**63, 2**64 - 1]),
            st.integers(0, 1),
            st.integers(1, 3),
        ),
        max_size=30,
        unique_by=lambda event: event[1:3],
    )
)
def test_the_first_in_the_table_or_else_in_the_input_is_kept(events: list[Event]) -> None:
    lost, stored = find_repeats(_ids(events))
    expected = _model(events)
    assert {(row[TASK], row[ROW], row[KIND]) for row in lost.to_pylist()} == expected[0]
    assert len(lost) == len(expected[0])
    assert stored[HEAD].to_pylist() == [head for head, _, _ in expected[1]]
    assert sorted((row[HEAD], row[TAIL], row[CONTENT]) for row in stored.to_pylist()) == expected[1]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=50), st.integers(1, 7))
def test_equal_ids_meet_in_ascending_ranges(heads: list[int], parts: int) -> None:
    found = list(divided(_ids([(ROWS, 0, at, head, 0, 1) for at, head in enumerate(heads)]), parts))
    assert all(0 <= number < parts for number, _ in found)
    assert sorted(head for _, part in found for head in part[HEAD].to_pylist()) == sorted(heads)
    for (one, before), (other, after) in pairwise(found):
        assert one < other
        assert max(before[HEAD].to_pylist()) < min(after[HEAD].to_pylist())


def test_ids_count_within_their_source() -> None:
    sources, ids = ["a", "b", "a", None, "", "1", "", "a"], ["1", "1", "1", "1", "1", "1:x", "11:x", ":1"]
    columns = {EVENT_ID: ids, SOURCE: pa.array(sources), ROW: pa.array(range(8), pa.int32())}
    rows = with_prints(pa.table({**columns, CONTENT: pa.array([0] * 8, pa.uint32())}))
    lost, stored = find_repeats(ids_of(ROWS, 0, rows))
    assert lost[ROW].to_pylist() == [2]
    assert set(stored[CONTENT].to_pylist()) == {1 << 24}  # 0 stands for a content that is not known
