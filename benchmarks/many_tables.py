"""What merge and vacuum cost with 10,000 tables, of which 100 get commits: requests, calls and CPU of each phase."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.report import Figure
from tests.many_tables import Cost, ManyTables
from tests.s3server import S3Server

TABLES, BUSY, COMMITS, WORKERS = 10_000, 100, 30, 4


def figures(_: S3Server, __: Path) -> list[Figure]:
    """Measure notifications, a sweep, and the days of merge and vacuum on tables that have nothing to do."""
    lake = ManyTables(TABLES, BUSY)
    notifications = lake.commit(COMMITS)
    found = [_phase(f"{len(notifications)} notifications of {BUSY} tables", lambda: lake.merged(notifications))]
    messages: list[str] = []

    def sweep() -> Cost:
        cost, sent = lake.swept()
        messages.extend(sent)
        return cost

    found.append(_phase(f"a sweep puts {TABLES:,} tables into a queue", sweep))
    found.append(_phase("merge takes the sweep, nothing to do", lambda: lake.merged(messages, WORKERS)))
    found.append(_phase("vacuum takes the sweep, nothing to do", lambda: lake.vacuumed(messages, WORKERS)))
    return found


def _phase(name: str, run: Callable[[], Cost]) -> Figure:
    began = time.process_time()
    cost = run()
    cpu = time.process_time() - began
    kinds = ", ".join(f"{number:,} {kind.upper()}" for kind, number in sorted(cost.requests.items()))
    return Figure(name, f"{kinds}; {cost.sqs:,} SQS; {cost.calls:,} calls; ${cost.dollars:.4f}; {cpu:.0f} s of CPU")
