"""`alluvia source` with a server of the lake running: it looks at changes at once, and its user hears its reasons."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import alluvia
from alluvia.events.sources.definition import KEY, Source
from alluvia.events.sources.lake_sources import change_sources
from alluvia.server.announcing import running_servers
from tests.cli.test_sources import post
from tests.serving import serving
from tests.webhooks import signed, source

PATH = "/v1/webhooks/s"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "lake"


@pytest.fixture
def port(lake: Path) -> Iterator[int]:
    with serving(lake, quiet=True) as (_, port):
        yield port


def run(lake: Path, *words: str, **variables: str) -> tuple[int, dict[str, Any], str]:
    """Run `alluvia source`; return its exit code, what it printed as JSON, and its errors."""
    command = [sys.executable, "-m", "alluvia.cli", "source", *words, "--lake", str(lake), "--json"]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=lake.parent)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_what_the_server_needs_and_the_sender_is_told(lake: Path, port: int) -> None:
    code, added, said = run(lake, "add", "s", "--kind", "github", "--secret", "env:ELSEWHERE")
    assert (code, added["address"]) == (0, f"http://127.0.0.1:{port}{PATH}")
    assert added["server_needs"] == "the environment variable ELSEWHERE, set when the server starts"
    assert added["at_sender"] == "Settings → Webhooks: the address as payload URL, and the secret"
    assert f"the server at http://127.0.0.1:{port} cannot use this source now (the secret env:ELSEWHERE is" in said
    code, tried, said = run(lake, "test", "s", ELSEWHERE="hush")
    assert (code, tried["server"], tried["signed"], tried["forged"]) == (1, f"http://127.0.0.1:{port}", 401, 401)
    assert "status 401 (the secret env:ELSEWHERE is not set: set that environment variable before" in said
    assert "hush" not in said


def test_the_key_of_a_server_here_goes_past_proxies(lake: Path, port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        place = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        proxies = {"http_proxy": place, "HTTP_PROXY": place, "no_proxy": "", "NO_PROXY": ""}
        proxy.setblocking(False)  # so that accept raises where nothing has connected
        code, _, said = run(lake, "add", "s", "--kind", "github", "--secret", "env:HUSH", **proxies)
        assert (code, f"the server at http://127.0.0.1:{port} cannot use this source now" in said) == (0, True)
        code, tried, _ = run(lake, "test", "s", **proxies, HUSH="hush")
        assert (code, tried["server"]) == (1, f"http://127.0.0.1:{port}")
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_a_changed_source_and_a_changed_file_count_at_once(lake: Path, port: int, tmp_path: Path) -> None:
    of, file = source("github"), tmp_path / "secret"
    file.write_text("one\n")

    def send(secret: str) -> int:
        delivery = signed(of, json.dumps({"zen": secret}).encode(), secret=secret)
        return post(port, PATH, delivery.body, delivery.headers)[0]

    assert send("one") == 401
    code, added, said = run(lake, "add", "s", "--kind", "github", "--secret", "file:secret")
    assert (code, added["secret"], said) == (0, f"file:{file}", "")
    assert send("one") == 200
    assert run(lake, "add", "s", "--kind", "github", "--secret", "file:secret", "--table", "moved", "--replace")[0] == 0
    assert send("one") == 200
    assert alluvia.connect(str(lake)).table("moved").count() == 1
    file.write_text("another\n")
    assert (send("another"), send("one")) == (200, 401)
    code, tried, said = run(lake, "test", "s")
    assert (code, tried["server"], said) == (0, f"http://127.0.0.1:{port}", "")
    written = (lake / KEY).read_text()
    (lake / KEY).write_text("")
    assert send("another") == 401
    (lake / KEY).write_text(written)
    assert send("another") == 200
    assert run(lake, "drop", "s")[0] == 0
    assert send("another") == 401


def test_a_wrong_secret_is_told_to_the_user_of_the_server_alone(lake: Path, port: int, tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).write_text(name)
    assert run(lake, "add", "s", "--kind", "github", "--secret", "file:here")[0] == 0
    delivery = signed(source("github"), secret="wrong")
    key = running_servers(str(lake), None)[0].key
    for guess in ("", "x", key[:-1]):
        status, text = post(port, PATH, delivery.body, {**delivery.headers, "Alluvia-Operator": guess})
        assert (status, "too old, or there is no such source" in text) == (401, True)
    status, text = post(port, PATH, delivery.body, {**delivery.headers, "Alluvia-Operator": key})
    assert (status, text) == (401, '{"error":"the signature does not match"}')
    status, text = post(port, "/v1/webhooks/none", b"{}", {"Alluvia-Operator": key})
    assert (status, text) == (401, '{"error":"there is no such source"}')


def test_a_server_that_ended_or_another_lake_is_not_asked(lake: Path, tmp_path: Path) -> None:
    with serving(lake, quiet=True) as (process, port):
        assert [each.url for each in running_servers(str(lake), None)] == [f"http://127.0.0.1:{port}"]
        assert [each.url for each in running_servers(f"{lake}/../lake/", None)] == [f"http://127.0.0.1:{port}"]
        assert running_servers(str(tmp_path), None) == []
        [file] = (tmp_path / "state" / "alluvia" / "servers").iterdir()
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        process.kill()
        process.wait()
        assert file.exists()
        assert running_servers(str(lake), None) == []
        assert not file.exists()
    code, added, said = run(lake, "add", "s", "--kind", "open")
    assert (code, added["address"], said) == (0, f"https://<your API>{PATH}", "")
    code, tried, said = run(lake, "test", "s")
    assert (code, tried["server"], said) == (0, "this process", "")


def test_a_server_elsewhere_keeps_its_reason_and_the_command_says_where_it_is(lake: Path, port: int) -> None:
    change_sources(
        alluvia.connect(str(lake)).store,
        lambda sources: sources.update(s=Source("s", "github", "t", secret="env:ELSEWHERE")),
    )
    url = ("--url", f"http://127.0.0.1:{port}")
    code, tried, said = run(lake, "test", "s", *url, ELSEWHERE="hush", XDG_STATE_HOME=str(lake / "other"))
    assert (code, tried["signed"]) == (1, 401)
    assert "the server's log says why. The server needs the environment variable ELSEWHERE, set when" in said
