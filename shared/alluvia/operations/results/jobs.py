"""Jobs: queries whose results are not waited for, as objects of the lake.

```
_alluvia/jobs/<id>/asked.json     what was asked
_alluvia/jobs/<id>/started.json   who runs it
_alluvia/jobs/<id>/alive.json     until when it is taken to be running: its runner writes it again and again
_alluvia/jobs/<id>/end.json       how it ended
_alluvia/jobs/keys/<hash>         the id of the job that was asked for with a key of the sender's
```

All but `alive.json` and keys are written once, by put-if-absent: a job starts once and has one end, whichever process
writes it, dies, or is asked twice. A reader of a job whose runner has gone silent writes the end in its stead. A key is
given another id, by put-if-same, where its job has failed for a passing reason.

`_alluvia/jobs/places/<number>.json` has the id of the job that was last in a place. A place is never given back: it is
free once its job has ended, or is gone. `_alluvia/jobs/places/<hash of a caller>/<number>.json` are places of one
caller's own, which its jobs need as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

import orjson

from alluvia.clock import Clock
from alluvia.errors import AnswerLost, ObjectNotFound, Unavailable
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import PutResult, Store

JOBS = "_alluvia/jobs/"
_KEYS = f"{JOBS}keys/"
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
QUEUED, RUNNING, DONE, FAILED, CANCELLED = "queued", "running", "done", "failed", "cancelled"
LEASE_MS = 60_000
"""How long a job is taken to be running after its runner was last heard of."""
START_MS_MAX = 15 * 60_000
"""A job that has not started by then never does."""
PUT_TRIES = 5

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QueryJob:
    """A job as it stands: what was asked, when it started, in ms since the Unix epoch, and how it ended."""

    id: str
    asked: Json
    started_ms: int | None = None
    end: Json | None = None

    @property
    def state(self) -> str:
        """Return what has become of it."""
        if self.end is not None:
            return str(self.end["state"])
        return QUEUED if self.started_ms is None else RUNNING

    @property
    def failed_in_passing(self) -> bool:
        """Whether it failed for a reason that its query has no part in, so that it may succeed if it is sent again."""
        return self.end is not None and self.end["state"] == FAILED and self.end.get("status", 503) in (429, 503)


def ask_job(store: Store, clock: Clock, asked: Json, key: str | None = None) -> QueryJob:
    """Ask for a job, or return the one that was asked for with the same key, a hash. Two PUT at most and a GET."""
    job_id = clock.new_id()
    if key is not None:
        job_id = _once(store, _KEYS + key, {"id": job_id})["id"]
    request = _once(store, f"{JOBS}{job_id}/asked.json", {**asked, "asked_ms": clock.now_ms()})
    return QueryJob(job_id, request)


def ask_again(store: Store, clock: Clock, failed: QueryJob, asked: Json, key: str) -> QueryJob:
    """Ask for another job under the key of one that failed. All who do so at once get one job.

    Three PUT at most and three GET. Raises `Unavailable` where it is unknown which job the key has.
    """
    path = _KEYS + key
    with suppress(ObjectNotFound):  # an erasure has deleted it
        data, tag = store.get_tagged(path)
        if orjson.loads(data)["id"] == failed.id:
            with suppress(AnswerLost):  # reading it tells
                store.put_if_same(path, orjson.dumps({"id": clock.new_id()}), tag)
            if orjson.loads(store.get(path))["id"] == failed.id:
                raise Unavailable(f"{path} could not be written")
    return ask_job(store, clock, asked, key)


def find_job(store: Store, clock: Clock, job_id: str) -> QueryJob | None:
    """Return a job; None if there is none. Four GET; one that will not come to an end gets one here."""
    if not _ID.fullmatch(job_id):
        return None
    names = ("asked", "started", "alive", "end")
    asked, started, alive, end = store.map(lambda name: _read(store, f"{JOBS}{job_id}/{name}.json"), names)
    if asked is None:
        return None
    job = QueryJob(job_id, asked, None if started is None else started["at_ms"], end)
    now_ms = clock.now_ms()
    if end is None and started is None and now_ms > asked["asked_ms"] + START_MS_MAX:
        return end_job(store, clock, job, FAILED, {"error": "the job did not start in time: send it again"})
    if end is None and started is not None and now_ms > (alive or started)["until_ms"]:
        return end_job(store, clock, job, FAILED, {"error": "the process that ran the job ended: send it again"})
    return job


def start_job(store: Store, clock: Clock, job_id: str) -> QueryJob | None:
    """Start a job, and return it; None where it is not to be run here: it is gone, or has started or ended."""
    job = find_job(store, clock, job_id)
    if job is None or job.state != QUEUED:
        return None
    now_ms = clock.now_ms()
    mine = {"runner": clock.new_id(), "at_ms": now_ms, "until_ms": now_ms + LEASE_MS}
    if _once(store, f"{JOBS}{job_id}/started.json", mine) != mine:
        return None
    return QueryJob(job_id, job.asked, now_ms)


def keep_alive(store: Store, clock: Clock, job: QueryJob) -> None:
    """Say that a job still runs. One PUT."""
    store.put(f"{JOBS}{job.id}/alive.json", orjson.dumps({"until_ms": clock.now_ms() + LEASE_MS}))


def has_ended(store: Store, job: QueryJob) -> bool:
    """Whether a job that runs here was ended by a request, or deleted by an erasure. Two HEAD."""
    return store.head(f"{JOBS}{job.id}/end.json") is not None or store.head(f"{JOBS}{job.id}/asked.json") is None


def end_job(store: Store, clock: Clock, job: QueryJob, state: str, told: Json) -> QueryJob:
    """End a job, unless it has ended, and return it as it has ended. A PUT and a HEAD."""
    path = f"{JOBS}{job.id}/end.json"
    end = _once(store, path, {"state": state, "at_ms": clock.now_ms(), **told})
    if store.head(f"{JOBS}{job.id}/asked.json") is None:  # an erasure has deleted it, whose values this end may show
        store.put(path, b"{}")
    return QueryJob(job.id, job.asked, job.started_ms, end)


def delete_jobs(store: Store) -> None:
    """Delete all jobs: what was asked and how it failed may show values of rows. One LIST, and a bulk delete."""
    keys = [info.key for info in store.list(JOBS)]
    if keys:
        store.delete(keys)


def clean_jobs(store: Store, clock: Clock, age_ms_max: int, *, dry_run: bool = False) -> int:
    """Delete what is old of jobs, and return how many objects that is. A dry run only counts."""
    oldest_ms = clock.now_ms() - age_ms_max
    gone = [info.key for info in store.list(JOBS) if info.modified_ms < oldest_ms]
    if gone and not dry_run:
        store.delete(gone)
    return len(gone)


def _once(store: Store, key: str, value: Json) -> Json:
    """Write an object if there is none, and return the stored one. Raises `Unavailable` where that is unknown."""
    data = orjson.dumps(value)
    for _ in range(PUT_TRIES):
        with suppress(AnswerLost):  # reading it tells
            if store.put_if_absent(key, data) is PutResult.CREATED:
                return value
        stored = _read(store, key)
        if stored is not None:
            return stored
    raise Unavailable(f"{key} could not be written")


def _read(store: Store, key: str) -> Json | None:
    try:
        data = store.get(key)
    except ObjectNotFound:
        return None
    value: Json = orjson.loads(data)
    return value or None


PLACES = f"{JOBS}places/"
STOPPING_MS = 5_000
"""How long the process of a job that was cancelled may still run."""


@dataclass(frozen=True, slots=True)
class _Held:
    """The id of the job in a place, and the tag of what says so."""

    job_id: str
    tag: str


def take_place(store: Store, clock: Clock, job_id: str, places: int, caller: str = "") -> bool:
    """Take one of some places for a job, those of all or of a caller's own, and return whether it has one.

    A GET for each place, four for each that was taken before until one is free, and a PUT.
    """
    folder = f"{PLACES}{sha256(caller.encode()).hexdigest()}/" if caller else PLACES
    paths = [f"{folder}{number}.json" for number in range(places)]
    places_held = store.map(lambda path: _held(store, path), paths)
    if any(held is not None and held.job_id == job_id for held in places_held):
        return True
    return any(
        _take(store, path, held, job_id)
        for path, held in zip(paths, places_held, strict=True)
        if held is None or not _is_busy(store, clock, held.job_id)
    )


def _take(store: Store, path: str, held: _Held | None, job_id: str) -> bool:
    data = orjson.dumps({"job": job_id})
    try:
        if held is None:
            taken = store.put_if_absent(path, data) is PutResult.CREATED
        else:
            taken = store.put_if_same(path, data, held.tag)
    except AnswerLost:
        taken = False
    if taken:
        return True
    now = _held(store, path)  # it may be this caller's own write, whose answer was lost
    return now is not None and now.job_id == job_id


def _is_busy(store: Store, clock: Clock, job_id: str) -> bool:
    job = find_job(store, clock, job_id)
    if job is None or job.end is None:
        return job is not None
    stopping = job.state == CANCELLED and job.started_ms is not None
    return stopping and clock.now_ms() < job.end["at_ms"] + STOPPING_MS


def _held(store: Store, path: str) -> _Held | None:
    try:
        data, tag = store.get_tagged(path)
    except ObjectNotFound:
        return None
    return _Held(orjson.loads(data)["job"], tag)
