"""What a million events cost on AWS, by the requests that the code makes and the bytes that it logs.

That includes what follows from each commit: S3 notifies merge of every tenth, merge rewrites what has come and writes
the checkpoints, and vacuum lists, once a day, what is kept for a week. Storage is not included.

Prices are those of us-east-1 on arm64, without the free tier. Requests to S3 and log lines of the functions are
counted; what AWS itself adds (the lines of Lambda and of the API, and the time of a PUT) is assumed as below.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from alluvia.api.lake import Lake
from alluvia.clock import SystemClock
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.messages import pack
from alluvia.events.ingest.values import Limits, Origin
from alluvia.prices import GET_DOLLARS, LAMBDA_GB_SECOND_DOLLARS, PUT_DOLLARS, REQUEST_DOLLARS
from alluvia.serverless.warm_lake import using
from alluvia.store import CountingStore, MemoryStore
from alluvia.store.base import PAGE_KEYS
from benchmarks.report import Figure
from functions.ingest import handler as ingest_module
from functions.merge.handler import handler as merge_handler
from infra.specs import MERGE, VACUUM
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
COMMITS = 500
MERGE_SECONDS, LIST_SECONDS, SQS_CALLS = 0.5, 0.1, 3
"""Of a merge; of a page of a listing; and messages in, out and deleted, of a table whose notifications come alone."""
RETENTION_DAYS = 7
"""Vacuum runs once a day, and lists what has come in so many: `alluvia:retention_hours`."""
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


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What follows from a million commits: US dollars for merges and for vacuum, and what a merge asks of S3.

    `objects` is the number of objects that a commit leaves until vacuum deletes them.
    """

    merge: float
    vacuum: float
    requests: str
    objects: float

    @property
    def dollars(self) -> float:
        """US dollars for all of it."""
        return self.merge + self.vacuum


def figures(server: S3Server, folder: Path) -> list[Figure]:  # noqa: ARG001 - all parts are called alike
    """Count posts of one, 100 and 1,000 events, and say what a million events cost."""
    upkeep = upkept()
    found = [
        Figure("A million commits: merges", dollars(upkeep.merge), upkeep.requests),
        Figure("A million commits: vacuum", dollars(upkeep.vacuum), f"{upkeep.objects:.2f} objects a commit"),
    ]
    for events in EVENTS_A_POST:
        one = counted(events)
        name = f"A million events, {events:,} a post"
        requests = f"{one.put:g} PUT, {one.get:g} GET, {one.list:g} LIST, {one.log_bytes} bytes logged a post"
        found += [
            Figure(f"{name}, direct", dollars(kept_up(direct(one, events), events, upkeep)), requests),
            Figure(f"{name}, 64 functions at once on one table", dollars(crowded(one, events, upkeep)), "offers"),
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


@cache
def upkept() -> Upkeep:
    """Commit one event after another, and have merge take each notification as it comes, in a warm function."""
    store = CountingStore(MemoryStore("costs-upkeep"))
    store.parallel = True
    writer, merger = Lake(store, SystemClock()), Lake(store, SystemClock())
    total: Counter[str] = Counter()
    logged = merges = 0
    for number in range(COMMITS):
        with using(writer), log_lines():
            _post(1, f"{number}")
        key = f"lake/clicks/_delta_log/{writer['clicks'].version:020}.json"
        if key.endswith("0.json"):
            store.reset()
            with using(merger), log_lines() as lines:
                answer = merge_handler({"Records": [notification(key)]}, Context("r"))
            if answer["batchItemFailures"]:
                msg = f"merge failed: {answer}"
                raise AssertionError(msg)
            total += Counter(store.requests)
            logged += len(lines.text)
            merges += 1
    per = {kind: total[kind] / merges for kind in sorted(total)}
    s3 = sum(count * REQUEST_DOLLARS.get(kind, 0) for kind, count in per.items())
    gigabytes = MERGE.memory_mb / 1024
    compute = LAMBDA / 1e6 + MERGE_SECONDS * gigabytes * LAMBDA_GB_SECOND_DOLLARS
    logs = (logged / merges + PLATFORM_LOG_BYTES) / 1e9 * LOGS_GB
    objects = sum(1 for _ in store.list("clicks/")) / COMMITS
    lists = RETENTION_DAYS * objects / PAGE_KEYS
    vacuum = lists * (PUT_DOLLARS + LIST_SECONDS * VACUUM.memory_mb / 1024 * LAMBDA_GB_SECOND_DOLLARS)
    requests = ", ".join(f"{count:.2f} {kind.upper()}" for kind, count in per.items())
    return Upkeep(
        (s3 + compute + logs + SQS_CALLS * SQS / 1e6) * 1e6 * merges / COMMITS,
        vacuum * 1e6,
        f"one for {COMMITS / merges:g} commits, with {requests}",
        objects,
    )


def notification(key: str) -> dict[str, str]:
    """Return the message by which S3 tells of an object."""
    place = {"bucket": {"name": "any"}, "object": {"key": key}}
    return {
        "messageId": "1",
        "body": orjson.dumps({"Records": [{"eventName": "ObjectCreated:Put", "s3": place}]}).decode(),
    }


def direct(one: Counted, events: int) -> float:
    """Return US dollars for a million events, each post a commit, without what follows from that."""
    s3 = one.put * PUT + one.list * LIST + one.get * GET
    return _posts(one, events, DIRECT_SECONDS, s3)


def kept_up(dollars_of_events: float, events: int, upkeep: Upkeep, commits: float = 1) -> float:
    """Return US dollars for a million events with what follows from their commits, of which a post makes so many."""
    return dollars_of_events + commits * upkeep.dollars / events


def grouped(one: Counted, events: int) -> float:
    """Return US dollars for a million events of functions that meet, and offer their rows to each other."""
    s3 = CROWD["put"] * PUT + CROWD["list"] * LIST + CROWD["get"] * GET
    return _posts(one, events, CROWD["seconds"], s3)


def crowded(one: Counted, events: int, upkeep: Upkeep) -> float:
    """Return the same with what follows from their commits, which each make the rows of many posts theirs."""
    return kept_up(grouped(one, events), events, upkeep, CROWD["put"] - 1)


def queued(one: Counted, events: int) -> float:
    """Return US dollars for a million events through the queue, without the commits, which depend on time alone."""
    sent = split(_body(events, "0"), content_type=None, content_encoding=None, limits=Limits())
    messages = pack("clicks", sent.events, Origin(1_700_000_000_000_000), SystemClock().new_id).messages
    sends = sum(-(-len(message) // SQS_STEP_BYTES) for message in messages)
    receives = max(len(messages) / 10, sum(map(len, messages)) / SQS_STEP_BYTES)  # ten at once, or 64 KB
    return _posts(one, events, QUEUED_SECONDS, 0) + (sends + receives + len(messages) / 10) * SQS / events


def commits_a_day() -> float:
    """Return US dollars a day for the commits of one table from the queue, and what follows from them."""
    return BATCHES_A_DAY * (2 * PUT + upkept().dollars) / 1e6


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
