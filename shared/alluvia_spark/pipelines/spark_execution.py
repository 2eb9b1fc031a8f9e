"""Computes the relations of a pipeline's run by tasks of Spark, each of which has a share of the rows.

The rows of all inputs are shared out by the values that `splitting.py` finds: an exchange brings rows with the same
values to the same task. Where each row can be computed by itself, each task takes some files, and nothing is exchanged.
The driver computes relations that are small or cannot be shared out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from alluvia.arrow_parquet import pq
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import AlluviaError
from alluvia.operations.reading.relations import Evaluate, Files, InputSplit, LocalRows, Relation, Split, Take
from alluvia.pipelines.execution import RowOutput, RowTable, T
from alluvia.pipelines.sorting_rows import JudgedRows
from alluvia_spark.failures import failures_explained
from alluvia_spark.file_groups import GROUP_BYTES, grouped
from alluvia_spark.frames import TASK, fit_session, mapped, task_key, to_tasks
from alluvia_spark.pipelines.shares import (
    Piece,
    SharedWork,
    ShareInput,
    ShareOutput,
    TableVersion,
    UnitsWithin,
    compute_pieces,
    compute_share,
    share_out,
    to_stream,
)
from alluvia_spark.tables import TablePlace
from alluvia_spark.upkeep.work import task_memory_mb
from alluvia_spark.writing.row_changes import dumped, without_files

SHARE_BYTES = 128 << 20
"""About how many bytes of files a task computes; less than this is computed by the driver."""
SHARES_MAX = 4096
WITHIN_BYTES = 8 << 20
"""Units of this size or less are sent to all tasks, which leave out the rows of others before the exchange."""
PIECE_ROWS = 1 << 17
_UNITS = ("pipeline_units", "pipeline_again")
"""Inputs with the units to compute again: of the files of a source, only rows of these count."""
_SOURCE = "pipeline_source"


@dataclass(frozen=True, slots=True)
class SparkExecution:
    """Computes the relations of runs over a lake. `evaluate` is the driver's DuckDB."""

    spark: SparkSession
    place: TablePlace
    evaluate: Evaluate
    share_bytes: int = SHARE_BYTES
    memory_mb: int | None = None

    def rows(self, relation: Relation, split: Split, take: Take[T]) -> T:
        """Return what `take` returns, which is called in the driver."""
        if split is None or _size(relation) < self.share_bytes:
            return self.evaluate(relation, take)
        answers = self._answers(relation, split, None)
        streams = [pa.ipc.open_stream(pa.py_buffer(each)) for each in answers]
        columns = streams[0].schema if streams else pa.schema([])
        return take(columns, (batch for stream in streams for batch in stream))

    def written(self, relation: Relation, split: Split, output: RowOutput) -> JudgedRows:
        """Have tasks write files, which are noted in the output. Files of tasks that Spark repeats stay for vacuum."""
        if split is None or _size(relation) < self.share_bytes:
            return self.evaluate(relation, output.writing())
        aside = None if output.quarantine is None else _version(output.quarantine)
        given = ShareOutput(output.declaration, _version(output.table), aside, output.versions)
        done = JudgedRows(failed={each.name: 0 for each in output.declaration.expectations})
        for each in self._answers(relation, split, given, output):
            done.add(each)
        return done

    def _answers(
        self,
        relation: Relation,
        split: Mapping[str, InputSplit],
        given: ShareOutput | None,
        output: RowOutput | None = None,
    ) -> list[Any]:
        """Return what the tasks give. Raises the error of one that failed for good, or `Unavailable`."""
        most = min(self.share_bytes, GROUP_BYTES)
        pieces = [piece for name, read in relation.inputs.items() for piece in _pieces(name, read, split[name], most)]
        shares = max(1, min(SHARES_MAX, -(-_size(relation) // self.share_bytes)))
        within = _within(relation, split)
        inputs = {name: _input(name, read, split[name], within) for name, read in relation.inputs.items()}
        memory_mb = self.memory_mb or task_memory_mb(self.spark)
        shared = dumped(SharedWork(self.place, inputs, dict(relation.views), shares, memory_mb, given))
        exchanged = any(each.values for each in split.values())
        with fit_session(self.spark) as session, failures_explained():
            rows = [(task_key(at), bytearray(dumped(piece))) for at, piece in enumerate(pieces)]
            frame = to_tasks(session.createDataFrame(rows, f"{TASK} int, piece binary"), len(rows)).select("piece")
            if exchanged:
                frame = mapped(frame, partial(share_out, shared), {TASK: "int", "input": "string", "rows": "binary"})
                frame = mapped(to_tasks(frame, shares), partial(compute_share, shared), {"answer": "binary"})
            else:
                frame = mapped(frame, partial(compute_pieces, shared), {"answer": "binary"})
            answers = [cloudpickle.loads(bytes(answer)) for (answer,) in frame.collect()]
        for each in answers:
            if output is not None and isinstance(each, JudgedRows):
                output.written.extend(each.adds)
                output.set_aside.extend(each.quarantined)
        for each in answers:
            if isinstance(each, AlluviaError):
                raise each
        return answers


def _size(relation: Relation) -> int:
    """Return the bytes of the files of a relation's inputs."""
    sizes = (
        sum(file.size for file in read.files) if isinstance(read, Files) else read.path.stat().st_size
        for read in relation.inputs.values()
    )
    return sum(sizes)


def _pieces(name: str, read: Files | LocalRows, split: InputSplit, most: int) -> Iterator[Piece]:
    """Yield the rows of an input in pieces that a task each reads."""
    if isinstance(read, Files):
        for group in grouped(read.files, most):
            yield name, group
        return
    columns = _stored(read.schema)
    with pq.ParquetFile(read.path) as file:
        for batch in file.iter_batches(PIECE_ROWS, columns=list(split.columns)):
            rows = pa.RecordBatch.from_arrays(
                [column.cast(field.type) for column, field in zip(batch.columns, columns, strict=True)], schema=columns
            )
            if len(rows):
                yield name, to_stream(columns, [rows])


def _input(name: str, read: Files | LocalRows, split: InputSplit, within: UnitsWithin | None) -> ShareInput:
    if isinstance(read, LocalRows):
        return ShareInput(_stored(read.schema), split.values)
    columns = pa.schema([read.snapshot.schema.field(column) for column in split.columns])
    table = TableVersion(read.snapshot.name, without_files(read.snapshot))
    only = within if name.startswith(_SOURCE) else None
    return ShareInput(_stored(columns), split.values, table, only)


def _within(relation: Relation, split: Mapping[str, InputSplit]) -> UnitsWithin | None:
    """Return the units to compute again, if there are some, and few enough to be sent to all tasks."""
    for name in _UNITS:
        read = relation.inputs.get(name)
        if isinstance(read, LocalRows) and read.path.stat().st_size <= WITHIN_BYTES:
            columns = _stored(read.schema)
            rows = pq.read_table(read.path).cast(columns).to_batches()
            return UnitsWithin(to_stream(columns, rows), split[name].values)
    return None


def _stored(columns: pa.Schema) -> pa.Schema:
    """Return columns that rows on their way can have, all of which may be null."""
    return pa.schema([field.with_nullable(True) for field in columns])


def _version(table: RowTable) -> TableVersion:
    snapshot: Snapshot = table.snapshot
    return TableVersion(snapshot.name, without_files(snapshot))
