"""JSON text as variants, shredded: the other direction of `variants`. Pure.

Source: Parquet's "Variant Binary Encoding" and "Variant Shredding". Fields of the objects that are not nested become
typed columns, if enough rows have them; fields of other names and all else stay in the bytes of `value`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.schema.variant_bytes import NULL, Names, encoded, names_in, names_metadata
from alluvia.errors import Invalid
from alluvia.json_values.jsontext import decode_all

FORM_TAG = "alluvia.variant"
"""The tag of an add with the form of its variant column, which this library has written: JSON of a `Form`."""
SHREDDED_ROWS_MIN = 1000
"""Fewer rows are written without typed columns: they are read whole, and many small files are then of one form."""
SHREDDED_FIELDS_MAX = 64
SHARE_MIN = 0.01
"""A field that a smaller share of rows has gets no column."""
WHOLE: Form = ()
"""The form of variants without typed columns."""

Form = tuple[tuple[str, str], ...]
"""The fields that have columns, in the order of their names, each with its type: a key of `KINDS`, or "" for none."""

_MARK = b"alluvia.variant"
_NAME = re.compile(r"[A-Za-z0-9_$@:/ -]{1,64}")
_AT_ONCE = 8192
"""Texts that are parsed together: parsed, they take many times their bytes."""
_LARGE = r"[eE]\+?[0-9]{3}|[0-9]{300}"
"""A number that may be beyond the range of doubles."""
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_ABSENT = object()


KINDS: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}
"""The types that columns of fields have."""
_KIND_OF = {str: "string", int: "long", float: "double", bool: "boolean"}


def marked(field: pa.Field) -> pa.Field:
    """Return a field of stored rows that says that it is a variant."""
    return field.with_metadata({**(field.metadata or {}), _MARK: b""})


def is_marked(field: pa.Field) -> bool:
    """Whether a field of stored rows is a variant."""
    return _MARK in (field.metadata or {})


def form_text(kind: Any) -> str:
    """Return a variant column's type as the text of `FORM_TAG`."""
    fields = _fields(kind)
    return orjson.dumps({each.name: _kind_name(each.type) for each in fields}).decode()


def form_of(tags: Mapping[str, str]) -> Form | None:
    """Return the form of a file's variants by the tags of its add; None if they do not say it."""
    if FORM_TAG not in tags:
        return None
    try:
        form = orjson.loads(tags[FORM_TAG])
    except ValueError:
        return None
    if not isinstance(form, dict) or not all(kind in KINDS or kind == "" for kind in form.values()):
        return None
    return tuple(sorted(form.items()))


def variants(
    texts: pa.Array | pa.ChunkedArray, kind: Any = None, *, rows_min: int = SHREDDED_ROWS_MIN
) -> pa.StructArray:
    """Return JSON texts as variants; of a type that this has returned, or of one that suits the texts.

    Raises `Invalid`, naming it, for text that is not JSON, and for a number that no variant holds.
    """
    parts = [texts.slice(start, _AT_ONCE) for start in range(0, len(texts) or 1, _AT_ONCE)]
    if kind is None:
        seen = _Seen()
        for part in parts:
            seen.add(_values(part))
        kind = seen.chosen(rows_min)
    return pa.concat_arrays([_variants(_values(part), kind) for part in parts])


def _variants(values: Sequence[Any], kind: Any) -> pa.StructArray:
    mask = pa.array([value is _ABSENT for value in values], pa.bool_())
    return pa.StructArray.from_arrays(_Rows(values).arrays(kind), fields=kind.fields, mask=mask)


def refusals(texts: pa.Array | pa.ChunkedArray) -> dict[int, str]:
    """Return why JSON texts cannot be variants, by the numbers of their rows."""
    reasons = {}
    suspects = pc.fill_null(pc.match_substring_regex(texts, _LARGE), fill_value=False)
    for row in pc.indices_nonzero(suspects).to_pylist():
        try:
            variants(texts.slice(row, 1))
        except Invalid as error:
            reasons[row] = str(error)
    return reasons


def _values(texts: pa.Array | pa.ChunkedArray) -> list[Any]:
    given = texts.to_pylist()
    decoded = iter(decode_all([text.encode() for text in given if text is not None]))
    values = [_ABSENT if text is None else next(decoded) for text in given]
    wrong = next((value for value in values if isinstance(value, Invalid)), None)
    if wrong is not None:
        raise Invalid(f"properties: the table stores JSON here, and a text is not: {wrong}")
    return values


def _fields(kind: Any) -> list[pa.Field]:
    """Return the columns of fields that a type of variants has."""
    at = kind.get_field_index("typed_value")
    return [] if at < 0 else list(kind.field(at).type.fields)


def _kind_name(group: Any) -> str:
    at = group.get_field_index("typed_value")
    return "" if at < 0 else next(name for name, kind in KINDS.items() if kind == group.field(at).type)


