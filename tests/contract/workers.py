"""Processes that tests race against each other, and kill."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any
from zlib import crc32

import pyarrow as pa

from alluvia.api.lake import Lake
from alluvia.clock import SystemClock
from alluvia.errors import ConcurrentDomain, Conflict, TableExists, TableNotFound, Unavailable
from alluvia.store import PutResult, open_store
from tests.transactions import amounts, stopped
from tests.warm import started

Result = Iterator[Any]


class Worker:
    """A running job. It says "ready", waits for `go`, and then sends its results, one after another."""

    def __init__(self, job: str, arguments: dict[str, Any]) -> None:
        self._pipe, theirs = Pipe()
        with theirs:
            self.process = started(_serve, theirs, job, arguments)

    def go(self) -> None:
        self._pipe.send("go")

    def line(self) -> Any:
        """Return the next result, or None at the end."""
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionResetError):
            return None

    def results(self) -> list[Any]:
        """Return the results that are left; the job must have ended well."""
        found = list(iter(self.line, None))
        self.process.join(timeout=120)
        assert self.process.exitcode == 0
        return found

    def kill(self) -> list[Any]:
        """Kill the process at once, and return the results that it sent before."""
        self.process.kill()
        found = list(iter(self.line, None))
        self.process.join(timeout=60)
        return found


@contextmanager
def workers(jobs: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[list[Worker]]:
    """Start jobs, wait until all are ready, and let them go at once."""
    running = [Worker(job, arguments) for job, arguments in jobs]
    try:
        for worker in running:
            assert worker.line() == "ready"
        for worker in running:
            worker.go()
        yield running
    finally:
        for worker in running:
            worker.process.kill()
            worker.process.join(timeout=60)


def race(jobs: Sequence[tuple[str, dict[str, Any]]]) -> list[list[Any]]:
    """Run jobs at once to their end, and return the results of each."""
    with workers(jobs) as running:
        return [worker.results() for worker in running]


def lake(uri: str, options: dict[str, str]) -> Lake:
    clock = SystemClock()
    return Lake(open_store(uri, clock, **options), clock)


def put_if_absent(uri: str, options: dict[str, str], keys: list[str], content: str) -> Result:
    """Yield the keys that this process won."""
    store = lake(uri, options).store
    for key in keys:
        if store.put_if_absent(key, content.encode()) is PutResult.CREATED:
            yield key


def crash_in_put(uri: str, key: str, method: str, steps: int) -> Result:
    """In a process for each step, die by SIGKILL right before that call which changes the disk (from 0).

    Yields the number of the signal that each died of; 0 for one that survived. Step `n` has the store at `uri/n`.
    """
    for step in range(steps):
        child = os.fork()
        if not child:
            _die_at(step)
            getattr(open_store(f"{uri}/{step}", SystemClock()), method)(key, b"whole")
            os._exit(0)
        yield os.WTERMSIG(os.waitpid(child, 0)[1])


def _die_at(step: int) -> None:
    calls = [0]

    def deadly(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            if calls[0] == step:
                os.kill(os.getpid(), signal.SIGKILL)
            calls[0] += 1
            return function(*arguments, **keywords)

        return wrapper

    for name in ("fsync", "link", "replace", "rename", "unlink", "mkdir"):
        setattr(os, name, deadly(getattr(os, name)))


def append(uri: str, options: dict[str, str], table: str, worker: int, commits: int, rows: int) -> Result:
    """Yield the version of each append; rows are numbered by worker, commit and position."""
    handle = lake(uri, options).table(table)
    for commit in range(commits):
        ids = [f"{worker}-{commit}-{at}" for at in range(rows)]
        yield handle.append([{"id": each, "worker": worker} for each in ids]).version


def ingest(uri: str, options: dict[str, str], table: str, batches: list[list[str]]) -> Result:
    """Yield rows and duplicates of each batch of event ids."""
    handle = lake(uri, options).table(table)
    schema = handle.snapshot().schema
    for batch in batches:
        found = handle.ingest(events(schema, batch))
        yield [found.version, found.appended, found.duplicates]


def maintain(uri: str, options: dict[str, str], table: str, rounds: int, vacuum: bool) -> Result:
    """Optimize, checkpoint and vacuum; yield the number of files that each optimize removed."""
    from datetime import timedelta

    handle = lake(uri, options).table(table)
    for _ in range(rounds):
        yield handle.optimize().files_removed
        if vacuum:
            try:
                handle.vacuum(timedelta(0))
            except (ConcurrentDomain, Unavailable) as error:
                yield type(error).__name__


def ingest_while_there(uri: str, options: dict[str, str], table: str, worker: int, batches: int) -> Result:
    """Yield the event ids that are acknowledged; an event whose table was dropped meanwhile is not sent again."""
    handle = lake(uri, options).table(table)
    schema = None
    for number in range(batches):
        try:
            schema = schema or handle.snapshot().schema
            handle.ingest(events(schema, [f"{worker}-{number}"]))
            yield f"{worker}-{number}"
        except TableNotFound:
            continue


def drop_and_create(uri: str, options: dict[str, str], table: str, rounds: int) -> Result:
    """Drop a table and create the next; yield the version of each drop."""
    here = lake(uri, options)
    for _ in range(rounds):
        yield here.drop_table(table).version
        here.create_events(table, partition_by=())


def create(uri: str, options: dict[str, str], table: str, column: str) -> Result:
    """Create a table with one column; yield whether it was this process that did."""
    try:
        lake(uri, options).create_table(table, {column: "string"})
        yield True
    except TableExists:
        yield False


def move(uri: str, options: dict[str, str], seed: int, rounds: int, dies: int) -> Result:
    """Move amounts between the tables `a` and `b`; yield "done" for each, and "died" for one that stopped half-way.

    Who dies does so before one of the conditional writes of a transaction, and goes on as another process.
    """
    chance = random.Random(seed)
    here = lake(uri, options)
    if dies:
        while True:
            try:
                stopped(here, chance.randint(1, 4), partial(_moved, chance=chance))
            except Conflict:  # before it came so far
                continue
            break
        yield "died"
        here = lake(uri, options)
    for _ in range(rounds):
        while True:
            try:
                _moved(here, chance)
            except (Conflict, Unavailable):
                continue
            break
        yield "done"


def _moved(here: Lake, chance: random.Random) -> None:
    amount, account = chance.randint(1, 9), chance.choice("xy")
    with here.transaction(["a", "b"]) as tx:
        tx.table("a").update({"amount": f"amount - {amount}"}, f"id = '{account}'")
        tx.table("b").update({"amount": f"amount + {amount}"}, f"id = '{account}'")


def see_total(uri: str, options: dict[str, str], seed: int, rounds: int) -> Result:
    """Yield the total of the tables `a` and `b` again and again, read by a query and in a transaction."""
    here = lake(uri, options)
    for at in range(rounds):
        if (at + seed) % 2:
            yield sum(amounts(here))
            continue
        with here.transaction(["a", "b"]) as tx:
            yield sum(sum(tx.table(name).to_arrow()["amount"].to_pylist()) for name in ("a", "b"))


def events(schema: pa.Schema, ids: Sequence[str], source: str = "") -> pa.Table:
    """Return rows of the default event table. An event is the same row whichever batch it is in."""
    moment = 1_700_000_000_000_000
    columns: dict[str, Sequence[object]] = {
        "event_id": list(ids),
        "ts": [moment + 1 + crc32(each.encode()) % 1000 for each in ids],
        "event": ["click"] * len(ids),
        "source": [source] * len(ids),
        "properties": ["{}"] * len(ids),
        "received_at": [moment] * len(ids),
    }
    arrays = [pa.array(columns.get(field.name, [None] * len(ids)), field.type) for field in schema]
    return pa.table(arrays, schema=schema)


JOBS: dict[str, Callable[..., Result]] = {
    job.__name__: job
    for job in (
        put_if_absent,
        crash_in_put,
        append,
        ingest,
        maintain,
        ingest_while_there,
        drop_and_create,
        create,
        move,
        see_total,
    )
}


def _serve(pipe: Connection[Any, Any], job: str, arguments: dict[str, Any]) -> None:
    pipe.send("ready")
    pipe.recv()
    for result in JOBS[job](**arguments):
        pipe.send(result)
