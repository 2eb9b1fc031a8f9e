"""The tags of a lake and of its tables."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from alluvia.access.rights import READ
from alluvia.inspection.asking import Asked, batches_of
from alluvia.operations.references.tags import lake_tags

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("table", pa.string()),
        ("version", pa.int64()),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("created_at", pa.timestamp("us", tz="UTC")),
        ("expires_at", pa.timestamp("us", tz="UTC")),
        ("expired", pa.bool_()),
    ]
)


def tags(asked: Asked) -> Iterator[pa.RecordBatch]:
    """Yield a row for each tag of the tables that the caller may read, and of the lake if that is all of it.

    A GET for each tag.
    """
    rights = asked.catalog.rights
    rows = [
        {
            "name": tag.name,
            "table": tag.table,
            "version": tag.version,
            "moment": tag.moment,
            "created_at": tag.created,
            "expires_at": tag.expires,
            "expired": tag.expired,
        }
        for tag in lake_tags(asked.catalog, tables=True)
        if rights is None or (rights.reads_all() if tag.table is None else rights.may(READ, tag.table))
    ]
    yield from batches_of(rows, SCHEMA)
