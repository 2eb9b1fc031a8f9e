"""Change a table's columns and properties with one commit of new metadata. No data file is touched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import orjson
import pyarrow as pa

from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import Commit
from alluvia.delta.arguments import schema_of
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import Metadata, Protocol
from alluvia.delta.log.commit import IN_COMMIT_TIMESTAMPS
from alluvia.delta.promoted_fields import PROMOTIONS, with_promotions
from alluvia.delta.properties import (
    CONSTRAINT,
    KNOWN,
    OLDEST_READABLE,
    PARTITION_BY,
    PIPELINE,
    PROPERTIES_AS,
    ROLLUP,
    WRITERS,
    check_derived,
    check_properties,
    derived_columns,
    is_derived,
)
from alluvia.delta.protocols import features_needed, with_features
from alluvia.delta.schema.column_mapping import (
    MAX_ID,
    MODE,
    fresh_names,
    identified,
    is_mapped,
    mapped,
    needs_mapping,
)
from alluvia.delta.schema.former_names import FORMER_NAMES, noted
from alluvia.delta.schema.names import fold
from alluvia.delta.schema.serialization import add_fields, add_nested, arrow_schema
from alluvia.delta.schema.types import type_name
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.merge_query.folding import check_declared
from alluvia.operations.planning.layout import check_layout, check_ttl, row_check
from alluvia.operations.planning.optimistic_retry import Plan, check_not_derived, commit_planned
from alluvia.operations.reading.change_files import check_feed_columns
from alluvia.operations.tables.column_changes import change_columns, check_same_identity
from alluvia.table_names import REJECTS

ROWS_TRIED = 10_000
_FIXED = (
    PARTITION_BY,
    WRITERS,
    IN_COMMIT_TIMESTAMPS,
    OLDEST_READABLE,
    ROLLUP,
    PIPELINE,
    MODE,
    MAX_ID,
    FORMER_NAMES,
    PROMOTIONS,
)
_INSTEAD = {
    PROPERTIES_AS: "it says how files hold the column: create another table with it, and insert the rows of this one"
}


@dataclass(frozen=True, slots=True)
class Evolved:
    """The commit of an evolve, or the newest one where there was nothing to do.

    `promoted` are the columns added for fields that `properties` may have. `named_in` says what names them, such as
    `view v` or `published query q`: it finds old and new rows by either name.
    """

    version: int
    timestamp_ms: int
    promoted: tuple[str, ...] = ()
    named_in: tuple[str, ...] = ()


def plan_evolve(
    metadata: Metadata,
    add: pa.Schema | Mapping[str, str] | None,
    properties: Mapping[str, str | None] | None,
    own: Callable[[], pa.Table | None] = lambda: None,
    *,
    seed: str,
    rename: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
) -> Metadata:
    """Return the metadata after the change. Raises `Invalid`, naming the column or property.

    `own` returns some of the table's rows, on which a new merge query is tried. `seed` is a UUID, which names new
    columns in the files of a table with column mapping.
    """
    if add and is_derived(metadata.configuration):
        raise Invalid(f"add: {derived_columns(metadata.configuration)}")
    before, wanted = metadata.configuration, dict(properties or {})
    given = check_properties({name: value for name, value in wanted.items() if value is not None})
    for name, value in wanted.items():
        if name in _INSTEAD and value != before.get(name):
            raise Invalid(f"property {name} cannot be changed: {_INSTEAD[name]}")
        if name in _FIXED and value != before.get(name):
            raise Invalid(f"property {name} cannot be changed")
        if name.startswith(CONSTRAINT) and value != before.get(name):
            raise Invalid(f"property {name}: CHECK constraints can be set only when a table is created")
        if value is None and name in before and name.startswith(("alluvia.", "delta.")) and name not in KNOWN:
            raise Invalid(f"property {name} cannot be removed: this library does not know what it means")
    configuration = {name: value for name, value in before.items() if name not in wanted} | given
    changed = replace(metadata, configuration=configuration)
    if rename or drop:
        changed = change_columns(changed, rename or {}, drop)
    if add:
        changed = _with_columns(changed, schema_of(add), seed)
    if add or rename:
        check_same_identity(metadata, changed, rename or {})
    check_layout(changed)
    check_ttl(changed)
    check_derived(changed.configuration)
    check_feed_columns(changed)
    if changed != metadata:
        check_declared(changed, own)
    return changed


def _with_columns(metadata: Metadata, fields: pa.Schema, seed: str) -> Metadata:
    _check_new(fields, arrow_schema(metadata.schema_string))
    return with_promotions(_widened(metadata, fields, add_fields, seed), fields.names)


def _widened(metadata: Metadata, fields: pa.Schema, add: Callable[[str, pa.Schema], str], seed: str) -> Metadata:
    """Return metadata whose `schemaString` has gone through `add`, with column mapping if a name needs that."""
    added = replace(metadata, schema_string=add(metadata.schema_string, fields))
    if is_mapped(metadata.configuration):
        return noted(identified(added, fresh_names(seed)))
    if not needs_mapping(added.schema_string):
        return added
    before = mapped(metadata)
    return noted(identified(replace(before, schema_string=add(before.schema_string, fields)), fresh_names(seed)))


def plan_merge(metadata: Metadata, rows: pa.Schema, *, seed: str) -> Metadata:
    """Return metadata with the columns that only some rows have, and the fields that only their structs have.

    Raises what `plan_evolve` does.
    """
    known = set(arrow_schema(metadata.schema_string).names)
    has_new_fields = add_nested(metadata.schema_string, rows) != metadata.schema_string
    if has_new_fields and is_derived(metadata.configuration):
        raise Invalid(derived_columns(metadata.configuration))
    widened = _widened(metadata, rows, add_nested, seed) if has_new_fields else metadata
    new = pa.schema([field for field in rows if field.name not in known])
    return plan_evolve(widened, new, None, seed=seed) if len(new) or has_new_fields else metadata


def _check_new(fields: pa.Schema, present: pa.Schema) -> None:
    known = {field.name.lower(): field for field in present}
    for field in fields:
        if (there := known.get(field.name.lower())) is not None:
            raise Invalid(
                f"column {there.name} already exists, as {type_name(there.type)}; a column cannot change its type: "
                f"add a column with another name, or rename this one first, with evolve(rename=…)"
            )


def protocol_for(protocol: Protocol, metadata: Metadata) -> Protocol | None:
    """Return a protocol with what a table's columns and properties need in addition; None if nothing."""
    needed = with_features(protocol, features_needed(metadata.schema_string, metadata.configuration))
    return None if needed == protocol else needed


