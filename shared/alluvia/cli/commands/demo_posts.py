"""What the demo posts: 9,999 web requests and 255 webhooks, all real, in small posts with broken ones mixed in. Pure,
except for reading the two files."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import orjson

from alluvia.lazy_dataclasses import dataclass

REQUESTS = "access_log.ndjson.gz"
WEBHOOKS = "github_webhooks.ndjson.gz"
BATCH = 100
BOMB_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Post:
    """One HTTP request, and what must become of it. `again` marks one whose events were all sent before."""

    table: str
    body: bytes
    good: int
    broken: int = 0
    what: str = "events"
    status: int = 200
    again: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)


def posts(folder: Path) -> Iterator[Post]:
    """Yield the posts in order."""
    lines = gzip.decompress((folder / REQUESTS).read_bytes()).splitlines()
    webhooks = gzip.decompress((folder / WEBHOOKS).read_bytes()).splitlines()
    batches = [lines[start : start + BATCH] for start in range(0, len(lines), BATCH)]
    every = max(1, len(webhooks) // len(batches))
    for number, batch in enumerate(batches):
        yield _requests(number, batch)
        last = number == len(batches) - 1
        for line in webhooks[number * every : len(webhooks) if last else (number + 1) * every]:
            yield _webhook(line)
        yield from _broken(number, batch)


def _requests(number: int, lines: Sequence[bytes]) -> Post:
    """Return a batch of web requests: NDJSON, gzip, and an array in turn."""
    if number % 3 == 1:
        return Post(
            "requests", gzip.compress(b"\n".join(lines), mtime=0), len(lines), headers={"content-encoding": "gzip"}
        )
    if number % 3 == 2:
        return Post(
            "requests", b"[" + b",".join(lines) + b"]", len(lines), headers={"content-type": "application/json"}
        )
    return Post("requests", b"\n".join(lines), len(lines), headers={"content-type": "application/x-ndjson"})


def _webhook(line: bytes) -> Post:
    webhook = orjson.loads(line)
    key = f"github/{webhook['event']}/{webhook['example']}"
    return Post("webhooks", line, 1, headers={"idempotency-key": key, "content-type": "application/json"})


def _broken(number: int, batch: Sequence[bytes]) -> Iterator[Post]:
    """Yield what goes wrong in real life, a kind every few batches."""
    good = orjson.loads(batch[0])
    if number % 10 == 0:
        cut = b'{"event_id": "cut-%d", "status": 200' % number
        yield Post("requests", cut, 0, 1, "cut-off JSON", 400)
    if number % 10 == 2:
        wrong = orjson.dumps({**good, "event_id": f"wrong-{number}", "status": "OK"})
        yield Post("requests", b"\n".join([*batch[:3], wrong]), 3, 1, "a wrong type among good ones", again=True)
    if number % 10 == 4:
        yield Post("requests", b"\n".join(batch), len(batch), what="a whole batch, delivered again", again=True)
    if number % 25 == 6:
        bomb = gzip.compress(b'{"event_id":"bomb-%d","x":"' % number + b"0" * BOMB_BYTES + b'"}', 9, mtime=0)
        yield Post("requests", bomb, 0, 1, "a gzip bomb", 413, headers={"content-encoding": "gzip"})
    if number % 25 == 8:
        line = orjson.dumps({"event": 5, "example": f"wrong-{number}"})
        yield Post("webhooks", line, 0, 1, "a webhook of a wrong type", 400, headers={"idempotency-key": f"w-{number}"})
