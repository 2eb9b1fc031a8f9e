"""What a Spark user did wrong, in Spark's words: its error conditions in brackets, its options, its API for the fix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import pyarrow as pa

from alluvia.delta.arguments import milliseconds
from alluvia.delta.schema.caller_rows import conform
from alluvia.delta.schema.names import fold
from alluvia.delta.schema.types import type_name
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.condition import expression_of
from alluvia.engine.queries.parse import walk
from alluvia.errors import Invalid, TableExists, TableNotFound, VersionExpired, VersionNotFound
from alluvia.nearest_name import did_you_mean

VERSION, TIMESTAMP = "version (versionAsOf)", "timestamp (timestampAsOf)"
_NAMED_MOST = 10


@contextmanager
def finding(place: str, table: str | None) -> Iterator[None]:
    """Have `TableNotFound` say where there is no table, and how the user may have meant another place."""
    try:
        yield
    except TableNotFound as error:
        if table is None:
            raise TableNotFound(
                f"[PATH_NOT_FOUND] {place}: {error}. Check the path; for a table of a lake, give the lake's path "
                "and the table's name as option('table', …)"
            ) from error
        raise TableNotFound(
            f"[TABLE_OR_VIEW_NOT_FOUND] {place}: {error}. Check option('table', {table!r:.150}) and the lake's path"
        ) from error


def exists(place: str, table: str | None) -> TableExists:
    """Return the error of a mode that needs a new table."""
    fix = "use mode('append'), mode('overwrite') or mode('ignore')"
    if table is None:
        return TableExists(f"[PATH_ALREADY_EXISTS] there is a table at {place}: {fix}")
    return TableExists(f"[TABLE_OR_VIEW_ALREADY_EXISTS] {place} has a table {table!r}: {fix}")


def read_version(
    read: Callable[[int | None, datetime | str | None], Snapshot],
    table: str,
    version: int | None,
    timestamp: datetime | str | None,
) -> Snapshot:
    """Return what `read` gives for a version or a time. Raises `Invalid` where both are given."""
    if version is not None and timestamp is not None:
        raise Invalid(f"[INVALID_TIME_TRAVEL_SPEC] options {VERSION}, {TIMESTAMP}: give one of them, not both")
    if isinstance(timestamp, str):
        try:
            milliseconds(timestamp)
        except Invalid as error:
            raise Invalid(
                f"[INVALID_TIME_TRAVEL_TIMESTAMP_EXPR.OPTION] option {TIMESTAMP}: {timestamp!r:.100} is not an ISO "
                "8601 time, such as '2026-01-31 12:00:00'"
            ) from error
    try:
        return read(version, timestamp)
    except (VersionNotFound, VersionExpired) as error:
        given = VERSION if version is not None else TIMESTAMP
        raise type(error)(f"option {given}: table {table}: {error}") from error


def unresolved(what: str, name: str, known: Sequence[str]) -> Invalid:
    """Return the error about a column that there is not, with the columns whose names are nearest."""
    near = did_you_mean(name, known, 3)
    fix = near or f"the columns are {listed(known)}"
    kind = "WITH_SUGGESTION" if near else "WITHOUT_SUGGESTION"
    return Invalid(f"[UNRESOLVED_COLUMN.{kind}] {what}: there is no column {name}; {fix}")


@contextmanager
def resolving(what: str, condition: str | None, schema: pa.Schema) -> Iterator[None]:
    """Have the error about a condition say which of its columns the table lacks, if that is what is wrong."""
    try:
        yield
    except Invalid as error:
        name = None if condition is None else _unknown_column(condition, schema, str(error))
        if name is None:
            raise
        raise unresolved(what, name, schema.names) from error


def _unknown_column(condition: str, schema: pa.Schema, message: str) -> str | None:
    try:
        tree = expression_of(condition)
    except Invalid:  # which is what the first error says
        return None
    known = {fold(name) for name in schema.names}
    named = [node["column_names"][0] for node in walk(tree) if node.get("class") == "COLUMN_REF"]
    return next((name for name in named if fold(name) not in known and f'"{name}"' in message), None)


def listed(names: Sequence[str]) -> str:
    """Return names with commas between, of many the first ten."""
    more = len(names) - _NAMED_MOST
    return ", ".join(names[:_NAMED_MOST]) + (f" and {more} more" if more > 0 else "")


def extra_columns(table: str, extra: Sequence[tuple[str, pa.Field]]) -> Invalid:
    """Return the error about what `unknown_fields` has found: columns, or fields of structs, that the table lacks."""
    whole = [path for path, field in extra if path == field.name]
    kind, what = ("EXTRA_COLUMNS", "column") if whole else ("EXTRA_STRUCT_FIELDS", "field")
    drop = f", or drop({', '.join(map(repr, whole[:_NAMED_MOST]))})" if whole else ""
    return Invalid(
        f"[INCOMPATIBLE_DATA_FOR_TABLE.{kind}] table {table} has no {what} "
        f"{listed(whole or [path for path, _ in extra])}: add option('mergeSchema', 'true'){drop}"
    )


def check_columns(table: str, rows: pa.Schema, schema: pa.Schema) -> None:
    """Raise `Invalid`, naming it, for a column of rows whose type the table does not take, and for one that it needs.

    The rows have no column that the table lacks.
    """
    for field in rows:
        wanted = schema.field(field.name).with_nullable(True)
        try:
            conform(pa.schema([field]).empty_table(), pa.schema([wanted]))
        except Invalid as error:
            kind = type_name(wanted.type)
            raise Invalid(
                f"[INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST] column {field.name} of table {table} is {kind}, but "
                f"the DataFrame has {type_name(field.type)}: use withColumn({field.name!r}, "
                f"col({field.name!r}).cast({kind!r}))"
            ) from error
    given = {*rows.names}
    missing = [field.name for field in schema if not field.nullable and field.name not in given]
    if missing:
        raise Invalid(
            f"[INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_FIND_DATA] column {missing[0]} of table {table} must not be null, "
            f"and the DataFrame lacks it: add withColumn({missing[0]!r}, …)"
        )
