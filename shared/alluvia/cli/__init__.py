"""The `alluvia` command."""

from __future__ import annotations

import sys

from alluvia.errors import NotInstalled
from alluvia.extras import needing


def main() -> None:
    """Run the command line: exit 0, 1 with one clear line on standard error, or 2 for wrong usage."""
    try:
        with needing("cli", "the command line"):
            from alluvia.cli.command_line import cli
    except NotInstalled as error:
        sys.exit(f"alluvia: {error}")
    cli()
