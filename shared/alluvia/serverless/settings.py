"""Settings, as environment variables hold them. Each error names its variable."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from alluvia.errors import Invalid


@contextmanager
def environment(values: Mapping[str, str], without: Iterable[str] = ()) -> Iterator[None]:
    """Set variables, and unset those that are named; afterwards all are what they were."""
    before = {name: os.environ.pop(name, None) for name in (*values, *without)}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


Default = TypeVar("Default", int, None)


def text(environment: Mapping[str, str], name: str, why: str) -> str:
    """Return a variable that must be set; `Invalid` says why."""
    value = environment.get(name)
    if not value:
        raise Invalid(f"{name} is not set: {why}")
    return value


def choice(environment: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """Return one of some words, the first by default."""
    value = environment.get(name) or choices[0]
    if value not in choices:
        raise Invalid(f"{name} is {value!r}: use {' or '.join(choices)}")
    return value


def number(
    environment: Mapping[str, str], name: str, unit: str, default: Default, *, least: int = 1, most: int | None = None
) -> int | Default:
    """Return a whole number of some unit from `least` to `most`; where it is not set, the default."""
    value = environment.get(name)
    if not value:
        return default
    if not (value.isascii() and value.isdigit() and least <= int(value) and (most is None or int(value) <= most)):
        raise Invalid(f"{name} is {value!r}: use a whole number of {unit} from {least}{f' to {most}' if most else ''}")
    return int(value)
