"""Decide which rows match a condition, wherever they have its fields. Pure.

A row that has a field in one place has one value of it. Where it has several, as an event whose field and whose
`properties` named the same, the condition is asked about each, since all of them are the row's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice, product
from typing import Any

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.columnar import definite
from alluvia.engine.conditions.condition import Condition, condition
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.erasure.erase_places import (
    PROPERTIES,
    ErasedField,
    FieldPlaces,
    FieldValues,
    as_struct,
    as_text,
    candidates,
    sources_of,
    text_type,
)

_KINDS = (pa.string(), pa.int64(), pa.float64(), pa.bool_(), pa.timestamp("us", tz="UTC"), pa.date32())
"""What a value of a field without a column may be compared as."""
_FORMS_MAX = 4
_TRIED_MAX = 250
_COMBINED_MAX = 64
"""A row with more ways to choose one value for each field is asked about each value, with the first of the others."""
FAILS = "the condition fails on some of its values"


@dataclass(frozen=True, slots=True)
class Judged:
    """Which rows of a batch match, and clauses that say what could not be judged."""

    mask: pa.BooleanArray
    unclear: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Form:
    """The condition for one choice of its fields' types."""

    kinds: Mapping[str, pa.DataType]
    condition: Condition


class Judge:
    """Says of rows of one schema whether they match. Raises `Invalid` for a condition that no types of fields fit."""

    def __init__(self, where: str, snapshot: Snapshot, places: FieldPlaces) -> None:
        self.places = places
        self.seen: set[str] = set()
        """Fields that a row had outside of the table's columns."""
        self._where = where
        self._snapshot = snapshot
        self._types = {
            field.name: snapshot.schema.field(field.column).type for field in places.fields if field.column is not None
        }
        self._forms = list(self._found_forms())
        self._base = None if places.absent else _parsed(where, self._types, snapshot)

    def judged(self, rows: pa.RecordBatch, texts: Sequence[pa.Array] = (), *, strict: bool = False) -> Judged:
        """Judge rows, which have the table's columns and may have others of a file, by its names for them.

        `texts` are JSON texts that hold fields like `properties`. Raises `Invalid` where the condition fails on a value
        of a column if it is to be `strict`.
        """
        base, unclear = self._of_columns(rows, strict=strict)
        elsewhere = self._elsewhere(rows, texts)
        if not elsewhere:
            return Judged(base, unclear | self._without_field(rows, ()))
        numbers = sorted(elsewhere)
        held, deeper = self._hold(rows, numbers, elsewhere)
        mask = base.to_pylist()
        for at, holds in zip(numbers, held, strict=True):
            mask[at] = holds
        unclear |= self._without_field(rows, numbers)
        return Judged(pa.array(mask, pa.bool_()), unclear | {_deeper_clause(path) for path in deeper})

    def bounded(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Return whether rows of which some columns are known match, the others being null; null where unclear."""
        if self._base is not None:
            return self._base.lenient_mask(self._batch(rows, self._types))
        return pa.nulls(len(rows), pa.bool_())

    def _of_columns(self, rows: pa.RecordBatch, *, strict: bool) -> tuple[pa.BooleanArray, frozenset[str]]:
        """Judge rows by the table's columns alone. Without one for each field, none of them matches."""
        if self._base is None:
            return pa.repeat(pa.scalar(False, pa.bool_()), len(rows)), frozenset()
        batch = self._batch(rows, self._types)
        try:
            return definite(self._base.mask(batch)), frozenset()
        except Invalid:
            if strict:
                raise
        return definite(self._base.lenient_mask(batch)), frozenset({FAILS})

    def _without_field(self, rows: pa.RecordBatch, having: Sequence[int]) -> frozenset[str]:
        """Say where rows match although they have none of the fields that the table has no column for."""
        if not self.places.absent or not self.places.fields or not len(rows):
            return frozenset()
        names = ", ".join(field.name for field in self.places.absent)
        batch = self._batch(rows, self._forms[0].kinds)
        held = definite(self._forms[0].condition.lenient_mask(batch)).to_pylist()
        for at in having:
            held[at] = False
        return frozenset({f"rows match only because they lack the field {names}"}) if any(held) else frozenset()

    def _batch(self, rows: pa.RecordBatch, kinds: Mapping[str, pa.DataType]) -> pa.RecordBatch:
        arrays, fields = [], []
        for field in self.places.fields:
            kind = kinds[field.name]
            known = field.column is not None and field.column in rows.schema.names
            array = rows[str(field.column)] if known else pa.nulls(len(rows), kind)
            arrays.append(array if array.type == kind else _cast(array, kind))
            fields.append(pa.field(field.name, kind))
        if not fields:
            return rows
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _elsewhere(self, rows: pa.RecordBatch, texts: Sequence[pa.Array]) -> dict[int, FieldValues]:
        """Return what rows have of the fields outside of the table's columns, by their numbers."""
        by_row: dict[int, list[FieldValues]] = {}
        fields = self.places.in_text if not texts else self.places.fields
        jsons = list(texts)
        if self.places.properties and PROPERTIES in rows.schema.names:
            jsons.append(rows[PROPERTIES])
        for name, field in self.places.looked_for(
            [each for each in rows.schema.names if not self._is_column(each)]
        ).items():
            if field is None:
                jsons.append(rows[name])
                continue
            for at, value in enumerate(rows[name].to_pylist()):
                if value is not None:
                    by_row.setdefault(at, []).append(FieldValues({field.name: [value]}, {}))
        for text in jsons:
            if not (pa.types.is_string(text.type) or pa.types.is_large_string(text.type) or text.type == pa.binary()):
                continue
            readable = text if text.type != pa.binary() else None
            chosen = range(len(text)) if readable is None else _numbers(candidates(readable, fields))
            for at in chosen:
                held = sources_of(text[at].as_py(), fields)
                if held is not None:
                    by_row.setdefault(at, []).append(held)
        self.seen.update(name for parts in by_row.values() for part in parts for name in (*part.values, *part.deeper))
        return {at: _together(parts) for at, parts in by_row.items()} | self._asked_by_key(rows, by_row)

    def _asked_by_key(
        self, rows: pa.RecordBatch, others: Mapping[int, Sequence[FieldValues]]
    ) -> dict[int, FieldValues]:
        """Return, for a condition on keys of `properties`, that text with the values that columns have of them."""
        held: dict[int, FieldValues] = {}
        columns = {key: rows[column] for key, column in self.places.keys.items() if column in rows.schema.names}
        if not columns or PROPERTIES not in rows.schema.names:
            return held
        present = pc.fill_null(_any(pc.is_valid(array) for array in columns.values()), pa.scalar(False, pa.bool_()))
        for at in _numbers(present):
            body = _object(rows[PROPERTIES][at].as_py())
            for key, array in columns.items():
                if array[at].is_valid and key not in body:
                    body[key] = array[at].as_py()
            parts = [*others.get(at, ()), FieldValues({PROPERTIES: [as_text(body)]}, {})]
            held[at] = _together(parts)
        return held

    def _is_column(self, name: str) -> bool:
        return any(field.column == name for field in self.places.fields) or (
            name == PROPERTIES and self.places.properties
        )

    def _hold(
        self, rows: pa.RecordBatch, numbers: Sequence[int], elsewhere: Mapping[int, FieldValues]
    ) -> tuple[list[bool], set[str]]:
        """Return of some rows which match, and the paths of fields deeper in texts with which others would."""
        picked = rows.take(pa.array(numbers, pa.int64()))
        columns = {
            field.name: picked[str(field.column)].to_pylist()
            for field in self.places.fields
            if field.column is not None and field.column in picked.schema.names
        }
        asked: list[tuple[int, str, dict[str, Any]]] = []
        for at, number in enumerate(numbers):
            own = {
                field.name: [value for value in (columns[field.name][at],) if value is not None]
                if field.name in columns
                else []
                for field in self.places.fields
            }
            options = {name: [*values, *elsewhere[number].values.get(name, ())] for name, values in own.items()}
            if not self.places.absent or any(options[field.name] for field in self.places.absent):
                asked += [(at, "", choice) for choice in _choices(options)]
            for name, inside in elsewhere[number].deeper.items():
                for path, value in inside:
                    asked += [(at, path, choice) for choice in _choices({**options, name: [value]})]
        held = [False] * len(numbers)
        deeper: dict[int, set[str]] = {}
        for (at, path, _), holds in zip(asked, self._ask([choice for _, _, choice in asked]), strict=True):
            if holds and path:
                deeper.setdefault(at, set()).add(path)
            elif holds:
                held[at] = True
        return held, {path for at, paths in deeper.items() if not held[at] for path in paths}

    def _ask(self, choices: Sequence[Mapping[str, Any]]) -> list[bool]:
        """Return whether the condition holds for rows with some values, in any of its forms."""
        held = [False] * len(choices)
        if not choices:
            return held
        for form in self._forms:
            values = {
                field.name: _values([choice[field.name] for choice in choices], form.kinds[field.name], field)
                for field in self.places.fields
            }
            fits = [
                all(values[name][at] is not None or value is None for name, value in choice.items())
                for at, choice in enumerate(choices)
            ]
            arrays = [pa.array(values[name], kind) for name, kind in form.kinds.items()]
            schema = pa.schema([pa.field(name, kind) for name, kind in form.kinds.items()])
            mask = form.condition.lenient_mask(pa.RecordBatch.from_arrays(arrays, schema=schema)).to_pylist()
            held = [one or (fit and bool(holds)) for one, fit, holds in zip(held, fits, mask, strict=True)]
        return held

    def _found_forms(self) -> Iterator[_Form]:
        """Yield the condition for the types that its fields may have, as texts first."""
        options = [self._options(field) for field in self.places.fields]
        refused: Invalid | None = None
        count = 0
        for kinds in islice(product(*options), _TRIED_MAX):
            chosen = {field.name: kind for field, kind in zip(self.places.fields, kinds, strict=True)}
            try:
                yield _Form(chosen, _parsed(self._where, chosen, self._snapshot))
            except Invalid as error:
                refused = refused or error
            else:
                count += 1
                if count == _FORMS_MAX:
                    return
        if not count and refused is not None:
            raise refused

    def _options(self, field: ErasedField) -> list[pa.DataType]:
        own = self._types.get(field.name)
        if own is not None:
            return [own] if own == pa.string() or pa.types.is_nested(own) else [own, pa.string()]
        return [text_type(field.paths, kind) for kind in _KINDS]


def _parsed(where: str, kinds: Mapping[str, pa.DataType], snapshot: Snapshot) -> Condition:
    fields = [pa.field(name, kind) for name, kind in kinds.items()]
    return condition(where, pa.schema(fields) if fields else snapshot.schema)


def _choices(options: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield one value for each field, in every way; null where there is none."""
    lists = [list(values) or [None] for values in options.values()]
    ways = 1
    for values in lists:
        ways *= len(values)
    if ways <= _COMBINED_MAX:
        for chosen in product(*lists):
            yield dict(zip(options, chosen, strict=True))
        return
    first = dict(zip(options, (values[0] for values in lists), strict=True))
    for name, values in zip(options, lists, strict=True):
        for value in values:
            yield {**first, name: value}


def _values(values: Sequence[Any], kind: pa.DataType, field: ErasedField) -> list[Any]:
    """Return values of JSON or of a column in a type; None for those that it cannot hold."""
    if pa.types.is_struct(kind):
        values = [as_struct(value, field.paths) if isinstance(value, dict) else None for value in values]
    return [_fitted(value, kind) for value in values]


def _fitted(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return (
            {each.name: _fitted(value.get(each.name), each.type) for each in kind} if isinstance(value, dict) else None
        )
    if pa.types.is_string(kind):
        return as_text(value)
    text = as_text(value)
    texts = (value, pa.scalar(text, pa.string()), pa.scalar(f"{text}Z", pa.string()))
    for one in texts if pa.types.is_timestamp(kind) else texts[:2]:
        try:
            return one.cast(kind).as_py() if isinstance(one, pa.Scalar) else pa.scalar(one, kind).as_py()
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue
    return None


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return array.cast(kind)
    except pa.ArrowException:
        return pa.array([_fitted(value, kind) for value in array.to_pylist()], kind)


def _together(parts: Sequence[FieldValues]) -> FieldValues:
    values: dict[str, list[object]] = {}
    deeper: dict[str, list[tuple[str, object]]] = {}
    for part in parts:
        for name, some in part.values.items():
            values.setdefault(name, []).extend(some)
        for name, inside in part.deeper.items():
            deeper.setdefault(name, []).extend(inside)
    return FieldValues(values, deeper)


def _deeper_clause(path: str) -> str:
    return f"{PROPERTIES} has a matching value in {path}, which may mean something else"


def _numbers(mask: pa.BooleanArray) -> list[int]:
    numbers: list[int] = pc.indices_nonzero(mask).to_pylist()
    return numbers


def _any(masks: Iterator[pa.BooleanArray]) -> pa.BooleanArray:
    return reduce(pc.or_, masks)


def _object(text: object) -> dict[str, Any]:
    try:
        value = orjson.loads(text) if isinstance(text, (str, bytes)) else None
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {}
