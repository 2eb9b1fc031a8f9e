"""Wherever a page or a help text says that something happens exactly once, it says under which condition."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from alluvia.cli.command_line import cli

ROOT = Path(__file__).parents[2]
CLAIM = re.compile(r"\bexactly[ -]once\b|\b(is|are) (still )?stored (only )?once\b", re.IGNORECASE)
CONDITION = re.compile(
    r"\b(within|window|job ids?|job_id|attempt|each version|by its id|Idempotency-Key|same commit)\b"
)
"""What a claim rests on, in its paragraph: ids within a window, a job, a version, or one commit."""
LINK = re.compile(r"\[[^]]*\]\([^)]*\)|^#.*$", re.MULTILINE)
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
    *sorted((ROOT / "functions").glob("*/README.md")),
]


def paragraphs(text: str) -> list[str]:
    """Return paragraphs, and points of lists and rows of tables one by one, without headings and links."""
    return re.split(r"\n\n|\n(?=[-|] ?|\d+\. )", LINK.sub("", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_says_under_which_condition(page: Path) -> None:
    claims = [each for each in paragraphs(page.read_text()) if CLAIM.search(each)]
    assert [each for each in claims if not CONDITION.search(each)] == []


def helps(command: click.Command, context: click.Context) -> Iterator[str]:
    yield " ".join(command.get_help(context).split())
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from helps(inner, click.Context(inner, context, name))


def test_the_help_says_under_which_condition() -> None:
    claims = [each for each in helps(cli, click.Context(cli)) if CLAIM.search(each)]
    assert [each for each in claims if not CONDITION.search(each)] == []
