"""Creating a table: version 0 of its log, put if absent, so that of two creators one wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from alluvia.errors import Invalid, TableExists
from alluvia.log.actions import Metadata
from alluvia.log.commit import CommitActions, encode_commit
from alluvia.table.handle import TableHandle
from alluvia.table.partition import parse_spec
from alluvia.table.properties import PARTITION_BY, SORT_BY, WRITERS, check_properties, names_text, read_properties
from alluvia.table.protocols import default_properties, new_protocol
from alluvia.table.schema import normal_schema, schema_string
from alluvia.table.transaction import ENGINE


def plan_create(
    schema: pa.Schema,
    partition_by: Sequence[str],
    sort_by: Sequence[str],
    properties: Mapping[str, str],
    table_id: str,
    now_ms: int,
) -> Metadata:
    """Return the metadata of a new table. Raises `Invalid`, naming what is wrong."""
    text = schema_string(schema)
    spec = parse_spec(partition_by, normal_schema(schema))
    for name in sort_by:
        if name not in schema.names:
            msg = f"sort_by: {name!r} names no column of the schema"
            raise Invalid(msg)
    given = check_properties(properties)
    configuration = {**default_properties(given.get(WRITERS, "alluvia")), **given}
    if partition_by:
        configuration[PARTITION_BY] = names_text([str(field) for field in spec.fields])
    if sort_by:
        configuration[SORT_BY] = names_text(sort_by)
    return Metadata(table_id, text, spec.identity_columns, configuration, now_ms)


def create(handle: TableHandle, metadata: Metadata, *, exist_ok: bool) -> bool:
    """Commit version 0, in one request. Returns whether this call created the table.

    Raises `TableExists` unless `exist_ok`.
    """
    now_ms = handle.clock.now_ms()
    settings = read_properties(metadata.configuration)
    protocol = new_protocol(settings.writers, metadata.schema_string)
    txn_id = handle.clock.new_id()
    info = {
        "timestamp": now_ms,
        "operation": "CREATE TABLE",
        "operationParameters": {"partitionBy": names_text(metadata.partition_columns)},
        "isBlindAppend": True,
        "engineInfo": ENGINE,
        "txnId": txn_id,
    }
    if settings.in_commit_timestamps:
        info = {"inCommitTimestamp": now_ms, **info}
    commit = CommitActions(0, info, protocol, metadata)
    with handle.lock:
        winner = handle.log.write(0, encode_commit(info, [protocol, metadata]), txn_id)
        if winner is None:
            handle.log.advance([commit])
            return True
    if not exist_ok:
        msg = f"table {handle.name!r} exists already: choose another name, or pass exist_ok=True"
        raise TableExists(msg)
    return False
