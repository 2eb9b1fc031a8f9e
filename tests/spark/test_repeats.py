"""What a job makes of ids that occur several times, from the chunks that a task sees."""

from __future__ import annotations

import pyarrow as pa

from alluvia_spark.chunks import CONTENT, EVENT_ID, ROW, encode
from alluvia_spark.job import REJECTS, ROWS
from alluvia_spark.plan import Group
from alluvia_spark.repeats import IdChunk, Repeats, find_repeats

MONDAY, TUESDAY = Group(ROWS, "day=1"), Group(ROWS, "day=2")


def chunk(group: Group, task: int, *events: tuple[int, str, int]) -> IdChunk:
    """Return a chunk of events, each by its place, its identity and its content."""
    places, ids, contents = zip(*events, strict=True)
    columns = {EVENT_ID: pa.array(ids), ROW: pa.array(places, pa.int64())}
    if group.table == ROWS:
        columns[CONTENT] = pa.array(contents, pa.uint32())
    return IdChunk(group, task, encode(pa.table(columns)))


def test_ids_that_occur_once_mean_nothing() -> None:
    assert find_repeats([chunk(MONDAY, 0, (0, "a", 1), (1, "b", 1)), chunk(TUESDAY, 0, (2, "c", 1))]) == []
    assert find_repeats([]) == []


def test_the_first_in_the_input_wins_whatever_the_order_of_the_chunks() -> None:
    chunks = [
        chunk(TUESDAY, 1, (0, "a", 5), (1, "b", 7)),
        chunk(MONDAY, 0, (3, "b", 7), (4, "once", 0)),
        chunk(TUESDAY, 0, (2, "a", 6), (5, "a", 6)),
        chunk(MONDAY, 2, (0, "a", 6), (1, "b", 0)),
    ]
    for order in (chunks, chunks[::-1]):
        (found,) = find_repeats(order)
        assert sorted(found.winners) == [(MONDAY, "b"), (TUESDAY, "a")]
        assert {task: sorted(places) for task, places in found.clashes.items()} == {1: [0], 2: [1]}


def test_rejects_clash_with_nothing() -> None:
    one, other = (chunk(Group(REJECTS, day), 0, (at, "a", 0)) for at, day in enumerate(("1", "2")))
    assert find_repeats([one, other]) == [Repeats([(Group(REJECTS, "1"), "a")], {})]
