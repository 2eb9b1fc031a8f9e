"""The threads of a server that run jobs."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable

from alluvia.api.lake import Lake
from alluvia.errors import Unavailable
from alluvia.operations.results.jobs import FAILED, end_job, find_job
from alluvia.serverless.http import TooManyRequests

AT_ONCE, WAITING_MAX = 2, 100
CALLER_JOBS = 10
"""The most jobs that one caller may have queued or running; `ALLUVIA_CALLER_JOBS` overrides it."""
AGAIN_SECONDS = 30
STOPPED = "the server was stopped: send the job again"


class JobPool:
    """Runs jobs, a few at once. Jobs that are queued or running when it stops are marked as failed."""

    def __init__(self, lake: Lake, run: Callable[[str], object], at_once: int = AT_ONCE) -> None:
        """`run` runs a job, by its id, to its end."""
        self._lake, self._run = lake, run
        self._callers: dict[str, str] = {}
        self._news = threading.Condition()
        self._waiting: deque[str] = deque()
        self._running: set[str] = set()
        self._stopping = False
        self._threads = [threading.Thread(target=self._work, name=f"jobs-{n}", daemon=True) for n in range(at_once)]

    def start(self) -> None:
        """Begin to run jobs."""
        for thread in self._threads:
            thread.start()

    def take(self, job_id: str, caller: str = "", caller_jobs: int | None = None) -> None:
        """Queue a job of a caller ("" for callers without a token), which may have `caller_jobs`; None: 10.

        Raises `Unavailable` if too many wait, and `TooManyRequests` if too many are this caller's.
        """
        with self._news:
            if job_id in self._callers:
                return
            if self._stopping or len(self._waiting) >= WAITING_MAX:
                raise Unavailable("too many jobs are waiting")
            most = CALLER_JOBS if caller_jobs is None else caller_jobs
            if caller and list(self._callers.values()).count(caller) >= most:
                reason = f"you have {most} jobs queued or running, the limit for one caller"
                raise TooManyRequests(f"{reason}: send the job again later", AGAIN_SECONDS)
            self._callers[job_id] = caller
            self._waiting.append(job_id)
            self._news.notify()

    def stop(self) -> None:
        """Take no more jobs, and mark those that have not ended. Their threads end with the process."""
        with self._news:
            self._stopping = True
            left = [*self._running, *self._waiting]
            self._waiting.clear()
            self._news.notify_all()
        for job_id in left:
            job = find_job(self._lake.store, self._lake.clock, job_id)
            if job is not None and job.end is None:
                end_job(self._lake.store, self._lake.clock, job, FAILED, {"status": 503, "error": STOPPED})

    def _work(self) -> None:
        while True:
            with self._news:
                while not self._waiting and not self._stopping:
                    self._news.wait()
                if self._stopping:
                    return
                job_id = self._waiting.popleft()
                self._running.add(job_id)
            try:
                self._run(job_id)
            except Exception:  # noqa: BLE001 - other jobs go on; the traceback is for the operator
                traceback.print_exc()
            finally:
                with self._news:
                    self._running.discard(job_id)
                    del self._callers[job_id]
