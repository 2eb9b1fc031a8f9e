"""What `serve` tells Prometheus: `GET /metrics`, in the format that a scraper asks for.

No label has a value that callers choose: routes are those that are served, and no table is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from http import HTTPMethod

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from alluvia.query.limits import READ
from alluvia.serverless.http import EVENTS_HEADER, Response, failure
from alluvia.store import PutResult, Store
from alluvia.store.requests import TOTAL, Meter
from alluvia.store.wrapper import Wrapper
from alluvia.table_names import TABLE_OR_REJECTS

PATH = "/metrics"
OTHER = "other"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0)
"""Bounds of durations: posts take milliseconds, and queries may take 25 seconds."""
COMMITS, CONFLICTS = "commits", "conflicts"
_COMMIT = re.compile(rf"{TABLE_OR_REJECTS.pattern}/_delta_log/\d{{20}}\.json")
_METHODS = frozenset(HTTPMethod)
# Else each counter has a second series, with the time of its first count.
disable_created_metrics()  # type: ignore[no-untyped-call]


class CommitCount(Wrapper):
    """A store that counts commits of tables, and races for a version that were lost."""

    def __init__(self, inner: Store, meter: Meter) -> None:
        super().__init__(inner)
        self._meter = meter

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        result = super().put_if_absent(key, data)
        if _COMMIT.fullmatch(key):
            self._meter.add(COMMITS if result is PutResult.CREATED else CONFLICTS, 1)
        return result


class Metrics:
    """The counts of one server. Safe for use from several threads."""

    def __init__(self) -> None:
        self.commits = Meter()
        self._registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"alluvia_{name}", text, labels, registry=registry)

        self._requests = counter("http_requests", "Requests that were answered", "route", "method", "status")
        self._seconds = Histogram(
            "alluvia_http_request_duration_seconds",
            "Seconds from the request to its answer",
            ("route", "method"),
            registry=registry,
            buckets=SECONDS,
        )
        self._answered = counter("http_answer_bytes", "Bytes of the bodies of answers", "route")
        self._rows = counter("query_rows", "Rows that queries answered with")
        self._results = counter("query_results", "Answers to reads: hit, miss, off, or not_modified", "cache")
        self._events = counter("events", "Events that came in, by outcome", "outcome")
        # Finding a series takes longer than counting, and there are only a few.
        self._series = cache(
            lambda route, method, status: (
                self._requests.labels(route, method, str(status)),
                self._seconds.labels(route, method),
                self._answered.labels(route),
            )
        )
        self._outcome = cache(self._events.labels)
        ProcessCollector(registry=registry)
        registry.register(_Meters(self.commits))

    def note(self, route: str, method: str, answer: Response, body_bytes: int, seconds: float) -> None:
        """Count a request and its answer. `route` is the path of a route, or `OTHER`."""
        method = method if method in _METHODS else OTHER
        headers, status = answer["headers"], answer["statusCode"]
        requests, durations, answered = self._series(route, method, status)
        requests.inc()
        durations.observe(seconds)
        answered.inc(body_bytes)
        if "Alluvia-Rows" in headers:
            self._rows.inc(int(headers["Alluvia-Rows"]))
        if status == 304 or "Alluvia-Cache" in headers:
            self._results.labels(headers.get("Alluvia-Cache", "not_modified")).inc()
        for part in filter(None, headers.get(EVENTS_HEADER, "").split(", ")):
            outcome, _, count = part.partition("=")
            self._outcome(outcome).inc(int(count))

    def answer(self, method: str, accept: str) -> Response:
        """Answer a scraper."""
        if method not in ("GET", "HEAD"):
            return failure(405, f"{PATH} takes GET, HEAD, not {method[:20]}", Allow="GET, HEAD")
        encode, content_type = choose_encoder(accept)
        return {
            "statusCode": 200,
            "headers": {"Content-Type": content_type, "Cache-Control": "no-store"},
            "body": encode(self._registry).decode(),
            "isBase64Encoded": False,
        }


class _Meters(Collector):
    """What is counted where it happens."""

    def __init__(self, commits: Meter) -> None:
        self._commits = commits

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the counters."""
        text = "Requests to the lake's storage on S3, those of queries' processes included"
        requests = CounterMetricFamily("alluvia_store_requests", text, labels=("kind",))
        for kind, count in sorted(TOTAL.counts().items()):
            requests.add_metric((kind,), count)
        yield requests
        read, commits = READ.counts(), self._commits.counts()
        for name, text, count in (
            ("commits", "Commits of tables", commits[COMMITS]),
            ("commit_conflicts", "Races for a version that were lost, each of them tried again", commits[CONFLICTS]),
            ("query_files_read", "Data files of queries that are left after pruning", read["files"]),
            ("query_bytes_read", "Bytes of these files", read["bytes"]),
        ):
            yield CounterMetricFamily(f"alluvia_{name}", text, count)
