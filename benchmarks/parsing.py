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
from time import process_time
from typing import TYPE_CHECKING, Any

from benchmarks.measure import in_processes, milliseconds
from benchmarks.report import Figure

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.child import Timed
    from tests.s3server import S3Server

EVENTS = 40_000
POSTS = 500
WARM_POSTS = 110
"""So many come first: loaded before the time is taken, those of the checkpoint after 100 commits among them."""
REPEATS = 7
ODD_MAX = 1.1
SOURCE = Path(__file__).parent.parent / "events" / "data" / "access_log.ndjson.gz"
START = datetime(2026, 11, 20, tzinfo=UTC)
KINDS = {"undeclared": 0.35, "declared": 0.45}
"""What is measured, and what share of the speed of `pyarrow.json` it should have."""
POST_SECONDS_MAX = 0.001
ODD_EVERY = 2000
"""Lines, so that each block of them has an odd event."""
ODD_REPEATS = 20


def figures(server: S3Server, folder: Path) -> list[Figure]:  # noqa: ARG001 - all parts are called alike
    """Measure a body of many events, undeclared and declared, the same with odd events, and bodies of one event."""
    lines = events(EVENTS)
    actions: dict[str, tuple[str, dict[str, Any]]] = {"post": ("benchmarks.parsing:posts", {})}
    for number, (shape, changed) in enumerate(SHAPES.items()):
        path = folder / f"{number}.ndjson"
        path.write_bytes(b"\n".join(map(changed, lines)))
        actions[f"bare{shape}"] = ("benchmarks.parsing:bare", {"body": str(path)})
        for kind in KINDS:
            actions[kind + shape] = ("benchmarks.parsing:ours", {"body": str(path), "declared": kind == "declared"})
    seconds = {name: run.cpu_seconds for name, run in in_processes(actions, REPEATS).items()}
    found = []
    for kind, share in KINDS.items():
        for shape in SHAPES:
            ours, bare = seconds[kind + shape], seconds[f"bare{shape}"]
            rates = f"{EVENTS / ours:,.0f} events a CPU second", f"pyarrow.json: {EVENTS / bare:,.0f}"
            found.append(
                Figure(f"{EVENTS:,} {kind} events{shape} to a data file", *rates, bare / ours,
                       bar=f"at least {share}", holds=bare / ours >= share)
            )  # fmt: skip
        for name, ratio in odd_ratios(kind == "declared").items():
            found.append(
                Figure(f"{kind} events with {name} in each block: CPU", f"{ratio:.2f} times",
                       bar=f"at most {ODD_MAX:g} times", holds=ratio <= ODD_MAX)
            )  # fmt: skip
    post = seconds["post"] / POSTS
    found.append(
        Figure("one post of one event: CPU", milliseconds(post), bar=f"at most {milliseconds(POST_SECONDS_MAX)}",
               holds=post <= POST_SECONDS_MAX)
    )  # fmt: skip
    return found


