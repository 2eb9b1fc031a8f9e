"""A merge makes no query for a partition value read more, unless too many files are small; and merging ends.

Where more than a quarter of the files are small, a query for a value may read a file or two of the target more.

Files are played: each has bytes for some days, and what a plan rewrites becomes what the rules for cutting say.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from datetime import date, timedelta
from itertools import count

import pytest

from alluvia.delta.log.actions import AddFile
from alluvia.delta.partitioning.transforms import Key, Span, part
from alluvia.operations.compaction.optimize_cuts import OVER_SHARE, SMALL_SHARE
from alluvia.operations.compaction.optimize_files import Candidate
from alluvia.operations.compaction.optimize_outputs import next_rows, plan_joins
from alluvia.operations.compaction.optimize_plan import FileGroup, KeyedRows, cut_group, plan_optimize

TARGET = 1000
SEEDS = 100
PASSES_MAX = 20


KEYS: list[Key] = [(part(str(date(2024, 1, 1) + timedelta(days=day))),) for day in range(400)]


class Files:
    """Files by path, each with its bytes for some days."""

    def __init__(self) -> None:
        self.days: dict[str, dict[int, int]] = {}
        self._numbers = count()

    def add(self, days: dict[int, int]) -> None:
        self.days[f"f{next(self._numbers):06}"] = days

    def candidates(self) -> list[Candidate]:
        return [
            Candidate(AddFile(path, {}, sum(days.values()), 1, data_change=True), span(days), sum(days.values()))
            for path, days in self.days.items()
        ]

    def read_for(self, days: Iterable[int]) -> dict[int, list[int]]:
        """The sizes of the files that a query for a day reads, by days."""
        files = [(min(held), max(held), sum(held.values())) for held in self.days.values()]
        return {day: [size for first, last, size in files if first <= day <= last] for day in days}

    def rewrite(self, group: FileGroup) -> None:
        taken = [self.days.pop(each.file.path) for each in group.files]
        together: dict[int, int] = {}
        for days in taken:
            for day, size in days.items():
                together[day] = together.get(day, 0) + size
        if not group.cut:
            assert group.joined or len(together) == 1, "files of different days were joined"
            self.add_sorted(together)
            return
        keys = [KeyedRows(KEYS[day], together[day]) for day in sorted(together)]  # a row is a byte
        for rows, held in cut_group(group, keys, TARGET):
            days = {each: together[each] for each in together if held.low <= KEYS[each] <= held.high}
            assert sum(days.values()) == rows
            self.add_sorted(days)

    def add_sorted(self, days: dict[int, int]) -> None:
        """Add files of even size with rows in the order of their days."""
        rows, left = sorted(days.items()), sum(days.values())
        while left:
            wanted = 0
            while more := next_rows(left, wanted, 1.0, TARGET, 10**6):
                wanted += more
            left -= wanted
            held: dict[int, int] = {}
            while wanted:
                day, size = rows.pop(0)
                held[day] = min(size, wanted)
                wanted -= held[day]
                if size > held[day]:
                    rows.insert(0, (day, size - held[day]))
            self.add(held)

    def settle(self, *, full: bool = False) -> Iterator[list[FileGroup]]:
        """Merge as `optimize` does until nothing is left to do, and yield what was planned, before it is done."""
        for _ in range(PASSES_MAX):
            found = self.candidates()
            groups = plan_optimize(found, TARGET, full=full) or plan_joins(
                found, TARGET, lambda _: len(self.days), full=full
            )
            if not groups:
                return
            yield groups
            for group in groups:
                self.rewrite(group)
        raise AssertionError("merging does not end")


def span(days: Iterable[int]) -> Span:
    return Span(KEYS[min(days)], KEYS[max(days)])


def made(chance: random.Random, days: int) -> Files:
    files = Files()
    for _ in range(chance.choice([3, 10, 60])):
        first = chance.randrange(days)
        last = min(days - 1, first + chance.choice([0, 1, 3, days]))
        several = {chance.randint(first, last) for _ in range(chance.choice([1, 1, 2, days]))}
        size = chance.choice([5, 20, 100, 400, 800, 1100])
        files.add({day: max(1, int(size * 2 * chance.random() / len(several))) for day in several})
    return files


@pytest.mark.parametrize("days", [1, 2, 5, 40, 400])
def test_no_day_costs_more_after_any_merge_and_merging_ends(days: int) -> None:
    for seed in range(SEEDS // 5):
        files = made(random.Random(f"{days} {seed}"), days)
        for _ in range(PASSES_MAX):
            asked = range(0, days, 1 + days // 50)
            before = files.read_for(asked)
            groups = plan_optimize(files.candidates(), TARGET)
            if not groups:
                break
            for group in groups:
                files.rewrite(group)
            for day, after in files.read_for(asked).items():
                assert sum(after) <= sum(before[day]), (seed, day)
                assert len(after) <= max(len(before[day]), sum(after) // TARGET + 1), (seed, day)
        assert not plan_optimize(files.candidates(), TARGET), seed


def test_a_day_with_enough_rows_gets_files_of_its_own() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        files = Files()
        for _ in range(20):
            files.add({day: chance.choice([1, 20, 60]) if day % 10 == 0 else 1 for day in range(0, 100, 2)})
        total: dict[int, int] = {}
        for days in files.days.values():
            for day, size in days.items():
                total[day] = total.get(day, 0) + size
        while groups := plan_optimize(files.candidates(), TARGET, full=True):
            for group in groups:
                files.rewrite(group)
        for day, size in total.items():
            alone = [days for days in files.days.values() if day in days and len(days) == 1]
            if size >= TARGET * SMALL_SHARE:
                assert sum(each[day] for each in alone) == size
                assert len(alone) == max(1, round(size / TARGET))


def appended(chance: random.Random, files: Files, weights: dict[int, float]) -> None:
    """Add what one append writes: a file for each day, or ranges of a part of the rows."""
    days = {day: max(1, int(size * chance.uniform(0.7, 1.3))) for day, size in weights.items()}
    total = sum(days.values())
    least = min(TARGET, total / 8) if total > TARGET else total / 32 if len(days) > 100 else 0
    held: dict[int, int] = {}
    for day in sorted(days):
        held[day] = days[day]
        if sum(held.values()) >= least:
            files.add_sorted(held)
            held = {}
    files.add_sorted(held)


SHAPES: dict[str, Callable[[int, int, float], dict[int, float]]] = {
    "as many rows each day": lambda days, _, __: dict.fromkeys(range(days), 1 / days),
    "many rows in few days": lambda days, _, __: {
        day * 7 % days: 4 * (1 - day / days) ** 3 / days for day in range(days)
    },
    "big and small days in turn": lambda days, _, __: {day: (1.8 if day % 2 else 0.2) / days for day in range(days)},
    "as time goes by": lambda days, _, at: {int(at * days): 0.9, max(0, int(at * days) - 1): 0.1},
    "with late rows": lambda days, seed, at: {
        **dict.fromkeys(random.Random(f"{seed} {at}").sample(range(days), min(days, 20)), 0.002), int(at * days): 1
    },
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("appends", [1, 12])
def test_at_most_a_quarter_of_the_files_are_small_and_a_day_reads_little_more(shape: str, appends: int) -> None:
    for seed in range(12):
        chance = random.Random(f"{shape} {appends} {seed}")
        days, size, files = chance.choice([10, 30, 93, 400]), chance.choice([900, 9000, 40_000]), Files()
        for number in range(appends):
            weights = SHAPES[shape](days, seed, number / appends)
            appended(chance, files, {day: share * size / appends for day, share in weights.items()})
            if chance.random() < 0.3:
                for _ in files.settle():
                    pass
        asked = sorted({day for held in files.days.values() for day in held})
        before = files.read_for(asked)
        joins = [sum(group.joined for group in groups) for groups in files.settle()]
        sizes = [sum(held.values()) for held in files.days.values()]
        small = sum(size < TARGET * SMALL_SHARE for size in sizes)
        assert len(sizes) < 8 or small <= len(sizes) / 4, (seed, sorted(sizes))
        for day, after in files.read_for(asked).items():
            more = 2 * OVER_SHARE * TARGET if any(joins) else 0
            assert sum(after) <= sum(before[day]) + more, (seed, day)
        assert not plan_optimize(files.candidates(), TARGET)


def test_files_of_different_days_stay_apart_where_three_quarters_are_full() -> None:
    files = Files()
    for day in range(10):
        files.add_sorted({day: 3300})
        files.add_sorted({day: 150})
        files.add_sorted({day: 150})
    for groups in files.settle():
        assert not any(group.joined for group in groups)
    assert all(len(held) == 1 for held in files.days.values())
    assert sorted(sum(held.values()) for held in files.days.values())[:11] == [300] * 10 + [1100]


@pytest.mark.parametrize(("number", "left"), [(7, 7), (8, 1)])
def test_fewer_than_eight_files_are_left_apart(number: int, left: int) -> None:
    files = Files()
    for day in range(number):
        files.add({day: 10})
    for _ in files.settle():
        pass
    assert len(files.days) == left


def test_a_file_that_waits_is_not_written_again_for_a_few_rows() -> None:
    files = Files()
    files.add({0: 500})
    for day in range(1, 9):
        files.add({day: 1})
    for _ in files.settle():
        pass
    assert sorted(sum(held.values()) for held in files.days.values()) == [8, 500]
    for _ in files.settle(full=True):
        pass
    assert len(files.days) == 2, "there are too few files by now"


def test_a_small_file_over_all_days_widens_no_other() -> None:
    files = Files()
    files.add({0: 1, 399: 1})
    for day in range(1, 60):
        files.add({day: 300})
    for _ in files.settle():
        pass
    wide = [sum(held.values()) for held in files.days.values() if max(held) - min(held) > 50]
    assert wide == [2]


@pytest.mark.parametrize("size", [100, 800, 1250, 1600, 2400, 2600, 3700, 9100, 50_000])
@pytest.mark.parametrize("guess", [0.5, 1.0, 1.2])
def test_files_are_even_and_near_the_target_however_wrong_the_first_guess_is(size: int, guess: float) -> None:
    sizes, left, row_bytes = [], size * 100, guess
    while left:
        taken = 0
        while more := next_rows(left, taken, row_bytes, TARGET * 100, 12_288):
            taken += more
            row_bytes = 1.0  # what a row takes is known once a row group is written
        sizes.append(taken / 100)
        left -= taken
    assert sum(sizes) == size
    assert all(750 <= each <= 1250 for each in sizes) or size < 750


def test_between_one_and_a_quarter_and_one_and_a_half_targets_one_file_is_full() -> None:
    taken = next_rows(1400, 0, 1.0, 1000, 2000)
    while more := next_rows(1400, taken, 1.0, 1000, 2000):
        taken += more
    assert taken == TARGET


def test_small_files_over_all_days_go_into_the_ranges_that_they_overlap_once_they_weigh_enough() -> None:
    files = Files()
    for first in range(0, 400, 20):
        files.add(dict.fromkeys(range(first, first + 20), 5))
    written: list[int] = []
    for number in range(150):
        files.add(dict.fromkeys(range(number % 3, 398 + number % 3, 100), 1))
        groups = plan_optimize(files.candidates(), TARGET)
        written.append(sum(group.weight for group in groups))
        for group in groups:
            files.rewrite(group)
        assert max(len(read) for read in files.read_for(range(400)).values()) <= 8
    late = [sum(held.values()) for held in files.days.values() if max(held) - min(held) >= 100]
    assert sum(late) < 600 / 4, "they never went into the ranges"
    assert sum(written) < 150 * 100, "a few bytes had all ranges written again and again"