def _typed(values: Sequence[Any], kind: str) -> list[Any]:
    """Return the values that a column of a type takes, None in the place of others.

    Of doubles it takes those that all readers write without an exponent.
    """
    if kind == "string":
        return [value if type(value) is str else None for value in values]
    if kind == "long":
        return [value if type(value) is int and _LONG_MIN <= value <= _LONG_MAX else None for value in values]
    if kind == "double":
        return [
            value if type(value) is float and (1e-4 <= value < 1e15 or value == 0 or -1e15 < value <= -1e-4) else None
            for value in values
        ]
    if kind == "boolean":
        return [value if type(value) is bool else None for value in values]
    return [None] * len(values)


class _Seen:
    """Which fields objects have, and of which types."""

    def __init__(self) -> None:
        self._objects = 0
        self._kinds: Counter[tuple[str, type]] = Counter()

    def add(self, values: Iterable[Any]) -> None:
        """Count the fields of values."""
        objects = [value for value in values if type(value) is dict]
        self._objects += len(objects)
        self._kinds.update((name, type(value)) for each in objects for name, value in each.items())

    def chosen(self, rows_min: int) -> pa.StructType:
        """Return the type of variants that suits the values."""
        form = self._form() if self._objects >= rows_min else WHOLE
        metadata, value = pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary())
        if not form:
            return pa.struct([metadata, value.with_nullable(False)])
        groups = [pa.field(name, _group(kind), nullable=False) for name, kind in form]
        return pa.struct([metadata, value, pa.field("typed_value", pa.struct(groups))])

    def _form(self) -> Form:
        """Return the fields to have columns: the most frequent ones, of one spelling."""
        kinds: dict[str, Counter[type]] = {}
        for (name, kind), count in self._kinds.items():
            kinds.setdefault(name, Counter())[kind] += count
        fields: dict[str, str] = {}
        for name, counts in sorted(kinds.items(), key=lambda pair: (-pair[1].total(), pair[0])):
            if counts.total() < self._objects * SHARE_MIN or len(fields) == SHREDDED_FIELDS_MAX:
                break
            if _NAME.fullmatch(name):  # which both Parquet and DuckDB, which folds case, take as it is
                fields.setdefault(name.lower(), name)
        return tuple((name, _kind_of_most(kinds[name])) for name in sorted(fields.values()))


def _kind_of_most(counts: Counter[type]) -> str:
    """Return the type that most of the values have that are not null; "" for none."""
    filled = Counter({kind: count for kind, count in counts.items() if kind is not type(None)})
    if not filled:
        return ""
    [(most, count)] = filled.most_common(1)
    return _KIND_OF.get(most, "") if 2 * count > filled.total() else ""


def _group(kind: str) -> pa.StructType:
    value = pa.field("value", pa.binary())
    return pa.struct([value, pa.field("typed_value", KINDS[kind])] if kind else [value])


class _Rows:
    """Values on their way into a column: the bytes of each, with the names that are in it."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values
        known: dict[frozenset[str], tuple[bytes, Names]] = {}
        self._metadata: list[bytes] = []
        self._ids: list[Names] = []
        for value in values:
            names = names_in(value)
            if names not in known:
                known[names] = names_metadata(names)
            metadata, ids = known[names]
            self._metadata.append(metadata)
            self._ids.append(ids)

    def arrays(self, kind: pa.StructType) -> list[pa.Array]:
        """Return the columns of a type of variants."""
        metadata = pa.array(self._metadata, pa.binary())
        fields = _fields(kind)
        if not fields:
            whole = [self._bytes(row, value) or NULL for row, value in enumerate(self._values)]
            return [metadata, pa.array(whole, pa.binary())]
        rest = [self._bytes(row, left) for row, left in enumerate(_left(self._values, {each.name for each in fields}))]
        groups = [self._group(field) for field in fields]
        mask = pa.array([type(value) is not dict for value in self._values], pa.bool_())
        typed = pa.StructArray.from_arrays(groups, fields=fields, mask=mask)
        return [metadata, pa.array(rest, pa.binary()), typed]

    def _group(self, field: pa.Field) -> pa.StructArray:
        group: Any = field.type
        name, kind = field.name, _kind_name(group)
        values = [value.get(name, _ABSENT) if type(value) is dict else _ABSENT for value in self._values]
        typed = _typed(values, kind)
        others: list[bytes | None] = [None] * len(values)
        for row, value in enumerate(values):
            if value is not _ABSENT and typed[row] is None:
                others[row] = encoded(value, self._ids[row])
        columns = [pa.array(others, pa.binary()), *([pa.array(typed, KINDS[kind])] if kind else [])]
        return pa.StructArray.from_arrays(columns, fields=group.fields)

    def _bytes(self, row: int, value: object) -> bytes | None:
        return None if value is _ABSENT else encoded(value, self._ids[row])


def _left(values: Iterable[Any], names: AbstractSet[str]) -> Iterator[Any]:
    """Yield that part of each value which has no columns."""
    for value in values:
        if type(value) is not dict:
            yield value
        elif value.keys() <= names:
            yield _ABSENT
        else:
            yield {name: each for name, each in value.items() if name not in names}
