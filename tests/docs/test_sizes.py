"""Pages that grow with every change stay short, and the list of decisions is whole."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "docs" / "decisions"


def test_the_glossary_has_at_most_60_words() -> None:
    rows = re.findall(r"^\| (?!Word|---)(.*?) \|", (ROOT / "docs" / "GLOSSARY.md").read_text(), re.MULTILINE)
    assert 40 <= len(rows) <= 60
    assert len(rows) == len(set(rows))


def test_the_changelog_has_at_most_150_lines() -> None:
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= 150


def test_the_list_of_decisions_has_each_once() -> None:
    listed = re.findall(r"^\| \[(\d+)\]\((\d+-[\w-]+\.md)\) \|", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    assert [name for _, name in listed] == sorted(path.name for path in DECISIONS.glob("0*.md"))
    assert all(name.startswith(number) for number, name in listed)


def test_a_changed_decision_says_so_first() -> None:
    """A page has a status if, and only if, the list has one, with the same link."""
    text = (DECISIONS / "README.md").read_text()
    listed = re.findall(r"\]\((0[\w-]+\.md)\) \| .*? \| (.*?) ?\|$", text, re.MULTILINE)
    assert len(listed) == len([*DECISIONS.glob("0*.md")])
    for name, status in listed:
        first = (DECISIONS / name).read_text().split("\n")[2]
        links = re.findall(r"\((0\d+-[\w-]+\.md)\)", status)
        assert first.startswith("**Status.** ") == bool(links), name
        assert set(links) <= set(re.findall(r"\((0\d+-[\w-]+\.md)\)", first)), name
