"""The commands, by what they are about."""

from __future__ import annotations

import click

from alluvia.cli import changing, changing_lake, inspecting, maintaining, running, verifying, writing

cli = click.Group(
    "alluvia",
    help="A serverless lakehouse for event data: Delta tables, committed with nothing but conditional writes.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for part in (running, writing, changing, changing_lake, inspecting, maintaining, verifying):
    for each in part.COMMANDS:
        cli.add_command(each)
