"""Jobs of `alluvia serve`: sent, looked at, cancelled, fetched, and what becomes of them when it stops."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

import alluvia
from alluvia.operations.results.jobs import JOBS
from alluvia.operations.results.results import LARGE
from tests.access import grant, token
from tests.serving import serving

ENDLESS = "SELECT count(*) AS n FROM range(100000000000) t(i) WHERE hash(i) = 1"
ENDED = ("done", "failed", "cancelled", "expired")


class Server:
    def __init__(self, port: int, token: str = "") -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return requests.request(method, self.url + path, json=body, headers=sent, timeout=60, allow_redirects=False)

    def send(self, query: str, /, key: str = "", **fields: Any) -> Any:
        headers = {"Idempotency_Key": key} if key else {}
        found = self.call("POST", "/q", {"query": query, "mode": "async", **fields}, **headers)
        assert found.status_code == 202, found.text
        assert found.headers["Location"] == f"/v1/jobs/{found.json()['id']}"
        return found.json()

    def wait(self, job: Any, *states: str) -> Any:
        """Look at a job until it has got somewhere: it will, so this needs no end of its own."""
        while True:
            found = self.call("GET", f"/v1/jobs/{job['id']}")
            assert found.status_code == 200, found.text
            if found.json()["state"] in (states or ENDED):
                return found.json()
            time.sleep(0.05)

    def result(self, job: Any, form: str = "ndjson") -> requests.Response:
        return self.call("GET", f"/v1/jobs/{job['id']}/result.{form}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    lake = alluvia.connect(str(folder))
    lake.create_table("trips", {"n": "long"}).append([{"n": n} for n in range(100)])
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving(folder, quiet=True) as (_, port):
        yield Server(port)


def test_a_job_is_sent_and_its_result_fetched(server: Server) -> None:
    job = server.wait(server.send("SELECT n FROM trips WHERE n < $n ORDER BY n", parameters={"n": 3}, format="csv"))
    told = {name: job[name] for name in ("state", "rows", "result_bytes", "files_read", "versions", "result")}
    path = f"/v1/jobs/{job['id']}/result.csv"
    assert told == {
        "state": "done",
        "rows": 3,
        "result_bytes": 12,
        "files_read": 1,
        "versions": "trips=1",
        "result": path,
    }
    assert job["asked"] <= job["started"] <= job["ended"]
    found = server.result(job, "csv")
    assert (found.status_code, found.headers["Cache-Control"]) == (303, "no-store")
    assert requests.get(server.url + path, timeout=60).text == "n\r\n0\r\n1\r\n2\r\n"
    assert server.result(job).status_code == 404
    nothing = server.wait(server.send("SELECT n FROM trips WHERE n < 0"))
    assert (server.result(nothing).status_code, server.result(nothing).content) == (200, b"")


def test_who_prefers_not_to_wait_does_not(server: Server) -> None:
    found = server.call("POST", "/q", {"query": "SELECT 1"}, Prefer="wait=5, Respond-Async")
    assert (found.status_code, found.headers["Preference-Applied"]) == (202, "respond-async")
    found = server.call("POST", "/q", {"query": "SELECT 1 AS x", "dry_run": True}, Prefer="respond-async")
    assert found.status_code == 200
    assert server.call("POST", "/q", {"query": "SELECT 1 AS x"}, Prefer="wait=5").json() == {"x": 1}
    assert server.call("GET", "/q?mode=async&query=SELECT+1").status_code == 400


@pytest.mark.parametrize("query", ["SELECT 1; SELECT 2", "DELETE FROM trips", "INSERT INTO trips VALUES (1)"])
def test_a_job_is_one_select(server: Server, query: str) -> None:
    found = server.call("POST", "/q", {"query": query, "mode": "async"})
    assert (found.status_code, "mode: a job is one SELECT" in found.text) == (400, True)


def test_what_fails_says_why_as_an_answer_would(server: Server) -> None:
    for query, status in (("SELECT nope FROM trips", 400), ("SELECT * FROM nothing", 404)):
        direct = server.call("POST", "/q", {"query": query})
        job = server.wait(server.send(query))
        assert (job["state"], job["status"], job["error"]) == ("failed", status, direct.json()["error"])
        assert (server.result(job).status_code, server.result(job).json()) == (status, direct.json())
    late = server.wait(server.send(ENDLESS, max_seconds=1))
    assert (late["status"], "longer than the 1 seconds allowed" in late["error"]) == (422, True)


def test_a_cancelled_job_ends(server: Server) -> None:
    job = server.send(ENDLESS)
    server.wait(job, "running")
    assert server.result(job).status_code == 404
    assert server.call("DELETE", f"/v1/jobs/{job['id']}").json()["state"] == "cancelled"
    assert (server.wait(job)["state"], server.result(job).status_code) == ("cancelled", 410)
    # Its place is free again: two jobs run at once.
    ended = [server.wait(each)["state"] for each in [server.send("SELECT 1") for _ in range(3)]]
    assert ended == ["done"] * 3
    done = server.wait(server.send("SELECT 1"))
    assert server.call("DELETE", f"/v1/jobs/{done['id']}").json()["state"] == "done"


def test_one_key_is_one_job(server: Server) -> None:
    jobs = [server.send("SELECT 1", key="a")["id"] for _ in range(2)]
    assert jobs[0] == jobs[1] != server.send("SELECT 1", key="b")["id"]
    other = server.call("POST", "/q", {"query": "SELECT 2", "mode": "async"}, Idempotency_Key="a")
    assert (other.status_code, "sent with another request" in other.text) == (400, True)


def test_a_result_that_is_gone_has_expired(server: Server, folder: Path) -> None:
    job = server.wait(server.send("SELECT * FROM trips"))
    for path in (folder / LARGE).iterdir():
        path.unlink()
    assert (server.wait(job)["state"], server.result(job).status_code) == ("expired", 410)


def test_jobs_are_of_those_who_may_do_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    lake = alluvia.connect(str(tmp_path / "lake"))
    lake.create_table("trips", {"n": "long"}).append([{"n": n} for n in range(9)])
    some = grant("read:trips", where="n < 5")
    mine, same, all_rows = token(lake, some), token(lake, some), token(lake, grant("read:trips"))
    with serving(tmp_path / "lake", "--auth", "tokens", quiet=True) as (process, port):
        owner = Server(port, mine)
        job = owner.wait(owner.send("SELECT count(*) AS n FROM trips"))
        assert "files_read" not in job
        assert requests.get(f"{owner.url}{owner.result(job).headers['Location']}", timeout=60).json() == {"n": 5}
        for other, status in ((Server(port, same), 200), (Server(port, all_rows), 404), (Server(port), 401)):
            path = f"/v1/jobs/{job['id']}"
            assert {other.call(method, path).status_code for method in ("GET", "DELETE")} == {status}
            assert other.result(job).status_code == (303 if status == 200 else status)
        waiting = [owner.send(ENDLESS) for _ in range(3)]
        owner.wait(waiting[0], "running")
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    ends = [json.loads((tmp_path / "lake" / JOBS / job["id"] / "end.json").read_bytes()) for job in waiting]
    assert [(end["state"], end["status"]) for end in ends] == [("failed", 503)] * 3
    alluvia.connect(str(tmp_path / "lake"))["trips"].erase("n = 1")
    assert [*(tmp_path / "lake" / JOBS).rglob("*.json")] == []
