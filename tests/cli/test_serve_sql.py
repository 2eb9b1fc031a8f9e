"""`alluvia serve` and SQL that writes, over real HTTP."""

from __future__ import annotations

import json
import re
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import alluvia
from alluvia.cli.client import Client, Reply
from tests.serving import serving


def post(port: int, sql: str, parameters: Any = None, path: str = "/q") -> Reply:
    return Client(port).post(path, {"query": sql, **({} if parameters is None else {"parameters": parameters})})


def rows(reply: Reply) -> list[Any]:
    assert reply.status == 200, reply.body
    return [json.loads(line) for line in reply.body.splitlines()]


@pytest.fixture
def lake(tmp_path: Path) -> alluvia.Lake:
    lake = alluvia.connect(str(tmp_path))
    lake.create_table("accounts", {"name": "string", "balance": "long"}).append(
        [{"name": "a", "balance": 100}, {"name": "b", "balance": 100}]
    )
    return lake


def test_writes_are_off_unless_the_server_is_told(lake: alluvia.Lake, tmp_path: Path) -> None:
    with serving(tmp_path) as (_, port):
        for path in ("/q", "/sql"):
            refused = post(port, "DELETE FROM accounts", path=path)
            assert (refused.status, "start `alluvia serve` with --allow-writes" in refused.json()["error"]) == (
                403,
                True,
            )
        assert rows(post(port, "SELECT 1; SELECT sum(balance) AS n FROM accounts WHERE name = ?", ["a"])) == [
            {"n": 100}
        ]
    assert alluvia.connect(lake.uri).table("accounts").version == 1


def test_with_the_right_statements_of_a_request_are_one_transaction(lake: alluvia.Lake, tmp_path: Path) -> None:
    transfer = """
        UPDATE accounts SET balance = balance - $n WHERE name = $from_name;
        UPDATE accounts SET balance = balance + $n WHERE name = $to_name;
        INSERT INTO transfers VALUES ($from_name, $to_name, $n);
        SELECT name, balance FROM accounts ORDER BY name;
    """
    values = {"n": 10, "from_name": "a", "to_name": "b"}
    with serving(tmp_path, "--allow-writes") as (_, port):
        assert post(port, transfer, values).status == 404
        created = post(port, "CREATE TABLE transfers (sender VARCHAR, receiver VARCHAR, n BIGINT)", path="/sql")
        assert created.status == 200
        found = rows(post(port, transfer, values))
        assert found == [{"name": "a", "balance": 90}, {"name": "b", "balance": 110}]
        failed = post(port, transfer + "; SELECT error('stop') FROM accounts", values)
        assert (failed.status, "stop" in failed.json()["error"]) == (400, True)
        # What senders on pages of other sites can make a browser send, without a preflight request, writes nothing.
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            headers = {"Content-Type": kind, "Origin": "http://evil.example"}
            assert Client(port).post("/q", b"DROP TABLE accounts", headers).status == 403
    left = alluvia.connect(lake.uri).sql(
        "SELECT sum(balance) AS n, (SELECT count(*) FROM transfers) AS t FROM accounts"
    )
    assert left.to_pylist() == [{"n": 200, "t": 1}]


def test_increments_of_many_clients_are_all_there(lake: alluvia.Lake, tmp_path: Path) -> None:
    statuses: list[int] = []

    def increment(port: int) -> None:
        sql = "UPDATE accounts SET balance = balance + 1 WHERE name = 'a'; SELECT 1"
        statuses.extend(post(port, sql).status for _ in range(4))

    with serving(tmp_path, "--allow-writes") as (_, port):
        clients = [Thread(target=increment, args=(port,)) for _ in range(3)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    assert set(statuses) <= {200, 409}
    (left,) = alluvia.connect(lake.uri).sql("SELECT balance FROM accounts WHERE name = 'a'").to_pylist()
    assert left["balance"] == 100 + statuses.count(200)


def peak_bytes(process: int) -> int:
    """The most memory that a process has held."""
    status = Path(f"/proc/{process}/status").read_text("ascii")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


def test_no_expression_takes_the_server_beyond_a_limit(
    lake: alluvia.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call of a function on one row can neither be interrupted nor bounded by DuckDB."""
    monkeypatch.setenv("ALLUVIA_QUERY_TIMEOUT_SECONDS", "120")  # which plain statements keep on a busy machine
    monkeypatch.setenv("ALLUVIA_QUERY_MEMORY_MB", "100")
    much = "strlen(repeat(repeat(repeat('a', 1000), 1000), 2000 + balance))"
    long = "levenshtein(repeat('ab', 50000 + balance), repeat('ba', 50000))"
    clause = "USING (SELECT 'a' AS name) s ON t.name = s.name WHEN MATCHED"
    slow = "longer than the 2 seconds allowed"
    large = ("memory", slow)  # whichever is found first on a machine that is busy
    refused = {
        f"UPDATE accounts SET balance = {much}": large,
        f"DELETE FROM accounts WHERE {long} > 1": (slow,),
        f"MERGE INTO accounts t {clause} THEN UPDATE SET balance = {much.replace('balance', 't.balance')}": large,
        "MERGE INTO accounts t USING (SELECT DISTINCT i::VARCHAR AS name FROM range(40000000) r(i)) s "
        "ON t.name = s.name WHEN MATCHED THEN DELETE": (slow,),
        f"INSERT INTO accounts VALUES ('c', 1); UPDATE accounts SET balance = {much}; SELECT 1": large,
    }
    with serving(tmp_path, "--allow-writes") as (server, port):
        # Both computed by DuckDB, so that all is loaded.
        assert post(port, "UPDATE accounts SET balance = sqrt(10000)::BIGINT").status == 200
        for sql, reasons in refused.items():
            before = peak_bytes(server.pid)
            answer = Client(port).post("/q", {"query": sql, "max_seconds": 2})
            found = any(reason in answer.json()["error"] for reason in reasons)
            assert (answer.status, found) == (422, True), (sql, answer.body)
            assert peak_bytes(server.pid) - before < 200_000_000, sql
            (said,) = rows(post(port, "UPDATE accounts SET balance = round(balance + 0.4)::BIGINT"))
            assert said["rows_updated"] == 2
    table = alluvia.connect(lake.uri).table("accounts")
    assert table.version == 2 + len(refused)
    assert table.to_arrow().sort_by("name").to_pylist() == [
        {"name": "a", "balance": 100},
        {"name": "b", "balance": 100},
    ]
