"""Run a job: its query, while it says that it is alive, and looks whether it was cancelled."""

from __future__ import annotations

from dataclasses import replace
from threading import Event, Thread
from typing import Any

import orjson

from alluvia import Lake
from alluvia.engine.duck.failures import QueryStopped
from alluvia.errors import AlluviaError
from alluvia.operations.results.jobs import DONE, FAILED, QueryJob, end_job, has_ended, keep_alive, start_job
from alluvia.operations.results.results import take_back
from alluvia.serverless.http import Response, refusal
from alluvia.serverless.query_settings import QuerySettings
from alluvia.serverless.routes.query_fields import ELAPSED, RESULT_BYTES

from .answering import STATUSES, Caller, elapsed, large_result, logger, result_headers, run_query, with_costs
from .jobs import LENT, decode_request, rights_of_job
from .published import veiled, veiled_headers

LOOK_SECONDS = 2.0
LOOKS_A_LEASE = 8
"""So many looks make 16 seconds: a few writes may fail before the lease of a job is over."""


def run_job(job_id: str, settings: QuerySettings, lake: Lake) -> dict[str, Any]:
    """Run a job, if it waits to be run, to its end, and return its state. What it raises is a bug, and ends it too."""
    job = start_job(lake.store, lake.clock, job_id)
    if job is None:
        return {"job": job_id, "state": None}
    pulse = _Pulse(lake, job)
    limits = replace(settings.limits, timeout_seconds=settings.job_seconds, cancelled=pulse.stopped.is_set)
    caller = Caller(replace(settings, limits=limits), lake, rights_of_job(job))
    state, told = FAILED, dict[str, Any](status=500, error="internal error")
    pulse.start()
    try:
        state, told = DONE, _run(job, caller)
    except QueryStopped:
        logger.info("a job was cancelled")
    except AlluviaError as error:
        response = refusal(veiled(error) if job.asked.get(LENT) else error, logger, STATUSES)
        told = {"status": response["statusCode"], "error": orjson.loads(response["body"])["error"]}
    finally:
        pulse.stop()
        ended = end_job(lake.store, lake.clock, job, state, told)
        if state == DONE and ended.state != DONE and told["key"] is not None:
            take_back(lake.store, told["key"])  # it was cancelled at the last moment
    return {"job": job_id, "state": ended.state}


def _run(job: QueryJob, caller: Caller) -> dict[str, Any]:
    """Run the query of a job, and return the facts about its end. Raises what the query raises."""
    began_ms = caller.lake.clock.now_ms()
    asked, wish = decode_request(job)
    key: str | None = None

    def respond() -> tuple[Response, Caller]:
        nonlocal key
        rendered, large = run_query(asked, wish, caller)
        size = len(rendered.body) if large is None or large.key is None else large.result_bytes
        if rendered.body:
            large = large_result(caller, wish.form, wish.coding)
            large.keep(iter([rendered.body]))
            large.check(rendered)
        key = None if large is None else large.key
        told = result_headers(rendered, caller.rights) | {RESULT_BYTES: str(size), ELAPSED: elapsed(caller, began_ms)}
        return {"headers": told}, caller

    told = with_costs(respond)["headers"]
    logger.info("answered a job", extra={"bytes": int(told[RESULT_BYTES])})
    return {"key": key, "told": veiled_headers(told) if job.asked.get(LENT) else told}


class _Pulse:
    """Says in a thread of its own that a job is alive, and notices that it has been ended by others."""

    def __init__(self, lake: Lake, job: QueryJob) -> None:
        self.stopped = Event()
        self._lake, self._job = lake, job
        self._over = Event()
        self._thread = Thread(target=self._beat, name="job-pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        looks = 0
        while True:
            try:
                if has_ended(self._lake.store, self._job):
                    self.stopped.set()
                    return
                if looks and looks % LOOKS_A_LEASE == 0:
                    keep_alive(self._lake.store, self._lake.clock, self._job)
            except AlluviaError:
                logger.warning("the store does not answer about a job", exc_info=True)
            looks += 1
            if self._over.wait(LOOK_SECONDS):
                return
