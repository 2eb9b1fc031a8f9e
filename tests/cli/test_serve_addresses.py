"""Commands print the address of a server of their lake that runs on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

import alluvia
from alluvia.cli.command_line import cli
from tests.serving import serving


def test_publish_prints_the_url_at_the_server_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    alluvia.connect(str(tmp_path / "lake")).create_table("numbers", {"n": "long"})

    def printed(*words: str) -> tuple[str, str]:
        done = CliRunner().invoke(cli, [*words, "--lake", str(tmp_path / "lake")])
        assert done.exit_code == 0, done.output
        return done.stdout, done.stderr

    with serving(tmp_path / "lake", quiet=True) as (_, port):
        shown, said = printed("publish", "one", "SELECT 1 AS n")
        [url] = re.findall(r"http://\S+", shown)
        assert (url, said) == (f"http://127.0.0.1:{port}/v1/queries/one.json", "")
        link = printed("link", "one", "--format", "json")[0].strip()
        for each in (url, link):
            with urlopen(each, timeout=60) as answer:
                assert answer.read() == b'[{"n":1}]\n'
        monkeypatch.setenv("ALLUVIA_URL", "https://lake.example")
        assert "https://lake.example/v1/queries/one.json" in printed("published")[0]
        monkeypatch.delenv("ALLUVIA_URL")
    shown, said = printed("publish", "one", "SELECT 1 AS n")
    assert " /v1/queries/one.json" in shown
    assert "start one with `alluvia serve`, or set ALLUVIA_URL" in said
