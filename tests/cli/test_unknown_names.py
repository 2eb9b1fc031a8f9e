"""Words that the command line does not know, and options before and after the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import alluvia
from alluvia.cli.command_line import _MODULE_OF, _OTHER_WORDS, cli


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    alluvia.connect(tmp_path / "lake").create_table("events", {"user_id": "string"})
    return tmp_path / "lake"


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["querry", "SELECT 1"], "there is no command 'querry': did you mean query?"),
        (["rollup", "lst"], "there is no command 'rollup lst': did you mean rollup list?"),
        (["tag", "crate", "x"], "there is no command 'tag crate': did you mean tag create?"),
        (["rejects", "orders"], "there is no command 'rejects orders': use rejects show orders"),
        (["count", "orders"], "there is no command 'count': use query \"SELECT count(*) FROM t\""),
        (["tag", "delete", "x"], "there is no command 'tag delete': use tag drop"),
        (["rm", "x"], "there is no command 'rm': use drop"),
        (["ls"], "there is no command 'ls': use tables"),
        (["frobnicate"], "there is no command 'frobnicate': `alluvia --help` lists the commands"),
        (["tables", "--jsn"], "No such option '--jsn'. Did you mean '--json'?"),
        (["--lak", "x", "tables"], "No such option '--lak'."),
        (["upsert", "t", "rows.csv", "--key", "id"], "No such option '--key': use --on\n"),
        (["tables", "--key", "id"], "No such option '--key'."),
        (["sql", "-c", "SELECT 1"], "No such option '-c': give the SQL itself\n"),
        (["query", "--command", "SELECT 1"], "No such option '--command': give the SQL itself\n"),
    ],
)
def test_wrong_usage_suggests_the_nearest(words: list[str], told: str) -> None:
    done = run(*words)
    assert (done.exit_code, told in done.stderr) == (2, True), done.stderr


def test_words_of_other_tools_name_commands_that_exist() -> None:
    first = {name.split()[0] for name in _MODULE_OF}
    assert not set(_OTHER_WORDS) & first
    for use in _OTHER_WORDS.values():
        assert use.split()[0].rstrip(",") in first


def test_an_unknown_table_or_branch_suggests_the_nearest(lake: Path) -> None:
    assert run("describe", "eventz", "--lake", str(lake)).stderr == (
        "alluvia: there is no table 'eventz': did you mean events?\n"
    )
    assert run("vacuum", "eventz", "--lake", str(lake)).stderr == (
        "alluvia: there is no table 'eventz': did you mean events?\n"
    )
    alluvia.connect(lake).branch("monday")
    assert run("--branch", "munday", "tables", "--lake", str(lake)).stderr == (
        "alluvia: there is no branch 'munday': did you mean monday?\n"
    )
    assert run("--branch", "x", "tables", "--lake", str(lake)).stderr == (
        "alluvia: there is no branch 'x': `alluvia branch create x` creates it, `alluvia branch list` lists the "
        "branches\n"
    )


def test_common_options_stand_before_or_after_the_command(lake: Path) -> None:
    after = run("tables", "--lake", str(lake), "--json")
    assert (after.exit_code, '"table":"events"' in after.stdout) == (0, True)
    for words in (
        ["--lake", str(lake), "--json", "tables"],
        [f"--lake={lake}", "tables", "--json"],
        ["--lake", "nowhere", "--json", "tables", "--lake", str(lake)],
    ):
        assert run(*words).stdout == after.stdout
    created = run("--lake", str(lake), "branch", "--json", "create", "b")
    assert created.stdout.startswith('{"branch":"b"')
    listed = run("branch", "--lake", str(lake), "--json", "list")
    assert listed.stdout == run("branch", "list", "--lake", str(lake), "--json").stdout
    assert run("--branch", "b", "tables", "--lake", str(lake)).exit_code == 0
    assert run("--branch", "b", "branch", "list", "--lake", str(lake)).exit_code == 2


def test_a_server_refuses_a_setting_that_is_misspelt(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_AUHT", "tokens")
    refused = run("serve", "--lake", str(lake), "--port", "0")
    assert (refused.exit_code, refused.stderr) == (
        1, "alluvia: ALLUVIA_AUHT is not a setting: did you mean ALLUVIA_AUTH?\n",
    )  # fmt: skip


def test_the_address_of_a_server_is_no_lake() -> None:
    for words in (["tables"], ["sql", "SELECT 1"], ["head", "t"], ["vacuum"]):
        refused = run("--lake", "http://localhost:8080/?token=secret", *words)
        told = (
            "alluvia: --lake http://localhost:8080/: commands work on the lake itself, such as s3://bucket/prefix or a "
            "folder; ask a server by its HTTP routes, or in Python with alluvia.connect\n"
        )
        assert (refused.exit_code, refused.stderr) == (1, told)
