"""Places of jobs: so many may be queued or running at once, and no more.

`_alluvia/jobs/places/<number>.json` has the id of the job that was last in a place. Nobody gives a place back: it is
free once its job has ended, or is gone. `_alluvia/jobs/places/<hash of a caller>/<number>.json` are places of one
caller's own, which its jobs need as well.
"""

from __future__ import annotations

from hashlib import sha256

import orjson

from alluvia.clock import Clock
from alluvia.errors import AnswerLost, ObjectNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.results.jobs import CANCELLED, JOBS, find_job
from alluvia.store import PutResult, Store

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
    found = store.map(lambda path: _held(store, path), paths)
    if any(held is not None and held.job_id == job_id for held in found):
        return True
    return any(
        _take(store, path, held, job_id)
        for path, held in zip(paths, found, strict=True)
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
