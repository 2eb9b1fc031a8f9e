"""A script is cut into the statements that its whole text has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from alluvia.engine.queries.tokens import tokens_of
from alluvia.errors import Invalid
from alluvia.sql.grammar.script import ScriptPart, script_parts

PIECES = (
    "SELECT", "x", "fe", "e'", "E'", "'", "''", '"', '""', "$$", "$a$", "$1", "a$", ";", ";", "\n", "\n", "\r\n", " ",
    "--", "/*", "*/", "\\", "(", ")", ".", "é", "1e5", ".t\n",
)  # fmt: skip


def words(text: str) -> list[str]:
    """Return the tokens of a text, as they are written."""
    return [text[token.start : token.end] for token in tokens_of(text)]


@given(st.lists(st.sampled_from(PIECES), max_size=25))
@example(["$a$", "SELECT", ";"])
@example(["1e5", "$$", ";", "$$"])
@example(["e'", "\\", "'", ";"])
def test_a_script_has_the_statements_that_its_tokens_say(pieces: list[str]) -> None:
    text = "".join(pieces)
    try:
        tokens = tokens_of(text)
    except Invalid:
        return
    lines = text.splitlines(keepends=True)
    expected: list[list[str]] = [[]]
    starts: list[int] = []
    depth = 0
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token.word, 0)
        if token.word == ";":
            if depth:  # each part alone is refused
                return
            expected.append([])
            continue
        if not expected[-1]:
            starts.append(token.start)
        expected[-1].append(text[token.start : token.end])
    parts = list(script_parts(lines))
    if any(part.is_dot_command for part in parts):
        return
    assert [words(part.text) for part in parts] == [each for each in expected if each]
    for part, start in zip(parts, starts, strict=True):
        assert sum(map(len, lines[: part.line - 1])) + part.column - 1 == start


def test_dot_commands_are_lines_outside_of_statements() -> None:
    script = "-- one\n.tables\n  .schema t ;\nSELECT 1\n.5;\nSELECT '\n.exit\n';\n/*\n.help\n*/\n.exit\n"
    assert list(script_parts(script.splitlines(keepends=True))) == [
        ScriptPart(".tables", 2, 1),
        ScriptPart(".schema t ;", 3, 3),
        ScriptPart("SELECT 1\n.5", 4, 1),
        ScriptPart("SELECT '\n.exit\n'", 6, 1),
        ScriptPart(".exit", 12, 1),
    ]


def test_a_statement_comes_as_soon_as_its_line_is_there() -> None:
    seen: list[str] = []

    def lines() -> Iterator[str]:
        for line in ("SELECT 1; SELECT\n", "2;\n"):
            seen.append(line)
            yield line

    parts = script_parts(lines())
    assert (next(parts).text, len(seen)) == ("SELECT 1", 1)
    assert (next(parts).text, len(seen)) == ("SELECT\n2", 2)


@pytest.mark.parametrize("script", ["", "\n\n", ";;\n;", "-- SELECT 1;\n", "/* SELECT\n1; /* */ */\n;"])
def test_a_script_of_nothing_has_no_statement(script: str) -> None:
    assert list(script_parts(script.splitlines(keepends=True))) == []
