"""The text of `sources.toml`: one table for each source. Pure. Comments are lost when a command changes the file."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import orjson

from alluvia.errors import Invalid
from alluvia.events.sources.definition import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "_alluvia/sources.toml"
"""Where a lake keeps it."""


def parse(data: bytes) -> tuple[dict[str, Source], dict[str, str]]:
    """Return the sources that are valid, and why the others are not, by name. Raises Invalid for what is not TOML."""
    import tomllib  # most lakes have no sources

    try:
        tables = tomllib.loads(data.decode("utf-8-sig"))  # some editors write a mark in front
    except (ValueError, RecursionError) as error:  # of bytes, TOML, moments, or the digits of a number
        raise Invalid(f"{KEY} is not valid TOML: {error}") from None
    sources: dict[str, Source] = {}
    faults: dict[str, str] = {}
    for name, given in tables.items():
        try:
            sources[name] = Source.read(name, given)
        except Invalid as error:
            faults[name] = str(error)
    return sources, faults


def render(sources: Mapping[str, Source]) -> bytes:
    """Return the text of sources, in the order of their names."""
    return "\n".join(_table(source) for _, source in sorted(sources.items())).encode()


def _table(source: Source) -> str:
    lines = (f"{name} = {_value(value)}\n" for name, value in source.settings().items())
    return f"[{source.name}]\n{''.join(lines)}"


def _value(value: object) -> str:
    """Return a value as TOML has it; its texts are those of JSON, except for one control character."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    return orjson.dumps(value).decode().replace("\x7f", "\\u007f")
