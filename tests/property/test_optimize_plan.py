"""A merge never makes a query for a partition value read more, and ends where nothing is left to merge.

Files are played: each has bytes for some days, and what a plan rewrites becomes what the rules for cutting say.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import date, timedelta
from itertools import count

import pytest

from alluvia.log.actions import AddFile
from alluvia.operations.optimize_files import Candidate
from alluvia.operations.optimize_outputs import next_rows
from alluvia.operations.optimize_plan import FileGroup, KeyedRows, cut_group, plan_optimize
from alluvia.table.partitioning.spans import Key, Span, part

TARGET = 1000
SEEDS = 100
PASSES_MAX = 6


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
            assert len(together) == 1, "files of different days were joined"
            self.add(together)
            return
        keys = [KeyedRows(KEYS[day], together[day]) for day in sorted(together)]  # a row is a byte
        for rows, held in cut_group(group, keys, TARGET):
            days = {each: together[each] for each in together if held.low <= KEYS[each] <= held.high}
            assert sum(days.values()) == rows
            self._add_evenly(days, rows)

    def _add_evenly(self, days: dict[int, int], rows: int) -> None:
        while rows:
            taken = 0
            while more := next_rows(rows, taken, 1.0, TARGET, 10**6):
                taken += more
            share = taken / rows
            if len(days) > 1:
                assert taken == rows
            self.add({day: max(1, int(size * share)) for day, size in days.items()})
            days = {day: size - int(size * share) for day, size in days.items()}
            rows -= taken


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
        for _ in range(12):
            files.add({day: chance.choice([1, 2, 60]) if day % 10 == 0 else 1 for day in range(0, 100, 2)})
        total: dict[int, int] = {}
        for days in files.days.values():
            for day, size in days.items():
                total[day] = total.get(day, 0) + size
        while groups := plan_optimize(files.candidates(), TARGET, full=True):
            for group in groups:
                files.rewrite(group)
        for day, size in total.items():
            alone = [days for days in files.days.values() if day in days and len(days) == 1]
            if size >= TARGET / 16:
                assert sum(each[day] for each in alone) == size
                assert len(alone) == max(1, round(size / TARGET))


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
    assert max(written) > 1000, "they never went into the ranges"
    assert sum(written) < 150 * 100, "a few bytes had all ranges written again and again"
