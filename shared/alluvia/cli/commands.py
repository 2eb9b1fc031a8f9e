"""The commands, by what they are about."""

from __future__ import annotations

import click

from alluvia.cli import changing, changing_lake, inspecting, maintaining, running, verifying, writing

_HELP = """A serverless lakehouse for event data: Delta tables, committed with nothing but conditional writes.

TABLE is a table's name; NAME._rejects is the table of its rejected events, as in SQL. A command that fails exits 1,
wrong usage 2."""

cli = click.Group(
    "alluvia",
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for part in (running, writing, changing, changing_lake, inspecting, maintaining, verifying):
    for each in part.COMMANDS:
        cli.add_command(each)
