"""The commands and their modules. A module is loaded when its command runs."""

from __future__ import annotations

import io
import sys
from importlib import import_module
from typing import Any, NoReturn

import click

from alluvia.cli.terminal.terminal import ending_with_its_reader, tell
from alluvia.version import __version__

_HELP = """A serverless lakehouse for event data: Delta tables, committed with nothing but conditional writes.

TABLE is a table's name; NAME._rejects is the table of its rejected events, as in SQL. A command that fails exits 1,
wrong usage 2."""

_MODULES = {
    "running": ("serve", "invoke", "demo"),
    "writing": ("create", "ingest", "backfill"),
    "uploading": ("upload",),
    "changing": ("delete", "update", "upsert", "restore"),
    "changing_lake": ("attach", "clone", "convert", "detach", "drop", "undrop", "evolve", "flashback"),
    "inspecting": ("query", "tables", "describe", "history", "files", "changes"),
    "statements": ("sql",),
    "publishing": ("publish", "published", "unpublish"),
    "maintaining": ("optimize", "checkpoint", "expire", "vacuum"),
    "erasing": ("erase",),
    "verifying": ("verify",),
    "rollups": ("rollup",),
    "streams": ("stream",),
    "rejected": ("rejects",),
    "suggesting": ("suggest",),
    "tagging": ("tag",),
    "branches": ("branch",),
    "tokens": ("token",),
    "sources": ("source",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return their names, in order."""
        return sorted(_MODULE_OF)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load one."""
        if cmd_name == "merge":
            raise click.UsageError("no command 'merge': use optimize to compact files, or upsert for SQL's MERGE INTO")
        if cmd_name not in _MODULE_OF:
            return None
        found: click.Command = getattr(import_module(f"alluvia.cli.commands.{_MODULE_OF[cmd_name]}"), cmd_name)
        return found

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Read the words; what `--help` and `--version` print may find no reader."""
        with ending_with_its_reader():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, or print its help."""
        with ending_with_its_reader():
            return super().invoke(ctx)

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        """Run what the words say, and exit. What click says of wrong usage repeats words, which are escaped."""
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except click.ClickException as error:
            text = io.StringIO()
            error.show(text)
            tell(text.getvalue().rstrip("\n"))
            code = error.exit_code
        except click.Abort:
            tell("Aborted!")
            code = 1
        sys.exit(code)


cli = _Commands("alluvia", help=_HELP, context_settings={"help_option_names": ["-h", "--help"]})
cli = click.version_option(__version__, message="%(prog)s %(version)s")(cli)
