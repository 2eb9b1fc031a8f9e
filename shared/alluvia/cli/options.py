"""What every command takes: the lake, JSON output, debugging; and how every command fails."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from alluvia.errors import AlluviaError, Invalid
from alluvia.lake import Lake, connect


@dataclass(frozen=True, slots=True)
class Common:
    """The options that every command takes."""

    uri: str
    endpoint_url: str | None
    as_json: bool
    debug: bool

    def lake(self) -> Lake:
        """Open the lake."""
        if self.endpoint_url:
            return connect(self.uri, endpoint_url=self.endpoint_url)
        return connect(self.uri)


def command(function: Callable[..., None]) -> click.Command:
    """Make a command of a function that takes `Common` first. An error of ours is one line and exit 1."""

    @functools.wraps(function)
    def wrapper(lake: str, endpoint_url: str | None, *, as_json: bool, debug: bool, **rest: Any) -> None:
        common = Common(lake, endpoint_url, as_json, debug)
        try:
            function(common, **rest)
        except (AlluviaError, OSError) as error:
            if debug:
                raise
            click.echo(f"alluvia: {' '.join(str(error).split()) or type(error).__name__}", err=True)
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
