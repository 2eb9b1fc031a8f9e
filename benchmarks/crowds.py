"""Many functions post events to one table at the same time: posts a second, waits and requests, in simulated time.

The code is the real one, on a store in memory. A PUT takes 50 ms on average, a GET 20 ms, a LIST 30 ms, each from 0.7
to 1.3 times that; computing takes no time. Every function has a lake of its own, and sends one event after another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from alluvia.lake import Lake
from alluvia.operations import ingest
from alluvia.store import MemoryStore, ObjectInfo, Store, Wrapper
from alluvia.store.at_once import REQUESTS_AT_ONCE
from benchmarks.report import Figure
from tests.s3server import S3Server
from tests.simulation.runtime import running, simulated
from tests.simulation.scheduler import Scheduler, SimulatedClock

T = TypeVar("T")
R = TypeVar("R")
REQUEST_US = {"put": 50_000, "put_if_absent": 50_000, "list": 30_000}
OTHER_US = 20_000
MANY = 600
LOADS = ((1, 0, 0, 6), (4, 0, 1, 6), (16, 0, 2, 6), (64, 0, 2, 4), (620, 250, 3, 2))
"""How many functions; how long each pauses between two posts on average, in ms; and for how many seconds they have
posted before it counts, and then go on."""
START_US = 1_700_000_000_000_000
PAGE_KEYS = 1000
STEPS_MAX = 10_000_000
PRICES = {"put": 5.0, "list": 5.0, "get": 0.4}
"""US dollars for a million requests, S3 Standard in us-east-1."""


class SlowStore(Wrapper):
    """A store whose requests take simulated time, part of it before they take effect; those of `map` overlap."""

    def __init__(self, inner: Store, scheduler: Scheduler, clock: SimulatedClock, counts: Counter[str]) -> None:
        super().__init__(inner)
        self.parallel = True
        self._scheduler = scheduler
        self._clock = clock
        self._counts = counts
        self._spent_us: int | None = None

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:  # noqa: ARG002
        self._counts["put" if kind.startswith("put") else kind] += 1
        took_us = int(REQUEST_US.get(kind, OTHER_US) * (0.7 + 0.6 * self._clock.uniform()))
        if self._spent_us is not None:
            self._spent_us += took_us
            return send()
        self._scheduler.wait(took_us * 6 // 10)
        try:
            return send()
        finally:
            self._scheduler.wait(took_us * 4 // 10)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        found = [*super().list(prefix, start_after)]
        for _ in range(len(found) // PAGE_KEYS):
            self.request("list", prefix, lambda: None)
        return iter(found)

    def map(self, work: Callable[[T], R], items: Iterable[T], at_once: int = REQUESTS_AT_ONCE) -> Sequence[R]:
        waiting, done = [*items], list[R]()
        if self._spent_us is not None or len(waiting) < 2:
            return [work(item) for item in waiting]
        for start in range(0, len(waiting), at_once):
            longest_us = 0
            for item in waiting[start : start + at_once]:
                self._spent_us = 0
                try:
                    done.append(work(item))
                finally:
                    longest_us, self._spent_us = max(longest_us, self._spent_us), None
            self._scheduler.wait(longest_us)
        return done


@dataclass(frozen=True)
class Load:
    """What became of a load: when each post began and how long it took, in simulated us; requests; versions; and
    how many events were sent, are there, and are different."""

    posts: Sequence[tuple[int, int]]
    counts: Counter[str]
    versions: int
    sent: int
    rows: int
    ids: int

    def wait_ms(self, share: float) -> float:
        """Return what a share of the posts did not exceed."""
        waits = sorted(took for _, took in self.posts)
        return waits[int(len(waits) * share)] / 1000

    def each(self, kind: str) -> float:
        """Return how many requests of a kind a post took."""
        return self.counts[kind] / len(self.posts)

    def said(self, seconds: float) -> str:
        """Return the load in a line; it lasted some seconds."""
        cost = sum(price * self.each(kind) for kind, price in PRICES.items())
        requests = ", ".join(f"{self.each(kind):.2f} {kind.upper()}" for kind in PRICES)
        waits = f"p50 {self.wait_ms(0.5):.0f} ms, p99 {self.wait_ms(0.99):.0f} ms"
        return f"{len(self.posts) / seconds:.0f} posts/s, {waits}; {requests} each, ${cost:.2f} a million"


def load(functions: int, seconds: float, pause_ms: float = 0.0, seed: int = 0, warm_seconds: float = 0.0) -> Load:
    """Have functions post for some simulated seconds; after each post, each pauses for about so long.

    What begins in the first `warm_seconds` does not count.
    """
    scheduler = Scheduler(START_US, STEPS_MAX)
    shared = MemoryStore("crowd")
    end_us = START_US + int(seconds * 1_000_000)
    posts: list[tuple[int, int]] = []
    counts: Counter[str] = Counter()
    sent: list[str] = []
    with simulated(), running(scheduler):
        Lake(shared, SimulatedClock(scheduler, f"{seed}", 0)).create_events(
            "t", partition_by=(), properties={"delta.checkpointInterval": "100000"}
        )

        def post(number: int) -> None:
            clock = SimulatedClock(scheduler, f"{seed}/{number}", 0)
            mine: Counter[str] = Counter()
            table = Lake(SlowStore(shared, scheduler, clock, mine), clock).table("t")
            schema = table.schema
            mine.clear()
            at = 0
            while scheduler.now_us < end_us:
                began_us, at = scheduler.now_us, at + 1
                row = {"event_id": [f"{number}-{at}"], "ts": [began_us], "event": ["click"], "received_at": [began_us]}
                fields = [schema.field(name) for name in row]
                sent.append(f"{number}-{at}")
                done = table.ingest(pa.table(row, pa.schema(fields)))
                if done.appended != 1:
                    raise AssertionError(done)
                if began_us >= START_US + int(warm_seconds * 1_000_000):
                    posts.append((began_us, scheduler.now_us - began_us))
                    counts.update(mine)
                mine.clear()
                scheduler.wait(int(2000 * pause_ms * clock.uniform()))

        for number in range(functions):
            scheduler.spawn(f"function {number}", partial(post, number), number * 997)
        scheduler.run()
        table = Lake(shared, SimulatedClock(scheduler, "end", 0)).table("t")
        ids = table.scan(["event_id"]).read_all()["event_id"].to_pylist()
        return Load(posts, counts, table.version, len(sent), len(ids), len(set(ids)))


def figures(_: S3Server, __: Path) -> list[Figure]:
    """Compare posts of few and many functions with and without offers."""
    found = []
    for functions, pause_ms, warm_seconds, seconds in LOADS:
        whole = seconds + warm_seconds
        with pytest.MonkeyPatch.context() as alone:
            alone.setattr(ingest, "LOSSES", 1 << 30)
            before = load(functions, whole, pause_ms, warm_seconds=warm_seconds) if functions < MANY else None
        ours = load(functions, whole, pause_ms, warm_seconds=warm_seconds)
        holds = ours.rows == ours.ids == ours.sent
        bar = "every event once"
        if functions >= MANY:
            bar += ", 1,000 posts a second, p99 below 500 ms"
            holds = holds and len(ours.posts) >= 1000 * seconds and ours.wait_ms(0.99) < 500
        if functions == 1:
            bar += ", 2 PUT each"
            holds = holds and ours.counts == {"put": 2 * len(ours.posts)}
        pause = f", {pause_ms:.0f} ms between posts" if pause_ms else ""
        name = f"{functions} function{'s' * (functions > 1)}{pause}, 50 ms a PUT, simulated (theirs: without offers)"
        theirs = "" if before is None else before.said(seconds)
        found.append(Figure(name, ours.said(seconds), theirs, None, bar, holds))
    return found
