"""Types of columns for values of JSON. Pure.

A number is a long, a double or a decimal, whichever holds every value exactly. Text is a date or a time where every
value is written as one. Objects become structs, and arrays stay arrays. Values of different kinds have no common
type, so the column must be declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.schema.nesting import NESTING_MAX, too_deep
from alluvia.events.ingest.json_columns import NUMBER, numbers
from alluvia.files.limits import FileNames, Misfit, misfit
from alluvia.files.reading_options import DEFAULT, ReadingOptions
from alluvia.files.text_values import TextType
from alluvia.json_values.instants import TIMESTAMP
from alluvia.json_values.jsontext import ExactNumber, describe, survives_double

Row = Callable[[int], int]
"""The number of a value's row in the file, from the value's index."""
_INT64 = 1 << 63
_DECIMAL_DIGITS = 38
_DOUBLE_DIGITS = 15
"""So many digits of any decimal number survive a double."""
_PLACES_MAX = 6
"""Doubles with more places after the point are looked at as texts."""
_TIMES = (pa.date32(), TIMESTAMP, pa.timestamp("us"))
_KINDS: dict[type, str] = {
    bool: "boolean", int: "number", float: "number", ExactNumber: "number", str: "text", dict: "object", list: "array",
}  # fmt: skip
_SAID = {
    "boolean": "true or false", "number": "a number", "text": "a string", "object": "an object", "array": "an array"
}  # fmt: skip


class JsonType:
    """What the values of one column, or of a part of one, have in common.

    `path` names it; `depth` is how many levels of the column it is in. `names` takes the names of all of the file.
    """

    def __init__(
        self,
        path: str,
        names: FileNames,
        column: str | None = None,
        depth: int = 0,
        options: ReadingOptions = DEFAULT,
    ) -> None:
        self._options = options
        self._path = path
        self._names = names
        self._column = path if column is None else column
        self._depth = depth
        self._kind: str | None = None
        self._first_row = 0
        self._numbers = _Numbers()
        self._text = TextType(_TIMES, empty_is_null=False, options=options)
        self._fields: dict[str, JsonType] = {}
        self._elements: JsonType | None = None

    def see(self, values: Sequence[object], row: Row) -> None:
        """Take values into account; null says nothing.

        Raises `Misfit` for one of another kind than those before, one that leaves no type that holds all numbers
        exactly, or one nested more deeply than a column may be.
        """
        for kind in dict.fromkeys(map(type, values)):  # in their order: an error is about the first that differs
            if kind is not type(None):
                self._take(_KINDS[kind], kind, values, row)
        if self._kind == "number":
            at = self._numbers.see(values)
            if at is not None:
                reason = "its numbers have, with this one, more digits than any type holds: send them as text"
                raise misfit(row(at), self._path, reason)
        elif self._kind == "text":
            self._text.see(pa.array(values, pa.string()))
        elif self._kind == "object":
            self._see_objects(values, row)
        elif self._kind == "array":
            self._see_arrays(values, row)

    def see_column(self, values: pa.Array, row: Row) -> None:
        """Take values of `JsonColumns` into account, as `see` does, all of them at once if possible."""
        if values.null_count == len(values):
            return
        kind = "text" if pa.types.is_string(values.type) else "boolean" if values.type == pa.bool_() else "number"
        if self._kind not in (None, kind) or (kind == "number" and not self._numbers.see_column(values)):
            self.see(listed(values), row)
            return
        if self._kind is None:
            self._kind, self._first_row = kind, row(pc.index(pc.is_valid(values), True).as_py())
        if kind == "text":
            self._text.see(values)

    def kind(self) -> pa.DataType:
        """Return the type. Raises `Misfit` for objects without fields, which have none."""
        if self._kind == "number":
            return self._numbers.kind()
        if self._kind == "object":
            if not self._fields:
                reason = "objects without fields have no type: declare one, or leave it out"
                raise misfit(self._first_row, self._path, reason)
            return pa.struct([(name, field.kind()) for name, field in self._fields.items()])
        if self._kind == "array":
            return pa.list_(pa.string() if self._elements is None else self._elements.kind())
        return pa.bool_() if self._kind == "boolean" else self._text.kind()

    def _take(self, kind: str, of: type, values: Sequence[object], row: Row) -> None:
        if self._kind == kind:
            return
        at = next(at for at, value in enumerate(values) if type(value) is of)
        if self._kind is None:
            self._kind, self._first_row = kind, row(at)
        else:
            reason = f"expected {_SAID[self._kind]}, as in rows before, got {describe(values[at])}: declare a schema"
            raise misfit(row(at), self._path, reason)

    def _see_objects(self, values: Sequence[object], row: Row) -> None:
        for name, (places, objects) in by_name(values).items():
            field = self._fields.get(name)
            if field is None:
                self._names.take_field(path := f"{self._path}.{name}")
                field = self._fields[name] = self._part(path, row(places[0]))
            field.see(objects, partial(_row_of, row, places))

    def _part(self, path: str, row: int) -> JsonType:
        if self._depth == NESTING_MAX:
            raise Misfit(f"row {row}: {too_deep(self._column)}")
        return JsonType(path, self._names, self._column, self._depth + 1)

    def _see_arrays(self, values: Sequence[object], row: Row) -> None:
        flat = [(at, each) for at, value in enumerate(values) if isinstance(value, list) for each in value]
        if flat:
            if self._elements is None:
                self._elements = self._part(f"{self._path}[]", row(flat[0][0]))
            self._elements.see([each for _, each in flat], lambda at: row(flat[at][0]))


def by_name(values: Iterable[object]) -> dict[str, tuple[list[int], list[object]]]:
    """Return the values of fields of objects by name, each with the index of its object.

    The time grows with the number of values, not with names times objects.
    """
    columns: dict[str, tuple[list[int], list[object]]] = {}
    for at, value in enumerate(values):
        if isinstance(value, dict):
            for name, field in value.items():
                there = columns.get(name)
                if there is None:
                    there = columns[name] = ([], [])
                there[0].append(at)
                there[1].append(field)
    return columns


def _row_of(row: Row, places: Sequence[int], at: int) -> int:
    return row(places[at])


class _Numbers:
    """The types that hold all numbers of a column."""

    def __init__(self) -> None:
        self._long = self._double = True
        self._digits = self._scale = 0

    def see(self, values: Sequence[object]) -> int | None:
        """Return the index of the first value that no type holds together with those before; None if one holds all."""
        if {int, type(None)}.issuperset(map(type, values)):
            whole = [value for value in values if isinstance(value, int)]
            least, most = min(whole, default=0), max(whole, default=0)
            self._long = self._long and least >= -_INT64 and most < _INT64
            if least >= -(1 << 53) and most <= 1 << 53:
                digits = max(self._digits, len(str(abs(least))), len(str(abs(most))))
                if self._long or self._double or digits + self._scale <= _DECIMAL_DIGITS:
                    self._digits = digits
                    return None
        for at, value in enumerate(values):
            if value is not None:
                self._see_one(value)
                if not (self._long or self._double) and self._precision() > _DECIMAL_DIGITS:
                    return at
        return None

    def see_column(self, values: pa.Array) -> bool:
        """Take the numbers of a column of `JsonColumns` into account. Returns False if they must be seen one by one.

        Otherwise a double holds each of them, so those with the most digits before and after the point decide.
        """
        if pa.types.is_integer(values.type):
            bounds = pc.min_max(values).as_py()
            some = [bounds["min"], bounds["max"]]
            return some[0] >= -(1 << 53) and some[1] <= 1 << 53 and self.see(some) is None
        if pa.types.is_float64(values.type):
            longest = _longest(values)
            if longest is not None:
                return self.see(longest) is None
            values = numbers(values.to_pylist())
        texts = values.cast(pa.string())
        if pc.any(pc.match_substring(texts, "e")).as_py():
            return False
        points = pc.find_substring(texts, ".")
        sizes = pc.utf8_length(texts)
        whole = pc.subtract(
            pc.if_else(pc.less(points, 0), sizes, points), pc.cast(pc.starts_with(texts, "-"), pa.int32())
        )
        places = pc.if_else(pc.less(points, 0), pa.scalar(0, pa.int32()), pc.subtract(sizes, points))
        most = {pc.index(lengths, pc.max(lengths)).as_py() for lengths in (whole, places)}
        return self.see(listed(values.take(pa.array(sorted(most))))) is None

    def _see_one(self, value: object) -> None:
        text = value.text if isinstance(value, ExactNumber) else str(value)
        self._long = self._long and isinstance(value, int) and -_INT64 <= value < _INT64
        self._double = self._double and (isinstance(value, float) or survives_double(text))
        if self._long:
            self._digits = max(self._digits, len(text.lstrip("-")))
            return
        _, digits, exponent = Decimal(text).as_tuple() if len(text) < 400 else (0, (0,) * 400, 0)
        assert isinstance(exponent, int)  # noqa: S101 - JSON has no infinities
        self._digits = max(self._digits, len(digits) + exponent)
        self._scale = max(self._scale, -exponent)

    def kind(self) -> pa.DataType:
        if self._long:
            return pa.int64()
        if self._double:
            return pa.float64()
        return pa.decimal128(self._precision(), self._scale)

    def _precision(self) -> int:
        return max(1, self._digits) + self._scale


def _longest(values: pa.Array) -> list[float] | None:
    """Return those of some doubles that have the most digits before and after the point; None if that needs a look.

    A double of at most 15 digits is equal to itself rounded to some places if it is written with no more of them.
    """
    bounds = pc.min_max(values).as_py()
    longest = [bounds["min"], bounds["max"]]
    if max(map(abs, longest)) >= 10.0 ** (_DOUBLE_DIGITS - _PLACES_MAX):
        return None
    for places in range(1, _PLACES_MAX + 1):
        at = pc.index(pc.equal(pc.round(values, places), values), False).as_py()
        if at < 0:
            return longest
        longest.append(values[at].as_py())
    return None


def listed(values: pa.Array) -> list[object]:
    """Return the values of a column of `JsonColumns` one by one."""
    found: list[Any] = values.to_pylist()
    return found if values.type != NUMBER else [None if text is None else orjson.loads(text) for text in found]