def evolve(
    handle: TableHandle,
    add: pa.Schema | Mapping[str, str] | None = None,
    properties: Mapping[str, str | None] | None = None,
    rename: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
) -> Evolved:
    """Add nullable columns, rename columns, drop columns and set properties in one commit, as far as is asked for.

    A property whose value is None is removed. No data file is written: columns that are renamed or dropped turn on
    column mapping, by which files keep the names that they have. The protocol gets the features that are needed.

    Where another writer changes the table first, this is planned again on its version. A column that it added meanwhile
    with the same type is fine; one with another type raises `Invalid`, which names it.
    """
    fields = schema_of(add) if add else None
    if (rename or drop) and handle.name.endswith(f"/{REJECTS}"):
        raise Invalid(f"{handle.name}: rejected events have the columns that ingestion gives them")
    seed = handle.clock.new_id()
    before: pa.Schema | None = None

    def plan(snapshot: Snapshot) -> Changes | None:
        nonlocal before
        new = None
        if fields is not None:
            before = snapshot.schema if before is None else before
            new = _not_added(fields, before, snapshot.schema)
        metadata = plan_evolve(
            snapshot.state.metadata,
            new,
            properties,
            lambda: _some_rows(handle, snapshot, new),
            seed=seed,
            rename=rename,
            drop=drop,
        )
        if metadata == snapshot.state.metadata:
            return None
        names = {"ADD COLUMNS": add, "RENAME COLUMN": rename, "DROP COLUMNS": drop}
        operation = next((name for name, asked in names.items() if asked), "SET TBLPROPERTIES")
        parameters = {"renamed": dict(rename or {}), "dropped": list(drop)}
        told = {name: orjson.dumps(value).decode() for name, value in parameters.items() if value}
        return Changes(operation, told, metadata=metadata, protocol=protocol_for(snapshot.protocol, metadata))

    commit, snapshot, _ = commit_planned(handle, plan)
    at = commit or Commit(snapshot.version, snapshot.timestamp_ms)
    return Evolved(at.version, at.timestamp_ms)


