"""The window against a plain model: a queue of commits, each a dict of its ids."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.commit.event_window.id_runs import CommitIds
from alluvia.commit.event_window.index import read_index, write_index
from alluvia.commit.event_window.window import UNKNOWN, DedupWindow, WindowRules
from alluvia.delta.lineage import Gaps, in_gap
from tests.examples import examples
from tests.unit.commit.event_window.old_window import old_index

POOL = [
    head + tail
    for head in (bytes(8), bytes([*bytes(7), 1]), b"\xff" * 8, b"\1" + bytes(7))
    for tail in (bytes(4), b"\1" + bytes(3), b"\xff" * 4)
]
CONTENTS = st.sampled_from([UNKNOWN, b"aaaa", b"\xff" * 4])
IDS = st.lists(st.tuples(st.sampled_from(POOL), CONTENTS), max_size=6)
ADD = st.tuples(st.just("add"), IDS, st.sampled_from([-50, 1, 100, 300]), st.booleans())
RANGES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)).map(lambda each: (each[0], sum(each))), max_size=2)
STEPS = st.lists(
    st.one_of(
        *[ADD] * 6,
        st.tuples(st.just("undo"), RANGES),
        st.tuples(st.just("last"), st.sampled_from([0, 150, 500, 1000])),
        st.tuples(st.just("reopen"), RANGES),
        st.tuples(st.just("reopen old")),
    ),
    min_size=15,
    max_size=30,
)


class Model:
    """What a window must know."""

    def __init__(self, rules: WindowRules) -> None:
        self.rules = rules
        self.commits: deque[tuple[int, int, list[tuple[bytes, bytes]]]] = deque()
        self.time_ms = 0

    def add(self, version: int, time_ms: int, ids: list[tuple[bytes, bytes]]) -> None:
        self.time_ms = time_ms
        if ids and not in_gap(self.rules.gaps, version):
            self.commits.append((version, time_ms, ids))
        self.forget()

    def forget(self) -> None:
        while self.commits and self.commits[0][1] < self.time_ms - self.rules.window_ms:
            self.commits.popleft()

    def obey(self, rules: WindowRules) -> None:
        self.rules = rules
        self.forget()

    def reopen(self, gaps: Gaps) -> None:
        """Go through a file, which knows the last time of a commit with ids."""
        self.time_ms = self.commits[-1][1] if self.commits else 0
        self.rules = replace(self.rules, gaps=gaps)
        self.commits = deque(each for each in self.commits if not in_gap(gaps, each[0]))
        self.forget()

    def reopen_old(self) -> None:
        """Go through a file of the old form, which is read commit by commit, and knows no contents."""
        commits, self.commits = self.commits, deque()
        for version, time_ms, ids in commits:
            self.add(version, time_ms, [(each, UNKNOWN) for each, _ in ids])

    def held(self, prints: Iterable[bytes]) -> dict[bytes, set[bytes]]:
        held: dict[bytes, set[bytes]] = {}
        for version, _, ids in self.commits:
            for each, content in ids:
                if each in prints and not in_gap(self.rules.undone, version):
                    held.setdefault(each, set()).add(content)
        return held

    def entries(self) -> list[tuple[int, int, list[tuple[bytes, bytes]]]]:
        return [(version, time, sorted(ids)) for version, time, ids in self.commits]


def joined(ids: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, bytes]:
    pairs = list(ids)
    return b"".join(each for each, _ in pairs), b"".join(content for _, content in pairs)


def pairs(ids: CommitIds) -> list[tuple[bytes, bytes]]:
    at = range(len(ids))
    return sorted((ids.prints[12 * each : 12 * each + 12], ids.contents[4 * each : 4 * each + 4]) for each in at)


@settings(max_examples=examples(150))
@given(STEPS, st.sampled_from([0, 150, 500, 1000]), RANGES, st.integers(0, 5), st.integers(1, 20))
def test_the_window_knows_what_a_queue_of_dicts_knows(
    steps: list[tuple[object, ...]], window_ms: int, gaps: list[tuple[int, int]], newest: int, largest: int
) -> None:
    with patch.multiple("alluvia.commit.event_window.window", NEWEST_IDS_MAX=newest, RUN_IDS_MAX=largest):
        rules = WindowRules(window_ms, tuple(gaps))
        window, model = DedupWindow(rules), Model(rules)
        version, now_ms = -1, 10_000
        for step in steps:
            look = True
            match step:
                case "add", list(ids), int(later), bool(look):
                    version, now_ms = version + 1, now_ms + later
                    window.add(CommitIds(version, now_ms, *joined(ids)))
                    model.add(version, now_ms, ids)
                case "undo", list(undone):
                    window.obey(replace(window.rules, undone=tuple(undone)))
                    model.obey(replace(model.rules, undone=tuple(undone)))
                case "last", int(last):
                    window.obey(replace(window.rules, window_ms=last))
                    model.obey(replace(model.rules, window_ms=last))
                case "reopen", list(others):
                    data = write_index(window)
                    window = read_index(data, "x", replace(window.rules, gaps=tuple(others)), version)
                    model.reopen(tuple(others))
                case ("reopen old",):
                    window = read_index(
                        old_index((at, ms, joined(ids)[0]) for at, ms, ids in model.commits), "x", window.rules, version
                    )
                    model.reopen_old()
            assert window.version == version
            if look:
                assert window.held(POOL) == model.held(POOL)
        assert window.held(POOL[::2]) == model.held(POOL[::2])
        found = [(ids.version, ids.timestamp_ms, pairs(ids)) for ids in window.entries()]
        assert found == model.entries()
