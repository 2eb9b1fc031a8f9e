"""`alluvia serve` and `alluvia demo` as processes: real HTTP, and real deaths."""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import deltalake
import pytest
from click.testing import CliRunner

import alluvia
from alluvia.cli.client import Client
from alluvia.cli.command_line import cli
from tests.serving import serving


def test_it_listens_on_loopback_only_and_answers(tmp_path: Path) -> None:
    with serving(tmp_path / "lake") as (_, port):
        client = Client(port)
        assert client.post("/v1/events/app", {"event_id": "1", "event": "signup"}).json()["accepted"] == 1
        rows = client.post("/q", {"query": "SELECT event_id, event FROM app"}).body.splitlines()
        assert [json.loads(row) for row in rows] == [{"event_id": "1", "event": "signup"}]
        assert client.post("/q", {"query": "SELECT nope FROM app"}).status == 400
        assert client.post("/nope", {}).status == 404
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200


def test_strangers_create_tables_up_to_a_limit(tmp_path: Path) -> None:
    with serving(tmp_path / "lake", "--create-tables-max", "2") as (_, port):
        client = Client(port)
        assert [client.post(f"/v1/events/{name}", {}).status for name in ("a", "b", "c", "a")] == [200, 200, 404, 200]
        assert "ALLUVIA_CREATE_TABLES_MAX" in client.post("/v1/events/d", {}).json()["error"]


def test_a_body_over_the_servers_limit_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "lake") as (_, port):
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        with contextlib.suppress(OSError):  # the server may hang up while the body is on its way
            connection.request("POST", "/v1/events/app", b"x" * (12 << 20))
            assert connection.getresponse().status == 413


def test_merge_runs_on_its_schedule(tmp_path: Path) -> None:
    table = alluvia.connect(str(tmp_path / "lake")).table("app")
    with serving(tmp_path / "lake", "--merge-every", "0.5") as (_, port):
        for at in range(6):
            Client(port).post("/v1/events/app", {"event_id": str(at), "ts": "2026-01-01"})
        deadline = time.monotonic() + 60
        while len(table.snapshot().files) > 1 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert len(table.snapshot().files) == 1
    assert table.scan().read_all().num_rows == 6


def test_a_table_is_merged_once_that_saves_enough_files(tmp_path: Path) -> None:
    table = alluvia.connect(str(tmp_path / "lake")).table("app")
    with serving(tmp_path / "lake") as (process, port):
        client = Client(port)
        for at in range(40):
            assert client.post("/v1/events/app", {"event_id": str(at), "ts": "2026-01-01"}).status == 200
        deadline = time.monotonic() + 60
        while len(table.snapshot().files) > 16 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert (len(table.files) <= 16, table.count()) == (True, 40)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0


def test_tables_of_pipelines_and_rollups_follow_posted_events(tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path / "lake"))
    lake.create_events("app")
    kinds = lake.create_rollup("kinds", "SELECT event, count(*) AS n FROM app GROUP BY event")
    lake.create_rollup("broken", "SELECT max(event::LONG) AS n FROM app")
    (tmp_path / "all.sql").write_text(
        "CREATE TABLE silver SCHEDULE ON CHANGE AS SELECT event_id, event FROM app;"
        "CREATE TABLE gold SCHEDULE ON CHANGE AS SELECT event, count(*) AS n FROM silver GROUP BY event"
    )
    assert [each.error for each in lake.pipeline(tmp_path / "all.sql").run()] == [None, None]
    with serving(tmp_path / "lake") as (_, port):
        for at in range(3):
            assert Client(port).post("/v1/events/app", {"event_id": str(at), "event": "view"}).status == 200
        expected, deadline = [{"event": "view", "n": 3}], time.monotonic() + 60
        while [lake["gold"].to_arrow().to_pylist(), kinds.to_arrow().to_pylist()] != [expected, expected]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    status = {row["table"]: row["behind"] for row in lake.pipeline(tmp_path / "all.sql").status()}
    assert status == {"silver": {"app": 0}, "gold": {"silver": 0}}


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with serving(tmp_path / "lake") as (_, port):
        result = CliRunner().invoke(cli, ["serve", "--lake", str(tmp_path / "lake"), "--port", str(port)])
    assert result.exit_code == 1
    assert result.stderr == f"alluvia: --port {port} of 127.0.0.1 is in use: choose another, or 0 for a free one\n"


