"""The processes that run queries: they serve one query after another, keep no secret, and end when they should."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import alluvia
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.processes import pool
from alluvia.processes.pool import OutOfTime, Pool, ProcessDied, Watch
from alluvia.query.engine import run
from alluvia.query.limits import QueryLimits
from alluvia.query.process.processes import POOL, QueryWorker
from alluvia.query.process.session import Session
from tests.contract.small_queries import ask, assert_nothing_happened, small_lake


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    return small_lake(tmp_path, monkeypatch)


def test_a_process_serves_one_query_after_another(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_WAIT_SECONDS", 60)  # a busy machine may take long to close a database
    POOL.close()
    assert ask("SELECT 1 AS x")[0] == 200
    (worker,) = POOL._idle
    for _ in range(5):
        assert ask("SELECT nope")[0] == 400
        assert ask("SELECT count(*) AS c FROM t")[0] == 200
    assert POOL._idle == [worker]
    worker._process.kill()
    worker._process.wait()
    assert_nothing_happened()


def test_a_process_that_is_slow_to_end_its_work_keeps_no_query_waiting(lake: alluvia.Lake) -> None:
    POOL.close()
    assert ask("SELECT count(*) AS c FROM t")[0] == 200
    (worker,) = POOL._idle
    assert worker.settle()
    os.kill(worker._process.pid, signal.SIGSTOP)
    worker.end_work()
    assert ask("SELECT count(*) AS c FROM t")[0] == 200
    assert len(POOL._idle) == 2
    assert worker in POOL._idle
    worker._ends_by = time.monotonic() - 1
    POOL._idle.remove(worker)
    POOL._idle.append(worker)
    POOL._idle[0].kill()
    del POOL._idle[0]
    assert ask("SELECT count(*) AS c FROM t")[0] == 200
    assert not worker.alive
    assert_nothing_happened()


def test_a_query_fails_if_its_process_dies_as_it_arrives(lake: alluvia.Lake) -> None:
    text = "SELECT sum(n) AS s FROM t"
    assert ask(text)[0] == 200
    session = Session(lake.catalog.store, QueryLimits(), Watch())
    process = session._engine._worker._process
    process.kill()
    process.wait()
    with pytest.raises(QueryTooCostly):  # as if the system had no more memory
        session.parse(text)
    session.close()
    assert_nothing_happened()


def test_the_number_of_idle_processes_is_limited(lake: alluvia.Lake) -> None:
    pool = Pool(QueryWorker, 1)
    first, second = pool.take(), pool.take()
    pool.give_back(first, wait=True)
    os.kill(first._process.pid, signal.SIGSTOP)
    first.end_work()
    slow = first.is_ready

    def given_back_meanwhile(seconds: float = 0.0) -> bool:
        if seconds:
            pool.give_back(second)
        return slow(seconds)

    first.is_ready = given_back_meanwhile  # type: ignore[method-assign]
    third = pool.take()
    assert len(pool._idle) == 1
    assert not first.alive
    third.kill()
    pool.close()


def test_a_process_does_not_inherit_secrets(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-for-queries")
    worker = QueryWorker()
    environment = Path(f"/proc/{worker._process.pid}/environ").read_bytes()
    worker.kill()
    assert b"not-for-queries" not in environment


def test_a_process_that_stops_within_a_message_blocks_no_caller_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half_sent = """
# {0}
import os, time
from multiprocessing.connection import Connection
pipe = Connection({1})
pipe.send_bytes(b'{{"size": 8}}')
os.write({1}, b"half")
time.sleep(60)
"""
    monkeypatch.setattr("alluvia.processes.starting._START", half_sent)
    worker = QueryWorker()
    worker.reply(Watch(None))
    with pytest.raises(OutOfTime):
        worker.data(Watch(time.monotonic() + 0.2))
    assert not worker.alive


def test_a_failure_to_start_a_process_is_not_blamed_on_the_query(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    POOL.close()
    monkeypatch.setattr("alluvia.processes.starting._START", "raise SystemExit(3) # {} {}")
    with pytest.raises(ProcessDied, match="status 3"):
        run(lake.catalog, "SELECT 1")


def test_ctrl_c_ends_a_query_and_its_process(lake: alluvia.Lake) -> None:
    text = "SELECT levenshtein(repeat('ab', 10000000), repeat('ba', 10000000))"
    with subprocess.Popen(
        [sys.executable, "-m", "alluvia.cli", "query", text],
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509 - a job in the background ignores it
    ) as process:
        folders = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not folders.read_text():  # until its query's process is there
            assert process.poll() is None
            time.sleep(0.01)
        child = int(folders.read_text().split()[0])
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(timeout=60) == 130
        finally:
            process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert not Path(f"/proc/{child}").exists()


def test_a_process_ends_with_its_parent(lake: alluvia.Lake) -> None:
    code = (
        "import os; from alluvia.query.process.processes import QueryWorker; worker = QueryWorker();"
        "worker.send('open', options={}, secret=None);"
        "print(worker._process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    child = int(done.stdout)
    while Path(f"/proc/{child}").exists():
        time.sleep(0.01)


def test_folders_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    code = "import os; from alluvia import scratch; print(scratch.scratch_root(), flush=True); os.kill(os.getpid(), 9)"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    left = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert Path(left.stdout.strip()).is_dir()
    (tmp_path / "alluvia-other").mkdir()
    subprocess.run([sys.executable, "-c", code.replace("; os.kill(os.getpid(), 9)", "")], env=environment, check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["alluvia-other"]
