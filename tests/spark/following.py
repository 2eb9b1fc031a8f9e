"""Streams from tables, driven as by Spark, but in this process. Offsets go through JSON, parts of batches by pickle."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

from alluvia.api.lake import Table
from alluvia_spark.options import AlluviaOptions
from alluvia_spark.streaming.source import TableStream
from tests import judges

Row = dict[str, Any]


class Follower:
    """A query that reads a table. Its `offset` is in the checkpoint; all else is gone when it starts again."""

    def __init__(self, table: Table, **options: str) -> None:
        self.table = table
        self.options = options
        self.offset: str | None = None
        self.start()

    def start(self) -> None:
        """Start the query, as after a crash."""
        options = AlluviaOptions.of({"path": judges.uri_of(self.table), **self.options})
        self.stream = TableStream(options, options.handle().newest())
        if self.offset is not None:
            assert self.stream.partitions(json.loads(self.offset), json.loads(self.offset)) == []

    def batch(self) -> list[Row]:
        """Return the rows of the next batch; none if there is nothing new. The calls come in the order of Spark 4.1."""
        end = json.dumps(self.stream.latestOffset())
        if self.offset is None:
            self.offset = json.dumps(self.stream.initialOffset())
        if end == self.offset:
            return []
        rows = self.rows(self.offset, end)
        self.offset = end
        return rows

    def rows(self, start: str, end: str) -> list[Row]:
        """Return the rows between two offsets, from the pickled stream, part by part, as tasks read them."""
        parts = self.stream.partitions(json.loads(start), json.loads(end))
        task: TableStream = pickle.loads(pickle.dumps(self.stream))
        return [row for part in parts for row in rows_of(task, pickle.loads(pickle.dumps(part)))]

    def batches(self) -> Iterator[list[Row]]:
        """Yield the batches until nothing is left, also those without rows."""
        before = None
        while before != self.offset or before is None:
            before = self.offset
            yield self.batch()


def rows_of(stream: TableStream, part: Any) -> Iterator[Row]:
    for batch in stream.read(part):
        yield from batch.to_pylist()
