"""The values of a query's parameters (`?`, `$1`, `$name`), which DuckDB binds: they are never part of a query's text.

Values go to the query's process as one Arrow row, so that each keeps its type. Pure.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any

import orjson
import pyarrow as pa

from alluvia.delta.schema.serialization import primitive_type
from alluvia.delta.schema.types import normal_name
from alluvia.engine.queries.parse import Node, walk
from alluvia.errors import Invalid, Unsupported
from alluvia.lazy_dataclasses import dataclass
from alluvia.query.parameter_times import FORMS, read_time

VERSION = "version"
"""Means the version of the query in a request, so no parameter can have this name."""
LINK_TOKEN = "link-token"  # noqa: S105 - a name
"""The field of a link's address with its token: no name of a parameter, which has no hyphen."""
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
        """Return the value of a text. Raises `Invalid`, naming the parameter and its type.

        Dates and timestamps come in the forms of `parameter_times`.
        """
        kind = primitive_type(self.type)
        is_time = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        try:
            value = read_time(text, kind) if is_time else pa.array([text], pa.string()).cast(kind)[0].as_py()
        except (pa.ArrowException, ValueError, OverflowError):
            value = None
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            forms = f": {FORMS}" if is_time else ""
            raise Invalid(f"{self.name}: {text!r:.100} is not a value of the type {self.type}{forms}")
        return value


def declare(parameters: Mapping[str, str]) -> tuple[Declared, ...]:
    """Return parameters, from `type` or `type=default` by name. Raises `Invalid`, naming the parameter."""
    every = []
    for name, text in parameters.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == VERSION:
            raise Invalid(f"parameter {name!r:.100}: use letters, digits and underscores, and not {VERSION}")
        if not isinstance(text, str):
            raise Invalid(f"parameter {name}: expected a type as text, such as long, or long=10")
        kind, has_default, default = text.partition("=")
        declared = Declared(name, _type(name, kind), default if has_default else None)
        if declared.default is not None:
            declared.value(declared.default)
        every.append(declared)
    return tuple(every)


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


Parameters = Sequence[Any] | Mapping[str, Any]
Values = Mapping[str, Any]
"""By name; the first `?` is `1`."""
_TYPES = (str, bool, int, float, Decimal, bytes, dt.datetime, dt.date, list, tuple, dict)
_INT64 = range(-(1 << 63), 1 << 63)
_LONG_NUMBER = re.compile(rb"[0-9.]{16}|[0-9][eE][-+]?[0-9]{3}")
"""What a number that 64 bits do not hold has; every number of up to 15 digits survives a double."""
NESTING_MAX = 32
"""Levels of lists and dicts in one another. A result that holds a value adds levels, and Arrow takes 64."""
_SHOWN = "text, a number, a bool, bytes, a date, a datetime, a list, a dict or None"


def named_values(parameters: Parameters | None) -> Values:
    """Return parameters by name. Raises `Invalid`, naming the parameter, for a value that SQL does not get.

    That is one of another type, or one that is nested too deeply. A list has the values of `?` and of `$1`, `$2` and so
    on, a dict those of `$name`.
    """
    if parameters is None:
        return {}
    if isinstance(parameters, Mapping):
        given = dict(parameters)
    elif isinstance(parameters, Sequence) and not isinstance(parameters, str | bytes):
        given = {str(number): value for number, value in enumerate(parameters, 1)}
    else:
        raise Invalid(f"parameters: expected a list for ?, or a dict for $name, got {type(parameters).__name__}")
    for name, value in given.items():
        if not isinstance(name, str) or not name:
            raise Invalid(f"parameters: expected names as text, got {name!r:.100}")
        _check(f"parameter {_shown(name)}", value, 0)
    return given


def _check(where: str, value: Any, depth: int) -> None:
    if value is not None and not isinstance(value, _TYPES):
        raise Invalid(f"{where}: expected {_SHOWN}, got {type(value).__name__}")
    if depth == NESTING_MAX and isinstance(value, dict | list | tuple):
        raise Invalid(f"{where} is nested more than {NESTING_MAX} levels deep: flatten it, or pass it as JSON text")
    if isinstance(value, dict):
        for name, part in value.items():
            if not isinstance(name, str) or not name:
                raise Invalid(f"{where}: the keys of a dict must be text, got {name!r:.100}")
            _check(where, part, depth + 1)
    elif isinstance(value, list | tuple):
        for part in value:
            _check(where, part, depth + 1)


def _shown(name: str) -> str:
    return name if name.isdigit() else f"${name}"


def check_given(root: Node, values: Values) -> None:
    """Raise `Invalid` unless a query's parameters are those that have values."""
    check_names((node["identifier"] for node in walk(root) if node.get("class") == "PARAMETER"), values)


def check_names(names: Iterable[str], values: Values) -> None:
    """Raise `Invalid`, naming it, for a parameter without a value, or for a value of none."""
    used = dict.fromkeys(names)
    for name in used:
        if name not in values:
            raise Invalid(f"parameter {_shown(name)} has no value: pass it in parameters")
    for name in values:
        if name not in used:
            written = "?" if name.isdigit() else _shown(name)
            raise Invalid(f"parameter {_shown(name)} has a value, but the SQL does not use it: write {written} for it")


def arrow_row(values: Values) -> pa.Table:
    """Return values as one row. Raises `Invalid`, naming the parameter, for a list whose items differ in type."""
    columns = {}
    for name, value in values.items():
        try:
            columns[name] = pa.array([_typed(value)])
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise Invalid(f"parameter {_shown(name)} does not fit one SQL type: {error}") from error
        if _exceeds_decimals(columns[name].type):
            raise Invalid(
                f"parameter {_shown(name)} has a number with more than 38 digits, which no SQL type holds: pass it as "
                "text"
            )
    return pa.table(columns)


def _typed(value: Any) -> Any:
    """Return a value whose type Arrow finds: times in UTC, and whole numbers beyond 64 bits as decimals."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    if isinstance(value, int) and value not in _INT64:
        return Decimal(value)
    if isinstance(value, dict):
        return {name: _typed(part) for name, part in value.items()}
    return [_typed(part) for part in value] if isinstance(value, list | tuple) else value


def _exceeds_decimals(kind: pa.DataType) -> bool:
    parts = (kind.field(at).type for at in range(kind.num_fields))
    return isinstance(kind, pa.Decimal256Type) or any(map(_exceeds_decimals, parts))


def from_json(text: str | bytes) -> Any:
    """Return a JSON value with all digits of its numbers. Raises `ValueError`.

    Whole numbers beyond 64 bits, and fractions that a double would round, are decimals, as they are in a query's text.
    """
    value = orjson.loads(text)
    if _LONG_NUMBER.search(text if isinstance(text, bytes) else text.encode()) is None:
        return value
    try:
        return json.loads(text, parse_int=_whole, parse_float=_fraction)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def to_json(value: Any) -> str:
    """Return the text of a JSON value that `from_json` gave."""
    return orjson.dumps(value, default=_digits).decode()


def _whole(digits: str) -> int | Decimal:
    number = Decimal(digits)
    return int(number) if _INT64[0] <= number <= _INT64[-1] else number


def _fraction(digits: str) -> float | Decimal:
    number, exact = float(digits), Decimal(digits)
    return number if isfinite(number) and Decimal(repr(number)) == exact else exact


def _digits(value: object) -> orjson.Fragment:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    raise TypeError