def odd_ratios(declared: bool) -> dict[str, float]:
    """Return how many times as much CPU a body takes for an odd event of each kind in each block.

    All bodies are ingested in turns, the best of each counts: what else a machine does takes more than an odd event.
    """
    lines = events(EVENTS)
    bodies = {"": b"\n".join(lines)}
    for name, odd in ODD.items():
        mixed = [odd(line) if at % ODD_EVERY == ODD_EVERY // 3 else line for at, line in enumerate(lines)]
        bodies[name] = b"\n".join(mixed)
    best = dict.fromkeys(bodies, float("inf"))
    for _ in range(ODD_REPEATS):
        for name, body in bodies.items():
            timed = ingestion(body, declared)
            started = process_time()
            timed()
            best[name] = min(best[name], process_time() - started)
    return {name: best[name] / best[""] for name in ODD}


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
        found.append(text(sources[number % len(sources)] | own))
    return found


def text(event: dict[str, object]) -> bytes:
    """Return the JSON text of an event."""
    return json.dumps(event, separators=(",", ":")).encode()


def with_fields(**fields: object) -> Callable[[bytes], bytes]:
    """Return what gives an event other fields."""
    return lambda line: text(json.loads(line) | fields)


def with_milliseconds(line: bytes) -> bytes:
    """Return an event with its time as milliseconds since the epoch."""
    event = json.loads(line)
    return text(event | {"ts": round(datetime.fromisoformat(event["ts"]).timestamp() * 1000)})


def with_seconds(line: bytes) -> bytes:
    """Return an event that took some time."""
    event = json.loads(line)
    return text(event | {"seconds": event["bytes"] / 1000})


def with_properties(line: bytes) -> bytes:
    """Return an event with some of its fields in an object."""
    event = json.loads(line)
    return text(event | {"properties": {"plan": "pro", "visits": event["bytes"] % 97}})


SHAPES: dict[str, Callable[[bytes], bytes]] = {
    "": lambda line: line,
    " with a messageId": lambda line: line.replace(b'"event_id":', b'"messageId":'),
    " with integers as times": with_milliseconds,
    " with a fraction": with_seconds,
    " with properties": with_properties,
    " on lines that end in CRLF": lambda line: line + b"\r",
}
"""What the events of a body have in common."""
ODD: dict[str, Callable[[bytes], bytes]] = {
    "a broken line": lambda line: line[:-10],
    "another key": with_fields(extra=1),
    "a number of 30 digits": with_fields(bytes=10**29),
    "a fraction for an integer": with_fields(bytes=0.5),
    "an object for a text": with_fields(agent={"name": "a"}),
    "an escape": with_fields(agent='a "b"'),
    "a time without an offset": lambda line: line.replace(b'Z","event"', b'","event"'),
    "no id": with_fields(event_id=None),
    "an id that is too long": with_fields(event_id="x" * 1025),
    "another order of keys": lambda line: text(dict(reversed(json.loads(line).items()))),
    "spaces": lambda line: line.replace(b'":', b'": '),
    "NaN": with_fields(bytes=float("nan")),
    "a control character": lambda line: line.replace(b'"event":"', b'"event":"\x01'),
    "a byte that is not UTF-8": lambda line: line.replace(b'"event":"', b'"event":"\xff'),
    "a blank line": lambda _: b"",
}
"""What makes an event odd."""


def ours(body: str, declared: bool) -> Timed:
    """Ingest a body into a new table: how many rows were stored."""
    sent = Path(body).read_bytes()
    ingestion(sent[:200_000].rpartition(b"\n")[0], declared)()  # loaded before the time is taken
    return ingestion(sent, declared)


def ingestion(body: bytes, declared: bool) -> Timed:
    """Make a table, and return what ingests a body into it: how many rows were stored."""
    import pyarrow as pa

    from alluvia.api.lake import Lake
    from alluvia.clock import SystemClock
    from alluvia.events.ingest.envelope import split
    from alluvia.events.ingest.pipeline import ingest_batch
    from alluvia.events.ingest.values import Limits
    from alluvia.store import MemoryStore

    names = ("ip", "user", "method", "path", "referrer", "agent")
    columns = pa.schema([*((name, pa.string()) for name in names), ("status", pa.int64()), ("bytes", pa.int64())])
    lake = Lake(MemoryStore(), SystemClock())
    lake.create_events("events", columns if declared else None)
    limits = Limits(1 << 60, 1 << 60, 1 << 60)

    def timed() -> int:
        found = split(body, content_type="application/x-ndjson", content_encoding=None, limits=limits)
        return ingest_batch(lake.catalog, "events", found.events, found.rejects, arrival_us=lake.clock.now_us()).stored

    return timed


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
    from alluvia.events.ingest.envelope import split
    from alluvia.events.ingest.pipeline import ingest_batch
    from alluvia.events.ingest.values import Limits

    lake = alluvia.connect("memory://posts")
    lake.create_events("events")
    bodies = events(POSTS + WARM_POSTS)

    def store(body: bytes) -> int:
        found = split(body, content_type="application/json", content_encoding=None, limits=Limits())
        return ingest_batch(lake.catalog, "events", found.events, found.rejects, arrival_us=lake.clock.now_us()).stored

    for body in bodies[POSTS:]:
        store(body)
    return lambda: sum(map(store, bodies[:POSTS]))
