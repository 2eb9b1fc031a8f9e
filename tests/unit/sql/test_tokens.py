"""Tokens begin where DuckDB's own begin, so that pieces are cut where it would cut them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from alluvia.engine.queries.tokens import tokens_of
from alluvia.errors import Invalid

LOGIC = sorted((Path(__file__).parents[2] / "sql").glob("*.test"))
PIECES = [
    "SELECT", "a", "_b1", 'x"', '"', '"a""b"', "'", "'it''s'", "''", "E'\\''", "e'a\\\\'", "$$", "$$;'$$", "$t$",
    "$t$ $$ $t$", "$1", "?", "--", "-- '\n", "/*", "*/", "/* /* */ */", "\n", " ", "\t", ";", "(", ")", ",", ".", "1",
    "1.5", "1e5", "-", "+", "::", "->>", "<=", "<>", "||", "é", "ß", "1_000", "x'ff'", "[1]", "{'a': 1}", "*", "=",
    "a.b", "\\", "#1",
]  # fmt: skip


def quotes(text: str) -> list[int]:
    """Return where texts, quoted names and words begin, as DuckDB sees it; byte offsets."""
    return [start for start, _ in duckdb.tokenize(text)]


def starts(text: str) -> list[int]:
    found = [token for token in tokens_of(text) if token.kind in ("text", "quoted", "word")]
    return [len(text[: token.start].encode()) for token in found]


@pytest.mark.parametrize("path", LOGIC, ids=[path.stem for path in LOGIC])
def test_statements_of_the_files(path: Path) -> None:
    for block in path.read_text().split("\n\n"):
        text = block.partition("\n----")[0]
        if "'" not in text or text.count("'") % 2 == 0:
            assert set(starts(text)) <= set(quotes(text))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12))
@example(["E'\\''", ";", "'a'"])
@example(["$t$ $$ $t$", "'"])
def test_any_pieces(pieces: list[str]) -> None:
    """Each statement ends where DuckDB sees a semicolon."""
    text = " ".join(pieces)
    try:
        ours = [len(text[: token.start].encode()) for token in tokens_of(text) if token.word == ";"]
    except Invalid:
        return
    data = text.encode()
    assert ours == [start for start in quotes(text) if data[start : start + 1] == b";"]
