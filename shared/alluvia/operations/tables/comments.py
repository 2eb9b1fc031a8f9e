"""Comments of tables and their columns, each change one commit of new metadata."""

from __future__ import annotations

from dataclasses import replace

import orjson

from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import Commit
from alluvia.delta.log.actions import Metadata
from alluvia.delta.schema.comments import COMMENT, check_comment, with_comment
from alluvia.delta.schema.serialization import schema_fields
from alluvia.delta.snapshot import Snapshot
from alluvia.operations.planning.optimistic_retry import commit_planned
from alluvia.operations.tables.column_changes import found_column


def set_comment(handle: TableHandle, text: str | None, column: str | None = None) -> Commit:
    """Give a table, or a column of it, a comment; None and an empty one remove it.

    Returns the newest version where the comment is that already. Raises `Invalid` for a missing column, and for a text
    that no log can hold.
    """
    text = check_comment(text, "" if column is None else f"column {column}")

    def plan(snapshot: Snapshot) -> Changes | None:
        before = snapshot.state.metadata
        if column is None:
            after, told = replace(before, description=text), {"properties": _json({COMMENT: text or ""})}
        else:
            name = found_column(snapshot.schema, column, "comment")
            after, told = _of_column(before, name, text), {"column": _json({"name": name, COMMENT: text or ""})}
        if after == before:
            return None
        return Changes("SET TBLPROPERTIES" if column is None else "CHANGE COLUMN", told, metadata=after)

    commit, snapshot, _ = commit_planned(handle, plan)
    return commit or Commit(snapshot.version, snapshot.timestamp_ms)


def _of_column(metadata: Metadata, name: str, text: str | None) -> Metadata:
    fields = schema_fields(metadata.schema_string)
    changed = [with_comment(field, text) if field["name"] == name else field for field in fields]
    if changed == fields:
        return metadata
    return replace(metadata, schema_string=_json({**orjson.loads(metadata.schema_string), "fields": changed}))


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
