"""The demo: real events over HTTP, some of them broken; then optimize, three queries, and vacuum, with their cost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pyarrow as pa

from alluvia.api.lake import Lake
from alluvia.cli.client import Client, Reply
from alluvia.cli.commands import demo_posts
from alluvia.cli.common import Common
from alluvia.cli.terminal.output import NULL, show_table, size
from alluvia.cli.terminal.terminal import say
from alluvia.commit.versions import oldest_readable
from alluvia.errors import Invalid
from alluvia.progress import report
from alluvia.server.gateway import COMMAND, DATA
from alluvia.server.serve import in_background
from alluvia.store import CountingStore

WINDOW = {"alluvia.dedup_window": "30 days"}
COLUMNS = pa.schema(
    {
        "ip": pa.string(),
        "user": pa.string(),
        "method": pa.string(),
        "path": pa.string(),
        "status": pa.int64(),
        "bytes": pa.int64(),
        "referrer": pa.string(),
        "agent": pa.string(),
    }
)
QUESTIONS = (
    (
        "Requests by day and status",
        """SELECT ts::DATE AS day, count(*) FILTER (status < 300) AS ok, count(*) FILTER (status BETWEEN 300 AND 399)
AS redirected, count(*) FILTER (status BETWEEN 400 AND 499) AS refused, count(*) FILTER (status >= 500) AS failed
FROM requests GROUP BY day ORDER BY day""",
    ),
    (
        "The repositories with the most webhooks, and when each was last pushed to",
        """SELECT properties->>'$.payload.repository.full_name' AS repository, count(*) AS webhooks,
