"""Options that several commands take, each typed once, and what makes a command of a function."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from alluvia.cli.common import Common
from alluvia.cli.errors import is_about_table
from alluvia.errors import Invalid
from alluvia.table_names import folder_name

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What `click.option` and `click.argument` return."""
FORCE = "Change the columns also where a view, rollup, published query or token would fail or mean something else."


class TableName(click.ParamType[str]):
    """A table's name as in SQL: `t`, `main.t`, or `t._rejects` for its rejected events."""

    name = "table"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        """Return the name that the library takes."""
        return folder_name(value)


class Duration(click.ParamType[timedelta]):
    """A duration such as 30m, 12h or 7d, or as in properties: `1 hour`, `interval 7 days`; also 0."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read it, or fail as wrong usage."""
        from alluvia.delta.arguments import duration_ms

        read = duration_ms(value)
        if read is None:
            self.fail(
                f"{str(value).strip()!r} is not a duration; use for example 30m, 12h, 7d, '1 hour' or 0", param, ctx
            )
        return timedelta(milliseconds=read)


TABLE = TableName()


def command(function: Callable[..., Any]) -> click.Command:
    """Make a command of a function that takes `Common` first, and print what it returns, if it returns anything.

    An error is one line, after which SQL has its place, and exit 1.
    """
    return _command(function, takes_branch=True)


def lake_command(function: Callable[..., Any]) -> click.Command:
    """Make a command that concerns the lake as a whole: it refuses `--branch`."""
    return _command(function, takes_branch=False)


def _command(function: Callable[..., Any], *, takes_branch: bool) -> click.Command:
    @functools.wraps(function)
    def wrapper(
        lake: str, endpoint_url: str | None, on_branch: str | None, *, as_json: bool, debug: bool, **rest: Any
    ) -> None:
        common = Common(lake, endpoint_url, as_json, debug, on_branch)
        if on_branch is not None and not takes_branch:
            raise click.UsageError("--branch: this command concerns the lake itself; leave the option out")
        try:
            common.show(function(common, **rest))
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # noqa: BLE001 - every error is a line of its own, and a traceback on request
            common.tell_error(error, rest.get("table") if is_about_table(error) else None)
            sys.exit(1)
        except KeyboardInterrupt:
            sys.exit(130)

    branch = click.option(
        "--branch", "on_branch", metavar="NAME", hidden=not takes_branch, help="Work on this branch of the lake."
    )
    for option in reversed((*_OPTIONS, branch)):
        wrapper = option(wrapper)
    return click.command(wrapper)


