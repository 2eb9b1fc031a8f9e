"""Many functions post events to one table at the same time: posts a second, waits and requests, in simulated time.

The code is the real one, on a store in memory. A PUT takes 50 ms on average, a GET 20 ms, a LIST 30 ms, each from 0.7
to 1.3 times that; computing takes no time. Every function has a lake of its own, and sends one post after another.
With a limit, GETs beyond it are refused, and sent again as the S3 store does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.errors import CommitUnknown, Unavailable
from alluvia.operations.append import ingest
from alluvia.store import MemoryStore, ObjectInfo, Store, Wrapper
from alluvia.store.requests import REQUESTS_AT_ONCE
from alluvia.store.s3.s3_requests import TRIES
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
LIMITED = ((450, 8, 4), (620, 10, 4))
"""The same for functions that pause for 250 ms, where S3 limits GETs, and Lambda starts 100 functions a second."""
GETS_A_SECOND = 5500
START_US_EACH, STARTED_US_EACH = 997, 10_000
BATCH = (64, 2, 4)
BATCH_ROWS, BATCH_TEXT = 1000, "x" * 300
START_US = 1_700_000_000_000_000
PAGE_KEYS = 1000
STEPS_MAX = 10_000_000
PRICES = {"put": 5.0, "list": 5.0, "get": 0.4}
"""US dollars for a million requests, S3 Standard in us-east-1."""


class Limit:
    """How many requests a second a store serves; those of a fifth of a second may come at once."""

    def __init__(self, a_second: int) -> None:
        self._a_second = a_second
        self._left = self._most = a_second / 5
        self._at_us = START_US

    def serves(self, now_us: int) -> bool:
        """Whether one more is served."""
        self._left = min(self._most, self._left + (now_us - self._at_us) * self._a_second / 1e6)
        self._at_us = now_us
        if self._left < 1:
            return False
        self._left -= 1
        return True


class SlowStore(Wrapper):
    """A store whose requests take simulated time, part of it before they take effect; those of `map` overlap."""

    def __init__(
        self,
        inner: Store,
        scheduler: Scheduler,
        clock: SimulatedClock,
        counts: Counter[str],
        limit: Limit | None = None,
    ) -> None:
        super().__init__(inner)
        self.parallel = True
        self._scheduler = scheduler
        self._clock = clock
        self._counts = counts
        self._limit = limit
        self._spent_us: int | None = None

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:  # noqa: ARG002
        if kind == "get" and self._limit is not None:
            self._wait_for_place(self._limit)
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

    def _wait_for_place(self, limit: Limit) -> None:
        """Have a GET refused, and send it again later, until the limit leaves room for it."""
        for attempt in range(TRIES):
            if limit.serves(self._scheduler.now_us):
                return
            self._counts["refused"] += 1
            wait_us = OTHER_US + int(self._clock.uniform() * 2**attempt * 1_000_000)
            if self._spent_us is not None:  # its time has not come yet: taken for served then
                self._spent_us += wait_us
                return
            self._scheduler.wait(wait_us)
        raise Unavailable("S3 did not serve the object (SlowDown): try again")

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


def load(
    functions: int,
    seconds: float,
    pause_ms: float = 0.0,
    seed: int = 0,
    warm_seconds: float = 0.0,
    *,
    rows: int = 1,
    text: str = "",
    limit: Limit | None = None,
    start_us_each: int = START_US_EACH,
) -> Load:
    """Have functions post for some simulated seconds; after each post, each pauses for about so long.

    What begins in the first `warm_seconds` does not count. Each post brings some `rows` with a `text`; one function
    starts after another. A post that fails is sent again, as senders do.
    """
    scheduler = Scheduler(START_US, STEPS_MAX)
    shared = MemoryStore("crowd")
    end_us = START_US + int(seconds * 1_000_000)
    posts: list[tuple[int, int]] = []
    counts: Counter[str] = Counter()
    sent: list[str] = []
    with simulated(), running(scheduler):
        made = Lake(shared, SimulatedClock(scheduler, f"{seed}", 0)).create_events(
            "t", partition_by=(), properties={"delta.checkpointInterval": "100000"}
        )
        schema = made.schema

        def post(number: int) -> None:
            clock = SimulatedClock(scheduler, f"{seed}/{number}", 0)
            mine: Counter[str] = Counter()
            table = Lake(SlowStore(shared, scheduler, clock, mine, limit), clock).table("t")
            while mine["list"] == 0:
                with suppress(Unavailable):
                    table.snapshot()
            mine.clear()
            at = 0
            while scheduler.now_us < end_us:
                began_us, at = scheduler.now_us, at + 1
                ids = [f"{number}-{at}-{row}" for row in range(rows)]
                found = {"event_id": ids, "ts": [began_us] * rows, "event": ["click"] * rows}
                found |= {"properties": [text or None] * rows, "received_at": [began_us] * rows}
                fields = [schema.field(name) for name in found]
                sent.extend(ids)
                _ingested(table, pa.table(found, pa.schema(fields)))
                if began_us >= START_US + int(warm_seconds * 1_000_000):
                    posts.append((began_us, scheduler.now_us - began_us))
                    counts.update(mine)
                mine.clear()
                scheduler.wait(int(2000 * pause_ms * clock.uniform()))

        for number in range(functions):
            scheduler.spawn(f"function {number}", partial(post, number), number * start_us_each)
        scheduler.run()
        table = Lake(shared, SimulatedClock(scheduler, "end", 0)).table("t")
        ids = table.scan(["event_id"]).read_all()["event_id"].to_pylist()
        return Load(posts, counts, table.version, len(sent), len(ids), len(set(ids)))


def _ingested(table: Table, rows: pa.Table) -> None:
    """Send rows until they are acknowledged."""
    for _ in range(100):
        try:
            done = table.ingest(rows)
        except (Unavailable, CommitUnknown):
            continue
        if done.appended + done.duplicates != len(rows):
            raise AssertionError(done)
        return
    raise AssertionError("the store never answered")


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
    return [*found, _batches(), *(_limited(*each) for each in LIMITED)]


def _batches() -> Figure:
    functions, warm_seconds, seconds = BATCH
    whole = seconds + warm_seconds
    with pytest.MonkeyPatch.context() as alone:
        alone.setattr(ingest, "LOSSES", 1 << 30)
        before = load(functions, whole, warm_seconds=warm_seconds, rows=BATCH_ROWS, text=BATCH_TEXT)
    ours = load(functions, whole, warm_seconds=warm_seconds, rows=BATCH_ROWS, text=BATCH_TEXT)
    name = f"{functions} functions, {BATCH_ROWS:,} events a post (theirs: without offers)"
    holds = ours.rows == ours.ids == ours.sent
    return Figure(name, ours.said(seconds), before.said(seconds), None, "every event once", holds)


def _limited(functions: int, warm_seconds: int, seconds: int) -> Figure:
    limit = Limit(GETS_A_SECOND)
    ours = load(
        functions, warm_seconds + seconds, 250, warm_seconds=warm_seconds, limit=limit, start_us_each=STARTED_US_EACH
    )
    name = f"{functions} functions, 250 ms between posts, where S3 serves {GETS_A_SECOND:,} GETs a second in all"
    said = f"{ours.said(seconds)}; {ours.each('refused'):.2f} refused"
    return Figure(name, said, "", None, "every event once", ours.rows == ours.ids == ours.sent)
