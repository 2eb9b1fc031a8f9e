"""Posts of one event each: over many connections to `alluvia serve`, and by threads on one lake over a slow store.

Every acknowledged event must be a row once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread
from typing import TypeVar

import alluvia
from alluvia.api.lake import Lake
from alluvia.clock import SystemClock
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import RawEvent
from alluvia.store import MemoryStore, Store, Wrapper
from benchmarks.report import Figure
from tests.s3server import S3Server
from tests.serving import serving

T = TypeVar("T")
ROOT = Path(__file__).parent.parent
CONNECTIONS = (1, 50, 200)
SECONDS = 60.0
THREADS = (1, 64, 256)
THREAD_SECONDS = 10.0
START_SECONDS = 1.0
"""Times are those of what is sent after it: all threads but one begin in the middle of the first one's commit."""
PUT_SECONDS = 0.05
PUTS_MAX = 0.15
"""PUT requests a post of 64 threads and more."""


def figures(_: S3Server, folder: Path) -> list[Figure]:
    """Measure the server, then the library."""
    return [_served(folder / f"lake{number}", number) for number in CONNECTIONS] + [_by_threads(n) for n in THREADS]


def _served(lake: Path, connections: int) -> Figure:
    command = [sys.executable, "-m", "tests.posting"]
    seconds = SECONDS if connections == 50 else SECONDS / 6
    with serving(lake, quiet=True) as (process, port):
        before = _cpu_seconds(process.pid)
        words = [str(port), str(connections), str(seconds)]
        output = subprocess.run([*command, *words], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        cpu_seconds = _cpu_seconds(process.pid) - before
    done = json.loads(output)
    table = alluvia.connect(str(lake))["app"]
    ids = sorted(table.to_arrow()["event_id"].to_pylist())
    exact = ids == sorted(done["acknowledged"]) and list(done["answers"]) == ["200"]
    cpu_ms = 1000 * cpu_seconds / len(ids)
    times = f"p50 {done['p50_ms']:.0f} ms, p99 {done['p99_ms']:.0f} ms"
    return Figure(
        f"serve on a directory, {connections} {'connection' if connections == 1 else 'connections'}, {seconds:.0f} s: "
        "posts a second",
        f"{done['a_second']:.0f}, {times}; {cpu_ms:.2f} ms of CPU each",
        "",
        None,
        "every acknowledged event once, no other answer than 200",
        exact,
    )


def _cpu_seconds(process_id: int) -> float:
    """Return how much CPU time a process has taken."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


class _Slow(Wrapper):
    """Takes its time for each write, and counts requests."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.requests: Counter[str] = Counter()
        self._lock = Lock()

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:  # noqa: ARG002
        with self._lock:
            self.requests[kind] += 1
        if kind.startswith("put"):
            time.sleep(PUT_SECONDS)
        return send()


def _by_threads(threads: int) -> Figure:
    store = _Slow(MemoryStore(f"posts of {threads}"))
    lake = Lake(store, SystemClock())
    lake.create_events("app")
    lake["app"].snapshot()
    store.requests.clear()
    taken: list[tuple[float, float]] = []
    stored: list[str] = []
    began = time.monotonic()

    def send(number: int) -> None:
        at = 0
        while time.monotonic() < began + THREAD_SECONDS:
            at += 1
            event = RawEvent(0, {"event_id": f"{number}-{at}", "event": "viewed", "user": "u17", "ms": 35})
            started = time.monotonic()
            if ingest_batch(lake.catalog, "app", [event], arrival_us=lake.clock.now_us()).stored:
                stored.append(f"{number}-{at}")
            taken.append((started, 1000 * (time.monotonic() - started)))

    workers = [Thread(target=send, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.monotonic() - began
    taken_ms = sorted(each_ms for started, each_ms in taken if started > began + START_SECONDS)
    puts = sum(number for kind, number in store.requests.items() if kind.startswith("put")) / len(taken)
    exact = sorted(lake["app"].to_arrow()["event_id"].to_pylist()) == sorted(stored) and len(stored) == len(taken)
    most = PUTS_MAX if threads >= 64 else 2
    return Figure(
        f"{threads} {'thread' if threads == 1 else 'threads'} on one lake, {1000 * PUT_SECONDS:.0f} ms a PUT: "
        "posts a second",
        f"{len(taken) / seconds:.0f}, p50 {taken_ms[len(taken_ms) // 2]:.0f} ms, "
        f"p99 {taken_ms[len(taken_ms) * 99 // 100]:.0f} ms; {puts:.2f} PUT each",
        "",
        None,
        f"at most {most} PUT each, every event once",
        exact and puts <= most,
    )
