"""`alluvia token`, and what `alluvia serve --auth tokens` makes of what it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import alluvia
from alluvia.cli.client import Client
from tests.serving import serving


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    lake = alluvia.connect(tmp_path / "lake")
    rows = [{"tenant": tenant, "email": f"{tenant}@x", "n": n} for tenant in "ab" for n in range(3)]
    lake.create_table("daily_hits", {"tenant": "string", "email": "string", "n": "long"}).append(rows)
    return tmp_path / "lake"


def alluvia_token(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "alluvia.cli", "token", words[0], "--lake", str(place), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_token_of_the_command_line_opens_what_it_names_and_nothing_else(place: Path) -> None:
    made = alluvia_token(
        place, "create", "--append", "clicks", "--read", "daily_hits", "--where", "tenant = 'a'", "--hide", "email",
        "--expires", "30d", "--limit-requests", "600/m", "--limit-bytes", "1GB", "--name", "site a", "--json",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    facts = json.loads(made.stdout)
    bearer = {"Authorization": f"Bearer {facts.pop('token')}"}
    with serving(place, "--auth", "tokens") as (_, port):
        client = Client(port)
        assert client.post("/v1/events/clicks", {"event": "open"}).status == 401
        assert client.post("/v1/events/clicks", {"event": "open"}, bearer).json()["accepted"] == 1
        assert client.post("/v1/events/others", {"event": "open"}, bearer).status == 403
        assert client.post("/q", {"query": "SELECT * FROM daily_hits"}).status == 401
        seen = client.post("/q", {"query": "SELECT * FROM daily_hits ORDER BY n"}, bearer)
        assert [json.loads(line) for line in seen.body.splitlines()] == [{"tenant": "a", "n": n} for n in range(3)]
        assert client.post("/q", {"query": "SELECT * FROM clicks"}, bearer).status == 403
        revoked = alluvia_token(place, "revoke", facts["id"], "--json")
        assert json.loads(revoked.stdout) == {"revoked": facts["id"], "name": "site a"}
    with serving(place, "--auth", "tokens") as (_, port):
        assert Client(port).post("/v1/events/clicks", {"event": "open"}, bearer).status == 401
    (listed,) = map(json.loads, alluvia_token(place, "list", "--json").stdout.splitlines())
    assert {name: listed[name] for name in facts} == facts
    assert (listed["state"], listed["scopes"]) == ("revoked", "append:clicks read:daily_hits")
    assert (listed["where"], listed["hide"]) == ("tenant = 'a'", "email")
    assert (listed["requests_per_minute"], listed["query_bytes"]) == (600, 10**9)


def test_a_line_of_the_log_names_the_caller(place: Path) -> None:
    named = alluvia_token(place, "create", "--read", "daily_hits", "--append", "clicks", "--name", 'Petra "P"').stdout
    unnamed = json.loads(alluvia_token(place, "create", "--read", "daily_hits", "--json").stdout)
    command = [sys.executable, "-m", "alluvia.cli", "serve", "--lake", str(place), "--port", "0", "--auth", "tokens"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    client = Client(int(process.stdout.readline().rpartition(":")[2]))
    for token in (named.strip(), unnamed["token"]):
        bearer = {"Authorization": f"Bearer {token}"}
        assert client.post("/q", {"query": "SELECT 1 AS one"}, bearer).status == 200
        assert client.post("/q", {"query": "FROM clicks"}, bearer).status == 403
    assert client.post("/v1/events/clicks", {"event": "a"}, {"Authorization": f"Bearer {named.strip()}"}).status == 200
    assert client.post("/q", {"query": "SELECT 1"}).status == 401
    process.terminate()
    lines = [line for line in process.communicate(timeout=30)[1].splitlines() if " ms" in line]
    petra, other = ' by "Petra \\"P\\""', f' by "{unnamed["id"]}"'
    assert [line.partition(" ms")[2] for line in lines] == [petra, petra, other, other, petra, ""]


def test_names_of_a_token_that_the_lake_lacks_are_told(place: Path) -> None:
    lake = alluvia.connect(place)
    lake.sql("CREATE VIEW v AS FROM daily_hits")
    lake.publish_query("hits", "SELECT count(*) AS n FROM daily_hits")
    granted = ("--read", "main.daily_hits", "--read", "v", "--read", "day*", "--query", "hits", "--append", "later")
    assert "does not exist" not in alluvia_token(place, "create", *granted).stderr
    said = alluvia_token(place, "create", "--read", "daily_hit", "--write", "orders", "--query", "hitz@1")
    assert said.returncode == 0
    assert said.stderr.splitlines()[:3] == [
        "Table daily_hit does not exist: did you mean daily_hits?",
        "Table orders does not exist. The token allows it once it does.",
        "Query hitz does not exist: did you mean hits?",
    ]


def test_who_hides_a_column_is_told_that_properties_may_have_its_values(place: Path) -> None:
    alluvia.connect(place).create_events("clicks", pa.schema({"email": pa.string()}))
    told = "Table clicks shows its column properties,"
    assert told in alluvia_token(place, "create", "--read", "clicks", "--hide", "email").stderr
    assert (
        told not in alluvia_token(place, "create", "--read", "clicks", "--hide", "email", "--hide", "Properties").stderr
    )
    assert told not in alluvia_token(place, "create", "--read", "clicks").stderr
    alluvia.connect(place)["clicks"].evolve(add={"phone": "string"})
    assert told not in alluvia_token(place, "create", "--read", "clicks", "--hide", "phone").stderr


def test_keys_rotate(place: Path) -> None:
    first = alluvia_token(place, "create", "--read", "daily_hits")
    key = next((place.parent / "config" / "alluvia" / "token-keys").iterdir())
    assert (key.stat().st_mode & 0o777, str(key) in first.stderr) == (0o600, True)
    rotated = json.loads(alluvia_token(place, "rotate-key", "--json").stdout)
    second = alluvia_token(place, "create", "--read", "daily_hits")
    assert json.loads(alluvia_token(place, "list", "--json").stdout.splitlines()[1])["key"] == rotated["key"]
    alluvia_token(place, "rotate-key", "--retire", key.stem)
    shown = [json.loads(alluvia_token(place, "show", each.stdout.strip(), "--json").stdout) for each in (first, second)]
    assert [each["state"] for each in shown] == ["the token is not valid", "valid"]
    key.parent.rename(place.parent / "away")
    lost = alluvia_token(place, "create", "--read", "daily_hits")
    assert (lost.returncode, "this machine has none of the lake's private keys" in lost.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "name what it may do"),
        (["--append", "clicks", "--where", "n = 1"], "--where and --hide limit what --read and --query allow"),
        (["--read", "daily_hits", "--where", "n ="], "Parser Error"),
        (["--read", "daily_hits", "--where", "m = 1"], '"m" not found'),
        (["--read", "*", "--where", "n IN (SELECT 1)"], "subqueries"),
        (["--read", "daily_hits", "--hide", "emial"], "has no column emial"),
        (["--read", "Daily"], "tables: 'Daily'"),
        (["--read", "daily_hits", "--limit-requests", "often"], "--limit-requests"),
        (["--read", "daily_hits", "--limit-bytes", "0"], "--limit-bytes"),
        (["--read", "daily_hits", "--expires", "0"], "expires"),
    ],
)
def test_what_makes_no_sense_makes_no_token(place: Path, words: list[str], reason: str) -> None:
    refused = alluvia_token(place, "create", *words)
    assert (refused.returncode in (1, 2), refused.stdout) == (True, "")
    assert reason in refused.stderr
    assert list((place / "_alluvia" / "tokens").glob("issued/*")) == []


def test_a_hidden_column_may_be_in_one_of_several_tables(place: Path) -> None:
    alluvia.connect(place).create_table("orders", {"n": "long"})
    two = ("create", "--read", "daily_hits", "--read", "orders")
    assert alluvia_token(place, *two, "--hide", "email").returncode == 0
    refused = alluvia_token(place, *two, "--hide", "emial").stderr
    assert "--hide: tables daily_hits, orders have no column emial: did you mean email?" in refused
