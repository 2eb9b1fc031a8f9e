"""Queries that end, stall or swell the process that runs them: each gets an answer, and the next notices nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import alluvia
from alluvia.engine.duck.arrow_values import since_2
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.errors import Invalid
from alluvia.processes.pool import Watch
from alluvia.query import engine
from alluvia.query.engine import run
from alluvia.query.limits import QueryLimits
from alluvia.query.process import processes
from alluvia.query.process.processes import POOL, Engine, QueryWorker
from alluvia.query.process.session import Session
from alluvia.query.rendering import _distinct
from alluvia.store import Address, Store
from alluvia.store.caches.served import ServedFile
from tests.contract.small_queries import ask, assert_nothing_happened, small_lake

_BRACKETS = "repeat('[', 200000) || repeat(']', 200000)"
_OBJECTS = """repeat('{"a":', 100000) || '1' || repeat('}', 100000)"""
_LAMBDAS = "list_transform(range(1000), lambda x: " * 4 + "x" + ")" * 4
_DOUBLING = "WITH a0 AS (SELECT 1 x)" + "".join(
    f", a{n} AS (FROM a{n - 1} UNION ALL FROM a{n - 1})" for n in range(1, 40)
)
CRASHES = {
    "json_contains": (f"SELECT json_contains({_BRACKETS}, '1') AS found", None),
    "json_structure": (f"SELECT json_structure({_BRACKETS}) AS found", "[" * 200_000 + '"NULL"' + "]" * 200_000),
    "json_merge_patch": (
        f"SELECT json_merge_patch({_OBJECTS}, {_OBJECTS}) AS found",
        '{"a":' * 100_000 + "1" + "}" * 100_000,
    ),
    "variant": (f"SELECT ({_BRACKETS})::JSON::VARIANT::VARCHAR AS found", None),
}
"""Queries, and what DuckDB 2.0 finds; None where that fails, too."""
STALLS = {
    "levenshtein": "SELECT levenshtein(repeat('ab', 200000), repeat('ba', 200000))",
    "common table expressions": f"{_DOUBLING} SELECT count(*) FROM a39",
    "recursion": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n FROM r) SELECT count(*) FROM r",
    "a run of operators, to the lexer": f"SELECT 1 {'+' * 20_000} n FROM t",
    "comments in comments, to the lexer": "SELECT 1 " + "/*" * 130_000,
    "rows that never end": "SELECT i FROM range(1000000000000) t(i) WHERE i % 50000 = 0 AND i < 0",
}
REFUSED_SINCE_2 = {
    "a run of operators, to the lexer": "the query is nested too deeply",
    "comments in comments, to the lexer": "Parser Error: unterminated /* comment",
}
SWELLS = {
    "a list": "SELECT len(range(1000000000))",
    "lambdas": f"SELECT {_LAMBDAS}",
    "one batch of rows": "SELECT repeat('x', 1000000) || i FROM range(16384) t(i)",
    "one text": "SELECT string_agg(repeat('x', 1000000)) FROM range(3000)",
}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    return small_lake(tmp_path, monkeypatch)


@pytest.mark.parametrize(("text", "found_since_2"), CRASHES.values(), ids=CRASHES)
def test_a_query_that_ends_the_engine_ends_nothing_else(lake: alluvia.Lake, text: str, found_since_2: object) -> None:
    status, body = ask(text)
    if since_2() and found_since_2 is not None:
        assert (status, json.loads(body)) == (200, {"found": found_since_2})
    else:
        assert (status, "an internal error of the engine" in body) == (400, True)
    assert_nothing_happened()


@pytest.mark.slow
@pytest.mark.parametrize("name", STALLS)
def test_a_query_that_no_interrupt_stops_is_stopped(
    lake: alluvia.Lake, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as short:
        short.setenv("ALLUVIA_QUERY_TIMEOUT_SECONDS", "1")
        status, body = ask(STALLS[name])
    if since_2() and name in REFUSED_SINCE_2:
        assert (status, REFUSED_SINCE_2[name] in body) == (400, True)
    else:
        assert (status, "longer than the 1 seconds allowed" in body) == (422, True)
    assert_nothing_happened()


@pytest.mark.slow
@pytest.mark.parametrize("text", SWELLS.values(), ids=SWELLS)
def test_a_query_that_takes_memory_beyond_the_engines_count_is_stopped(lake: alluvia.Lake, text: str) -> None:
    status, body = ask(text)
    assert (status, "more memory than the 300 MB allowed" in body) == (422, True)
    assert_nothing_happened()


def test_without_a_limit_the_memory_of_the_machine_is_one(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alluvia.query.limits.machine_bytes", lambda: 100_000_000)
    with pytest.raises(QueryTooCostly, match="more memory than is allowed"):
        run(lake.catalog, "SELECT len(range(1000000000))")


def test_a_long_message_is_cut(lake: alluvia.Lake) -> None:
    for text in ("SELECT error(repeat('x', 10000000))", f'FROM "{"x" * 100000}"', f"SELECT {'y' * 100000} FROM t"):
        status, body = ask(text)
        assert 400 <= status < 500
        assert len(body) < 2300
    assert_nothing_happened()


def test_damage_is_proved_and_not_read_out_of_a_message(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    send = QueryWorker.send

    def counted(self: QueryWorker, name: str, *rest: Any, **more: Any) -> None:
        asked.append(name)
        send(self, name, *rest, **more)

    monkeypatch.setattr(QueryWorker, "send", counted)
    status, body = ask("SELECT error('Could not read enough bytes') FROM t")
    assert (status, json.loads(body)) == (400, {"error": "Invalid Input Error: Could not read enough bytes"})
    assert asked.count("render") == 1
    for kind in ("IO", "HTTP", "Invalid"):
        fields = json.dumps({"exception_type": kind, "exception_message": "Could not read enough bytes"})
        asked.clear()
        for text in (f"SELECT error('{fields}') FROM t", f"SELECT error('{fields}' || n) FROM t"):
            status, body = ask(text)
            assert (status, json.loads(body)["error"].startswith("Invalid Input Error: {")) == (400, True)
        assert asked.count("render") == 2
    (file,) = lake.table("t").snapshot().files
    status, body = ask(f"SELECT error('{lake.store.url('t/' + file.path)} is odd') FROM t")
    assert status == 400
    assert lake.uri not in body


def test_every_attempt_counts_towards_the_time_limit(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = Path(lake.uri.removeprefix("file://")).glob("t/*.parquet")
    path.write_bytes(b"garbage" * 100)
    deadlines: list[float | None] = []

    class Watched(Session):
        def __init__(self, store: Store, limits: QueryLimits, watch: Watch, *rest: Any) -> None:
            deadlines.append(watch.deadline)
            super().__init__(store, limits, watch, *rest)

    monkeypatch.setattr(engine, "Session", Watched)
    assert ask("SELECT sum(n) FROM t")[0] == 500
    assert len(deadlines) == 2
    assert deadlines[0] == deadlines[1]


def test_a_type_of_many_levels_is_described(lake: alluvia.Lake) -> None:
    levels = "".join(f", a{n} AS (SELECT {'[' * 100}x{']' * 100} x FROM a{n - 1})" for n in range(1, 5))
    status, body = ask(f"DESCRIBE WITH a0 AS (SELECT 1 x){levels} SELECT x FROM a4")
    assert (status, json.loads(body)["column_type"]) == (200, "INTEGER" + "[]" * 400)


def test_a_query_that_the_system_kills_says_that_memory_ran_out(lake: alluvia.Lake) -> None:
    POOL.close()
    POOL.prepare(1)
    (worker,) = POOL._idle
    with run(lake.catalog, "FROM range(10000000)") as rows:
        assert Path(f"/proc/{worker._process.pid}/oom_score_adj").read_text() == "1000\n"
        worker._process.kill()
        with pytest.raises(QueryTooCostly, match="more memory than is allowed"):
            list(rows)
    assert_nothing_happened()


def test_an_orphan_ends_even_while_it_parses() -> None:
    code = (
        "from alluvia.query.process import worker;"
        "worker.PARSE_CPU_SECONDS = 0; database = worker.QueryDatabase(print); database.analyse('SELECT 1');"
        f"database.analyse('SELECT 1 {'+' * 20_000}')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGXCPU


def test_a_refusal_of_the_process_is_passed_on() -> None:
    database = Engine(Watch())
    database.open({})
    address = Address("s3://bucket", {"endpoint_url": "nowhere"}, "k")
    with pytest.raises(Invalid, match="the endpoint URL 'nowhere' must read"):
        database.serve([ServedFile("alluvia://0.parquet", address, 0, 1, 0)])
    database.close()


def test_a_query_of_too_many_parts_is_refused(lake: alluvia.Lake) -> None:
    status, body = ask(f"SELECT {','.join('1' * 120_000)}")
    assert (status, "too many things" in body) == (400, True)
    assert_nothing_happened()


def test_columns_of_one_name_are_told_apart_in_one_pass() -> None:
    names = _distinct(["a"] * 20_000 + ["a_7", "b"])
    assert len(set(names)) == 20_002
    assert names[:3] == ["a", "a_1", "a_2"]
    assert names[-2:] == ["a_7", "b"]


def test_rows_left_unread_leave_nothing_behind(lake: alluvia.Lake) -> None:
    result = run(lake.catalog, "SELECT i FROM range(10000000) r(i)")
    next(iter(result))
    del result
    assert_nothing_happened()
    with run(lake.catalog, "SELECT i FROM range(10000000) r(i)") as result:
        next(iter(result))
    assert_nothing_happened()


def test_rows_left_unread_leave_the_process_to_the_next_query(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_STOP_SECONDS", 60)  # which a busy machine keeps
    POOL.close()
    assert ask("SELECT 1 AS x")[0] == 200
    (worker,) = POOL._idle
    late = "SELECT CASE n WHEN 80000 THEN error('late') ELSE repeat('x', 1000) || n END FROM range(90000) r(n)"
    for text in ("FROM range(10000000)", "FROM t", late):
        with run(lake.catalog, text, QueryLimits(threads=1)) as result:
            assert POOL._idle == []
            next(iter(result))
        assert POOL._idle == [worker]
    result = run(lake.catalog, "FROM range(10000000)")
    result.close()
    with pytest.raises(Invalid, match="closed before all of its rows were read"):
        list(result)
    assert_nothing_happened()


def test_a_query_that_does_not_stop_when_its_rows_are_not_wanted_is_killed(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    if since_2():
        monkeypatch.setattr(processes, "_STOP_SECONDS", 60)
    stall = "levenshtein(repeat('ab', 5 * n), repeat('ba', 5 * n))::VARCHAR"
    text = f"SELECT CASE n WHEN 80000 THEN {stall} ELSE repeat('x', 1000) || n END FROM range(90000) r(n)"
    POOL.prepare(1)
    (worker,) = POOL._idle
    with run(lake.catalog, text, QueryLimits(threads=1)) as result:
        next(iter(result))
    assert worker.alive == since_2()  # which can be interrupted there
    result = run(lake.catalog, text, QueryLimits(threads=1))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(list, result)
        time.sleep(0.1)
        result.close()  # from another thread than the one that waits
        with pytest.raises(Invalid):
            reading.result()
    assert_nothing_happened()


def test_limits_hold_while_rows_come(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.monotonic
    with run(lake.catalog, "SELECT i FROM range(100000000000) t(i)", QueryLimits(timeout_seconds=3600)) as result:
        rows = iter(result)
        next(rows)
        with monkeypatch.context() as later:
            later.setattr(time, "monotonic", lambda: clock() + 3600)
            with pytest.raises(QueryTooCostly, match="longer than the 3600 seconds allowed"):
                for _ in rows:
                    pass
    assert_nothing_happened()


def test_the_command_line_takes_a_time_limit(lake: alluvia.Lake) -> None:
    text = "SELECT levenshtein(repeat('ab', 10000000), repeat('ba', 10000000))"
    command = [sys.executable, "-m", "alluvia.cli", "query", text, "--timeout", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "longer than the 1 seconds allowed" in done.stderr) == (1, True)
