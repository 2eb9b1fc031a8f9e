"""The forms of rows on the command line, and the files that they are written to: whole, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import alluvia
from alluvia.cli.command_line import cli
from alluvia.cli.options import FORMATS
from alluvia.query import formats
from functions.query.handler import handler
from tests.cli.terminals import on_terminal

READERS = ("query", "sql")
QUERY = "SELECT * FROM t ORDER BY n"
BREAKS = "SELECT CASE WHEN range < 200000 THEN 1 ELSE error('late')::INT END AS n FROM range(200001)"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    table = alluvia.connect(tmp_path / "lake").create_table("t", {"name": "string", "n": "long"})
    table.append([{"name": "é, 1", "n": 1}, {"name": None, "n": 2}, {"name": "", "n": 42}])
    return tmp_path / "lake"


def run(lake: Path, *words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, [words[0], "--lake", str(lake), *words[1:]], input=stdin)


def left(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if each.name != "lake")


def test_the_forms_are_those_of_http() -> None:
    assert list(FORMATS) == ["table", *(each.name.lower() for each in formats.FORMATS)]


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize("form", ["ndjson", "json", "csv", "safecsv", "tsv"])
def test_each_form_is_that_of_http(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, form: str
) -> None:
    monkeypatch.setenv("ALLUVIA_LAKE", str(lake))
    expected = handler({"query": QUERY, "format": form}, None)["body"].encode()
    assert run(lake, command, QUERY, "--format", form.upper()).stdout_bytes == expected
    done = run(lake, command, QUERY, "--format", form, "-o", str(tmp_path / "out"))
    assert (done.exit_code, done.output, (tmp_path / "out").read_bytes()) == (0, "", expected)


@pytest.mark.parametrize("command", READERS)
def test_the_suffix_of_a_file_says_the_form(lake: Path, tmp_path: Path, command: str) -> None:
    rows = alluvia.connect(lake).sql(QUERY)
    for name in ("rows.parquet", "rows.arrow", "rows.arrows", "rows.CSV", "rows.jsonl", "rows.json"):
        assert run(lake, command, QUERY, "-o", str(tmp_path / name)).output == ""
    assert pq.read_table(tmp_path / "rows.parquet").equals(rows)
    for name in ("rows.arrow", "rows.arrows"):
        assert pa.ipc.open_stream((tmp_path / name).read_bytes()).read_all().equals(rows)
    assert (tmp_path / "rows.CSV").read_text("utf-8").splitlines() == ["name,n", '"é, 1",1', ",2", '"",42']
    assert [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()] == rows.to_pylist()
    assert json.loads((tmp_path / "rows.json").read_bytes()) == rows.to_pylist()


def test_the_change_feed_has_the_same_options(lake: Path, tmp_path: Path) -> None:
    file = tmp_path / "changes.csv"
    assert run(lake, "changes", "t", "--from", "1", "-o", str(file)).exit_code == 0
    assert file.read_text().splitlines()[0] == "name,n,_change_type,_commit_version,_commit_timestamp"


def test_more_rows_than_a_table_shows_are_written(lake: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    assert run(lake, "query", "SELECT range AS n FROM range(300000)", "-o", str(file)).exit_code == 0
    same = file.read_bytes() == b"n\r\n" + b"".join(b"%d\r\n" % n for n in range(300_000))
    assert same  # pytest would compare megabytes line by line


@pytest.mark.parametrize("command", READERS)
def test_a_file_is_replaced_whole_or_not_at_all(lake: Path, tmp_path: Path, command: str) -> None:
    file = tmp_path / "rows.csv"
    failed = run(lake, command, BREAKS, "-o", str(file))
    assert (failed.exit_code, "late" in failed.stderr, left(tmp_path)) == (1, True, [])
    file.write_text("as it was")
    file.chmod(0o640)
    assert run(lake, command, BREAKS, "-o", str(file)).exit_code == 1
    assert (file.read_text(), left(tmp_path)) == ("as it was", ["rows.csv"])
    assert run(lake, command, "SELECT 1 AS n", "-o", str(file)).exit_code == 0
    assert (file.read_bytes(), file.stat().st_mode & 0o777, left(tmp_path)) == (b"n\r\n1\r\n", 0o640, ["rows.csv"])


def test_a_link_stays_and_what_it_names_is_replaced(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    assert run(lake, "query", "SELECT 1 AS n", "-o", str(tmp_path / "link.csv")).exit_code == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_bytes() == b"n\r\n1\r\n"


def test_standard_output_and_devices(lake: Path) -> None:
    assert run(lake, "query", "SELECT 1 AS n", "--format", "csv", "-o", "-").stdout_bytes.decode() == "n\r\n1\r\n"
    assert run(lake, "query", "SELECT 1 AS n", "-o", "/dev/null", "--format", "csv").output == ""
    assert not Path("/dev/null").is_file()


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(lake: Path, tmp_path: Path) -> None:
    insert = "INSERT INTO t VALUES ('new', 3)"
    for name, told in {
        "rows.txt": f"{tmp_path}/rows.txt: its suffix names no format: use one of .ndjson, .json, .csv",
        "none/rows.csv": f"{tmp_path}/none/rows.csv: No such file or directory in the folder {tmp_path}/none",
    }.items():
        refused = run(lake, "sql", insert, "-o", str(tmp_path / name))
        assert (refused.exit_code, refused.stderr[: len(told) + 9]) == (1, f"alluvia: {told}")
    refused = run(lake, "sql", insert, "-o", str(tmp_path), "--format", "csv")
    assert refused.stderr == f"alluvia: {tmp_path}: it is a folder; give the name of a file in it\n"
    refused = run(lake, "sql", insert, "-o", str(tmp_path / "x.csv"), "--format", "table")
    assert "--format table is for terminals" in refused.stderr
    assert alluvia.connect(lake).table("t").version == 1
    assert left(tmp_path) == []


def test_rows_on_a_terminal(lake: Path) -> None:
    shown = on_terminal(["query", "SELECT chr(27) || '[31m' AS a, 'é' AS b", "--format", "csv", "--lake", str(lake)])
    assert shown.left == ["a,b", r"\x1b[31m,é"]  # a slow machine shows progress before it, and erases it
    tabs = on_terminal(["query", "SELECT 1 AS a, 2 AS b", "--format", "tsv", "--lake", str(lake)])
    assert [line.split() for line in tabs.left] == [["a", "b"], ["1", "2"]]
    refused = on_terminal(["query", "SELECT 1 AS n", "--format", "parquet", "--lake", str(lake)])
    assert refused.left == [
        "alluvia: Parquet is not text: give a file with --output, or redirect standard output",
    ]


@pytest.mark.parametrize("command", READERS)
def test_a_parameter_is_the_text_that_it_is_over_http(
    lake: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A value that looks like a number finds texts, and numbers where it is compared with numbers."""
    alluvia.connect(lake).table("t").append([{"name": "42", "n": 7}])
    found = run(lake, command, "SELECT n FROM t WHERE name = $x", "--param", "x=42", "--format", "csv")
    assert found.stdout_bytes.decode() == "n\r\n7\r\n"
    found = run(lake, command, "SELECT name FROM t WHERE n = $n", "-p", "n=7", "--format", "csv")
    assert found.stdout_bytes.decode() == "name\r\n42\r\n"
    words = ("-p", "a=it's = 1", "-p", "b=", "-p", "list=[1, 2]", "-p", "n=null")
    sql = "SELECT $a AS a, $b AS b, $list::INT[] AS c, $n AS d"
    assert json.loads(run(lake, command, sql, *words, "--json").stdout) == {
        "a": "it's = 1", "b": "", "c": [1, 2], "d": "null",
    }  # fmt: skip
    assert run(lake, command, "SELECT $n", "-p", "n").stderr == "alluvia: --param 'n': write it as NAME=VALUE\n"
    twice = run(lake, command, "SELECT $n", "-p", "n=1", "-p", "n=2")
    assert twice.stderr == "alluvia: --param 'n=2': give each name once\n"


