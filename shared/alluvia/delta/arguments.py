"""Checks of callers' arguments. Each raises `Invalid`, naming the argument and what is expected. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from alluvia.errors import Invalid


def check_names(argument: str, given: object) -> None:
    """Refuse anything but a list of names; a string is one name, not its letters."""
    whole = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    if not whole or not all(isinstance(name, str) for name in given):  # type: ignore[attr-defined]
        raise Invalid(f"{argument}: expected a list of names, such as ['id'], got {given!r:.100}")


def check_text(argument: str, given: object, example: str) -> None:
    """Refuse anything but text."""
    if not isinstance(given, str):
        raise Invalid(f"{argument}: expected text, such as {example!r}, got {given!r:.100}")


def check_place(argument: str, given: object) -> None:
    """Refuse what is neither a path nor a URI."""
    if not isinstance(given, str | os.PathLike) or not str(given):
        raise Invalid(f"{argument}: expected a path or a URI, such as 's3://bucket/prefix', got {given!r:.100}")


def check_number(argument: str, given: object) -> None:
    """Refuse what is neither None nor a whole number above 0."""
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given <= 0):
        raise Invalid(f"{argument}: expected a whole number above 0, got {given!r:.100}")


def check_mapping(argument: str, given: object) -> None:
    """Refuse what is neither None nor a mapping of names."""
    if given is not None and (not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given)):
        raise Invalid(f"{argument}: expected values by name, such as {{'country': 'de'}}, got {given!r:.100}")


def schema_of(given: Any) -> pa.Schema:
    """Return a caller's schema: one of pyarrow's, or a mapping of names to Delta's type names or pyarrow's types."""
    if isinstance(given, pa.Schema):
        return given
    if not isinstance(given, Mapping):
        raise Invalid(f"schema: expected a pyarrow schema or a mapping such as {{'id': 'long'}}, got {given!r:.100}")
    return pa.schema([(name, type_of(name, kind)) for name, kind in given.items()])


def type_of(name: object, kind: object) -> pa.DataType:
    """Return the type that a caller gives for a column, by Delta's name or as pyarrow's."""
    check_text("column name", name, "id")
    if isinstance(kind, str):
        from alluvia.delta.schema.serialization import parse_type  # loaded late: a query's process checks text alone

        return parse_type(kind)
    if isinstance(kind, pa.DataType):
        return kind
    raise Invalid(f"column {name}: expected a type's name such as 'long', or a pyarrow type, got {kind!r:.100}")
