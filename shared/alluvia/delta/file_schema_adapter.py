"""Fit the columns of a data file to the table's schema, no matter who wrote the file, and when. Pure.

A file may lack columns and fields that were added later, hold some that were dropped since, name them differently
(column mapping), and store a type in another way: INT96 or nanoseconds for times, any encoding of decimals, a narrower
type than the table has now, variants as bytes and typed columns. A conversion that could change a value's meaning is
refused.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.file_columns import columns_tag
from alluvia.delta.log.actions import AddFile
from alluvia.delta.partitioning.values import partition_value
from alluvia.delta.promoted_fields import PROPERTIES, Promoted, columns_needed, moved, shown, tags_of
from alluvia.delta.properties import Properties
from alluvia.delta.schema.column_mapping import FIELD_ID, ColumnMapping
from alluvia.delta.schema.nesting import with_children
from alluvia.delta.schema.types import is_bytes, is_text
from alluvia.delta.schema.variant_shredding import FORM_TAG, form_text, is_marked, marked, variants
from alluvia.delta.schema.variant_shredding import refusals as no_variants
from alluvia.delta.schema.variants import is_variant, variant_texts
from alluvia.errors import Corrupt
from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileForm:
    """The columns of a table and, field by field, those of its files.

    `settings` are the table's properties, and `file_settings` the same with the names that columns have in files. Rows
    with `promoted` fields have them in their columns alone.
    """

    schema: pa.Schema
    physical: pa.Schema
    settings: Properties
    file_settings: Properties
    promoted: Promoted = ()

    def tags(self, stored: pa.Schema) -> dict[str, str]:
        """Return what the add of a file of `stored` rows says of their form."""
        forms = [form_text(each.type) for each in stored if is_marked(each)]
        form = {FORM_TAG: forms[0]} if forms else {}
        return {**tags_of(self.promoted), **form, **columns_tag(stored, self.settings.indexed_columns)}

    def refusals(self, rows: pa.Table) -> dict[int, str]:
        """Return why rows of the table's columns cannot be stored, by their numbers, if their texts are JSON."""
        pairs = zip(self.schema, self.physical, strict=True)
        names = [ours.name for ours, theirs in pairs if is_variant(ours, theirs)]
        return {at: why for name in names if name in rows.schema.names for at, why in no_variants(rows[name]).items()}

    def stored(self, rows: pa.Table, like: pa.Schema | None = None) -> pa.Table:
        """Return rows with the names and types of files. Columns that the table lacks stay as they are.

        Variants get typed columns for the fields that the rows have; those that the file's earlier rows, of the schema
        `like`, have got. Raises `Invalid` for text that a variant cannot hold.
        """
        rows = moved(rows, self.promoted)
        if self.physical is self.schema:
            return rows
        pairs = [self._stored(rows.schema.field(at), rows.column(at), like) for at in range(rows.num_columns)]
        return pa.Table.from_arrays([column for _, column in pairs], schema=pa.schema([field for field, _ in pairs]))

    def _stored(
        self, field: pa.Field, column: pa.ChunkedArray, like: pa.Schema | None
    ) -> tuple[pa.Field, pa.ChunkedArray]:
        at = self.schema.get_field_index(field.name)
        if at < 0:
            return field, column
        ours, theirs = self.schema.field(at), self.physical.field(at).with_nullable(field.nullable)
        if is_variant(ours, theirs):
            kind = None if like is None else like.field(theirs.name).type
            array = variants(column, kind)
            return marked(theirs.with_type(array.type)), pa.chunked_array([array])
        if pa.types.is_nested(theirs.type):
            # As files are read, with the two kinds of names exchanged.
            chunks = [fit_array(chunk, theirs.type, ours.type, ColumnMapping.NONE) for chunk in column.chunks]
            column = pa.chunked_array(chunks, theirs.type)
        return theirs, column


