"""The commands and their modules. A module is loaded when its command runs, or for its help."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NoReturn

import click

from alluvia.cli.errors import reason
from alluvia.cli.terminal.terminal import ending_with_its_reader, tell
from alluvia.errors import AlluviaError
from alluvia.nearest_name import did_you_mean, nearest
from alluvia.version import __version__

_HELP = """A serverless lakehouse for event data: Delta tables, committed with nothing but conditional writes.

TABLE is a table's name; NAME._rejects is the table of its rejected events, as in SQL. A command that fails exits 1,
wrong usage 2. The options below stand before the command or after it."""

_GROUPS = {
    "branch": "Branches of the lake: write on one, see what changed, publish it in one transaction.",
    "pipeline": "Tables that queries make of others, declared in files, and kept up to date by runs.",
    "rejects": "Events that could not become rows, with the reasons.",
    "rollup": "Tables that are kept up to date with a query of another table.",
    "source": "Senders of webhooks: how each proves its identity, and where its events go.",
    "stream": "Positions in the changes of tables, which move with the commit that uses the changes.",
    "tag": "Names for versions of a table, or for the whole lake as it is now; tagged versions stay readable.",
    "token": "Bearer tokens, for callers of the HTTP routes.",
}
_TOPICS = {
    "Events": "ingest, backfill, source, rejects, suggest",
    "Rows": "upload, upsert, update, delete, erase",
    "Queries": "query, sql, head, export, publish, published, link, unpublish",
    "Tables": "create, evolve, clone, convert, attach, detach, drop, undrop",
    "Inspection": "status, tables, schemas, describe, schema, files, history, changes, verify",
    "Versions": "restore, flashback, tag, branch, stream",
    "Maintenance": "backup, optimize, vacuum, expire, checkpoint, rollup, pipeline",
    "Server": "demo, serve, token, invoke",
}
"""The commands as the help lists them."""
_MODULES = {
    "backfill": "backfill",
    "branches": "branch diff, branch publish",
    "checking": "erase, verify",
    "glancing": "export, head, schema, status",
    "inspecting": "describe, files, rejects list, rejects show, suggest, tables",
    "pipelines": ("pipeline backfill, pipeline init, pipeline plan, pipeline run, pipeline status, pipeline test"),
    "replaying": "rejects replay",
    "maintaining": "backup, checkpoint, expire, optimize, rollup refresh, vacuum",
    "querying": "changes, query, sql",
    "running": "demo, invoke, serve",
    "publishing": "link, publish, published",
    "sharing": "token create, token list, token revoke, token rotate-key, token show",
    "sources": "source add, source list, source drop, source rotate, source test",
    "storing": "create, ingest, upload",
    "verbs": (
        "attach, branch create, branch drop, branch list, clone, convert, delete, detach, drop, evolve, flashback, "
        "history, restore, rollup create, rollup drop, rollup list, schemas, stream create, stream drop, "
        "stream list, stream move, stream show, tag create, tag drop, tag list, undrop, unpublish, update, upsert"
    ),
}
_OTHER_WORDS = {
    "cat": "head, or query",
    "compact": "optimize",
    "count": 'query "SELECT count(*) FROM t"',
    "desc": "describe",
    "import": "ingest for events, or upload for rows",
    "insert": "upload, or sql",
    "load": "ingest for events, or upload for rows",
    "ls": "tables",
    "merge": "optimize to compact files, or upsert for SQL's MERGE INTO",
    "select": "query",
    "shell": "sql, which opens a prompt",
    "show": "tables, or describe",
}
"""Commands of other tools, and those to use here."""
_OTHER_OPTIONS = {"--by": "--on", "--key": "--on", "--keys": "--on"}
"""Options of other tools, and those to use here, where a command has them."""
_GIVES_SQL = ("-c", "--command", "-e", "--execute")
"""Options of other tools that give SQL."""
_EXTRA_NUMBER = re.compile(r"Got unexpected extra argument \((\d+)\)")
_REMOVING = ("delete", "discard", "remove", "rm")
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split(", ")}


_NAME_WIDTH = max(len(name.partition(" ")[0]) for name in _MODULE_OF)


_COMMON = (
    click.Option(["--lake"], metavar="URI", help="s3://bucket/prefix, a path, or memory://name; else $ALLUVIA_LAKE."),
    click.Option(["--endpoint-url"], metavar="URL", help="An S3 endpoint other than AWS's."),
    click.Option(["--branch"], metavar="NAME", help="Work on this branch of the lake."),
    click.Option(["--json", "as_json"], is_flag=True, help="Print JSON, one object a line."),
    click.Option(["--debug"], is_flag=True, help="Show the traceback of an error."),
)
"""The options of every command, where they stand before its name."""


def _words_of(given: Mapping[str, Any]) -> list[str]:
    """Return such options as words to put before those of the command, whose own values win."""
    words: list[str] = []
    for option in _COMMON:
        value = given.get(option.name or "")
        if option.is_flag:
            words += option.opts if value else []
        elif value is not None:
            words += [*option.opts, value]
    return words


class _Group(click.Group):
    """Commands whose names begin with that of the group; all of them for the command line itself."""

    def __init__(self, name: str, words: tuple[str, ...] = (), **more: Any) -> None:
        super().__init__(name, params=[*_COMMON], **more)
        self._words = words

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return their names, in order."""
        depth = len(self._words)
        names = [tuple(name.split()) for name in _MODULE_OF]
        return sorted({name[depth] for name in names if name[:depth] == self._words})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load one."""
        name = " ".join((*self._words, cmd_name))
        if name in _GROUPS:
            return _Group(cmd_name, (cmd_name,), help=_GROUPS[name])
        return _command(name) if name in _MODULE_OF else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command, and give it the options that stand before it. Fails with the nearest name for another."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            ctx.fail(self._unknown(ctx, args[0]))
        name, command, rest = super().resolve_command(ctx, args)
        return name, command, [*_words_of(ctx.params), *rest]

    def _unknown(self, ctx: click.Context, word: str) -> str:
        whole = " ".join((*self._words, word))
        if word in _REMOVING and "drop" in self.list_commands(ctx):
            return f"there is no command {whole!r}: use {' '.join((*self._words, 'drop'))}"
        if word in _OTHER_WORDS:
            return f"there is no command {whole!r}: use {_OTHER_WORDS[word]}"
        group, own = " ".join(self._words), self.list_commands(ctx)
        if group and (known := nearest(word, own)):
            near = f"did you mean {group} {known[0]}?"
        elif group and "show" in own and not nearest(word, _MODULE_OF):
            near = f"use {group} show {word}"
        else:
            near = did_you_mean(word, own) or did_you_mean(word, _MODULE_OF)
        return f"there is no command {whole!r}: {near or f'`{ctx.command_path} --help` lists the commands'}"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by topic, each with the whole first sentence of its help: click would cut it to a line."""
        topics = {"Commands": ", ".join(self.list_commands(ctx))} if self._words else _TOPICS
        for topic, names in topics.items():
            commands = [(name, self.get_command(ctx, name)) for name in names.split(", ")]
            with formatter.section(topic):
                lines = [(name, each.get_short_help_str(limit=sys.maxsize)) for name, each in commands if each]
                formatter.write_dl([(name.ljust(_NAME_WIDTH), line) for name, line in lines])


