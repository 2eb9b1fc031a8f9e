"""Events of one body to rows in a data file: CPU time, compared with `pyarrow.json` and its Parquet writer alone.

The events are those of the access log in `events/data`, each with an id, a time, an address and a size of its own. The
other side checks nothing: it rounds long numbers, keeps one of two equal keys, and knows no id, duplicate or statistic.
"""

from __future__ import annotations

import gzip
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import in_processes, milliseconds
from benchmarks.report import Figure

if TYPE_CHECKING:
    from benchmarks.child import Timed
    from tests.s3server import S3Server

EVENTS = 40_000
POSTS = 500
WARM_POSTS = 110
"""So many come first: what is timed has all its modules, those of the checkpoint after 100 commits among them."""
REPEATS = 7
ODD_MAX = 1.1
SOURCE = Path(__file__).parent.parent / "events" / "data" / "access_log.ndjson.gz"
START = datetime(2026, 11, 20, tzinfo=UTC)
KINDS = {"undeclared": 0.35, "declared": 0.45}
"""What is measured, and what share of the speed of `pyarrow.json` it should have."""
POST_SECONDS_MAX = 0.001
ODD = {
    "a number of 30 digits": b'{"event_id":"odd","ts":"2026-11-20T12:00:00Z","n":123456789012345678901234567890}',
    "a broken line": b'{"event_id":"odd","ts":"2026-11-20T12:00:00Z',
}


def figures(server: S3Server, folder: Path) -> list[Figure]:  # noqa: ARG001 - all parts are called alike
    """Measure a body of many events, undeclared and declared, the same with one odd event, and bodies of one event."""
    lines = events(EVENTS)
    bodies = {"": lines} | {name: [*lines[: EVENTS // 2], odd, *lines[EVENTS // 2 :]] for name, odd in ODD.items()}
    paths = {name: folder / f"{at}.ndjson" for at, name in enumerate(bodies)}
    for name, body in bodies.items():
        paths[name].write_bytes(b"\n".join(body))
    actions: dict[str, tuple[str, dict[str, Any]]] = {
        "bare": ("benchmarks.parsing:bare", {"body": str(paths[""])}),
        "post": ("benchmarks.parsing:posts", {}),
    }
    for kind in KINDS:
        for name, path in paths.items():
            actions[f"{kind} {name}"] = ("benchmarks.parsing:ours", {"body": str(path), "declared": kind == "declared"})
    seconds = {name: run.cpu_seconds for name, run in in_processes(actions, REPEATS).items()}
    found = []
    for kind, share in KINDS.items():
        ours, bare = seconds[f"{kind} "], seconds["bare"]
        rates = f"{EVENTS / ours:,.0f} events a CPU second", f"pyarrow.json: {EVENTS / bare:,.0f}"
        found.append(
            Figure(f"{EVENTS:,} {kind} events to a data file", *rates, bare / ours, bar=f"at least {share}",
                   holds=bare / ours >= share)
        )  # fmt: skip
        for name in ODD:
            ratio = seconds[f"{kind} {name}"] / ours
            found.append(
                Figure(f"the same with {name}: CPU", f"{ratio:.2f} times", bar=f"at most {ODD_MAX:g} times",
                       holds=ratio <= ODD_MAX)
            )  # fmt: skip
    post = seconds["post"] / POSTS
    found.append(
        Figure("one post of one event: CPU", milliseconds(post), bar=f"at most {milliseconds(POST_SECONDS_MAX)}",
               holds=post <= POST_SECONDS_MAX)
    )  # fmt: skip
    return found


def events(count: int) -> list[bytes]:
    """Return the JSON text of so many events."""
    numbers = random.Random(14)
    sources = [json.loads(line) for line in gzip.decompress(SOURCE.read_bytes()).splitlines()]
    found = []
    for number in range(count):
        ts = (START + timedelta(milliseconds=number * 37)).isoformat(timespec="milliseconds")
        own = {
            "event_id": f"{numbers.getrandbits(128):032x}",
            "ts": ts.replace("+00:00", "Z"),
            "ip": ".".join(str(numbers.randrange(256)) for _ in range(4)),
            "bytes": numbers.randrange(1_000_000),
        }
        found.append(json.dumps(sources[number % len(sources)] | own, separators=(",", ":")).encode())
    return found


def ours(body: str, declared: bool) -> Timed:
    """Ingest a body into a new table: how many rows were stored."""
    import pyarrow as pa

    import alluvia
    from alluvia.ingest.envelope import split
    from alluvia.ingest.pipeline import ingest_batch
    from alluvia.ingest.values import Limits

    names = ("ip", "user", "method", "path", "referrer", "agent")
    columns = pa.schema([*((name, pa.string()) for name in names), ("status", pa.int64()), ("bytes", pa.int64())])
    text = Path(body).read_bytes()
    lake = alluvia.connect("memory://parsing")
    for table in ("warm", "events"):
        lake.create_events(table, columns if declared else None)
    limits = Limits(1 << 60, 1 << 60, 1 << 60)

    def store(table: str, sent: bytes) -> int:
        found = split(sent, content_type="application/x-ndjson", content_encoding=None, limits=limits)
        return ingest_batch(lake, table, found.events, found.rejects, arrival_us=lake.clock.now_us()).stored

    store("warm", text[:200_000].rpartition(b"\n")[0])  # what is timed has all its modules
    return lambda: store("events", text)


def bare(body: str) -> Timed:
    """Read a body as a table, and write that as Parquet: how many rows."""
    import pyarrow as pa
    import pyarrow.json
    import pyarrow.parquet as pq

    text = Path(body).read_bytes()

    def store(sent: bytes) -> int:
        table = pyarrow.json.read_json(pa.BufferReader(sent))
        pq.write_table(table, pa.BufferOutputStream(), compression="zstd")
        return len(table)

    store(text[:200_000].rpartition(b"\n")[0])
    return lambda: store(text)


def posts() -> Timed:
    """Ingest bodies of one event each, one after another: how many rows were stored."""
    import alluvia
    from alluvia.ingest.envelope import split
    from alluvia.ingest.pipeline import ingest_batch
    from alluvia.ingest.values import Limits

    lake = alluvia.connect("memory://posts")
    lake.create_events("events")
    bodies = events(POSTS + WARM_POSTS)

    def store(body: bytes) -> int:
        found = split(body, content_type="application/json", content_encoding=None, limits=Limits())
        return ingest_batch(lake, "events", found.events, found.rejects, arrival_us=lake.clock.now_us()).stored

    for body in bodies[POSTS:]:
        store(body)
    return lambda: sum(map(store, bodies[:POSTS]))
