"""Posts of one event each: in process, over connections to `serve`, and by threads on one lake over a slow store.

Every acknowledged event must be a row once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

import alluvia
from alluvia.api.lake import Lake
from alluvia.clock import SystemClock
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import RawEvent
from alluvia.store import MemoryStore, Store, Wrapper
from benchmarks.measure import in_processes, milliseconds
from benchmarks.report import Figure
from tests.s3server import S3Server
from tests.serving import serving

if TYPE_CHECKING:
    from benchmarks.child import Timed

T = TypeVar("T")
ROOT = Path(__file__).parent.parent
CONNECTIONS = (1, 50, 200)
SECONDS = 60.0
CPU_MAX = {1: 2.0, 50: 0.6}
"""Limit for a post over this many connections, merges included, as a multiple of the CPU of a post in process."""
POSTS, WARM_POSTS, REPEATS = 500, 110, 5
ROWS_MAX = 10
"""Limit for a post in process, as a multiple of the CPU of writing its row as Parquet."""
THREADS = (1, 64, 256)
THREAD_SECONDS = 10.0
START_SECONDS = 1.0
"""Times are those of what is sent after it: all threads but one begin in the middle of the first one's commit."""
PUT_SECONDS = 0.05
PUTS_MAX = 0.15
"""PUT requests a post of 64 threads and more."""


def figures(_: S3Server, folder: Path) -> list[Figure]:
    """Measure the handler in process, the server, then the library."""
    actions: dict[str, tuple[str, dict[str, str]]] = {
        "row": ("benchmarks.posts:row_files", {}),
        "files": ("benchmarks.posts:flushed_files", {"folder": str(folder / "files")}),
        "memory": ("benchmarks.posts:handled", {"lake": "memory://posts"}),
        "directory": ("benchmarks.posts:handled", {"lake": str(folder / "handled")}),
    }
    for name in ("files", "handled"):
        (folder / name).mkdir()
    taken = {name: run.cpu_seconds / POSTS for name, run in in_processes(actions, REPEATS).items()}
    memory, directory = taken["memory"], taken["directory"]
    return [
        Figure("a post in process, in memory: CPU", milliseconds(memory),
               f"{milliseconds(taken['row'])} (pyarrow writes its row as Parquet)", memory / taken["row"],
               f"at most {ROWS_MAX}", memory <= ROWS_MAX * taken["row"]),
        Figure("a post in process, on a directory: CPU", milliseconds(directory),
               f"{milliseconds(taken['files'])} (its two files, written and flushed)", directory / taken["files"]),
        *(_served(folder / f"lake{number}", number, directory) for number in CONNECTIONS),
        *map(_by_threads, THREADS),
    ]  # fmt: skip


def handled(lake: str) -> Timed:
    """Send posts of one event each to the handler of the ingest function, and return how many were stored."""
    from alluvia.server.gateway import LocalContext, load_handler

    uri = lake if "://" in lake else tempfile.mkdtemp(dir=lake)
    os.environ.update(ALLUVIA_LAKE=uri, ALLUVIA_AUTH="open", POWERTOOLS_LOG_LEVEL="WARNING")
    opened = alluvia.connect(uri)
    opened.create_events("app")
    handler = load_handler("ingest")
    http = {"method": "POST", "path": "/v1/events/app"}
    posts = [
        {
            "version": "2.0", "rawPath": "/v1/events/app", "headers": {"content-type": "application/json"},
            "requestContext": {"http": http, "stage": "$default"}, "isBase64Encoded": False,
            "body": json.dumps({"event_id": str(number), "event": "viewed", "user": "u17", "ms": 35}),
        }
        for number in range(POSTS + WARM_POSTS)
    ]  # fmt: skip

    def store(post: dict[str, object]) -> int:
        return int(handler(post, LocalContext("local", opened.clock))["statusCode"] == 200)

    for post in posts[POSTS:]:
        store(post)
    return lambda: sum(map(store, posts[:POSTS]))


def row_files() -> Timed:
    """Write the row of a post with pyarrow as a Parquet file in memory, repeatedly, and return how often."""
    schema = alluvia.connect("memory://row").create_events("app").schema
    values = {"event_id": "1", "event": "viewed", "properties": '{"user":"u17","ms":35}'}
    row = pa.Table.from_pylist([values], pa.schema([field.with_nullable(True) for field in schema]))

    def write(_: int) -> int:
        pq.write_table(row, pa.BufferOutputStream(), compression="none", use_dictionary=False, store_schema=False)
        return 1

    write(0)
    return lambda: sum(map(write, range(POSTS)))


def flushed_files(folder: str) -> Timed:
    """Write and flush the two files of a post, and their folders, with system calls alone. Return how many posts."""
    base = tempfile.mkdtemp(dir=folder)

    def write(number: int) -> int:
        for name in (f"{number}.parquet", f"{number}.json"):
            temporary = os.open(f"{base}/{name}.tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(temporary, bytes(1000))
            os.fsync(temporary)
            os.close(temporary)
            os.link(f"{base}/{name}.tmp", f"{base}/{name}")
            Path(f"{base}/{name}.tmp").unlink()
            opened = os.open(base, os.O_RDONLY)
            os.fsync(opened)
            os.close(opened)
        return 1

    return lambda: sum(map(write, range(POSTS)))


def _served(lake: Path, connections: int, alone_seconds: float) -> Figure:
    """Post over some connections. `alone_seconds` is the CPU time of a post in process."""
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
    ratio, most = cpu_seconds / len(ids) / alone_seconds, CPU_MAX.get(connections, float("inf"))
    times = f"p50 {done['p50_ms']:.0f} ms, p99 {done['p99_ms']:.0f} ms"
    return Figure(
        f"serve on a directory, {connections} {'connection' if connections == 1 else 'connections'}, {seconds:.0f} s: "
        "posts a second",
        f"{done['a_second']:.0f}, {times}; {cpu_ms:.2f} ms of CPU each",
        f"{milliseconds(alone_seconds)} of CPU in process",
        ratio,
        "every acknowledged event once, no other answer than 200"
        + (f"; CPU at most {most:g} times" if connections in CPU_MAX else ""),
        exact and ratio <= most,
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
