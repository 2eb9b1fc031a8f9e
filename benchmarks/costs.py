"""What a million events cost on AWS, by the requests that the code makes and the bytes that it logs.

Prices are those of us-east-1 on arm64, without the free tier. Requests to S3 and log lines of the function are counted;
what AWS itself adds (the lines of Lambda and of the API, and the time of a PUT) is assumed as below.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from alluvia.clock import SystemClock
from alluvia.ingest.envelope import split
from alluvia.ingest.messages import pack
from alluvia.ingest.values import Limits, Origin
from alluvia.lake import Lake
from alluvia.prices import GET_DOLLARS, LAMBDA_GB_SECOND_DOLLARS, PUT_DOLLARS
from alluvia.serverless.warm_lake import using
from alluvia.store import CountingStore, MemoryStore
from benchmarks.report import Figure
from functions.ingest import handler as ingest_module
from tests.log_lines import Context, log_lines
from tests.s3server import S3Server
from tests.samples import post

EVENTS_A_POST = (1, 100, 1000)
POSTS = 20
EVENTS = 1_000_000
PUT, LIST, GET = 1e6 * PUT_DOLLARS, 1e6 * PUT_DOLLARS, 1e6 * GET_DOLLARS
HTTP_API, LAMBDA, SQS = 1.0, 0.2, 0.4
"""US dollars for a million requests; SQS counts each 64 KB."""
API_STEP_BYTES, SQS_STEP_BYTES = 512 << 10, 64 << 10
LOGS_GB = 0.5
DIRECT_SECONDS, QUEUED_SECONDS, EVENT_SECONDS = 0.115, 0.030, 0.00002
"""Two PUTs, one after the other; one call of SQS; and what an event adds on the share of a processor that 1 GB has."""
MEMORY_GB = 1.0
PLATFORM_LOG_BYTES, ACCESS_LOG_BYTES = 700, 450
"""The lines START, END and REPORT, and the line of the API."""
WINDOW_SECONDS = 20
BATCHES_A_DAY = 24 * 3600 // WINDOW_SECONDS
CROWD = {"put": 1.06, "list": 0.1, "get": 3.1, "seconds": 0.345}
"""A post of one of 64 functions that post to one table all the time, as `python -m benchmarks crowds` counts it."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Of one post: the bytes of its body, of what the function logs of it, and its requests to S3."""

    body_bytes: int
    log_bytes: int
    put: float
    list: float
    get: float


def figures(server: S3Server, folder: Path) -> list[Figure]:  # noqa: ARG001 - all parts are called alike
    """Count posts of one, 100 and 1,000 events, and say what a million events cost."""
    found = []
    for events in EVENTS_A_POST:
        one = counted(events)
        name = f"A million events, {events:,} a post"
        requests = f"{one.put:g} PUT, {one.get:g} GET, {one.list:g} LIST, {one.log_bytes} bytes logged a post"
        found += [
            Figure(f"{name}, direct", dollars(direct(one, events)), requests),
            Figure(f"{name}, 64 functions at once on one table", dollars(grouped(one, events)), "offers"),
            Figure(f"{name}, queued", dollars(queued(one, events)), f"and US$ {commits_a_day():.2f} a day for a table"),
        ]
    return found


def counted(events: int) -> Counted:
    """Post to a warm function, and count."""
    store = CountingStore(MemoryStore(f"costs-{events}"))
    with using(Lake(store, SystemClock())), log_lines() as lines:
        _post(events, "first")
        store.reset()
        before = len(lines.text)
        for number in range(POSTS):
            _post(events, str(number))
        requests = store.requests
        logged = len(lines.text) - before
    per = {kind: requests[kind] / POSTS for kind in ("put", "list", "get")}
    return Counted(len(_body(events, "0")), logged // POSTS, **per)


def direct(one: Counted, events: int) -> float:
    """Return US dollars for a million events, each post a commit."""
    s3 = one.put * PUT + one.list * LIST + one.get * GET
    return _posts(one, events, DIRECT_SECONDS, s3)


def grouped(one: Counted, events: int) -> float:
    """Return US dollars for a million events of functions that meet, and offer their rows to each other."""
    s3 = CROWD["put"] * PUT + CROWD["list"] * LIST + CROWD["get"] * GET
    return _posts(one, events, CROWD["seconds"], s3)


def queued(one: Counted, events: int) -> float:
    """Return US dollars for a million events through the queue, without the commits, which depend on time alone."""
    sent = split(_body(events, "0"), content_type=None, content_encoding=None, limits=Limits())
    messages = pack("clicks", sent.events, Origin(1_700_000_000_000_000), SystemClock().new_id).messages
    sends = sum(-(-len(message) // SQS_STEP_BYTES) for message in messages)
    receives = max(len(messages) / 10, sum(map(len, messages)) / SQS_STEP_BYTES)  # ten at once, or 64 KB
    return _posts(one, events, QUEUED_SECONDS, 0) + (sends + receives + len(messages) / 10) * SQS / events


def commits_a_day() -> float:
    """Return US dollars a day for the commits of one table from the queue."""
    return BATCHES_A_DAY * 2 * PUT / 1e6


def _posts(one: Counted, events: int, seconds: float, s3: float) -> float:
    """Return US dollars for a million events; `s3` is that of a million posts."""
    api = -(-one.body_bytes // API_STEP_BYTES) * HTTP_API
    compute = LAMBDA + (seconds + events * EVENT_SECONDS) * MEMORY_GB * LAMBDA_GB_SECOND_DOLLARS * 1e6
    logs = (one.log_bytes + PLATFORM_LOG_BYTES + ACCESS_LOG_BYTES) * 1e6 / 1e9 * LOGS_GB
    return (api + compute + logs + s3) / events


def dollars(amount: float) -> str:
    """Return an amount as text, to the cent or two digits."""
    return f"US$ {amount:.2f}" if amount >= 0.1 else f"US$ {amount:.2g}"


def _body(events: int, post_id: str) -> bytes:
    rows = ({"event_id": f"{post_id}-{at}", "event": "click", "path": "/docs", "plan": "pro"} for at in range(events))
    return b"\n".join(map(orjson.dumps, rows))


def _post(events: int, post_id: str) -> None:
    answer: dict[str, Any] = ingest_module.handler(post(_body(events, post_id).decode(), "clicks"), Context("r"))
    assert answer["statusCode"] == 200, answer
