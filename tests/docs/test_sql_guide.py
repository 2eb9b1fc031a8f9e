"""The examples of the guide to SQL run, and its table names every statement that there is."""

from __future__ import annotations

import re
from pathlib import Path

from alluvia.sql.grammar.grammar import READERS

GUIDE = (Path(__file__).parents[2] / "docs" / "SQL.md").read_text()


def test_python_blocks_run_one_after_another() -> None:
    names: dict[str, object] = {}
    found = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert len(found) == 14
    for text in found:
        exec(compile(text, "SQL.md", "exec"), names)


def test_the_guide_names_every_statement() -> None:
    words = set(re.findall(r"[A-Z]+", GUIDE.partition("## Statements\n")[2].partition("\n## ")[0]))
    others = {"START", "END", "ABORT"}  # which mean the same as BEGIN, COMMIT and ROLLBACK
    assert {word.upper() for word in READERS} - others <= words
