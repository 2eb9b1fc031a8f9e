"""Partitioning: which file a row goes to. Pure.

A field of the specification is a column (`country`), which becomes a Delta partition column, or a transform of a
timestamp or date column (`day(ts)`), which only decides the layout: each file holds rows of one day, so that the
statistics of `ts` prune as a partition column would, for every Delta reader, and the schema stays as declared. The
tag `alluvia.partition` of its add says what a file holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from datetime import date, datetime
from decimal import Decimal
from hashlib import blake2b
from itertools import accumulate
from typing import Any
from urllib.parse import quote

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from alluvia.errors import Invalid
from alluvia.log.actions import AddFile
from alluvia.table.partitioning.spans import PARTITION_TAG, KeyPart, part
from alluvia.table.partitioning.values import parse_partition_text as parse_partition_text  # noqa: PLC0414
from alluvia.table.schema.type_names import type_name

TRANSFORMS = {"year": 4, "month": 7, "day": 10, "hour": 13}
"""Transforms of a time by name, with how many characters of its ISO form their values have."""
PARTITIONS_MAX = 100
FOLDER_CHARS_MAX = 200
NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_CALL = re.compile(r"^\s*(\w+)\s*\(\s*(.+?)\s*\)\s*$")


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A column, the transform of it or None for its values themselves, and the column's type."""

    column: str
    transform: str | None = None
    kind: pa.DataType = dataclass_field(default=pa.null(), compare=False)

    def __str__(self) -> str:
        return f"{self.transform}({self.column})" if self.transform else self.column

    @property
    def folder(self) -> str:
        """Return the name that the field has in paths."""
        return f"{self.column}_{self.transform}" if self.transform else self.column

    @property
    def values(self) -> type:
        """Return what the transform's values are: `str` or `int`."""
        return str


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """The fields that rows are split by, in order."""

    fields: tuple[PartitionField, ...] = ()

    @property
    def identity_columns(self) -> tuple[str, ...]:
        """Return the Delta partition columns."""
        return tuple(field.column for field in self.fields if field.transform is None)

    @property
    def transforms(self) -> tuple[PartitionField, ...]:
        """Return the fields that only decide the layout."""
        return tuple(field for field in self.fields if field.transform is not None)


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition: Delta's `values` of the partition columns, and the `transforms`' values by field text."""

    values: Mapping[str, str | None]
    transforms: Mapping[str, str | None]
    folder: str

    @property
    def tags(self) -> dict[str, str]:
        """Return the tags of a file of this partition."""
        return {PARTITION_TAG: orjson.dumps(dict(self.transforms)).decode()} if self.transforms else {}


def parse_spec(fields: Sequence[str], schema: pa.Schema) -> PartitionSpec:
    """Read fields such as `country` or `day(ts)`. Raises `Invalid`, naming the field."""
    parsed = []
    for text in fields:
        match = _CALL.match(text)
        field = PartitionField(match[2], match[1].lower()) if match else PartitionField(text.strip())
        if field.column not in schema.names:
            msg = f"partition_by: {text!r} is not a column of the schema"
            raise Invalid(msg)
        kind = schema.field(field.column).type
        if field.transform is not None:
            if field.transform not in TRANSFORMS:
                msg = f"partition_by: {text!r} uses an unknown transform; use one of {', '.join(TRANSFORMS)}"
                raise Invalid(msg)
            temporal = pa.types.is_timestamp(kind) or (pa.types.is_date(kind) and field.transform != "hour")
            if not temporal:
                msg = f"partition_by: {text!r} needs a timestamp or date column, {field.column} is {type_name(kind)}"
                raise Invalid(msg)
        elif pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_binary(kind):
            msg = f"partition_by: {text!r} is {type_name(kind)}; partition by text, numbers, dates, times or booleans"
            raise Invalid(msg)
        parsed.append(replace(field, kind=kind))
    spec = PartitionSpec(tuple(parsed))
    if len(set(spec.fields)) < len(parsed) or (parsed and len(spec.identity_columns) == len(schema)):
        msg = "partition_by: a field is repeated, or no column is left for the files"
        raise Invalid(msg)
    return spec


def split(table: pa.Table, spec: PartitionSpec) -> Iterator[tuple[Partition, pa.Table]]:
    """Yield each partition with its rows, in their order; the identity columns are dropped from the rows.

    Where the rows fall into more than `PARTITIONS_MAX` partitions, transforms are given up for them, so that events
    with scattered times do not each cost a file: the statistics still say what a file holds.
    """
    if not spec.fields or not len(table):
        if len(table):
            yield Partition({}, {}, ""), table
        return
    keys, groups = _grouped(table, spec)
    plain = PartitionSpec(tuple(field for field in spec.fields if field.transform is None))
    if len(groups) > PARTITIONS_MAX and plain != spec:
        yield from split(table, plain)
        return
    data = table.drop_columns(list(spec.identity_columns)) if spec.identity_columns else table
    for key, rows in zip(_key_values(keys, spec), groups, strict=True):
        yield _partition(spec, list(key.values())), data if len(groups) == 1 else data.take(rows)


def misfits(table: pa.Table, spec: PartitionSpec) -> dict[int, str]:
    """Return why rows can be in no partition, by their numbers: each key is judged once."""
    if not spec.fields or not len(table):
        return {}
    found: dict[int, str] = {}
    keys, groups = _grouped(table, spec)
    for at, rows in enumerate(groups):
        try:
            [key] = _key_values(keys.slice(at, 1), spec)
            _partition(spec, list(key.values()))
        except Invalid as error:
            found |= dict.fromkeys(rows.to_pylist(), str(error))
    return found


def _grouped(table: pa.Table, spec: PartitionSpec) -> tuple[pa.Table, list[pa.Array]]:
    """Return the keys of each partition, a row each as they first appear, and the numbers of its rows in order.

    Not by `group_by`, which would have a cold start load Acero, and with it all of pyarrow's datasets.
    """
    keys = [_key_column(table[field.column], field) for field in spec.fields]
    codes = pa.repeat(pa.scalar(0, pa.int64()), len(table))
    for key in keys:
        own = _codes(key)
        codes = _codes(pc.add(pc.multiply(codes, pa.scalar(pc.max(own).as_py() + 1, pa.int64())), own))
    order = pc.array_sort_indices(codes)  # stable
    sizes = codes.value_counts().field("counts").to_pylist()
    groups = [order.slice(end - size, size) for end, size in zip(accumulate(sizes), sizes, strict=True)]
    first = [group[0].as_py() for group in groups]
    return pa.table(keys, names=[f"k{at}" for at in range(len(keys))]).take(pa.array(first, pa.int64())), groups


def _codes(values: pa.Array | pa.ChunkedArray) -> pa.Int64Array:
    """Return a number for each value, null too: 0 for the first, 1 for the next one that differs …"""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return pc.dictionary_encode(whole, null_encoding="encode").indices.cast(pa.int64())


def _key_values(keys: pa.Table, spec: PartitionSpec) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = keys.to_pylist()
    except (OverflowError, ValueError) as error:
        columns = ", ".join(field.column for field in spec.fields)
        msg = f"column {columns}: a time outside the years 1 to 9999 has no partition"
        raise Invalid(msg) from error
    return rows


def _key_column(column: pa.ChunkedArray, field: PartitionField) -> pa.ChunkedArray:
    if field.transform is None:
        return column
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("us"))
    return pc.floor_temporal(column, unit=field.transform)


def _partition(spec: PartitionSpec, keys: Sequence[Any]) -> Partition:
    values: dict[str, str | None] = {}
    transforms: dict[str, str | None] = {}
    folders = []
    for field, key in zip(spec.fields, keys, strict=True):
        if field.transform is None:
            text = partition_text(key, field.column)
            values[field.column] = text
        else:
            text = None if key is None else key_part(field, key)[1]
            transforms[str(field)] = text
        name = f"{quote(field.folder, safe='')}={NULL_FOLDER if text is None else quote(text, safe='')}"
        folders.append(f"{_short(name)}/")
    return Partition(values, transforms, "".join(folders))


def key_part(field: PartitionField, value: date) -> KeyPart:
    """Return a transform's value for a value of the column, not null, as part of a key."""
    return part(value.isoformat()[: TRANSFORMS[field.transform or ""]])


def _short(name: str) -> str:
    """Return a folder name cut to what file systems allow: readers take values from the log, not from paths."""
    if len(name) <= FOLDER_CHARS_MAX:
        return name
    digest = blake2b(name.encode(), digest_size=12).hexdigest()
    return f"{name[: FOLDER_CHARS_MAX - len(digest) - 1]}-{digest}"


def partition_text(value: Any, column: str) -> str | None:
    """Return a partition value as the log has it. Source: Delta protocol, "Partition Value Serialization".

    Raises `Invalid` for the empty string, which the log cannot tell from null.
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(sep=" ")
    if isinstance(value, Decimal):
        return format(value, "f")
    if value == "":
        msg = f"column {column}: the empty string cannot be a partition value; use null"
        raise Invalid(msg)
    return value.isoformat() if isinstance(value, date) else str(value)


def layout_of(file: AddFile) -> tuple[tuple[tuple[str, str | None], ...], str]:
    """Return what two files share if and only if they belong to one partition."""
    return tuple(sorted(file.partition_values.items())), file.tags.get(PARTITION_TAG, "")
