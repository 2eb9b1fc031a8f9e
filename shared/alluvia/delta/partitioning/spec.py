"""A table's partitioning: columns, and transforms of columns. Pure.

A field is a column (`country`), which becomes a Delta partition column, or a transform (`day(ts)`), which only decides
the layout: the schema stays as declared, and every Delta reader sees an unpartitioned table whose statistics prune.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

import pyarrow as pa

from alluvia.delta.schema.types import type_name
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.nearest_name import hint

TIMES = {"year": 4, "month": 7, "day": 10, "hour": 13}
"""Transforms of a time, and how many characters of its ISO form their values have."""
BUCKET, TRUNCATE = "bucket", "truncate"
WIDTH_MAX = 1_000_000_000
_CALL = re.compile(r"^\s*(\w+)\s*\(\s*(.+?)\s*\)\s*$")
_WIDTH = re.compile(r"\d{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A column, the transform of it or None for its values themselves, and the column's type.

    `width` is the number of buckets, or what `truncate` keeps: characters of text, multiples of a whole number.
    `stored` is the column's name in the log, where that is another one.
    """

    column: str
    transform: str | None = None
    width: int = 0
    kind: pa.DataType = field(default=pa.null(), compare=False)
    stored: str = field(default="", compare=False)

    def __str__(self) -> str:
        if self.transform is None:
            return self.column
        if self.transform == BUCKET:
            return f"{self.transform}({self.width}, {self.column})"
        if self.transform == TRUNCATE:
            return f"{self.transform}({self.column}, {self.width})"
        return f"{self.transform}({self.column})"

    @property
    def folder(self) -> str:
        """Return the name that the field has in paths."""
        return f"{self.column}_{self.transform}" if self.transform else self.column

    @property
    def values(self) -> type:
        """Return what the transform's values are: `str` or `int`."""
        whole = self.transform == BUCKET or (self.transform == TRUNCATE and pa.types.is_integer(self.kind))
        return int if whole else str


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """The fields that rows are split by, in order."""

    fields: tuple[PartitionField, ...] = ()

    @property
    def identity_columns(self) -> tuple[str, ...]:
        """Return the Delta partition columns."""
        return tuple(field.column for field in self.fields if field.transform is None)

    @property
    def stored_columns(self) -> tuple[str, ...]:
        """Return the names that the Delta partition columns have in the log."""
        return tuple(field.stored or field.column for field in self.fields if field.transform is None)

    @property
    def transforms(self) -> tuple[PartitionField, ...]:
        """Return the fields that only decide the layout."""
        return tuple(field for field in self.fields if field.transform is not None)

    def named(self, text: str) -> PartitionField | None:
        """Return the field that a text means, in any form that `parse_spec` takes; None if there is none."""
        try:
            wanted = _field(text, pa.schema([(field.column, field.kind) for field in self.fields]))
        except Invalid:
            return None
        return wanted if wanted in self.fields else None


def parse_spec(fields: Sequence[str], schema: pa.Schema) -> PartitionSpec:
    """Read fields such as `country`, `day(ts)`, `bucket(16, user_id)` or `truncate(name, 2)`.

    `bucket` and `truncate` take their arguments in either order. Raises `Invalid`, naming the field.
    """
    spec = PartitionSpec(tuple(_field(text, schema) for text in fields))
    if len(set(spec.fields)) < len(fields) or (fields and len(spec.identity_columns) == len(schema)):
        raise Invalid("partition_by: a field is repeated, or no column is left for the files")
    return spec


def _field(text: str, schema: pa.Schema) -> PartitionField:
    match = _CALL.match(text)
    transform = match[1].lower() if match else None
    if transform not in (*TIMES, BUCKET, TRUNCATE) and text in schema.names:  # a name may have brackets
        match = transform = None
    arguments = (
        [part.strip() for part in match[2].split(",")] if match else [text if text in schema.names else text.strip()]
    )
    if transform not in (None, *TIMES, BUCKET, TRUNCATE):
        raise Invalid(
            f"partition_by: {text!r} uses an unknown transform; use one of {', '.join(TIMES)}, {BUCKET} and {TRUNCATE}"
        )
    column, width = _arguments(text, transform, arguments)
    if column not in schema.names:
        raise Invalid(f"partition_by: {text!r} is not a column of the schema{hint(column, schema.names)}")
    field = PartitionField(column, transform, width, schema.field(column).type)
    _check_type(field, text)
    return field


def check_types(spec: PartitionSpec) -> None:
    """Raise `Invalid`, naming the field, where rows cannot be divided by a column of its type."""
    for each in spec.fields:
        _check_type(each, str(each))


def _check_type(field: PartitionField, text: str) -> None:
    wanted = _wanted(field.transform, field.kind)
    if wanted is not None:
        raise Invalid(f"partition_by: {text!r} needs {wanted}, {field.column} is {type_name(field.kind)}")


def _arguments(text: str, transform: str | None, arguments: Sequence[str]) -> tuple[str, int]:
    """Return the column and the width; of `bucket` and `truncate` the one that is a number is the width."""
    if transform not in (BUCKET, TRUNCATE):
        return ",".join(arguments), 0
    example = "bucket(16, user_id)" if transform == BUCKET else "truncate(name, 2)"
    if len(arguments) == 2:
        width, column = arguments if transform == BUCKET else reversed(arguments)
        if not _WIDTH.fullmatch(width):
            width, column = column, width
        if _WIDTH.fullmatch(width) and 0 < int(width) <= WIDTH_MAX:
            return column, int(width)
    raise Invalid(f"partition_by: {text!r} needs a column and a whole number from 1 to {WIDTH_MAX}, as in {example}")


def _wanted(transform: str | None, kind: pa.DataType) -> str | None:
    """Return which type of column a field needs; None if the column has it."""
    types = pa.types
    if transform is None:
        bad = types.is_nested(kind) or types.is_floating(kind) or types.is_binary(kind)
        return "a column of text, numbers, dates, times or booleans" if bad else None
    if transform in TIMES:
        fits = types.is_timestamp(kind) or (types.is_date(kind) and transform != "hour")
        return None if fits else "a timestamp or date column"
    return None if types.is_string(kind) or types.is_integer(kind) else "a column of text or whole numbers"
