"""The `alluvia` command."""

from __future__ import annotations


def main() -> None:
    """Run the command line: exit 0, 1 with one clear line on standard error, or 2 for wrong usage."""
    from alluvia.cli.commands import cli

    cli()