count(DISTINCT event) AS kinds, max(properties->>'$.payload.repository.pushed_at') AS last_push
FROM webhooks GROUP BY repository HAVING repository IS NOT NULL ORDER BY webhooks DESC, repository LIMIT 5""",
    ),
    (
        "What came in since version {version}: now, minus then",
        """SELECT status, count(*) AS requests FROM (SELECT * FROM requests EXCEPT ALL
SELECT * FROM requests(version => {version})) GROUP BY status ORDER BY requests DESC, status""",
    ),
)


def run(common: Common) -> None:
    """Run the demo on a lake. Exits 1 if an answer is not what was sent."""
    plain = common.lake(new=True)
    store = CountingStore(plain.store)
    lake = Lake(store, plain.clock)
    started = time.monotonic()
    for table, columns in (("requests", COLUMNS), ("webhooks", None)):
        lake.create_events(table, columns, properties=WINDOW, exist_ok=True)
    say(f"A lake at {common.uri}, behind HTTP on this machine.")
    with in_background(lake) as port:
        tally = _post(common, Client(port), store)
        requests = lake.table("requests").snapshot()
        version = max(requests.version // 2, oldest_readable(requests.state))
        _optimize(lake, store)
        _ask(Client(port), store, version)
        _check(lake, tally)
        _vacuum(lake, store)
    say(f"\nDone in {time.monotonic() - started:.0f} s. The lake stays. Next:")
    say(_NEXT.format(alluvia=COMMAND, uri=common.uri))


_NEXT = """  {alluvia} query --lake {uri} "SELECT event, count(*) AS n FROM webhooks GROUP BY ALL ORDER BY n"
  {alluvia} query --lake {uri} "SELECT reason, count(*) FROM requests._rejects GROUP BY reason"
  {alluvia} history --lake {uri} requests
  {alluvia} serve --lake {uri}
  curl -d '{{"event": "signup", "plan": "pro"}}' localhost:8080/v1/events/app"""


class PostTally:
    """What was sent and what the answers said, by table."""

    def __init__(self) -> None:
        self.good = {"requests": 0, "webhooks": 0}
        self.broken = 0

    def take(self, post: demo_posts.Post, reply: Reply) -> None:
        """Count an answer. Raises `Invalid` where it does not account for every event of the post."""
        told = reply.json()
        rejected, accepted = told.get("rejected", 0), told.get("accepted", 0)
        if (accepted, rejected) != (post.good, post.broken) or reply.status != post.status:
            msg = f"{post.what}: sent {post.good} good and {post.broken} broken events, answered {reply.status} {told}"
            raise Invalid(msg)
        self.broken += post.broken
        self.good[post.table] += 0 if post.again else accepted


def _post(common: Common, client: Client, store: CountingStore) -> PostTally:
    tally = PostTally()
    posts = list(demo_posts.posts(DATA))
    shown: dict[str, tuple[int, dict[str, Any]]] = {}
    with common.progress("posting"), _cost(store) as cost:
        for number, post in enumerate(posts):
            report("posting", number, len(posts), "posts")
            reply = client.post(f"/v1/events/{post.table}", post.body, post.headers)
            tally.take(post, reply)
            if post.what != "events" and post.what not in shown:
                shown[post.what] = (reply.status, reply.json())
    events = sum(tally.good.values())
    say(f"\n{len(posts)} posts: {events:,} events, and between them")
    rows = []
    for what, (status, told) in shown.items():
        errors: list[dict[str, Any]] = told.get("errors") or [{}]
        rows.append(
            [what, status, told.get("accepted"), told.get("duplicates"), told.get("rejected"), errors[0].get("reason")]
        )
    show_table(["post", "status", "accepted", "duplicates", "rejected", "first reason"], rows)
    say(f"Cost: {cost} = {cost.total / len(posts):.1f} requests a post.")
    return tally


def _optimize(lake: Lake, store: CountingStore) -> None:
    say("\nOptimize")
    rows = []
    for name in lake.tables(rejects=True):
        with _cost(store) as cost:
            done = lake.table(name).optimize()
        files = lake.table(name).snapshot().files
        rows.append(
            [name, done.files_before, done.files_after, size(done.bytes_read), size(done.bytes_written),
             ", ".join(sorted({file.tags.get("alluvia.partition", "")[-12:-2] for file in files})), str(cost)]
        )  # fmt: skip
    names = ["table", "files before", "after", "bytes read", "written", "one file for each of", "S3 requests"]
    show_table(names, rows)


def _ask(client: Client, store: CountingStore, version: int) -> None:
    for title, sql in QUESTIONS:
        query = sql.format(version=version)
        with _cost(store) as cost:
            reply = client.post("/q", {"query": query}, {"accept": "application/json"})
            plan = client.post("/q", {"query": f"EXPLAIN {query}"}, {"accept": "application/json"})
        if reply.status != 200 or plan.status != 200:
            raise Invalid(f"{title}: {reply.status} {reply.body.decode()}")
        rows = reply.json()
        say(f"\n{title.format(version=version)}\n")
        say("\n".join(f"    {line}" for line in query.splitlines()) + "\n")
        if rows:
            show_table(list(rows[0]), [list(row.values()) for row in rows], null=NULL)
        else:
            say("    no rows")
        say(f"Cost: {cost} for the log; {_reads(plan.json())}.")


def _reads(plan: list[dict[str, Any]]) -> str:
    return ", ".join(
        f"{row['files_read']} of {row['files_total']} files of {row['table']} at version {row['version']}"
        for row in plan
        if row["table"] is not None
    )


def _check(lake: Lake, tally: PostTally) -> None:
    sent = {**tally.good, "requests/_rejects and webhooks/_rejects": tally.broken}
    say("\nSent, and there")
    rows = []
    for names, number in sent.items():
        scans = [lake.table(name).scan(columns=["event_id"]).read_all() for name in names.split(" and ")]
        ids = [each for scan in scans for each in scan["event_id"].to_pylist()]
        rows.append([names, number, len(ids), len(set(ids))])
    show_table(["table", "sent", "there", "distinct"], rows)
    wrong = [row[0] for row in rows if not row[1] == row[2] == row[3]]
    if wrong:
        raise Invalid(f"{', '.join(map(str, wrong))}: the lake does not hold what was sent")


def _vacuum(lake: Lake, store: CountingStore) -> None:
    say("\nVacuum, with no retention for the demo (a week is the default)")
    rows = []
    for name in lake.tables(rejects=True):
        with _cost(store) as cost:
            done = lake.table(name).vacuum(timedelta(0))
        rows.append([name, len(done.data_files), size(done.bytes_freed), done.oldest_version, str(cost)])
    show_table(["table", "files deleted", "freed", "oldest version left", "S3 requests"], rows)


class Cost:
    """Requests of one step."""

    def __init__(self) -> None:
        self.requests: dict[str, int] = {}

    @property
    def total(self) -> int:
        """Return all of them."""
        return sum(self.requests.values())

    def __str__(self) -> str:
        parts = [f"{number:,} {kind.upper()}" for kind, number in sorted(self.requests.items(), reverse=True)]
        return " + ".join(parts) or "none"


@contextmanager
def _cost(store: CountingStore) -> Iterator[Cost]:
    cost = Cost()
    store.reset()
    yield cost
    cost.requests = dict(store.requests)
