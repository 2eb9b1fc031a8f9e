"""Tables at one moment: what a SELECT of several tables sees while others change them, and a third one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Unavailable
from alluvia.operations.catalog.lake_snapshot import LOOKS_MAX
from alluvia.store import CountingStore
from tests.transactions import APPLY_OF_A, APPLY_OF_B, SCHEMA, HookedStore, again, amounts, stopped, two_tables


def move(lake: Lake, source: str, target: str) -> None:
    with lake.transaction([source, target]) as tx:
        tx.table(source).update({"amount": "amount - 10"}, "id = 'x'")
        tx.table(target).update({"amount": "amount + 10"}, "id = 'x'")


@pytest.fixture
def lake() -> Lake:
    """Tables a, b and c, with 200, 200 and 100."""
    lake = two_tables(ManualClock())
    lake.create_table("c", SCHEMA).append([{"id": "x", "amount": 100}])
    return lake


def reading_while(lake: Lake, act: Callable[[], object]) -> tuple[int, int]:
    """Return the amounts of a and b that a process reads which has looked at a once more, and not at b, by then."""
    acted: list[str] = []

    def hook(kind: str, key: str) -> None:
        if warm and kind == "get" and key.startswith("b/_delta_log/") and not acted:
            acted.append(key)
            act()

    warm = False
    reader = Lake(HookedStore(lake.store, hook), lake.clock)
    for name in ("a", "b"):
        reader.table(name).count()
    warm = True
    found = amounts(reader)
    assert acted
    return found


@pytest.mark.parametrize("before", [APPLY_OF_A, APPLY_OF_B, None], ids=["decided", "half", "done"])
def test_no_transaction_is_read_without_what_it_follows_by_way_of_another_table(lake: Lake, before: int | None) -> None:
    def act() -> None:
        move(again(lake), "a", "c")
        if before is None:
            move(again(lake), "c", "b")
        else:
            stopped(lake, before, lambda dying: move(dying, "c", "b"))

    assert reading_while(lake, act) in ((200, 200), (190, 200), (190, 210))


def test_only_a_transaction_that_another_table_takes_part_in_costs_another_look(lake: Lake) -> None:
    counting = CountingStore(lake.store)
    reader = Lake(counting, lake.clock)
    amounts(reader)
    looks = []
    for source, target in (("a", "b"), ("b", "c")):
        move(again(lake), source, target)
        counting.requests.clear()
        reader.catalog.readable(("a", "b"))
        looks.append(counting.requests["get"])
    assert looks == [6, 4 + 2]
    assert amounts(reader) == (190, 200)


@pytest.mark.parametrize("moves", [LOOKS_MAX - 1, LOOKS_MAX], ids=["in time", "too many"])
def test_a_reader_gives_up_where_each_look_meets_another_transaction(lake: Lake, moves: int) -> None:
    done = 0

    def hook(kind: str, key: str) -> None:
        nonlocal done
        if warm and kind == "get" and key.startswith("a/_delta_log/") and done < moves:
            done += 1
            move(again(lake), "b", "c")

    warm = False
    reader = Lake(HookedStore(lake.store, hook), lake.clock)
    amounts(reader)
    warm = True
    if moves < LOOKS_MAX:
        assert amounts(reader) == (200, 200 - 10 * moves)
    else:
        with pytest.raises(Unavailable, match=f"no consistent snapshot of 2 tables in {LOOKS_MAX} looks"):
            amounts(reader)
    assert done == moves
