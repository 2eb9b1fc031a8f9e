"""What every command takes: the lake, tables, JSON output, debugging; and how every command fails."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from alluvia.cli.failing import is_about_table, reason
from alluvia.errors import Invalid
from alluvia.lake import REJECTS, Lake, Table, connect, open_table

_REJECTS_IN_SQL = re.compile(rf"[a-z][a-z0-9_]*\.{REJECTS}")


@dataclass(frozen=True, slots=True)
class Common:
    """The options that every command takes."""

    uri: str
    endpoint_url: str | None
    as_json: bool
    debug: bool

    def lake(self) -> Lake:
        """Open the lake."""
        with self._checked():
            return connect(self.uri, endpoint_url=self.endpoint_url) if self.endpoint_url else connect(self.uri)

    def table_at(self, uri: str) -> Table:
        """Open a table where it lies, outside the lake too."""
        with self._checked():
            if self.endpoint_url and uri.startswith("s3://"):
                return open_table(uri, endpoint_url=self.endpoint_url)
            return open_table(uri)

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:  # boto3's, for what is no URL
            if not self.endpoint_url:
                raise
            msg = "--endpoint-url (or $ALLUVIA_ENDPOINT_URL) is no URL: write it as http://host:port or https://host"
            raise Invalid(msg) from error


class TableName(click.ParamType[str]):
    """A table's name; that of rejected events also as SQL has it, `<name>._rejects`."""

    name = "table"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        """Return the name that the library takes."""
        return value.replace(".", "/") if _REJECTS_IN_SQL.fullmatch(value) else value


TABLE = TableName()


def command(function: Callable[..., None]) -> click.Command:
    """Make a command of a function that takes `Common` first. An error is one line and exit 1."""

    @functools.wraps(function)
    def wrapper(lake: str, endpoint_url: str | None, *, as_json: bool, debug: bool, **rest: Any) -> None:
        common = Common(lake, endpoint_url, as_json, debug)
        try:
            function(common, **rest)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            if debug:
                raise
            click.echo(f"alluvia: {reason(error, rest.get('table') if is_about_table(error) else None)}", err=True)
            sys.exit(1)
        except KeyboardInterrupt:
            sys.exit(130)

    for option in reversed(_OPTIONS):
        wrapper = option(wrapper)
    return click.command(wrapper)


def pair(text: str, option: str, separator: str) -> tuple[str, str]:
    """Return the two parts of an option's value. Raises `Invalid`, naming the option."""
    name, found, value = text.partition(separator)
    if not found or not name or not value:
        msg = f"{option} {text!r}: write it as NAME{separator}{'TYPE' if separator == ':' else 'VALUE'}"
        raise Invalid(msg)
    return name, value


_OPTIONS = (
    click.option("--lake", default=lambda: os.environ.get("ALLUVIA_LAKE", "./lake"), show_default="./lake",
                 metavar="URI", help="s3://bucket/prefix, a path, or memory://name; else $ALLUVIA_LAKE."),
    click.option("--endpoint-url", default=lambda: os.environ.get("ALLUVIA_ENDPOINT_URL"), metavar="URL",
                 help="Another S3 than AWS's; else $ALLUVIA_ENDPOINT_URL."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line."),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
)  # fmt: skip