Fields = list[pa.Field]
_TYPES = pa.types


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Which columns to read of a table's files: in the table's form and, field by field, in the files'.

    `promoted` are the fields that are shown in these columns; `widened` returns the plan that reads others as well.
    """

    schema: pa.Schema
    physical: pa.Schema
    partition_columns: frozenset[str]
    mapping: ColumnMapping = ColumnMapping.NONE
    promoted: Promoted = ()
    widened: Callable[[list[str]], ReadPlan] | None = None

    def stored_names(self, stored: pa.Schema, file: AddFile, places: Places | None = None) -> list[str]:
        """Return the names of a file's top columns that hold the wanted columns. Raises `Corrupt`.

        `places` are the places of `stored`, if the caller has read them before.
        """
        if (wide := self._wide(file)) is not None:
            return wide.stored_names(stored, file, places)
        places = Places(list(stored), self.mapping) if places is None else places
        indexes = [
            places.find(physical)
            for field, physical in zip(self.schema, self.physical, strict=True)
            if field.name not in self.partition_columns
        ]
        return [stored.field(at).name for at in indexes if at is not None]

    def fit(self, batch: pa.RecordBatch, file: AddFile) -> pa.RecordBatch:
        """Return a batch of a file's rows with exactly the columns wanted: stored, from the log, or null.

        Raises `Corrupt`, naming the file and the column, for values that the column's type does not take.
        """
        if (wide := self._wide(file)) is not None:
            return shown(wide.fit(batch, file), self.promoted, file).select(self.schema.names)
        places = Places(list(batch.schema), self.mapping)
        arrays = []
        for field, physical in zip(self.schema, self.physical, strict=True):
            if field.name in self.partition_columns:
                value = partition_value(file, physical.name, field.type)
                arrays.append(pa.repeat(pa.scalar(value, field.type), len(batch)))
                continue
            at = places.find(physical)
            if at is None:
                arrays.append(pa.nulls(len(batch), field.type))
                continue
            try:
                arrays.append(fit_array(batch.column(at), field.type, physical.type, self.mapping))
            except (pa.ArrowException, ValueError) as error:
                raise Corrupt(f"data file {file.path}: column {field.name} does not fit the table: {error}") from error
        if not arrays:
            return batch.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _wide(self, file: AddFile) -> ReadPlan | None:
        """Return the plan that reads what shows the promoted fields; None where a file has the columns as they are."""
        if self.widened is None:
            return None
        needed = columns_needed(self.schema.names, self.promoted, file)
        return self.widened(needed) if needed or PROPERTIES in self.schema.names else None


def fit_array(array: pa.Array, kind: pa.DataType, physical: pa.DataType, mapping: ColumnMapping) -> pa.Array:
    """Return a file's values as the table's type. `physical` is that type with the names that fields have in files.

    Raises `ValueError` or an `ArrowException` for values that the type does not take.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if _TYPES.is_struct(physical) and not _TYPES.is_struct(kind):
        return variant_texts(array)
    if _TYPES.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if array.type.equals(kind) and mapping is ColumnMapping.NONE:
        return array
    if _TYPES.is_struct(kind) and _TYPES.is_struct(physical):
        return _fit_struct(array, kind, physical, mapping)
    if _TYPES.is_map(kind) and _TYPES.is_map(physical):
        return _fit_map(array, kind, physical, mapping)
    if _TYPES.is_list(kind) and _TYPES.is_list(physical):
        return _fit_list(array, kind, physical, mapping)
    return _fit_leaf(array, kind)


class Places:
    """Where a file's fields are, by name and by id: read once for all of them, since a table may have thousands."""

    def __init__(self, fields: Fields, mapping: ColumnMapping) -> None:
        self._by_id = mapping is ColumnMapping.ID
        self._exact: dict[object, list[int]] = {}
        self._folded: dict[object, list[int]] = {}
        for at, field in enumerate(fields):
            identity = (field.metadata or {}).get(FIELD_ID) if self._by_id else field.name
            self._exact.setdefault(identity, []).append(at)
            if not self._by_id:
                self._folded.setdefault(field.name.lower(), []).append(at)
        self._lacks_ids = self._by_id and bool(fields) and not any(self._exact)

    def find(self, wanted: pa.Field) -> int | None:
        """Return which of the fields is the one wanted: by its id, else by its name, whose case may differ."""
        if self._lacks_ids:
            raise Corrupt("a data file has no field ids, which the table's column mapping by id needs")
        if self._by_id:
            places = self._exact.get((wanted.metadata or {})[FIELD_ID], [])
        else:
            places = self._exact.get(wanted.name) or self._folded.get(wanted.name.lower(), [])
        if len(places) > 1:
            raise Corrupt(f"a data file has the column {wanted.name} {len(places)} times")
        return places[0] if places else None


