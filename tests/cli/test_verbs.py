"""The commands, and the table of those that are alike: what each is called, takes and calls."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator

import click
import pytest
from click.testing import CliRunner

from alluvia.api.lake import Lake, Table
from alluvia.api.lake_catalog import LakeCatalog
from alluvia.cli.command_line import cli
from alluvia.cli.commands.verbs import VERBS
from alluvia.cli.common import Common

COMMON = {"lake", "endpoint_url", "as_json", "debug", "on_branch"}


def commands(group: click.Group, *words: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)
        else:
            yield " ".join((*words, name)), command


COMMANDS = dict(commands(cli))


def test_each_verb_is_a_command() -> None:
    assert set(VERBS) <= set(COMMANDS)


def test_the_help_lists_each_command_once_below_a_topic() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).stdout.partition("\n\nEvents:\n")[2]
    listed = re.findall(r"^  ([a-z]+) ", shown, re.MULTILINE)
    assert sorted(listed) == cli.list_commands(click.Context(cli))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_common_options_and_describes_its_own(name: str) -> None:
    command = COMMANDS[name]
    options = {each.name: each for each in command.params if isinstance(each, click.Option)}
    assert command.help
    assert set(options) >= COMMON
    assert [each for each, option in options.items() if not option.help] == []
    assert len({each.name for each in command.params}) == len(command.params)


class Called(Exception):
    """Ends a command at its first call of a method."""


class Recorder:
    """Stands for a lake, its catalog or a table: a call must fit the method that the real one has."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    @property
    def catalog(self) -> Recorder:
        return Recorder(LakeCatalog)

    def table(self, name: str) -> Recorder:
        assert name == "word"
        return Recorder(Table)

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = inspect.getattr_static(self._kind, name)

        def call(*arguments: object, **options: object) -> object:
            inspect.signature(method).bind(self, *arguments, **options)
            raise Called(f"{self._kind.__name__}.{name}")

        return call


WRITTEN = {"CHARACTER": "", "FORMAT": "%Y-%m-%d", "LINES": "0", "ENCODING": "utf-8"}
"""How a file is written: standard input is NDJSON, which has no delimiter and no header."""


def value(parameter: click.Parameter) -> str:
    form = (parameter.metavar if isinstance(parameter, click.Option) else None) or ""
    kinds: dict[type, str] = {click.IntRange: "1", type(click.INT): "1"}
    if "=" in form or ":" in form:
        return "word=1" if "=" in form else "word:long"
    if form in WRITTEN:
        return WRITTEN[form]
    if isinstance(parameter.type, click.Path):
        return "-"
    return "7d" if parameter.type.name == "duration" else kinds.get(type(parameter.type), "word")


@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize("with_options", [True, False])
def test_what_a_verb_calls_takes_what_it_gives(name: str, with_options: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    words = name.split()
    for each in COMMANDS[name].params:
        if isinstance(each, click.Argument):
            words.append(value(each))
        elif each.name not in COMMON | {"every"} and (with_options or each.required):
            words += [each.opts[-1]] if getattr(each, "is_flag", False) else [each.opts[-1], value(each)]
    if name == "update" and not with_options:
        words.append("--all")
    if name == "evolve" and not with_options:
        words += ["--drop", "word"]
    monkeypatch.setattr(Common, "lake", lambda *_, **__: Recorder(Lake))
    done = CliRunner().invoke(cli, words, input='{"word": 1}')
    assert "unexpected Called: " in done.stderr, done.stderr
