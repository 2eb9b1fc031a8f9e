"""Promoted fields in DataFrames: files of both kinds in the form that `delta.promoted_fields.shown` gives them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType

from alluvia.delta.log.actions import AddFile
from alluvia.delta.promoted_fields import PROPERTIES, Promoted, PromotedField, shown
from alluvia.delta.snapshot import Snapshot
from alluvia_spark.frames import mapped_batches
from alluvia_spark.reading.filters import constant, identifier
from alluvia_spark.schemas import all_nullable, shown_schema, with_texts

_WRITTEN_ALIKE = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)
"""The types whose values Spark writes as JSON as this library does."""


def alike(files: Sequence[AddFile], promoted: Promoted) -> list[list[AddFile]]:
    """Return files that have the same fields moved to their columns, together; all of them if none is promoted."""

    def moved(file: AddFile) -> tuple[bool, ...]:
        return tuple(field.is_moved(file) for field in promoted)

    return [list(group) for _, group in groupby(sorted(files, key=moved), key=moved)]


def shown_rows(rows: DataFrame, snapshot: Snapshot, like: AddFile) -> DataFrame:
    """Return rows, with the table's columns, of files that have the same fields moved as `like`, as readers see them.

    Where all fields are moved, columns stay what Spark's scan gives, so that it reads no more of files than it needs;
    else the rows go through this library in Python workers.
    """
    promoted = snapshot.promoted
    if not promoted:
        return rows
    moved = all(field.is_moved(like) for field in promoted)
    if moved and all(any(is_alike(field.kind) for is_alike in _WRITTEN_ALIKE) for field in promoted):
        return rows.selectExpr(
            *(_spliced(promoted) if name == PROPERTIES else identifier(name) for name in rows.columns)
        )
    file = AddFile("", {}, 0, 0, data_change=False, tags=like.tags)
    columns = all_nullable(with_texts(shown_schema(snapshot)))
    return mapped_batches(rows, partial(_shown, snapshot.schema, promoted, file), columns)


def _spliced(promoted: Promoted) -> str:
    text = identifier(PROPERTIES)
    pairs = ", ".join(f"{constant(field.key, StringType())}, {_unspelled(field)}" for field in promoted)
    front = f"to_json(named_struct({pairs}))"
    space = "concat(' ', char(9), char(10), char(13))"
    given = f"trim(LEADING {space} FROM coalesce({text}, '{{}}'))"
    rest = f"substr({given}, 2)"
    comma = f"CASE WHEN startswith(trim(LEADING {space} FROM {rest}), '}}') THEN '' ELSE ',' END"
    whole = f"concat(substr({front}, 1, length({front}) - 1), {comma}, {rest})"
    both = f"{front} <> '{{}}' AND startswith({given}, '{{')"
    return f"CASE WHEN {both} THEN {whole} ELSE {text} END AS {PROPERTIES}"


def _unspelled(field: PromotedField) -> str:
    """Return the SQL of a column, null where the text has its field as well."""
    text, member = identifier(PROPERTIES), constant(field.member, StringType())
    has = f"array_contains(json_object_keys({text}), {constant(field.key, StringType())})"
    return f"CASE WHEN contains({text}, {member}) AND {has} THEN NULL ELSE {identifier(field.column)} END"


def _shown(
    schema: pa.Schema, promoted: Promoted, file: AddFile, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    for batch in batches:
        rows = pa.Table.from_batches([batch]).cast(nullable).combine_chunks()
        yield from (shown(each, promoted, file) for each in rows.to_batches())
