"""A publish is as if the branch's changes had been made on the lake just then: a model of rows says what they give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Conflict
from alluvia.store import MemoryStore
from tests.examples import examples

Rows = list[tuple[int, int]]
BASE: Rows = [(number, number % 3) for number in range(8)]
IDS, VALUES = st.integers(0, 15), st.integers(0, 3)


@dataclass
class Act:
    """A change of a table `t` with the columns id and v, and what it makes of rows."""

    text: str
    on_lake: Callable[[Lake], Any]
    on_rows: Callable[[Rows], Rows]

    def __repr__(self) -> str:
        return self.text


def _append(number: int, value: int) -> Act:
    return Act(
        f"append({number}, {value})",
        lambda lake: lake["t"].append([{"id": number, "v": value}]),
        lambda rows: [*rows, (number, value)],
    )


def _delete(first: int, last: int) -> Act:
    return Act(
        f"delete({first}..{last})",
        lambda lake: lake["t"].delete(f"id BETWEEN {first} AND {last}"),
        lambda rows: [row for row in rows if not first <= row[0] <= last],
    )


def _update(found: int, value: int) -> Act:
    return Act(
        f"update(v = {found} to {value})",
        lambda lake: lake["t"].update({"v": str(value)}, f"v = {found}"),
        lambda rows: [(number, value if v == found else v) for number, v in rows],
    )


def _move(number: int, other: int) -> Act:
    return Act(
        f"move({number} to {other})",
        lambda lake: lake["t"].update({"id": str(other)}, f"id = {number}"),
        lambda rows: [(other if each == number else each, v) for each, v in rows],
    )


def _upsert(number: int, value: int, matched: str) -> Act:
    def on_rows(rows: Rows) -> Rows:
        if all(each != number for each, _ in rows):
            return [*rows, (number, value)]
        return [(each, value if each == number and matched == "update" else v) for each, v in rows]

    return Act(
        f"upsert({number}, {value}, {matched})",
        lambda lake: lake["t"].upsert([{"id": number, "v": value}], on=["id"], matched=matched),
        on_rows,
    )


def _copy(value: int) -> Act:
    return Act(
        f"copy(v = {value})",
        lambda lake: lake.sql(f"INSERT INTO t SELECT id + 100, v FROM t WHERE v = {value}"),
        lambda rows: [*rows, *((number + 100, v) for number, v in rows if v == value)],
    )


def _compact() -> Act:
    return Act("optimize", lambda lake: lake["t"].optimize(full=True), lambda rows: rows)


ACTS = st.one_of(
    st.builds(_append, IDS, VALUES),
    st.builds(_delete, IDS, IDS),
    st.builds(_update, VALUES, VALUES),
    st.builds(_move, IDS, IDS),
    st.builds(_upsert, IDS, VALUES, st.sampled_from(["update", "ignore"])),
    st.builds(_copy, VALUES),
    st.builds(_compact),
)


@settings(max_examples=examples(30), deadline=None)
@given(ours=st.lists(ACTS, min_size=1, max_size=3), theirs=st.lists(ACTS, max_size=3), vectors=st.booleans())
def test_what_is_published_is_what_the_branch_would_have_done_now(
    ours: list[Act], theirs: list[Act], *, vectors: bool
) -> None:
    clock = ManualClock()
    lake = Lake(MemoryStore("serial", clock), clock)
    lake.create_table(
        "t", {"id": "long", "v": "long"}, properties={"delta.enableDeletionVectors": str(vectors).lower()}
    )
    for start in range(0, len(BASE), 4):
        lake["t"].append([{"id": number, "v": v} for number, v in BASE[start : start + 4]])
    clock.advance(1)
    fix = lake.branch("fix")
    clock.advance(1)
    expected = BASE
    for act in theirs:
        act.on_lake(lake)
        expected = act.on_rows(expected)
    before = expected
    for act in ours:
        version = fix["t"].version
        act.on_lake(fix)
        if fix["t"].version > version:  # what has found nothing to change is not on record
            expected = act.on_rows(expected)
    try:
        fix.publish()
    except Conflict:
        assert theirs, "there is nobody to be in conflict with"
        expected = before
    assert sorted((row["id"], row["v"]) for row in lake["t"].to_arrow().to_pylist()) == sorted(expected)
    assert lake["t"].verify(full=True).ok
