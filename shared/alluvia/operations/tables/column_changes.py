"""Rename and drop columns by column mapping: what a table's metadata becomes, and what keeps a column as it is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa

from alluvia.commit.event_window.id_runs import EVENT_ID, RECEIVED_AT, SOURCE, TS, identity_columns
from alluvia.delta.arguments import check_mapping, check_names
from alluvia.delta.log.actions import Metadata
from alluvia.delta.partitioning.spec import parse_spec
from alluvia.delta.promoted_fields import promoted_fields
from alluvia.delta.properties import (
    BLOOM_FILTERS,
    CLUSTER_BY,
    MERGE_QUERY,
    SORT_BY,
    TTL_COLUMN,
    derived_columns,
    is_derived,
    read_properties,
)
from alluvia.delta.schema.column_mapping import mapped, renamed, without, without_depth_of
from alluvia.delta.schema.former_names import noted
from alluvia.delta.schema.names import fold
from alluvia.delta.schema.serialization import arrow_schema, check_distinct
from alluvia.errors import Invalid
from alluvia.nearest_name import did_you_mean

_STATISTICS_COLUMNS = "delta.dataSkippingStatsColumns"
_PROPERTIES = "properties"
_IDENTITY = (EVENT_ID, SOURCE, TS)
_FILLED = (*_IDENTITY, RECEIVED_AT, _PROPERTIES)
"""Columns that ingestion finds by their names."""


def check_changes(rename: Mapping[str, str] | None, drop: Sequence[str]) -> None:
    """Raise `Invalid` unless these are a mapping from names to names, and names, each at most once."""
    check_mapping("rename", rename)
    for old, new in (rename or {}).items():
        if not isinstance(old, str) or not isinstance(new, str):
            raise Invalid(f"rename: expected names of columns, such as {{'old': 'new'}}, got {old!r}: {new!r}")
    if drop:
        check_names("drop", drop)


def change_columns(metadata: Metadata, rename: Mapping[str, str], drop: Sequence[str]) -> Metadata:
    """Return a table's metadata with some columns renamed and others dropped, by column mapping.

    `metadata` has the properties that the table will have. Raises `Invalid`, naming the column and what uses it.
    """
    metadata = without_depth_of(metadata, drop)
    schema = arrow_schema(metadata.schema_string)
    names = {found_column(schema, old, "rename"): new for old, new in rename.items()}
    gone = [found_column(schema, name, "drop") for name in drop]
    if len(names) < len(rename) or len({*names, *gone}) < len(names) + len(gone):
        raise Invalid("rename, drop: a column is named twice")
    _check_unused(metadata, schema, names, gone)
    left = [names.get(field.name, field.name) for field in schema if field.name not in gone]
    if not set(left) - set(metadata.partition_columns):
        raise Invalid(f"drop: {', '.join(gone)}: a table needs at least one column besides partition columns")
    for new in names.values():
        if sum(fold(name) == fold(new) for name in left) > 1:
            raise Invalid(f"rename: the table has a column {new} already")
    check_distinct(left)
    before = mapped(metadata)
    return noted(renamed(without(before, gone), names), before)


def check_same_identity(before: Metadata, after: Metadata, rename: Mapping[str, str]) -> None:
    """Raise `Invalid` where a table that knows its events by their ids alone gets a column that says whose they are."""
    was, now = (identity_columns(arrow_schema(each.schema_string)) for each in (before, after))
    if was == (EVENT_ID,) and SOURCE in now:
        old = next((old for old, new in rename.items() if new == SOURCE), None)
        what = f"column {SOURCE} cannot be added" if old is None else f"column {old} cannot be renamed to {SOURCE}"
        raise Invalid(
            f"{what}: ingestion knows the table's events by their ids alone, and would store those that are sent again "
            "once more: create a new table with the column"
        )


def found_column(schema: pa.Schema, name: str, what: str, of: str = "the table") -> str:
    """Return a column's name as the table, or what `of` says, has it. Raises `Invalid`."""
    for known in schema.names:
        if name == known:
            return known
    for known in schema.names:
        if fold(name) == fold(known):
            return str(known)
    first = name.partition(".")[0]
    if first != name and first in schema.names:
        raise Invalid(f"{what}: {name!r} is a field in column {first}: name a whole column")
    near = did_you_mean(name, schema.names)
    hint = f": {near}" if near else f", whose columns are {', '.join(schema.names)}"
    raise Invalid(f"{what}: {name!r} is not a column of {of}{hint}")


def _check_unused(metadata: Metadata, schema: pa.Schema, names: Mapping[str, str], gone: Collection[str]) -> None:
    for use, columns in _uses(metadata, schema):
        for name in columns:
            if name in names or name in gone:
                raise Invalid(f"column {name} cannot be {'dropped' if name in gone else 'renamed'}: {use}")
    if EVENT_ID in schema.names and schema.field(EVENT_ID).type == pa.string():
        for name in (*(each for each in _FILLED if each in names), *(each for each in _IDENTITY if each in gone)):
            verb = "dropped" if name in gone else "renamed"
            raise Invalid(f"column {name} cannot be {verb}: ingestion needs it under this name")


def _uses(metadata: Metadata, schema: pa.Schema) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what uses columns, and what to do about it, with the columns."""
    settings, configuration = read_properties(metadata.configuration), metadata.configuration
    if is_derived(configuration):
        yield derived_columns(configuration), schema.names
    yield (
        "the table is partitioned by it, which cannot be changed: create another table with the columns that you want",
        [*(each.column for each in parse_spec(settings.partition_by, schema).fields), *metadata.partition_columns],
    )
    if promoted := [field.column for field in promoted_fields(metadata.schema_string, schema)]:
        yield f"earlier rows may have values of {', '.join(promoted)} in it", [_PROPERTIES]
    set_first = "change that with evolve(properties=…), also in the same call"
    for name, columns in (
        (SORT_BY, settings.sort_by),
        (CLUSTER_BY, settings.cluster_by),
        (BLOOM_FILTERS, settings.bloom_filters),
        (TTL_COLUMN, (settings.ttl_column,)),
        (_STATISTICS_COLUMNS, _split(configuration.get(_STATISTICS_COLUMNS, ""))),
    ):
        yield f"property {name} uses it; {set_first}", columns
    if settings.merge_query:
        yield f"property {MERGE_QUERY} gives all columns; remove it with evolve(properties=…) first", schema.names
    if settings.constraints:
        from alluvia.engine.conditions.constraints import columns_of_constraint  # loads what reads conditions

        for name, text in settings.constraints.items():
            yield f"the constraint {name} ({text}) uses it; drop it first", columns_of_constraint(name, text, schema)


def _split(names: str) -> list[str]:
    return [name.strip().strip("`") for name in names.split(",")]
