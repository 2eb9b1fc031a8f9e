"""The lake behind a local HTTP server, with merge and vacuum in the background."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial

from alluvia.api.lake import Lake
from alluvia.lazy_dataclasses import dataclass
from alluvia.query.limits import machine_bytes
from alluvia.query.process.processes import POOL
from alluvia.server.gateway import Gateway, MetricsPage, ServerRules, load_handler
from alluvia.server.guards import HostNames, host_names, uploads_of
from alluvia.server.job_pool import AT_ONCE, JobPool
from alluvia.server.large_results import download
from alluvia.server.listening import HttpServer, listen
from alluvia.server.metrics import CommitCount, Metrics
from alluvia.server.upkeep import CommitWatch, Upkeep
from alluvia.serverless.authorization import AUTH, OPEN
from alluvia.serverless.job_starting import using_pool
from alluvia.serverless.settings import environment
from alluvia.serverless.signed_paths import signer_of, using_signer
from alluvia.serverless.table_messages import NOTIFIED_EVERY
from alluvia.serverless.table_queue import QUEUE_URL
from alluvia.serverless.warm_lake import using

QUERY_MEMORY = "ALLUVIA_QUERY_MEMORY_MB"
DEFAULTS = {
    AUTH: OPEN,
    "ALLUVIA_RESULT_CACHE": "on",
    "ALLUVIA_RESULT_LIMIT_BYTES": "16000000",
    "ALLUVIA_MAX_RESULT_BYTES": "5000000000",
    "ALLUVIA_READY_WRITES": "true",
}
"""Settings that are others than a function's, where none are set. The command says whom it answers in any case."""
MERGE_SECONDS = 3600.0
VACUUM_SECONDS = 24 * 3600.0
PIPELINE_SECONDS = 60.0
METRICS_THREADS = 2
THREADS = 128
"""Threads for small requests: nearly all of them wait for a commit together. Queries and large bodies have others."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a lake is served: where, to whom, and how often all tables are merged and vacuumed, in seconds.

    With 0 they are never merged; otherwise, files that are due are also merged after every tenth commit of their table.
    """

    host: str = "127.0.0.1"
    port: int = 0
    """0 chooses a free one."""
    allow_hosts: tuple[str, ...] = ()
    """Names that requests may use, besides those of loopback and the host's own; `*` for any."""
    merge_seconds: float = MERGE_SECONDS
    vacuum_seconds: float = VACUUM_SECONDS
    log_requests: bool = True
    pipeline_seconds: float = PIPELINE_SECONDS
    tells_metrics: bool = True
    """Whether every caller that may send requests may read `/metrics`."""
    operator_key: str = ""
    """The key in requests of the user who runs the server, and may read the reasons in its log; "" for none."""
    flight_port: int | None = None
    """Where Flight SQL is served, too; 0 chooses a free port, None serves none."""

    @property
    def hosts(self) -> HostNames:
        """Names that the server may be called by."""
        return host_names(self.host, self.allow_hosts)


@dataclass(frozen=True, slots=True)
class Served:
    """A lake that is served: by HTTP, once its `run()` is called, and on a port by Flight SQL, where that is asked."""

    http: HttpServer
    flight_port: int | None
    gateway: Gateway


@contextmanager
def running(lake: Lake, options: Options, metrics: Metrics | None = None) -> Iterator[Served]:
    """Serve a lake until the block ends; `http.effective_port` of what it yields says where. `metrics` gets its counts.

    The block must call `http.run()`, here or in a thread.
    """
    rules = ServerRules(
        options.hosts,
        tells_metrics=options.tells_metrics,
        uploads=uploads_of(os.environ),
        operator_key=options.operator_key,
    )
    metrics = metrics or Metrics()
    defaults = {QUERY_MEMORY: str(memory_mb(rules.queries.at_once + AT_ONCE)), **DEFAULTS}
    settings = {name: value for name, value in defaults.items() if name not in os.environ}
    log = _log if options.log_requests else _log_nothing
    merge = Upkeep(lake, "merge", options.merge_seconds, {"when_due": True}) if options.merge_seconds else None
    vacuum = Upkeep(lake, "vacuum", options.vacuum_seconds) if options.vacuum_seconds else None
    pipeline = (
        Upkeep(lake, "pipeline", options.pipeline_seconds, {"when_due": True}) if options.pipeline_seconds else None
    )

    def committed(table: str, version: int) -> None:
        if merge is not None and version % NOTIFIED_EVERY == 0:
            merge.changed(table)
        if pipeline is not None:
            pipeline.changed(table)

    lake = Lake(CommitWatch(CommitCount(lake.store, metrics.commits), committed), lake.clock)
    upkeep = [each for each in (merge, vacuum, pipeline) if each is not None]
    signer, jobs = signer_of(os.environ, lake.clock), JobPool(lake, _run_job)
    with using(lake), using_signer(signer), using_pool(jobs.take), environment(settings, without=[QUEUE_URL]):
        threads = THREADS + rules.queries.total + rules.large.total + rules.uploads.total
        downloads = partial(download, lake.store, signer)
        gateway = Gateway(lake.clock, rules, log, metrics, downloads)
        server = listen(
            gateway, options.host, options.port, threads, log, admits=gateway.admits, refused=gateway.note_refusal
        )
        others = ExitStack()
        POOL.prepare(1)
        for each in upkeep:
            each.start()
        jobs.start()
        try:
            flight_port = None
            if options.flight_port is not None:
                from alluvia.server.flight import serving_flight

                flight = serving_flight(lake, gateway.queries, log, options.host, options.flight_port)
                flight_port = others.enter_context(flight)
            yield Served(server, flight_port, gateway)
        finally:
            others.close()
            server.close()
            jobs.stop()
            for each in upkeep:
                each.stop()


def _run_job(job_id: str) -> object:
    return load_handler("query")({"job": job_id}, None)


def memory_mb(queries: int) -> int:
    """Return how much memory each of some queries at once may take on this machine, in MB: two thirds in all."""
    return max(64, machine_bytes() * 2 // 3 // queries // 1_000_000)


def _log(line: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {line}\n")


def _log_nothing(_: str) -> None:
    """Let a line go."""


@contextmanager
def in_background(lake: Lake) -> Iterator[int]:
    """Serve a lake in a thread, without schedules, and yield the port."""
    options = Options(merge_seconds=0, vacuum_seconds=0, pipeline_seconds=0, log_requests=False)
    with running(lake, options) as served, _in_thread(served.http):
        yield int(served.http.effective_port)


@contextmanager
def telling(metrics: Metrics, host: str, port: int, allow_hosts: tuple[str, ...] = ()) -> Iterator[int]:
    """Serve metrics at an address of their own, open to all that reach it, and yield the port."""
    page = MetricsPage(metrics, host_names(host, allow_hosts))
    server = listen(page, host, port, METRICS_THREADS, _log_nothing, "--metrics-address")
    with _in_thread(server):
        yield int(server.effective_port)


@contextmanager
def _in_thread(server: HttpServer) -> Iterator[None]:
    def serve() -> None:
        with suppress(OSError):  # closing the server's sockets is what ends its loop
            server.run()

    thread = threading.Thread(target=serve, name="http", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.task_dispatcher.shutdown()
        server.close()
        thread.join(timeout=5)
