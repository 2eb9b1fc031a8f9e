"""The cache of the most recently used values."""

from __future__ import annotations

from collections.abc import Sequence

from alluvia.recent import LENGTH_KEPT, Recent, once_each


def test_the_values_used_last_are_kept() -> None:
    recent: Recent[str, int] = Recent(2)
    recent.keep("a", 1, 1)
    recent.keep("b", 2, 1)
    assert recent.get("a") == 1
    recent.keep("c", 3, 1)
    assert (recent.get("a"), recent.get("b"), recent.get("c")) == (1, None, 3)
    recent.keep("a", 4, 1)
    assert (recent.get("a"), recent.get("c")) == (4, 3)


def test_large_values_leave_room_for_few_others() -> None:
    recent: Recent[str, int] = Recent(10)
    for number, name in enumerate("abcde"):
        recent.keep(name, number, 2)
    recent.keep("b", 5, 3)
    assert [recent.get(name) for name in "abcde"] == [None, 5, 2, 3, 4]
    recent.keep("f", 6, 8)
    assert [recent.get(name) for name in "abcdef"] == [None, None, None, None, 4, 6]
    recent.keep("g", 7, 11)
    recent.keep("f", 8, 11)
    assert [recent.get(name) for name in "efg"] == [4, None, None]


def test_a_value_is_worked_out_once_for_each_of_the_objects_used_last() -> None:
    worked: list[Sequence[int]] = []

    @once_each
    def total(numbers: Sequence[int]) -> int:
        worked.append(numbers)
        return sum(numbers)

    same, other = [1, 2], [1, 2]
    assert [total(same), total(same), total(other)] == [3, 3, 3]
    assert len(worked) == 2
    large = range(LENGTH_KEPT - 1)
    assert total(large) == sum(large)
    assert [total(same), total(large)] == [3, sum(large)]
    assert worked == [same, other, large, same, large]  # neither leaves room for the other
    for number in range(100):  # each of which may lie where the one before it did
        assert total([number]) == number
