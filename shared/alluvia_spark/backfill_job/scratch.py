"""Objects that a job's tasks share, in the lake: what is too big for a closure. Vacuum deletes them after a day."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from alluvia.clock import SystemClock
from alluvia.errors import ObjectNotFound
from alluvia.store import Store
from alluvia_spark.backfill_job.job import Job


def store_of(job: Job, uri: str) -> Store:
    """Return the store at a URI, opened once by each process."""
    options = job.options if uri.startswith("s3:") else {}
    return _opened(job.stores, uri, tuple(sorted(options.items())))


def put(job: Job, name: str, data: bytes) -> None:
    """Write an object of this run."""
    store_of(job, job.lake_uri).put(f"{job.run}{name}", data)


def get(job: Job, name: str) -> bytes:
    """Return an object of this run, which this process may remember."""
    return get_at(job, f"{job.run}{name}")


def get_at(job: Job, key: str) -> bytes:
    """Return the object at a key, which never changes: this process may remember it."""
    return _got(store_of(job, job.lake_uri), key)


def find(job: Job, key: str) -> bytes | None:
    """Return the object at a key, None if there is none."""
    try:
        return store_of(job, job.lake_uri).get(key)
    except ObjectNotFound:
        return None


@cache
def _opened(stores: Any, uri: str, options: tuple[tuple[str, str], ...]) -> Store:
    store: Store = stores(uri, SystemClock(), **dict(options))
    return store


@lru_cache(maxsize=8)
def _got(store: Store, key: str) -> bytes:
    return store.get(key)