def test_a_host_that_is_elsewhere_is_named(tmp_path: Path) -> None:
    words = ["--lake", str(tmp_path), "--port", "0", "--host", "192.0.2.1", "--auth", "open"]
    result = CliRunner().invoke(cli, ["serve", *words])
    assert result.exit_code == 1
    assert result.stderr.startswith("alluvia: --host 192.0.2.1: cannot listen there")


@pytest.mark.parametrize("option", ["--merge-every", "--vacuum-every", "--pipeline-every"])
@pytest.mark.parametrize("seconds", ["-1", "inf", "soon"])
def test_intervals_that_are_none_are_wrong_usage(tmp_path: Path, option: str, seconds: str) -> None:
    result = CliRunner().invoke(cli, ["serve", "--lake", str(tmp_path), "--port", "0", option, seconds])
    assert (result.exit_code, option in result.stderr) == (2, True)


@pytest.mark.slow
def test_every_acknowledged_event_is_there_once_however_often_the_server_is_killed(tmp_path: Path) -> None:
    lake, dice = tmp_path / "lake", random.Random(7)
    sent = [[f"{post}-{at}" for at in range(5)] for post in range(120)]
    acknowledged: set[str] = set()
    pending = list(sent)
    for _ in range(8):
        with serving(lake, "--merge-every", "0.3") as (process, port):
            client = Client(port)
            for _ in range(dice.randrange(5, 25)):
                if not pending:
                    break
                reply = client.post("/v1/events/app", json.dumps([{"event_id": each} for each in pending[0]]).encode())
                assert reply.status == 200
                acknowledged.update(pending.pop(0))
            if pending:
                with contextlib.suppress(OSError, HTTPException):
                    client._connection.request(
                        "POST", "/v1/events/app", json.dumps([{"event_id": e} for e in pending[0]])
                    )
                    time.sleep(dice.random() * 0.02)
            process.send_signal(signal.SIGKILL)
    with serving(lake) as (_, port):
        for post in pending:
            assert (
                Client(port).post("/v1/events/app", json.dumps([{"event_id": e} for e in post]).encode()).status == 200
            )
    ids = alluvia.connect(str(lake)).table("app").scan(columns=["event_id"]).read_all()["event_id"].to_pylist()
    assert acknowledged <= set(ids)
    assert sorted(ids) == sorted(each for post in sent for each in post)
    theirs = deltalake.DeltaTable(str(lake / "app")).to_pyarrow_table(columns=["event_id"])
    assert sorted(theirs["event_id"].to_pylist()) == sorted(ids)


def demo(lake: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "alluvia.cli", "demo", "--lake", str(lake)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_the_demo_killed_at_any_moment_can_be_run_again_to_the_right_end(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for seconds in (1.5, 3.0, 4.5):
        process = demo(lake)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
        opened = alluvia.connect(str(lake))
        for name in opened.tables():
            ids = opened.table(name).scan(columns=["event_id"]).read_all()["event_id"].to_pylist()
            assert len(ids) == len(set(ids))
    process = demo(lake)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert re.search(r"requests +9999 +9999 +9999", output)
    assert re.search(r"webhooks +255 +255 +255", output)
    opened = alluvia.connect(str(lake))
    assert opened.sql("SELECT count(DISTINCT event_id) AS n FROM requests").to_pylist() == [{"n": 9999}]
    assert opened.sql("SELECT count(*) AS n FROM webhooks").to_pylist() == [{"n": 255}]
