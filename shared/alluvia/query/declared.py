"""Parameters that a published query declares: their types, their defaults, and values of them from text. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from alluvia.delta.schema.serialization import primitive_type
from alluvia.delta.schema.types import normal_name
from alluvia.errors import Invalid, Unsupported
from alluvia.lazy_dataclasses import dataclass

VERSION = "version"
"""Means the version of the query in a request, so no parameter can have this name."""
TOKEN = "token"  # noqa: S105 - a name
IN_A_HEADER = "token: addresses end up in logs and histories, so send it in a header: Authorization: Bearer <token>"
"""What is said of a token among the fields of a request, as Tinybird has it."""
_SAMPLES = {
    "string": "", "boolean": "false", "date": "1970-01-01",
    "timestamp": "1970-01-01T00:00:00Z", "timestamp_ntz": "1970-01-01T00:00:00",
}  # fmt: skip
"""Texts of some value of each type that is not a number's."""
_NAME = re.compile(r"[A-Za-z_]\w{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Declared:
    """A parameter: its name, its type by Delta's name, and the text of its default, if it has one."""

    name: str
    type: str
    default: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.type}{'' if self.default is None else f', {self.default!r:.100} by default'})"

    def value(self, text: str) -> Any:
        """Return the value that a text stands for. Raises `Invalid`, naming the parameter and its type."""
        try:
            found = pa.array([text], pa.string()).cast(primitive_type(self.type))[0].as_py()
        except (pa.ArrowException, ValueError, OverflowError):
            found = None
        if found is None or (isinstance(found, float) and not math.isfinite(found)):
            raise Invalid(f"{self.name}: {text!r:.100} is not a value of the type {self.type}")
        return found


def declare(parameters: Mapping[str, str]) -> tuple[Declared, ...]:
    """Return parameters, from `type` or `type=default` by name. Raises `Invalid`, naming the parameter."""
    found = []
    for name, text in parameters.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == VERSION:
            raise Invalid(f"parameter {name!r:.100}: use letters, digits and underscores, and not {VERSION}")
        if not isinstance(text, str):
            raise Invalid(f"parameter {name}: expected a type as text, such as long, or long=10")
        kind, has_default, default = text.partition("=")
        declared = Declared(name, _type(name, kind), default if has_default else None)
        if declared.default is not None:
            declared.value(declared.default)
        found.append(declared)
    return tuple(found)


def values_of(declared: Sequence[Declared], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of parameters, with defaults. Raises `Invalid`, naming a wrong, missing or unknown one."""
    known = ", ".join(map(str, declared)) or "none"
    unknown = next((name for name in given if name not in {each.name for each in declared}), None)
    if unknown == TOKEN:
        raise Invalid(IN_A_HEADER)
    if unknown is not None:
        raise Invalid(f"{unknown:.100} is not a parameter of this query, which has {known}")
    missing = next((each for each in declared if each.name not in given and each.default is None), None)
    if missing is not None:
        raise Invalid(f"{missing.name} is missing: the parameters of this query are {known}")
    return {each.name: each.value(given.get(each.name, each.default or "")) for each in declared}


def sample_of(declared: Declared) -> Any:
    """Return some value of a parameter's type, with which its query can be planned."""
    return declared.value(_SAMPLES.get(declared.type, "0") if declared.default is None else declared.default)


def _type(name: str, text: str) -> str:
    try:
        kind = primitive_type(text)
    except (Invalid, Unsupported) as error:
        raise Invalid(f"parameter {name}: {error}") from error
    if pa.types.is_binary(kind):
        raise Invalid(f"parameter {name}: {text:.100} has no form as text: use string, long, double, date or the like")
    return normal_name(text)
