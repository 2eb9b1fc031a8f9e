"""Create a table: write version 0 of its log with put-if-absent, so that only one of two creators wins."""

from __future__ import annotations

from alluvia.commit.changes import ENGINE
from alluvia.commit.handle import TableHandle
from alluvia.delta.arguments import check_names
from alluvia.delta.lineage import is_dropped
from alluvia.delta.log.actions import Metadata
from alluvia.delta.log.commit import IN_COMMIT_TIMESTAMPS, CommitActions, encode_commit
from alluvia.delta.log.log import FOLLOW_AGE_MS_MAX
from alluvia.delta.partitioning.spec import parse_spec
from alluvia.delta.properties import (
    CLUSTER_BY,
    OLDEST_READABLE,
    PARTITION_BY,
    PIPELINE,
    ROLLUP,
    SORT_BY,
    WRITERS,
    check_properties,
    names_text,
    read_properties,
)
from alluvia.delta.protocols import default_properties, new_protocol
from alluvia.delta.schema.column_mapping import Naming, mapped, needs_mapping, plain_names
from alluvia.delta.schema.comments import check_comment
from alluvia.delta.schema.former_names import noted
from alluvia.delta.schema.serialization import arrow_schema, normal_schema, schema_string
from alluvia.delta.variant_properties import with_variant_properties
from alluvia.errors import Invalid, TableExists
from alluvia.operations.catalog.catalog import NewTable
from alluvia.operations.catalog.schemas import check_may_be_created
from alluvia.operations.merge_query.folding import check_declared
from alluvia.operations.planning.layout import check_layout, check_ttl, row_check
from alluvia.operations.reading.change_files import check_feed_columns
from alluvia.operations.tables.drop import find_log, recreate
from alluvia.operations.tables.drop_plan import EMPTY, FirstVersion

NOT_GIVEN = {
    PARTITION_BY: "use the argument partition_by",
    SORT_BY: "use the argument sort_by",
    CLUSTER_BY: "use the argument cluster_by",
    ROLLUP: "use create_rollup",
    PIPELINE: "declare the table in a pipeline, and run it",
    OLDEST_READABLE: "vacuum sets it",
    IN_COMMIT_TIMESTAMPS: f"it follows from {WRITERS}",
}
"""Properties that a new table cannot be given, with what says the same."""


def plan_create(new: NewTable, table_id: str, now_ms: int, names: Naming | None = None) -> Metadata:
    """Return the metadata of a new table, with column mapping if the name of a column needs it.

    `names` gives columns the names that they then have in files; by default, those that need mapping get fresh ones.
    Raises `Invalid`, naming what is wrong.
    """
    check_names("partition_by", new.partition_by)
    check_names("sort_by", new.sort_by)
    check_names("cluster_by", new.cluster_by)
    text = schema_string(new.schema)
    spec = parse_spec(new.partition_by, normal_schema(new.schema))
    given = check_properties(new.properties or {})
    for name, instead in NOT_GIVEN.items():
        if name in given:
            raise Invalid(f"property {name} cannot be set: {instead}")
    configuration = {**default_properties(given.get(WRITERS, "alluvia")), **given}
    if new.partition_by:
        configuration[PARTITION_BY] = names_text([str(field) for field in spec.fields])
    if new.sort_by:
        configuration[SORT_BY] = names_text(new.sort_by)
    if new.cluster_by:
        configuration[CLUSTER_BY] = names_text(new.cluster_by)
        check_properties({CLUSTER_BY: configuration[CLUSTER_BY]})
    comment = check_comment(new.comment)
    plain = Metadata(table_id, text, spec.identity_columns, configuration, now_ms, description=comment)
    metadata = with_variant_properties(plain)
    if needs_mapping(text):
        metadata = noted(mapped(metadata, names=names or plain_names(table_id)))
    check_layout(metadata)
    check_ttl(metadata)
    check_feed_columns(metadata)
    check_declared(metadata)
    return metadata


def check_free(handle: TableHandle) -> None:
    """Raise `TableExists` for a name that is taken, before anything is done for a table of that name. Two LISTs."""
    check_may_be_created(handle.store, handle.name)
    there, may_be_dropped = find_log(handle.store, handle.root)
    if there and not (may_be_dropped and is_dropped(handle.newest(dropped=True).properties)):
        raise TableExists(f"table {handle.name!r} already exists: choose another name, or DROP TABLE {handle.name}")


def check_constraints(metadata: Metadata) -> None:
    """Raise `Unsupported`, naming it, for a CHECK constraint that no row could be checked against."""
    row_check(read_properties(metadata.configuration).constraints, arrow_schema(metadata.schema_string))


def create(
    handle: TableHandle,
    metadata: Metadata,
    *,
    exist_ok: bool,
    rejects: TableHandle | None = None,
    first: FirstVersion = EMPTY,
) -> bool:
    """Commit version 0, in two LISTs and one PUT. Returns whether this call created the table.

    The first listing keeps a table whose first versions have expired from being started again, the second one keeps it
    from the name of a view. Where a table of that name was dropped the new one goes on with its log, and `rejects` of
    the old one that are still there are dropped first. Raises `TableExists` for a view, and for a table unless
    `exist_ok`, and `TransactionExpired` where its first files are too old.
    """
    now_ms = handle.clock.now_ms()
    settings = read_properties(metadata.configuration)
    protocol = first.protocol or new_protocol(settings.writers, metadata.schema_string, metadata.configuration)
    txn_id = handle.clock.new_id()
    info = {
        "timestamp": now_ms,
        "operation": first.operation,
        "operationParameters": {"partitionBy": names_text(metadata.partition_columns), **first.parameters},
        "isBlindAppend": True,
        "engineInfo": ENGINE,
        "txnId": txn_id,
    }
    if settings.in_commit_timestamps:
        info = {"inCommitTimestamp": now_ms, **info}
    txns, domains = list(first.txns.values()), list(first.domains.values())
    commit = CommitActions(0, info, protocol, metadata, txns, domains, first.adds)
    with handle.lock:
        there, may_be_dropped = find_log(handle.store, handle.root)
        if not there or may_be_dropped:
            check_may_be_created(handle.store, handle.name)
        data = encode_commit(info, [protocol, metadata, *txns, *domains, *first.adds])
        first.check_young(handle.name, handle.clock.now_ms())
        if not there and handle.log.write(0, data, txn_id) is None:
            handle.store.check_lasts()
            if handle.clock.now_ms() - now_ms > FOLLOW_AGE_MS_MAX:
                handle.log.confirm(0, data)
            handle.log.advance([commit], now_ms)
            return True
        if may_be_dropped and not first.new_log and recreate(handle, rejects, metadata, protocol, first):
            return True
    if not exist_ok:
        raise TableExists(f"table {handle.name!r} already exists: choose another name, or pass exist_ok=True")
    return False
