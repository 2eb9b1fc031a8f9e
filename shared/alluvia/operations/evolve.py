"""Changing a table's schema and properties: a commit of new metadata, no data file touched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.log.actions import Metadata
from alluvia.table.handle import TableHandle
from alluvia.table.properties import IN_COMMIT_TIMESTAMPS, PARTITION_BY, SORT_BY, WRITERS, check_properties
from alluvia.table.schema import add_fields, parse_type
from alluvia.table.transaction import Changes, Commit

_FIXED = (PARTITION_BY, WRITERS, IN_COMMIT_TIMESTAMPS)


def plan_evolve(
    metadata: Metadata, add: pa.Schema | Mapping[str, str] | None, properties: Mapping[str, str] | None
) -> Metadata:
    """Return the metadata after the change. Raises `Invalid`, naming the column or property."""
    text = metadata.schema_string
    if add:
        fields = add if isinstance(add, pa.Schema) else pa.schema([(k, _kind(k, v)) for k, v in add.items()])
        text = add_fields(text, fields)
        if '"timestamp_ntz"' in text and '"timestamp_ntz"' not in metadata.schema_string:
            msg = "a column of the type timestamp_ntz can only be there from the table's start: use timestamp"
            raise Invalid(msg)
    given = check_properties(properties or {})
    for name in _FIXED:
        if name in given and given[name] != metadata.configuration.get(name):
            msg = f"property {name} is fixed when a table is created"
            raise Invalid(msg)
    if SORT_BY in given:
        check_properties({SORT_BY: given[SORT_BY]})
    return replace(metadata, schema_string=text, configuration={**metadata.configuration, **given})


def _kind(name: str, kind: object) -> pa.DataType:
    if isinstance(kind, str):
        return parse_type(kind)
    if isinstance(kind, pa.DataType):
        return kind
    msg = f"column {name}: expected a type's name such as 'long', or a pyarrow type, got {type(kind).__name__}"
    raise Invalid(msg)


def evolve(
    handle: TableHandle,
    add: pa.Schema | Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
) -> Commit:
    """Add nullable columns, set properties, or both, in one commit."""
    snapshot = handle.newest()
    metadata = plan_evolve(snapshot.state.metadata, add, properties)
    if metadata == snapshot.state.metadata:
        return Commit(snapshot.version, snapshot.timestamp_ms)
    operation = "ADD COLUMNS" if add else "SET TBLPROPERTIES"
    commit = handle.transaction(snapshot).commit(Changes(operation, metadata=metadata))
    assert commit is not None  # noqa: S101 - only an on_lost callback gives up
    return Commit(commit.version, commit.timestamp_ms)
