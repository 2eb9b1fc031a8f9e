"""The options of every command (the lake, tables, JSON output, debugging), and how every command fails."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.failing import is_about_table, reason
from alluvia.cli.place import check_folder, folder_of, is_empty
from alluvia.cli.terminal.progress import progress
from alluvia.cli.terminal.terminal import tell
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.table_names import REJECTS_IN_SQL

if TYPE_CHECKING:
    from alluvia.api.lake import Lake, Table


@dataclass(frozen=True, slots=True)
class Common:
    """The options that every command takes."""

    uri: str
    endpoint_url: str | None
    as_json: bool
    debug: bool
    branch: str | None = None

    def is_empty(self) -> bool:
        """Whether this is a local lake that holds no table. Raises `Invalid` where there is no lake."""
        folder = folder_of(self.uri)
        if folder is None:
            return False
        check_folder(folder, self.uri, new=False)
        return is_empty(folder)

    def lake(self, *, new: bool = False, outside: Sequence[str] | None = None) -> Lake:
        """Open the lake, or a branch of it. Raises `Invalid` where there is none, unless the lake may be new.

        `outside` are the places below which tables may be attached from; None for any.
        """
        return self.branch_of(self.whole_lake(new=new, outside=outside))

    def whole_lake(self, *, new: bool = False, outside: Sequence[str] | None = None) -> Lake:
        """Open the lake itself."""
        folder = folder_of(self.uri)
        if folder is not None:
            check_folder(folder, self.uri, new=new)
        from alluvia.api.lake import connect

        given: dict[str, Any] = {"endpoint_url": self.endpoint_url} if self.endpoint_url else {}
        return connect(self.uri, outside=outside, **given)

    def branch_of(self, lake: Lake) -> Lake:
        """Return the branch of a lake that is asked for, or the lake itself."""
        return lake if self.branch is None else lake.on_branch(self.branch)

    def table_at(self, uri: str) -> Table:
        """Open a table at its path or URI, which may be outside the lake."""
        from alluvia.api.lake import open_table

        if self.endpoint_url and uri.startswith("s3://"):
            return open_table(uri, endpoint_url=self.endpoint_url)
        return open_table(uri)

    def progress(self, what: str) -> AbstractContextManager[None]:
        """Show on a terminal how far the work within has come, once it takes over a second."""
        return progress(what, as_json=self.as_json)


class TableName(click.ParamType[str]):
    """A table's name; that of rejected events also as SQL has it, `<name>._rejects`."""

    name = "table"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        """Return the name that the library takes."""
        return value.replace(".", "/") if REJECTS_IN_SQL.fullmatch(value) else value


TABLE = TableName()
_OF_THE_LAKE = frozenset({"branches", "publishing", "running", "sources", "tokens", "trying_source"})
"""Modules of commands that take no branch."""


def command(function: Callable[..., None]) -> click.Command:
    """Make a command of a function that takes `Common` first. An error is one line and exit 1."""

    @functools.wraps(function)
    def wrapper(
        lake: str, endpoint_url: str | None, on_branch: str | None, *, as_json: bool, debug: bool, **rest: Any
    ) -> None:
        common = Common(lake, endpoint_url, as_json, debug, on_branch)
        if on_branch is not None and _concerns_lake(function):
            raise click.UsageError("--branch: this command concerns the lake itself; leave the option out")
        try:
            function(common, **rest)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # noqa: BLE001 - every error is a line of its own, and a traceback on request
            if debug:
                tell("".join(traceback.format_exception(error)).rstrip("\n"))
            else:
                tell(f"alluvia: {reason(error, rest.get('table') if is_about_table(error) else None)}")
            sys.exit(1)
        except KeyboardInterrupt:
            sys.exit(130)

    for option in reversed((*_OPTIONS, _branch(hidden=_concerns_lake(function)))):
        wrapper = option(wrapper)
    return click.command(wrapper)


def _concerns_lake(command: Callable[..., None]) -> bool:
    """Whether a command is about the lake as a whole, and not about its tables."""
    return command.__module__.removeprefix(f"{__package__}.commands.") in _OF_THE_LAKE or command.__name__ == "backfill"


def _branch(*, hidden: bool) -> Callable[..., Any]:
    """Return the option of a branch; hidden where it is only understood to be refused."""
    return click.option("--branch", "on_branch", metavar="NAME", hidden=hidden, help="Work on this branch of the lake.")


def pair(text: str, option: str, separator: str) -> tuple[str, str]:
    """Return the two parts of an option's value. Raises `Invalid`, naming the option."""
    name, found, value = text.partition(separator)
    if not found or not name or not value:
        raise Invalid(f"{option} {text!r}: write it as NAME{separator}{'TYPE' if separator == ':' else 'VALUE'}")
    return name, value


_OPTIONS = (
    click.option("--lake", default=lambda: os.environ.get("ALLUVIA_LAKE", "./lake"), show_default="./lake",
                 metavar="URI", help="s3://bucket/prefix, a path, or memory://name; else $ALLUVIA_LAKE."),
    click.option("--endpoint-url", default=lambda: os.environ.get("ALLUVIA_ENDPOINT_URL"), metavar="URL",
                 help="An S3 endpoint other than AWS's; else $ALLUVIA_ENDPOINT_URL."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line."),
    click.option("--debug", is_flag=True, help="Show the traceback of an error."),
)  # fmt: skip
