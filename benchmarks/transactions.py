"""Transactions over several tables: requests, how many a second, and what they cost who writes one table only."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import alluvia
from alluvia.api.lake import Lake
from alluvia.clock import SystemClock
from alluvia.errors import Conflict
from alluvia.store import Store, Wrapper, open_store
from benchmarks.report import Figure
from benchmarks.requests import count, shown
from tests.s3server import S3Server

T = TypeVar("T")
PROCESSES = 8
SECONDS = 6.0
LATENCY_SECONDS = 0.02
SCHEMA = {"id": "long", "amount": "long"}
LIMITS = {1: (2, 1), 2: (7, 4), 10: (31, 20)}
"""PUT and GET requests of a transaction, by its number of tables. Of the GET, one a table looks for new commits."""


def figures(server: S3Server, folder: Path) -> list[Figure]:
    """Measure requests on a warm lake, and rates of processes on a directory and on the server."""
    lake = alluvia.connect(f"s3://{server.new_bucket()}/lake", **server.options)
    found = [_requests(server, lake, number) for number in LIMITS]
    found += [_read_only(server, lake), _alone(server, lake)]
    for name, uri, options, latency in (
        ("directory", str(folder / "lake"), {}, 0.0),
        (
            f"S3 server, {1000 * LATENCY_SECONDS:.0f} ms a request",
            f"s3://{server.new_bucket()}/lake",
            server.options,
            LATENCY_SECONDS,
        ),
    ):
        place = _Place(uri, options, latency)
        found += [_rate(place, name, kind) for kind in ("appends", "transfers")]
        found.append(_mixed(place, name))
    return found


def _tables(lake: Lake, prefix: str, number: int) -> list[str]:
    names = [f"{prefix}{at}" for at in range(number)]
    for name in names:
        lake.create_table(name, SCHEMA, properties={"delta.checkpointInterval": "1000"})
        lake.table(name).append([{"id": account, "amount": 100} for account in range(PROCESSES)])
    return names


def _append(lake: Lake, names: Sequence[str]) -> None:
    with lake.transaction(names) as tx:
        for name in names:
            tx.table(name).append([{"id": -1, "amount": 0}])


def _requests(server: S3Server, lake: Lake, number: int) -> Figure:
    names = _tables(lake, f"of{number}_", number)
    _append(lake, names)
    counts = count(server, lambda: _append(lake, names))
    puts, gets = LIMITS[number]
    return Figure(
        f"a transaction that appends to {number} {'table' if number == 1 else 'tables'}: requests",
        shown(counts),
        "",
        None,
        f"at most {puts} PUT, {gets} GET",
        counts["PUT"] <= puts and counts["GET"] + counts["HEAD"] <= gets and not counts["LIST"],
    )


def _read_only(server: S3Server, lake: Lake) -> Figure:
    names = _tables(lake, "read", 2)

    def read() -> None:
        with lake.transaction(names) as tx:
            for name in names:
                tx.table(name).count()

    counts = count(server, read)
    return Figure("a transaction that reads 2 tables: requests", shown(counts), "", None, "2 GET", counts == {"GET": 2})


def _alone(server: S3Server, lake: Lake) -> Figure:
    plain, other = _tables(lake, "alone", 2)
    _append(lake, [plain, other])
    after = count(server, lambda: lake.table(plain).append([{"id": -1, "amount": 0}]))
    return Figure("an append to a table that takes part in transactions", shown(after), "", None, "2 PUT",
                  after == {"PUT": 2})  # fmt: skip


class _Place:
    """Where a lake is, and how much longer each request to it takes."""

    def __init__(self, uri: str, options: dict[str, Any], latency: float) -> None:
        self.uri, self.options, self.latency = uri, options, latency

    def lake(self) -> Lake:
        clock = SystemClock()
        return Lake(_Slow(open_store(self.uri, clock, **self.options), self.latency), clock)


def _rate(place: _Place, name: str, kind: str) -> Figure:
    tables = _tables(place.lake(), f"{kind}_", 2)
    before = _sums(place, tables)
    counts, seconds = _run(place, [kind] * PROCESSES, tables)
    after = _sums(place, tables)
    exact = sum(before) == sum(after)
    return Figure(
        f"{PROCESSES} writers of 2 tables, {kind}, {name}: transactions a second",
        f"{counts['done'] / seconds:.1f}, {counts['lost'] / max(1, counts['done']):.2f} conflicts each",
        "",
        None,
        "the total is kept",
        exact and counts["done"] > 0,
    )


def _mixed(place: _Place, name: str) -> Figure:
    """Compare appends of single writers with one more of them, and with one of transactions instead."""
    tables = _tables(place.lake(), "mixed", 2)
    alone, alone_seconds = _run(place, [*["plain"] * PROCESSES, "others"], tables)
    mixed, mixed_seconds = _run(place, [*["plain"] * PROCESSES, "appends"], tables)
    plain, with_them = alone["plain"] / alone_seconds, mixed["plain"] / mixed_seconds
    return Figure(
        f"{PROCESSES} writers of one table, {name}: appends a second while another appends to it in transactions",
        f"{with_them:.1f}",
        f"without transactions {plain:.1f}",
        with_them / plain,
    )


def _sums(place: _Place, tables: Sequence[str]) -> list[int]:
    lake = place.lake()
    return [sum(lake.table(name).to_arrow()["amount"].to_pylist()) for name in tables]


def _run(place: _Place, kinds: Sequence[str], tables: Sequence[str]) -> tuple[Counter[str], float]:
    """Have processes work at once for a while; return how many they did and lost, also by kind, and the seconds."""
    command = [sys.executable, "-m", "benchmarks.transactions", place.uri, json.dumps(place.options)]
    root = Path(__file__).parent.parent
    processes = [
        subprocess.Popen(
            [*command, str(place.latency), kind, str(number), *tables],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, kind in enumerate(kinds)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    started = time.monotonic()
    found: Counter[str] = Counter()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process, kind in zip(processes, kinds, strict=True):
        done, lost = map(int, process.communicate(timeout=600)[0].split())
        found.update({"done": done, "lost": lost, kind: done})
    return found, time.monotonic() - started


class _Slow(Wrapper):
    """Waits before each request."""

    def __init__(self, inner: Store, latency: float) -> None:
        super().__init__(inner)
        self._latency = latency

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:  # noqa: ARG002
        time.sleep(self._latency)
        return send()


def _work(lake: Lake, kind: str, number: int, tables: Sequence[str]) -> None:
    if kind == "plain":
        lake.table(tables[0]).append([{"id": -1, "amount": 0}])
    elif kind == "others":
        for name in tables:
            lake.table(name).append([{"id": -1, "amount": 0}])
    elif kind == "appends":
        _append(lake, tables)
    else:
        with lake.transaction(tables) as tx:
            tx.table(tables[0]).update({"amount": "amount - 1"}, f"id = {number}")
            tx.table(tables[1]).update({"amount": "amount + 1"}, f"id = {number}")


def _main(uri: str, options: str, latency: str, kind: str, number: str, *tables: str) -> None:
    """Work in one process until the time is over; print how often it was done, and how often lost to others."""
    lake = _Place(uri, json.loads(options), float(latency)).lake()
    for name in tables:
        lake.table(name).snapshot()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    done = lost = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            _work(lake, kind, int(number), tables)
            done += 1
        except Conflict:
            lost += 1
    sys.stdout.write(f"{done} {lost}\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