def _fit_struct(array: pa.Array, kind: pa.StructType, physical: pa.StructType, mapping: ColumnMapping) -> pa.Array:
    if not isinstance(array, pa.StructArray):
        raise _misfit(array, kind)
    places = Places(array.type.fields, mapping)
    children = []
    for ours, theirs in zip(kind.fields, physical.fields, strict=True):
        at = places.find(theirs)
        child = pa.nulls(len(array), ours.type) if at is None else array.field(at)
        children.append(child if at is None else fit_array(child, ours.type, theirs.type, mapping))
    if not children:
        return pa.array([{}] * len(array), kind)
    return pa.StructArray.from_arrays(children, fields=kind.fields, mask=array.is_null())


def _fit_list(array: pa.Array, kind: pa.ListType, physical: pa.ListType, mapping: ColumnMapping) -> pa.Array:
    if _TYPES.is_fixed_size_list(array.type) or _TYPES.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    if not isinstance(array, pa.ListArray) or isinstance(array, pa.MapArray):
        raise _misfit(array, kind)
    values = fit_array(array.values, kind.value_type, physical.value_type, mapping)
    return with_children(array, kind, values)


def _fit_map(array: pa.Array, kind: pa.MapType, physical: pa.MapType, mapping: ColumnMapping) -> pa.Array:
    if isinstance(array, pa.MapArray):
        keys, items = array.keys, array.items
    elif (
        isinstance(array, pa.ListArray)
        and isinstance(array.values, pa.StructArray)
        and array.values.type.num_fields == 2
    ):
        keys, items = array.values.field(0), array.values.field(1)
    else:
        raise _misfit(array, kind)
    keys = fit_array(keys, kind.key_type, physical.key_type, mapping)
    items = fit_array(items, kind.item_type, physical.item_type, mapping)
    entries = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
    return with_children(array, kind, entries)


def _fit_leaf(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind):
        return array
    if _TYPES.is_null(array.type):
        return pa.nulls(len(array), kind)
    if _TYPES.is_timestamp(kind):
        return _fit_time(array, kind)
    if not any(takes(kind) and is_given(array.type) for takes, is_given in _CONVERSIONS):
        raise _misfit(array, kind)
    if _TYPES.is_decimal(kind) and _TYPES.is_integer(array.type):
        array = array.cast(pa.decimal256(76, kind.scale))
    return array.cast(kind)


def _fit_time(array: pa.Array, kind: pa.TimestampType) -> pa.Array:
    """Return times in microseconds. INT96 says nothing of zones; whatever a file says, its values are in UTC."""
    if _TYPES.is_date(array.type) and kind.tz is None:
        return array.cast(kind)
    if not _TYPES.is_timestamp(array.type):
        raise _misfit(array, kind)
    zone = array.type.tz
    if array.type.unit == "ns":
        array, zone = pc.floor_temporal(array.cast(pa.timestamp("ns")), unit="microsecond"), None
    micros = array.cast(pa.timestamp("us", zone))
    return micros.view(pa.int64()).view(kind)


_CONVERSIONS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]]] = [
    (_TYPES.is_integer, _TYPES.is_integer),
    (_TYPES.is_float32, _TYPES.is_float16),
    (_TYPES.is_float64, lambda kind: _TYPES.is_floating(kind) or _TYPES.is_integer(kind)),
    (_TYPES.is_decimal, lambda kind: _TYPES.is_decimal(kind) or _TYPES.is_integer(kind)),
    (_TYPES.is_date, _TYPES.is_date),
    (is_text, lambda kind: is_text(kind) or is_bytes(kind)),
    (is_bytes, lambda kind: is_text(kind) or is_bytes(kind)),
]
"""Types of files that a column's type accepts; Arrow checks that each value fits."""


def _misfit(array: pa.Array, kind: pa.DataType) -> ValueError:
    return ValueError(f"the file has {array.type}, the table {kind}")
