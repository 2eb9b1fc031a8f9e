"""The tables of a lake: how many files, rows and bytes each has."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from alluvia.clock import moment
from alluvia.errors import Corrupt, Forbidden, Invalid, TableNotFound, Unsupported
from alluvia.inspection.asking import Asked, batches_of, may_match
from alluvia.inspection.history import Totals

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("version", pa.int64()),
        ("committed_at", pa.timestamp("us", tz="UTC")),
        ("files", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("comment", pa.string()),
        ("error", pa.string()),
    ]
)
AT_ONCE = 256


def tables(asked: Asked) -> Iterator[pa.RecordBatch]:
    """Yield a row for each table that the caller may read, by name; of one that it sees in part, the name alone.

    A table that cannot be opened has what is wrong with it as its `error`. Costs one look at each table, unless the
    query names no column but the name.
    """
    names = [name for name in asked.catalog.tables() if may_match(asked.predicate, "name", name)]
    if not asked.names(*SCHEMA.names[1:]):
        yield from batches_of(({"name": name} for name in names), SCHEMA)
        return

    def row(name: str) -> dict[str, object] | None:
        rights = asked.catalog.rights
        if rights is not None and rights.restriction(name):
            return {"name": name}
        try:
            snapshot = asked.catalog.handle(name).newest()
            files, size = snapshot.totals
            totals = Totals.of(snapshot.files) if asked.names("rows") else Totals()
        except TableNotFound:  # dropped since it was listed
            return None
        except (Corrupt, Forbidden, Invalid, Unsupported) as error:  # also one that is where this server may not read
            return {"name": name, "error": str(error)}
        return {
            "name": name,
            "version": snapshot.version,
            "committed_at": moment(snapshot.timestamp_ms) if snapshot.timestamp_ms else None,
            "files": files,
            "rows": None if totals.unknown else totals.rows,
            "bytes": size,
            "comment": snapshot.comment,
        }

    for start in range(0, len(names), AT_ONCE):
        asked.check_time()
        rows = asked.catalog.store.map(row, names[start : start + AT_ONCE])
        yield from batches_of((each for each in rows if each is not None), SCHEMA)