def _command(name: str) -> click.Command:
    module = import_module(f"alluvia.cli.commands.{_MODULE_OF[name]}")
    attribute = name.replace(" ", "_").replace("-", "_")
    command: click.Command = module.VERBS[name]() if _MODULE_OF[name] == "verbs" else getattr(module, attribute)
    return command


def _with_other_option(error: click.NoSuchOption, context: click.Context) -> click.UsageError:
    """Return an error about an option that names the one that does here what the option does elsewhere."""
    name, known = error.option_name, context.command.params
    other = _OTHER_OPTIONS.get(name)
    if name in _GIVES_SQL and any(each.name == "text" for each in known):
        return click.UsageError(f"No such option {name!r}: give the SQL itself", context)
    if other is None or not any(other in each.opts for each in known):
        return error
    return click.UsageError(f"No such option {name!r}: use {other}", context)


def _with_missing_option(error: click.UsageError, context: click.Context) -> click.UsageError:
    """Return an error about a number after the arguments that names the option which takes such a number."""
    number = _EXTRA_NUMBER.fullmatch(error.message)
    options = {each for option in context.command.params for each in option.opts}
    fit = next((each for each in ("--rows", "--version", "--limit") if each in options), None)
    return (
        error
        if number is None or fit is None
        else click.UsageError(f"{error.message}: write {fit} {number[1]}", context)
    )


class _CommandLine(_Group):
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
            if isinstance(error, click.NoSuchOption) and error.ctx is not None:
                error = _with_other_option(error, error.ctx)
            elif isinstance(error, click.UsageError) and error.ctx is not None:
                error = _with_missing_option(error, error.ctx)
            text = io.StringIO()
            error.show(text)
            tell(text.getvalue().rstrip("\n"))
            code = error.exit_code
        except click.Abort:
            tell("Aborted!")
            code = 1
        except AlluviaError as error:  # a value of an option that is not as it must be
            tell(f"alluvia: {reason(error)}")
            code = 1
        sys.exit(code)


_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
cli = _CommandLine("alluvia", help=_HELP, context_settings=_SETTINGS)
cli = click.version_option(__version__, message="%(prog)s %(version)s")(cli)
