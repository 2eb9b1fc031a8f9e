"""What a terminal gets, and what a pipe gets: the command runs as a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import width

import alluvia
from alluvia.cli.terminal.terminal import escaped, escaped_json
from tests.cli.terminals import COMMAND, environment, on_terminal, through_pipe

HOSTILE = "\x1b[31mred\x1b]0;title\x07\r\x9b2J\x7f\u202eabc\u2066"
SHOWN = r"\x1b[31mred\x1b]0;title\x07\r\x9b2J\x7f\u202eabc\u2066"
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")
WIDE = {"a": "日本語" * 9, "b": "👩‍👩‍👧 family 🇩🇪", "c": "e\u0301te\u0301", "d": "one\ntwo", "n": 1234567}


@pytest.fixture
def lake(tmp_path: Path) -> str:
    tables = alluvia.connect(str(tmp_path / "lake"))
    tables.create_table("hostile", {"v": "string"}).append([{"v": HOSTILE}])
    columns = {"a": "string", "b": "string", "c": "string", "d": "string", "n": "long"}
    tables.create_table("wide", columns).append([WIDE, {**dict.fromkeys(columns), "b": ""}])
    return str(tmp_path / "lake")


def plain(text: str) -> str:
    """Drop the styles of tables (bold, dim), and the lines of progress that a slow machine gets to see."""
    text = re.sub("\x1b\\[[012]m", "", text)
    return re.sub("[^\n]*\n?\r(\x1b\\[1A)?\x1b\\[2K", "", text)


def test_control_characters_reach_no_terminal(lake: str) -> None:
    for words in (["query", "SELECT v FROM hostile"], ["changes", "hostile", "--from", "1"]):
        shown = on_terminal([*words, "--lake", lake], 400)
        assert shown.returncode == 0
        assert SHOWN in shown.text
        assert not FORBIDDEN.search(plain(shown.text))


def test_markup_and_emoji_codes_are_shown_as_they_are() -> None:
    text = "[red]x[/red] :smile: [link=http://x]y[/link]"
    for words in (["query", f"SELECT '{text}' AS \"{text}\""], ["query", f"SELECT '{text}' AS a, 1 AS b"]):
        shown = plain(on_terminal([*words, "--lake", "memory://nothing"], 120).text)
        assert shown.splitlines()[2].split("  ")[0].rstrip() == text
    assert text in on_terminal(["ingest", "t", text, "--lake", "memory://nothing"], 120).text


def test_values_of_any_length_keep_to_a_terminal() -> None:
    sql = "SELECT repeat('x', 1000000) AS a, 12345678901234567890 AS n, NULL AS nothing"
    lines = plain(on_terminal(["query", sql, "--lake", "memory://nothing"], 60).text).splitlines()
    assert max(map(width, lines)) <= 60
    assert lines[2].split()[0].endswith("x…")
    assert lines[2].split()[1:] == ["12345678901234567890", "NULL"]
    assert lines[3] == "… cut to fit; a wider terminal shows more, --json all"


def test_names_above_numbers_are_cut_no_more_than_the_terminal_needs() -> None:
    sql = f"SELECT 1 AS count_of_all, 2 AS {'z' * 100}"
    lines = plain(on_terminal(["query", sql, "--lake", "memory://nothing"], 60).text).splitlines()
    assert lines[0] == f"count_of_all  {'z' * 45}…"
    assert lines[2].split() == ["1", "2"]
    assert lines[3] == "… cut to fit; a wider terminal shows more, --json all"


def test_a_pipe_gets_the_true_value(lake: str) -> None:
    done = through_pipe(["query", "SELECT v FROM hostile", "--lake", lake])
    assert HOSTILE in done.stdout.decode()


@pytest.mark.parametrize("terminal", [True, False])
def test_json_gives_the_true_value_everywhere(lake: str, terminal: bool) -> None:
    words = ["query", "SELECT v FROM hostile", "--json", "--lake", lake]
    text = on_terminal(words).text if terminal else through_pipe(words).stdout.decode()
    assert json.loads(text) == {"v": HOSTILE}
    assert not (terminal and FORBIDDEN.search(text))


@pytest.mark.parametrize(
    "words",
    [
        ["query", f"SELECT * FROM wide WHERE {HOSTILE}"],
        ["query", f"SELECT '{HOSTILE}'::INT"],
        ["history", f"x{HOSTILE}"],
        [f"x{HOSTILE}"],
        ["history", "wide", f"--x{HOSTILE}"],
        ["history", "wide", f"--limit=x{HOSTILE}"],
        ["ingest", "wide", f"no{HOSTILE}.json"],
        ["history", "wide", "--debug", "--lake", f"memory://x{HOSTILE}"],
    ],
)
def test_control_characters_in_errors_reach_no_terminal(lake: str, words: list[str]) -> None:
    shown = on_terminal(words, ALLUVIA_LAKE=lake)
    assert shown.returncode in {1, 2}
    assert shown.text
    assert not FORBIDDEN.search(plain(shown.text))


@pytest.mark.slow
@pytest.mark.parametrize("columns", [20, 40, 80, 200])
@pytest.mark.parametrize(
    "words", [["query", "SELECT * FROM wide"], ["tables"], ["files", "wide"], ["history", "wide"], ["describe", "wide"]]
)
def test_tables_fit_the_terminal(lake: str, words: list[str], columns: int) -> None:
    shown = on_terminal([*words, "--lake", lake], columns)
    assert shown.returncode == 0
    assert max(width(line) for line in plain(shown.text).splitlines()) <= columns


def test_a_wide_terminal_shows_all_in_columns(lake: str) -> None:
    lines = plain(on_terminal(["query", "SELECT * FROM wide ORDER BY n", "--lake", lake], 200).text).splitlines()
    head, rule, first, second = lines
    assert head.split() == ["a", "b", "c", "d", "n"]
    assert [part.strip() for part in re.split(" {2,}", first.strip())] == [
        WIDE["a"], WIDE["b"], WIDE["c"], r"one\ntwo", "1234567",
    ]  # fmt: skip
    assert second.split() == ["NULL"] * 4
    ends = {width(line.rstrip()) for line in (head, rule, first, second)}
    assert len(ends) == 1


def test_each_property_of_a_table_has_a_line_of_its_own(lake: str) -> None:
    properties = {
        "delta.logRetentionDuration": "interval 30 days",
        "team.owner": "x" * 30,
        "team.note": "y " * 30 + HOSTILE,
    }
    alluvia.connect(lake).create_table("owned", {"n": "long"}, properties=properties)
    shown = plain(on_terminal(["describe", "owned", "--lake", lake], 80).text)
    lines = [line.partition("  ")[2].strip() or line.strip() for line in shown.splitlines()]
    assert {"delta.logRetentionDuration=interval 30 days", f"team.owner={'x' * 30}"} <= {*lines}
    assert not FORBIDDEN.search(shown)


def test_a_terminal_too_narrow_for_columns_shows_a_block_for_each_row(lake: str) -> None:
    shown = plain(on_terminal(["query", "SELECT * FROM wide ORDER BY n", "--lake", lake], 40).text)
    assert [line.rstrip() for line in shown.splitlines()] == [
        "── row 1 ───────────────────────────────",
        "a  日本語日本語日本語日本語日本語日本語…",
        "b  👩‍👩‍👧 family 🇩🇪",
        "c  e\u0301te\u0301",
        r"d  one\ntwo",
        "n  1234567",
        "── row 2 ───────────────────────────────",
        "a  NULL",
        "b",
        "c  NULL",
        "d  NULL",
        "n  NULL",
        "… cut to fit; a wider terminal shows",
        "more, --json all",
    ]


def test_a_pipe_gets_whole_values_in_aligned_columns(lake: str) -> None:
    done = through_pipe(["query", "SELECT d, a, n FROM wide ORDER BY n LIMIT 1", "--lake", lake])
    assert done.stdout.decode().splitlines() == [
        f"d    {'a':<54}        n",
        f"───  {'─' * 54}  ───────",
        f"one  {'日本語' * 9}  1234567",
        "two",
    ]


def test_null_is_no_empty_text() -> None:
    done = through_pipe(["query", "SELECT NULL AS a, '' AS b, 'x' AS c", "--lake", "memory://nothing"])
    assert done.stdout.decode().splitlines()[2] == "NULL     x"


@pytest.mark.parametrize("more", [["--json"], []])
def test_a_closed_pipe_is_silent(more: list[str]) -> None:
    sql = "SELECT range AS n, repeat('x', 1000) AS t FROM range(300000)"
    command = [*COMMAND, "query", sql, "--lake", "memory://nothing", *more]
    reader, writer = os.pipe()
    process = subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, env=environment())
    os.close(writer)
    assert os.read(reader, 1)
    os.close(reader)
    _, errors = process.communicate()
    assert (process.returncode, errors) == (141, b"")


@pytest.mark.parametrize(("columns", "longest"), [(80, range(70, 80)), (200, range(90, 100))])
def test_help_shows_whole_sentences_and_uses_the_width(columns: int, longest: range) -> None:
    shown = on_terminal(["--help"], columns)
    assert "..." not in shown.text.partition("Events:")[2]
    assert "Attach the Delta table at URI, outside the lake, as TABLE, for reading." in " ".join(shown.text.split())
    assert max(map(len, shown.text.splitlines())) in longest


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["optimize", "--help"]])
def test_help_for_nobody_is_silent(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*COMMAND, *words], stdout=writer, stderr=subprocess.PIPE, env=environment(), check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@given(st.text(st.characters()))
def test_escaped_texts_are_safe_and_what_is_printable_stays(text: str) -> None:
    shown = escaped(text)
    assert not FORBIDDEN.search(shown)
    assert not set(shown) & set("\t\n")
    if text.isprintable():
        assert shown == text
    assert json.loads(escaped_json(json.dumps(text, ensure_ascii=False))) == text
    assert not FORBIDDEN.search(escaped_json(json.dumps(text, ensure_ascii=False)))
