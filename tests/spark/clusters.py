"""Backfills as EMR Serverless runs them: `spark-submit` of what `make emr` builds, on a cluster of several processes.

`python -m tests.spark.clusters` runs jobs whose drivers and executors are killed, two jobs at once with a
writer and a merge, and jobs of upkeep, and fails if a table does not hold each event once. It takes minutes.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyspark

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia_spark.session import java_variables
from layers.emr import ROOT, SparkJob, build_job
from layers.recipes import Machine
from tests.s3server import CREDENTIALS, REGION, S3Endpoint, running_server
from tests.spark.quick import SETTINGS

MASTER = "local-cluster[2,1,1024]"
"""Two workers of one core and 1,024 MB each, in processes of their own."""
SECONDS_MAX = 300
MOMENTS = ("/_alluvia/backfill/", "/splits.arrow", "/ids/", "/plan.json", "/done/", "/00000000000000000001.json")
"""What a job puts after each of its steps: the record, the splits, its events' ids, the plan, files, the commit."""
FILES, EVENTS = 4, 500
DAY = datetime(2026, 1, 3, tzinfo=UTC)
DAYS = 5
"""The partitions of the events that a job of upkeep finds, and so its groups."""


class Cluster:
    """Jobs from one bucket of an S3 server into a lake in it."""

    def __init__(self, server: S3Endpoint, folder: Path, job: SparkJob | None = None) -> None:
        self.server = server
        self.bucket = server.new_bucket()
        self.lake: Lake = alluvia.connect(f"s3://{self.bucket}/lake", **server.options)
        self.table: Table = self.lake.create_events("events")
        self._job = job or built(folder)
        self._home = _spark_home(folder)
        self._folder = folder

    def put_events(self, prefix: str, first: int = 0) -> set[str]:
        """Put some files of events under a prefix, and return the events' ids."""
        ids = [f"e{number}" for number in range(first, first + FILES * EVENTS)]
        for number in range(FILES):
            some = ids[number * EVENTS : (number + 1) * EVENTS]
            lines = [json.dumps({"event_id": name, "ts": f"2026-01-0{1 + len(name) % 5}T00:00:00Z"}) for name in some]
            body = gzip.compress("\n".join(lines).encode())
            self.server.client.put_object(Bucket=self.bucket, Key=f"{prefix}/{number}.ndjson.gz", Body=body)
        return set(ids)

    def append(self, event_id: str, day: datetime = DAY) -> None:
        """Append an event of a day."""
        self.table.append([{"event_id": event_id, "ts": day, "received_at": day}])

    def ids(self) -> list[str]:
        """Return the ids of all rows, sorted."""
        return sorted(self.table.to_arrow(["event_id"])["event_id"].to_pylist())

    def report(self, job_id: str) -> dict[str, Any]:
        """Return the report that a backfill has kept."""
        return self.kept(f"backfill/reports/events/{job_id}.json")

    def kept(self, name: str) -> dict[str, Any]:
        """Return a JSON object of the lake's own."""
        key = f"lake/_alluvia/{name}"
        body: dict[str, Any] = json.loads(self.server.client.get_object(Bucket=self.bucket, Key=key)["Body"].read())
        return body

    def submitted(self, prefix: str, job_id: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Start a backfill, with speculation, and kill what is left of it at the end."""
        source = ["--table", "events", "--source", f"s3://{self.bucket}/{prefix}/", "--job-id", job_id]
        return self._submitted(job_id, source, {"spark.speculation": "true"})

    def maintaining(
        self, operation: str, how: str, name: str, table: str = "events"
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Start a job that maintains a table, and kill what is left of it at the end."""
        return self._submitted(name, ["--table", table, "--how", how], {}, ["upkeep", operation])

    @contextmanager
    def _submitted(
        self, job_id: str, more: list[str], own: Mapping[str, str], words: Sequence[str] = ()
    ) -> Iterator[subprocess.Popen[bytes]]:
        settings = {
            "spark.archives": f"{self._job.environment}#environment",
            "spark.executorEnv.PYTHONPATH": "./environment",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            **SETTINGS,
            "spark.local.dir": str(self._folder / "local"),
            "spark.task.maxFailures": "8",
            "spark.ui.enabled": "false",
            **own,
        }
        command = [str(self._home / "bin" / "spark-submit"), "--master", MASTER]
        command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command += [str(self._job.script), *words, "--lake", f"s3://{self.bucket}/lake", *more]
        command += ["--endpoint-url", self.server.endpoint_url, "--region", REGION]
        folder = self._folder / job_id
        folder.mkdir(exist_ok=True)
        with (self._folder / f"{job_id}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                env=_environment(self._home),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                yield process
            finally:
                for pid in [process.pid, *descendants(process.pid)]:
                    _kill(pid)
                process.wait()

    def run(self, prefix: str, job_id: str) -> None:
        """Run a job to its end. Raises AssertionError, with the end of its log, if it fails."""
        with self.submitted(prefix, job_id) as process:
            self.ended(process, job_id)

    def run_with_a_lost_executor(self, prefix: str, job_id: str) -> int:
        """Run a job to its end, and kill one of its executors as soon as there are two. Returns the executor's id."""
        with self.submitted(prefix, job_id) as process:
            return self.ended_with_a_lost_executor(process, job_id)

    def ended_with_a_lost_executor(self, process: subprocess.Popen[bytes], name: str) -> int:
        """Kill an executor of a job as soon as there are two, and wait for the job's end. Returns the executor's id."""
        lost: int = wait_for(lambda: _second_executor(process.pid))
        _kill(lost)
        self.ended(process, name)
        return lost

    def ended(self, process: subprocess.Popen[bytes], name: str) -> None:
        """Wait for a job's end. Raises AssertionError, with the end of its log, if it fails."""
        assert process.wait(SECONDS_MAX) == 0, self.log(name)

    def log(self, name: str) -> str:
        """Return the end of a job's log."""
        return (self._folder / f"{name}.log").read_text()[-4000:]

    def kill_driver_at(self, prefix: str, job_id: str, part: str) -> bool:
        """Start a job, and kill it once an object with `part` in its key is there. Returns whether it still ran."""
        with self.submitted(prefix, job_id) as process:
            wait_for(lambda: process.poll() is not None or self._has(part))
            return process.poll() is None

    def _has(self, part: str) -> bool:
        pages = self.server.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix="lake/")
        return any(part in each["Key"] for page in pages for each in page.get("Contents", ()))


def built(folder: Path) -> SparkJob:
    """Build the job for this machine."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return build_job(ROOT, folder / "build", Machine(platform.machine(), version))


def wait_for(look: Callable[[], Any]) -> Any:
    """Return the first true answer. Raises TimeoutError."""
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        if answer := look():
            return answer
        time.sleep(0.05)
    raise TimeoutError(f"nothing came within {SECONDS_MAX} s")


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        found = [
            int(child) for thread in children.parents[1].glob("*/children") for child in thread.read_text().split()
        ]
    except FileNotFoundError:
        return []
    return [each for child in found for each in (child, *descendants(child))]


def _second_executor(pid: int) -> int | None:
    executors = [each for each in descendants(pid) if b"CoarseGrainedExecutorBackend" in _command(each)]
    return executors[1] if len(executors) > 1 else None


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _spark_home(folder: Path) -> Path:
    """Return a Spark home whose files are pyspark's: workers keep theirs in it."""
    home = folder / "spark"
    home.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        if path.name in ("bin", "jars", "python", "sbin"):
            (home / path.name).symlink_to(path)
    return home


def _environment(home: Path) -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG", "PATH", "TMPDIR")}
    return {
        **kept,
        **java_variables(),
        "SPARK_HOME": str(home),
        "PYTHONPATH": "./environment",
        "AWS_ACCESS_KEY_ID": CREDENTIALS["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": CREDENTIALS["aws_secret_access_key"],
    }


def _say(what: str, expected: set[str], found: list[str]) -> None:
    assert found == sorted(expected), f"{what}: {len(found)} rows, {len(expected)} expected"
    sys.stdout.write(f"{what}: exactly once\n")
    sys.stdout.flush()


def _killed_drivers(server: S3Endpoint, folder: Path, job: SparkJob) -> None:
    for part in MOMENTS:
        own = folder / part.strip("/").replace("/", "-")
        own.mkdir()
        cluster = Cluster(server, own, job)
        expected = cluster.put_events("incoming")
        assert cluster.kill_driver_at("incoming", "killed", part), f"the job ended before {part} was seen"
        cluster.run("incoming", "killed")
        _say(f"driver killed when {part} appeared, then run again", expected, cluster.ids())


def _together(server: S3Endpoint, folder: Path, job: SparkJob) -> None:
    cluster = Cluster(server, folder, job)
    expected = cluster.put_events("one") | cluster.put_events("two", FILES * EVENTS)
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.wait(0.2):
            number += 1
            cluster.append(f"live{number}")
            expected.add(f"live{number}")

    def merge() -> None:
        while not ended.wait(2):
            alluvia.connect(f"s3://{cluster.bucket}/lake", **server.options).table("events").optimize()

    others = [threading.Thread(target=work) for work in (write, merge)]
    jobs = [threading.Thread(target=cluster.run, args=(name, name)) for name in ("one", "two")]
    for thread in (*others, *jobs):
        thread.start()
    for thread in jobs:
        thread.join()
    ended.set()
    for thread in others:
        thread.join()
    _say("two jobs, a writer and a merge at once", expected, cluster.ids())
    _check(cluster.table)


def _check(table: Table) -> None:
    """Killed tasks may leave files that no commit names, and nothing else."""
    assert {finding.kind for finding in table.verify(full=True).findings} <= {"orphan-files"}


def _ended_or_committed(process: subprocess.Popen[bytes], table: Table, version: int) -> bool:
    return process.poll() is not None or table.version > version


def _upkeep(server: S3Endpoint, folder: Path, job: SparkJob) -> None:
    """Kill the driver of an optimize once it has committed, and an executor of the next."""
    cluster = Cluster(server, folder, job)
    expected: set[str] = set()
    for name in ("killed", "lost"):
        for number in range(4 * DAYS):
            cluster.append(f"{name}{number}", DAY + timedelta(days=number % DAYS))
            expected.add(f"{name}{number}")
        before = cluster.table.version
        with cluster.maintaining("optimize", '{"full": true}', name) as process:
            if name == "lost":
                cluster.ended_with_a_lost_executor(process, name)
            else:
                wait_for(partial(_ended_or_committed, process, cluster.table, before))
                assert process.poll() is None, cluster.log(name)
        if name == "killed":
            assert before < cluster.table.version < before + DAYS, "the driver was killed too late"
        _say(f"optimize, {name}", expected, cluster.ids())
    assert len(cluster.table.files) == DAYS
    _check(cluster.table)


def main() -> None:
    """Run all, and say what the tables hold."""
    with tempfile.TemporaryDirectory(prefix="alluvia-clusters-") as name, running_server() as server:
        folder = Path(name)
        job = built(folder)
        for part, work in (("together", _together), ("killed", _killed_drivers), ("upkeep", _upkeep)):
            (folder / part).mkdir()
            work(server, folder / part, job)


if __name__ == "__main__":
    main()
