"""Commands that the pages show and no test can run, as they need a bucket, are at least understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from alluvia.cli.command_line import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("functions/*/README.md"))]
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ alluvia (.*)$", re.MULTILINE)


def _understood(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """Read a command's words as the program does. Raises `click.UsageError`."""
    context = command.make_context("alluvia", list(words), parent=parent)
    if isinstance(command, click.Group):
        _, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        _understood(found, rest, context)


def test_the_program_understands_the_commands_that_pages_show() -> None:
    shown = [
        (page.name, line)
        for page in PAGES
        for block in CONSOLE.findall(page.read_text())
        for line in COMMAND.findall(block.replace("\\\n", " "))
    ]
    assert ("backfill.md", "backfill --lake s3://BUCKET/lake shop s3://archive/raw/ --dry-run --json") in shown
    for page, line in shown:
        try:
            _understood(cli, shlex.split(line))
        except click.UsageError as error:
            pytest.fail(f"{page}: alluvia {line}: {error.format_message()}")


def test_only_common_options_come_before_a_command() -> None:
    _understood(cli, shlex.split("--lake s3://BUCKET/lake backfill shop s3://archive/raw/"))
    with pytest.raises(click.UsageError, match="No such option"):
        _understood(cli, shlex.split("--dry-run backfill shop s3://archive/raw/"))
