"""The branches of a lake."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from alluvia.clock import datetime_of
from alluvia.delta.refs import BRANCH, list_keepers
from alluvia.inspection.asking import Asked, batches_of
from alluvia.operations.references.branch_store import BranchStore

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("created_at", pa.timestamp("us", tz="UTC")),
        ("expires_at", pa.timestamp("us", tz="UTC")),
        ("expired", pa.bool_()),
    ]
)


def branches(asked: Asked) -> Iterator[pa.RecordBatch]:
    """Yield a row for each branch of the lake, asked on a branch too; none for who may not read all of the lake.

    One LIST, and one GET for each.
    """
    store, now_ms, rights = asked.catalog.store, asked.catalog.clock.now_ms(), asked.catalog.rights
    if rights is not None and not rights.reads_all():
        return
    rows = [
        {
            "name": keeper.name,
            "moment": datetime_of(keeper.moment),
            "created_at": datetime_of(keeper.created_ms),
            "expires_at": None if keeper.expires_ms is None else datetime_of(keeper.expires_ms),
            "expired": not keeper.is_live(now_ms),
        }
        for keeper in list_keepers(store.inner if isinstance(store, BranchStore) else store, None, BRANCH)
    ]
    yield from batches_of(rows, SCHEMA)
