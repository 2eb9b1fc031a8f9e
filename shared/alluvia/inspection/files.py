"""The data files of a version, pruned by a condition as a query prunes them. No data file is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
import pyarrow as pa

from alluvia.clock import moment
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import AddFile
from alluvia.delta.partitioning.transforms import PARTITION_TAG
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Unsupported
from alluvia.inspection.asking import Asked
from alluvia.store import Store

AT_ONCE = 8192
TEXTS = pa.map_(pa.string(), pa.string())
_MOMENT = pa.timestamp("us", tz="UTC")
_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("url", pa.string()),
        ("bytes", pa.int64()),
        ("rows", pa.int64()),
        ("deleted_rows", pa.int64()),
        ("partition_values", TEXTS),
        ("modified_at", _MOMENT),
    ]
)


def schema_of(snapshot: Snapshot) -> pa.Schema:
    """Return the columns of `files('t')`. The statistics are left out of a table without columns."""
    from alluvia.inspection.columns import statistics_type

    kind = statistics_type(snapshot)
    return _SCHEMA.append(pa.field("statistics", kind)) if kind.num_fields else _SCHEMA


def files(asked: Asked) -> Iterator[pa.RecordBatch]:
    """Yield a row for each file."""
    from alluvia.inspection.columns import typed_statistics

    snapshot, schema = asked.snapshot, schema_of(asked.snapshot)
    kept = Scan(snapshot, asked.where).files
    for start in range(0, len(kept), AT_ONCE):
        asked.check_time()
        part = kept[start : start + AT_ONCE]
        columns: list[pa.Array] = [_column(asked, name.name, part) for name in _SCHEMA]
        if len(schema) > len(columns):
            wanted = asked.names("statistics")
            kind = schema.field("statistics").type
            columns.append(typed_statistics(snapshot, part) if wanted else pa.nulls(len(part), kind))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(asked: Asked, name: str, part: Sequence[AddFile]) -> pa.Array:
    kind = _SCHEMA.field(name).type
    if not asked.names(name):
        return pa.nulls(len(part), kind)
    snapshot, store = asked.snapshot, asked.catalog.store
    values: list[Any] = []
    for file in part:
        if name == "url":
            values.append(url_of(snapshot, store, file.path))
        elif name == "rows":
            values.append(file.live_records)
        elif name == "deleted_rows":
            values.append(deleted_rows(file))
        elif name == "partition_values":
            values.append(list(partition_of(snapshot, file).items()))
        elif name == "modified_at":
            values.append(moment(file.modification_time))
        else:
            values.append(file.path if name == "path" else file.size)
    return pa.array(values, kind)


def url_of(snapshot: Snapshot, store: Store, path: str) -> str:
    """Return where a file lies whose path the log has (decoded): `s3://…`, or a path on this machine."""
    try:
        key = snapshot.locate(path)
    except Unsupported:  # of a clone whose source is not in this lake: the log has all of it
        return path
    return store.url(key) or f"{store.uri.rstrip('/')}/{key}"


def deleted_rows(file: AddFile) -> int | None:
    """Return how many rows a file's deletion vector deletes; None without one, or where it does not say."""
    count = (file.deletion_vector or {}).get("cardinality")
    return count if type(count) is int else None


def partition_of(snapshot: Snapshot, file: AddFile) -> dict[str, str | None]:
    """Return the values of the fields that the table is partitioned by, as text.

    Several values of a transform, such as days, are written as `first..last`.
    """
    values = {name: file.partition_values.get(snapshot.physical_name(name)) for name in snapshot.partition_columns}
    transforms = [str(each) for each in snapshot.partition_spec.transforms]
    tag = file.tags.get(PARTITION_TAG) if transforms else None
    if tag is not None:
        try:
            said: Any = orjson.loads(tag)
        except ValueError:
            said = None
        if isinstance(said, dict):
            values |= {name: _span(said[name]) for name in transforms if name in said}
    return values


def _span(value: Any) -> str | None:
    if isinstance(value, list):
        return "..".join("null" if end is None else str(end) for end in value)
    return None if value is None else str(value)
