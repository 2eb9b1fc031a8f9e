"""Checked access to the fields of an action's JSON: values have the expected types in the log of any writer. Pure.

Each function takes an action's body and a field's name, and raises `ValueError`, naming the field.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

_LONG = range(-(1 << 63), 1 << 63)


def text(body: Json, name: str) -> str:
    """Return a field that must be text."""
    value = body.get(name)
    if type(value) is not str:
        raise _wrong(name, value, "text")
    return value


def optional_text(body: Json, name: str) -> str | None:
    """Return a field that may be absent."""
    value = body.get(name)
    if value is not None and type(value) is not str:
        raise _wrong(name, value, "text")
    return value


def whole(body: Json, name: str) -> int:
    """Return a field that must be a whole number of 64 bits."""
    value = body.get(name)
    if type(value) is not int or value not in _LONG:
        raise _wrong(name, value, "whole number")
    return value


def optional_whole(body: Json, name: str) -> int | None:
    """Return a field that may be absent."""
    return None if body.get(name) is None else whole(body, name)


def flag(body: Json, name: str, *, default: bool | None = None) -> bool:
    """Return a field that is true or false; it must be there unless there is a default."""
    value = body.get(name)
    if value is None:
        value = default
    if type(value) is not bool:
        raise _wrong(name, value, "true or false")
    return value


def part(body: Json, name: str) -> Json:
    """Return a field that is an object; an empty one where it is absent."""
    value = body.get(name)
    if value is None:
        return {}
    if type(value) is not dict:
        raise _wrong(name, value, "object")
    return value


def text_list(body: Json, name: str) -> tuple[str, ...] | None:
    """Return a field that is a list of texts; None where it is absent."""
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not list or not all(type(item) is str for item in value):
        raise _wrong(name, value, "list of texts")
    return tuple(value)


def text_or_null_map(body: Json, name: str) -> dict[str, str | None]:
    """Return a field that maps names to text or null; an empty one where it is absent."""
    value = part(body, name)
    for item in value.values():
        if item is not None and type(item) is not str:
            raise _wrong(name, value, "object of texts")
    return value


def text_map(body: Json, name: str) -> dict[str, str]:
    """Return a field that maps names to text, without its nulls; an empty one where it is absent."""
    value = text_or_null_map(body, name)
    return {key: item for key, item in value.items() if item is not None}


def _wrong(name: str, value: Any, wanted: str) -> ValueError:
    if value is None:
        return ValueError(f"{name} is missing")
    return ValueError(f"{name} is {repr(value)[:100]}, which is no {wanted}")
