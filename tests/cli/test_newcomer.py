"""What a newcomer types first: no lake yet, a file for a lake, a table that is not there, and `--version`."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import alluvia
from alluvia.cli.command_line import cli
from tests.cli.terminals import COMMAND, environment, on_terminal, through_pipe

READING = [["tables"], ["query", "SELECT 1"], ["history", "t"], ["optimize"], ["vacuum"], ["verify", "t"], ["undrop"]]
LOADED = """
import sys
from alluvia.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*sorted(sys.modules), file=sys.stderr)
"""


def run(*words: str, lake: Path) -> Result:
    return CliRunner().invoke(cli, [words[0], "--lake", str(lake), *words[1:]])


@pytest.mark.parametrize("words", READING)
def test_a_folder_that_is_missing(tmp_path: Path, words: list[str]) -> None:
    result = run(*words, lake=tmp_path / "lake")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"alluvia: there is no lake at {tmp_path / 'lake'} yet: `alluvia create --lake ")
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "lake").exists()


def test_what_it_says_to_type_works_as_it_stands(tmp_path: Path) -> None:
    def type_(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *words]
        return subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)

    missing = type_("tables")
    assert missing.stderr.startswith("alluvia: there is no lake at ./lake yet: `alluvia create TABLE` or ")
    made = type_(*missing.stderr.split("`")[1].replace("TABLE", "clicks").split()[1:])
    assert made.returncode == 0
    assert alluvia.connect(tmp_path / "lake").tables() == ["clicks"]


@pytest.mark.parametrize("words", [*READING, ["create", "t"], ["ingest", "t", "-"], ["demo"], ["serve"]])
def test_a_file_for_a_lake(tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "passwd"
    file.write_text("root")
    result = run(*words, lake=file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"alluvia: {file} is a file, not a folder: ")
    below = run(*words, lake=file / "lake")
    assert below.stderr == f"alluvia: {file / 'lake'} cannot be a lake: {file} is a file, not a folder\n"


def test_a_table_for_a_lake(tmp_path: Path) -> None:
    alluvia.connect(tmp_path).create_table("t", {"n": "long"})
    result = run("tables", lake=tmp_path / "t")
    assert result.exit_code == 1
    assert result.stderr.endswith(
        f"is a table, not a lake: the lake is the folder that contains it; try --lake {tmp_path}\n"
    )


@pytest.mark.parametrize("command", ["tables", "optimize", "vacuum", "checkpoint"])
def test_an_empty_lake(tmp_path: Path, command: str) -> None:
    result = run(command, lake=tmp_path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.startswith(f"the lake at {tmp_path} holds no tables: `alluvia create --lake {tmp_path} TABLE`")
    lake = alluvia.connect(tmp_path)
    lake.create_table("gone", {"n": "long"})
    lake.drop_table("gone")
    dropped = run("tables", lake=tmp_path)
    assert "holds no tables; `alluvia undrop` lists what was dropped: " in dropped.stderr
    assert "gone" in run("undrop", lake=tmp_path).stdout


def test_a_command_on_a_table_that_is_not_there_prints_no_head(tmp_path: Path) -> None:
    for command in ("optimize", "vacuum", "checkpoint"):
        result = run(command, "nosuch", lake=tmp_path)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "alluvia: there is no table 'nosuch'\n"


def test_the_version() -> None:
    done = through_pipe(["--version"])
    assert done.stdout.decode().split()[-1] == version("alluvia")


def loaded(*words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words], env=environment(), capture_output=True, text=True, check=True
    )
    return set(done.stderr.splitlines()[-1].split())


def test_what_is_loaded_to_start(tmp_path: Path) -> None:
    heavy = {
        *("boto3", "botocore", "duckdb", "_duckdb", "pyarrow", "rich", "waitress", "alluvia.api.lake"),
        "aws_lambda_powertools",
    }
    for words in (["--help"], ["optimize", "--help"], ["--version"]):
        assert not heavy & loaded(*words)
    assert not {"boto3", "duckdb", "_duckdb", "pyarrow", "alluvia.api.lake"} & loaded("tables", "--lake", str(tmp_path))
    alluvia.connect(tmp_path).create_table("t", {"n": "long"})
    tables = loaded("tables", "--lake", str(tmp_path))
    assert not {"boto3", "botocore", "duckdb", "_duckdb", "pyspark"} & tables
    assert not {"alluvia.cli.commands.running", "alluvia.cli.commands.verbs"} & tables
    query = loaded("query", "SELECT count(*) FROM t", "--lake", str(tmp_path))
    assert not {"_duckdb", "duckdb", "ssl", "pyarrow.parquet", "alluvia.sql.grammar.grammar"} & query


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_rich_is_loaded_for_terminals_alone(tmp_path: Path, more: list[str]) -> None:
    alluvia.connect(tmp_path).create_table("t", {"n": "long"})
    for words in (["tables"], ["describe", "t"], ["query", "SELECT 1"], ["stream", "list"]):
        assert "rich" not in loaded(*words, "--lake", str(tmp_path), *more)


def test_merge_says_what_to_call(tmp_path: Path) -> None:
    result = run("merge", "t", lake=tmp_path)
    assert result.exit_code == 2
    assert "no command 'merge': use optimize to compact files, or upsert for SQL's MERGE INTO" in result.output


class TestVacuumAsks:
    """A retention that is shorter than a table's own takes what it promises to keep."""

    @pytest.fixture
    def lake(self, tmp_path: Path) -> Path:
        table = alluvia.connect(tmp_path).create_table("t", {"n": "long"})
        for n in range(2):
            table.append([{"n": n}])
        table.optimize()
        return tmp_path

    def left(self, lake: Path) -> int:
        return len(list((lake / "t").glob("part-*.parquet")))

    def words(self, lake: Path, *more: str) -> list[str]:
        return ["vacuum", "t", "--retention", "0", "--lake", str(lake), *more]

    def test_where_nobody_can_answer_it_refuses(self, lake: Path) -> None:
        done = through_pipe(self.words(lake))
        assert (done.returncode, done.stdout, self.left(lake)) == (2, b"", 3)
        assert b"--retention is shorter than the tables' own (t: 7 days)" in done.stderr
        assert b"add --yes to go on, or --dry-run to see" in done.stderr

    @pytest.mark.parametrize(("typed", "code", "left"), [("y\n", 0, 1), ("n\n", 1, 3), ("\n", 1, 3)])
    def test_on_a_terminal_the_answer_decides(self, lake: Path, typed: str, code: int, left: int) -> None:
        shown = on_terminal(self.words(lake), typed=typed)
        assert "Queries that still read them will fail. Delete? [y/N]" in " ".join(shown.text.split())
        assert (shown.returncode, self.left(lake)) == (code, left)

    @pytest.mark.parametrize(("more", "left"), [(["--yes"], 1), (["--dry-run"], 3)])
    def test_no_question(self, lake: Path, more: list[str], left: int) -> None:
        done = through_pipe(self.words(lake, *more))
        assert (done.returncode, done.stderr, self.left(lake)) == (0, b"", left)

    def test_a_retention_that_the_table_asks_for_needs_no_question(self, lake: Path) -> None:
        alluvia.connect(lake).table("t").evolve(properties={"delta.deletedFileRetentionDuration": "0 hours"})
        assert through_pipe(self.words(lake)).returncode == 0
        assert self.left(lake) == 1