def test_a_query_comes_as_a_word_in_a_file_or_on_standard_input(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("SELECT 'é' AS x")
    assert run(lake, "query", "-f", str(tmp_path / "q.sql"), "--format", "csv").stdout_bytes.decode() == "x\r\né\r\n"
    assert run(lake, "query", "--format", "csv", stdin="SELECT 1 AS x").stdout_bytes.decode() == "x\r\n1\r\n"
    assert run(lake, "query", "-", "--format", "csv", stdin="SELECT 1 AS x").stdout_bytes.decode() == "x\r\n1\r\n"
    assert run(lake, "query", "SELECT 1", "-f", str(tmp_path / "q.sql")).exit_code == 2


def test_a_script_writes_the_rows_of_its_one_read(lake: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    insert = "INSERT INTO t VALUES ('new', 9);"
    assert run(lake, "sql", "-o", str(file), stdin=f"{insert} SELECT max(n) AS n FROM t; {insert}").exit_code == 0
    assert file.read_text() == "n\n42\n"
    for script, reads in ((insert, 0), (f"{insert} FROM t; FROM t", 2)):
        refused = run(lake, "sql", "-o", str(file), stdin=script)
        told = f"alluvia: the script has {reads} statements that read, and a file takes the rows of one\n"
        assert (refused.exit_code, refused.stderr) == (1, told)
    assert alluvia.connect(lake).table("t").version == 3
    failed = run(lake, "sql", "-o", str(file), stdin="SELECT 1 AS n; DELETE FROM nosuch WHERE true")
    assert (failed.exit_code, file.read_text(), left(tmp_path)) == (1, "n\n42\n", ["rows.csv"])


def test_a_script_prints_each_read_in_the_form(lake: Path) -> None:
    shown = run(lake, "sql", "--format", "csv", stdin="SELECT 1 AS n; SELECT 2 AS m;").stdout_bytes
    assert shown == b"n\r\n1\r\nm\r\n2\r\n"
