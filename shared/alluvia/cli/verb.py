"""What a command is that calls one method and prints what it returns; `commands/verbs.py` is the table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from alluvia.cli.common import Common
from alluvia.cli.options import TABLE, Decorator, command, lake_command

if TYPE_CHECKING:
    from alluvia.api.lake import Lake

Given = Mapping[str, Any]
Verb = tuple[str, Callable[[], click.Command]]
"""The name of a command, and what makes it."""


def verb(
    usage: str,
    calls: str | Callable[..., Any],
    help: str,  # noqa: A002 - as click calls it
    *options: Decorator,
    shows: Callable[[Any, Given], Any] | None = None,
    doing: str = "",
    new_lake: bool = False,
    takes_branch: bool = True,
) -> Verb:
    """Describe a command: its name and arguments, as in `tag create NAME [TABLE]`, what it calls, its help and options.

    `calls` is a method of a lake, such as `Lake.drop_stream`, or of the table that the argument TABLE names, such as
    `Table.delete`: it gets the other arguments in order, and the options by name. Or it is a function, which gets the
    lake, and all by name. An option that is not given is left out, so that the method's default holds.

    `shows` makes what is printed of the answer and of all that was given; by default, the answer is printed. `doing`
    is what progress says.
    """
    words = usage.split()
    arguments = [word for word in words if word.isupper()]

    def make() -> click.Command:
        def run(common: Common, **given: Any) -> Any:
            with common.progress(doing.format(**given)) if doing else nullcontext():
                answer = _call(common.lake(new=new_lake), calls, list(map(_name, arguments)), given)
            return answer if shows is None else shows(answer, given)

        run.__doc__ = help
        function: Callable[..., Any] = run
        for decorator in reversed((*map(_argument, arguments), *options)):
            function = decorator(function)
        return (command if takes_branch else lake_command)(function)

    return " ".join(words[: len(words) - len(arguments)]), make


def _call(lake: Lake, calls: str | Callable[..., Any], arguments: list[str], given: Given) -> Any:
    options = {name: value for name, value in given.items() if value not in (None, (), {})}
    if not isinstance(calls, str):
        return calls(lake, **options)
    owner, method = calls.split(".")
    target = lake.table(options.pop("table")) if owner == "Table" else lake
    ordered = [options.pop(name) for name in arguments if name in options]
    return getattr(target, method)(*ordered, **options)


def _argument(word: str) -> Decorator:
    name = _name(word)
    return click.argument(name, type=TABLE if name == "table" else str, required=not word.startswith("["))


def _name(word: str) -> str:
    return word.strip("[]").lower()