_OPTIONS = (
    click.option("--lake", default=lambda: os.environ.get("ALLUVIA_LAKE", "./lake"), show_default="./lake",
                 metavar="URI", help="s3://bucket/prefix, a path, or memory://name; else $ALLUVIA_LAKE."),
    click.option("--endpoint-url", default=lambda: os.environ.get("ALLUVIA_ENDPOINT_URL"), metavar="URL",
                 help="An S3 endpoint other than AWS's; else $ALLUVIA_ENDPOINT_URL."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line."),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
)  # fmt: skip


def pair(text: str, option: str, form: str) -> tuple[str, str]:
    """Return the two parts of an option's value, whose form is such as NAME=VALUE or NAME:TYPE.

    Raises `Invalid`, naming the option.
    """
    name, _, value = text.partition(":" if ":" in form else "=")
    if not name.strip() or not value:
        raise Invalid(f"{option} {text!r}: write it as {form}")
    return name.strip(), value


def pairs(option: str, name: str, form: str, about: str, *, required: bool = False) -> Decorator:
    """Return an option that may be given several times, and whose values are a dict."""

    def read(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
        values: dict[str, str] = {}
        for text in texts:
            key, value = pair(text, option, form)
            if key in values:
                raise Invalid(f"{option} {text!r}: give each name once")
            values[key] = value
        return values

    return click.option(option, name, multiple=True, metavar=form, required=required, callback=read, help=about)


def _parameters(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str] | None:
    values: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not name.strip() or not sign:
            raise Invalid(f"--param {text!r}: write it as NAME=VALUE")
        if name.strip() in values:
            raise Invalid(f"--param {text!r}: give each name once")
        values[name.strip()] = value
    return values or None


FORMATS = ("table", "ndjson", "json", "csv", "arrow", "parquet", "tsv", "safecsv")
"""Forms of rows: those of HTTP's answers, and a table to look at."""
PARAMETERS = click.option(
    "-p", "--param", "parameters", multiple=True, metavar="NAME=VALUE", callback=_parameters,
    help="A value for $NAME, as text, like param_NAME over HTTP.",
)  # fmt: skip
_FORMAT = click.option(
    "--format", "form", type=click.Choice(FORMATS, case_sensitive=False),
    help="The form of the rows.  [default: table, or by the suffix of --output]",
)  # fmt: skip
_OUTPUT = click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE",
    help="Write the rows to FILE, completely or not at all; replaces FILE.",
)  # fmt: skip


_WRITING = (
    click.option("--delimiter", metavar="CHARACTER", help="The delimiter of CSV.  [default: a comma]"),
    click.option(
        "--decimal-separator", metavar="CHARACTER", help='"," for numbers such as 12,50 in CSV.  [default: .]'
    ),
    click.option("--bom", is_flag=True, help="Begin CSV with a byte order mark, by which Excel knows UTF-8."),
)
"""How CSV is written. The names are those of reading it."""


def csv_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of how CSV is written: `writing`, as keywords of `formats.csv_written`."""

    @functools.wraps(function)
    def wrapper(*arguments: Any, delimiter: str | None, decimal_separator: str | None, bom: bool, **rest: Any) -> Any:
        writing = {"delimiter": delimiter, "decimal_separator": decimal_separator, "bom": bom}
        return function(*arguments, writing={name: value for name, value in writing.items() if value}, **rest)

    given: Callable[..., Any] = wrapper
    for option in reversed(_WRITING):
        given = option(given)
    return given


def rows_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the form of rows and the file that they go to: `asked`, a `RowsAsked`."""

    @functools.wraps(function)
    def wrapper(*arguments: Any, form: str | None, output: Path | None, writing: dict[str, Any], **rest: Any) -> Any:
        from alluvia.cli.shown_rows import RowsAsked

        return function(*arguments, asked=RowsAsked(form, output, writing), **rest)

    return _FORMAT(_OUTPUT(csv_options(wrapper)))


def names(option: str, name: str, about: str, metavar: str = "NAME") -> Decorator:
    """Return an option that may be given several times."""
    return click.option(option, name, multiple=True, metavar=metavar, help=about)


def unless(_: click.Context, __: click.Parameter, value: bool) -> bool:
    """Return the opposite of a flag, for a parameter that says it the other way round."""
    return not value


def point(lead: str, *kinds: str, first: int | None = None) -> Decorator:
    """Return the options that name a version: its number (`first` at least), a time, how long ago, a tag."""
    known = {
        "version": click.option(
            "--version", type=int if first is None else click.IntRange(first), help=f"{lead} this version."
        ),
        "timestamp": click.option("--timestamp", help=f"{lead} this time, ISO 8601 (UTC unless it says otherwise)."),
        "offset": click.option(
            "--offset", metavar="AGO", help=f"{lead} the time this long ago, such as '1 hour ago' or 7d."
        ),
        "tag": click.option("--tag", metavar="NAME", help=f"{lead} this tag."),
    }

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for kind in reversed(kinds):
            function = known[kind](function)
        return function

    return decorate


def expires(about: str, default: str | None = None) -> Decorator:
    """Return the option of how long something is kept."""
    return click.option("--expires", type=Duration(), default=default, show_default=True, metavar="TIME", help=about)


def dry_run(about: str) -> Decorator:
    """Return the option that has a command only say what it would do."""
    return click.option("--dry-run", is_flag=True, help=about)


SPARK = click.option("--spark", is_flag=True, help="Have tasks of Spark do the work, on all cores of this machine.")
PARTITION_BY = names("--partition-by", "partition_by", "A column, or year|month|day|hour(column).", "FIELD")
SORT_BY = names("--sort-by", "sort_by", "A column that files are sorted by.")
CLUSTER_BY = names("--cluster-by", "cluster_by", "One of up to 4 columns that files are clustered by.")
PROPERTIES = pairs("--property", "properties", "NAME=VALUE", "A table property.")
CREATE = click.option(
    "--create/--no-create", default=True, show_default=True, help="Create the table if it does not exist."
)
EXIST_OK = click.option("--exist-ok", is_flag=True, help="Do nothing if it exists.")
TIMEOUT = click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Stop what runs longer than this."
)
_READING = (
    click.option("--delimiter", metavar="CHARACTER", help="The delimiter of CSV; by default, its first rows show it."),
    click.option("--decimal-separator", metavar="CHARACTER", help='"," for numbers such as 12,50.  [default: .]'),
    click.option("--thousands-separator", metavar="CHARACTER", help='"," for numbers such as 1,234.50 in CSV.'),
    names("--null", "null", 'A text in CSV that means null, such as "n/a".', "TEXT"),
    click.option("--date-format", metavar="FORMAT", help="How dates are written, such as %d.%m.%Y; else ISO 8601."),
    click.option("--timestamp-format", metavar="FORMAT", help='How times are written, such as "%d.%m.%Y %H:%M".'),
    click.option("--encoding", metavar="ENCODING", help="Of text, such as windows-1252.  [default: utf-8]"),
    click.option("--skip", type=click.IntRange(0), metavar="LINES", help="Lines of CSV before the header."),
    pairs("--rename", "rename", "OLD=NEW", "The name in the table of a column of the file."),
)
"""How files are written. Their names are those of `files.reading_options`."""


def reading_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of how files are written; it gets them as `reading`, checked."""

    @functools.wraps(function)
    def wrapper(*args: Any, **given: Any) -> Any:
        from alluvia.files.reading_options import NAMES, reading_options

        return function(*args, reading=reading_options(**{name: given.pop(name) for name in NAMES}), **given)

    given_options: Callable[..., Any] = wrapper
    for option in reversed(_READING):
        given_options = option(given_options)
    return given_options


EVENTS_FORMAT = click.option(
    "--format", "kind", type=click.Choice(["json", "csv", "parquet"]),
    help="How the files are read; by default, each file's content decides.",
)  # fmt: skip