def _not_added(fields: pa.Schema, before: pa.Schema, now: pa.Schema) -> pa.Schema:
    """Return the columns to add, without those that came since the first plan just as they are wanted."""
    present = set(before.names)
    came = {field.name: field.type for field in now if field.name not in present}
    return pa.schema([field for field in fields if came.get(field.name) != field.type])


def _some_rows(handle: TableHandle, snapshot: Snapshot, add: pa.Schema | None) -> pa.Table:
    """Return the first rows of a table, with nulls in columns that are to be added."""
    batch = next((each for each in Scan(snapshot).read(handle.store) if len(each)), None)
    rows = snapshot.schema.empty_table() if batch is None else pa.Table.from_batches([batch.slice(0, ROWS_TRIED)])
    for field in add or ():
        rows = rows.append_column(field, pa.nulls(len(rows), field.type))
    return rows


def add_constraint(handle: TableHandle, name: str, text: str) -> Commit:
    """Have every row, now and later, keep a condition. Rows that others add meanwhile are checked, too.

    Raises `Invalid`, naming it, for a constraint that exists already or that a row breaks, and `Unsupported` for a
    condition that other engines may read in another way.
    """

    def plan(snapshot: Snapshot) -> Changes:
        check_not_derived(snapshot, "ADD CONSTRAINT")
        if _there(snapshot, name) is not None:
            raise Invalid(
                f"table {snapshot.name} already has a constraint {name}: drop it first, or choose another name"
            )
        check_properties({CONSTRAINT + name: text})
        check = row_check({name: text}, snapshot.schema)
        for batch in Scan(snapshot).read(handle.store):
            if check is not None:
                check(pa.Table.from_batches([batch]))
        before = snapshot.state.metadata
        metadata = replace(before, configuration={**before.configuration, CONSTRAINT + name: text})
        return _changes("ADD CONSTRAINT", {"name": name, "expr": text}, snapshot, metadata)

    return _commit(handle, plan)


def drop_constraint(handle: TableHandle, name: str) -> Commit:
    """Drop a constraint. Raises `Invalid` if there is none of that name."""

    def plan(snapshot: Snapshot) -> Changes:
        known = _there(snapshot, name)
        if known is None:
            raise Invalid(f"table {snapshot.name} has no constraint {name}")
        before = snapshot.state.metadata
        kept = {key: value for key, value in before.configuration.items() if key != known}
        return _changes("DROP CONSTRAINT", {"name": name}, snapshot, replace(before, configuration=kept))

    return _commit(handle, plan)


def _there(snapshot: Snapshot, name: str) -> str | None:
    wanted = fold(CONSTRAINT + name)
    return next((key for key in snapshot.properties if fold(key) == wanted), None)


def _changes(operation: str, parameters: dict[str, str], snapshot: Snapshot, metadata: Metadata) -> Changes:
    # Any row that another writer adds first counts: whether it keeps the constraint has to be seen.
    return Changes(
        operation,
        parameters,
        metadata=metadata,
        protocol=protocol_for(snapshot.protocol, metadata),
        can_match=lambda _: True,
    )


def _commit(handle: TableHandle, plan: Plan) -> Commit:
    commit, snapshot, _ = commit_planned(handle, plan)
    return commit or Commit(snapshot.version, snapshot.timestamp_ms)
