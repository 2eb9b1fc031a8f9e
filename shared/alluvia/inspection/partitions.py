"""The partitions of a version: how many files, rows and bytes each has, by the log alone."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from alluvia.delta.data_files.scan import Scan
from alluvia.inspection.asking import Asked, batches_of
from alluvia.inspection.files import TEXTS, partition_of

SCHEMA = pa.schema([("partition_values", TEXTS), ("files", pa.int64()), ("rows", pa.int64()), ("bytes", pa.int64())])


def partitions(asked: Asked) -> Iterator[pa.RecordBatch]:
    """Yield a row for each partition, by its values; `rows` is null where a file's statistics do not say it.

    A table without partitions is one, if it has files.
    """
    by_values: dict[tuple[tuple[str, str | None], ...], list[int]] = {}
    for number, file in enumerate(Scan(asked.snapshot, asked.where).files):
        if number % 10_000 == 0:
            asked.check_time()
        values = tuple(partition_of(asked.snapshot, file).items())
        totals = by_values.setdefault(values, [0, 0, 0, 0])
        rows = file.live_records
        totals[0] += 1
        totals[1] += rows or 0
        totals[2] += rows is None
        totals[3] += file.size
    order = sorted(by_values.items(), key=lambda each: [(value is None, value or "") for _, value in each[0]])
    rows_of = (
        {
            "partition_values": list(values),
            "files": files,
            "rows": None if unknown else rows,
            "bytes": size,
        }
        for values, (files, rows, unknown, size) in order
    )
    return batches_of(rows_of, SCHEMA)
