"""The tasks of a pipeline: share the rows of a relation's inputs out, and compute the relation for one share.

Rows travel as Arrow batches without their columns' names, so that all types arrive as they are. A share is computed as
the whole would be, by the library's DuckDB over files of the rows, and written by the library's writer.
"""

from __future__ import annotations

import pickle
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle

from alluvia.arrow_compute import pc
from alluvia.arrow_parquet import pq
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.replay import State
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.literals import free_name, quote_name
from alluvia.errors import AlluviaError, Unavailable
from alluvia.operations.reading.relations import Evaluate, Files, LocalRows, Relation
from alluvia.pipelines.computing import view
from alluvia.pipelines.declarations.declaration import Declaration
from alluvia.pipelines.execution import RowOutput, RowTable
from alluvia.pipelines.sorting_rows import JudgedRows
from alluvia.scratch import scratch_root
from alluvia_spark.frames import Row, task_key
from alluvia_spark.tables import TablePlace
from alluvia_spark.upkeep.work import spill_where_spark_does
from alluvia_spark.writing.row_changes import dumped

HELD_BYTES = 32 << 20
"""A task shares rows out when it holds this many bytes of them."""
Piece = tuple[str, "Sequence[AddFile] | bytes"]
"""Rows of an input, by its name: files of its table, or batches of Arrow."""
_ERROR = ""
"""In the place of an input's name: the row has an error."""


@dataclass(frozen=True)
class TableVersion:
    """A table at a version, without its files, for tasks."""

    name: str
    state: State

    def opened(self, place: TablePlace) -> RowTable:
        """Return it in a lake."""
        handle = TablePlace(place.uri, self.name, place.options).handle()
        return RowTable(handle, Snapshot(self.state, handle.root, handle.name, handle.store))


@dataclass(frozen=True)
class ShareInput:
    """An input of a relation without its rows: `columns` are those that count, and `values` what a share is found by.

    `table` is that whose files it has; None for rows. With `within`, only rows with the values of such units count.
    """

    columns: pa.Schema
    values: tuple[str, ...]
    table: TableVersion | None = None
    within: UnitsWithin | None = None

    def sharing(self, name: str, shares: int) -> str:
        """Return SQL of the columns of the rows, and last the number of the share of each."""
        listed = ", ".join(map(quote_name, self.columns.names))
        only = "" if self.within is None else self.within.condition(self.values, self.columns.names)
        share = f"CAST(hash({', '.join(self.values)}) % {shares} AS INTEGER)"
        return f"SELECT {listed}, {share} FROM {view(name)}{only}"  # noqa: S608


@dataclass(frozen=True)
class UnitsWithin:
    """Units, few enough to be sent to all tasks: batches of their rows, and SQL of their values."""

    rows: bytes
    values: tuple[str, ...]

    def condition(self, values: Sequence[str], taken: Sequence[str]) -> str:
        """Return SQL that leaves out rows of other units; `values` are the rows' own."""
        names = [free_name(f"pipeline_unit_value{number}", set(taken)) for number in range(len(values))]
        units = ", ".join(f"{value} AS {name}" for value, name in zip(self.values, names, strict=True))
        same = " AND ".join(f"{one} IS NOT DISTINCT FROM {other}" for one, other in zip(values, names, strict=True))
        return f" SEMI JOIN (SELECT {units} FROM {view(_WITHIN)}) ON {same}"  # noqa: S608


_WITHIN = "pipeline_within"


@dataclass(frozen=True)
class ShareOutput:
    """The tables that rows are written to."""

    declaration: Declaration
    table: TableVersion
    quarantine: TableVersion | None
    versions: Mapping[str, int]

    def opened(self, place: TablePlace) -> RowOutput:
        """Return it in a lake, for rows of one share."""
        aside = None if self.quarantine is None else self.quarantine.opened(place)
        return RowOutput(self.declaration, self.table.opened(place), aside, self.versions)


@dataclass(frozen=True)
class SharedWork:
    """The part of the work that all tasks of a relation share. Without `output`, they give its rows."""

    place: TablePlace
    inputs: Mapping[str, ShareInput]
    views: Mapping[str, str]
    shares: int
    memory_mb: int
    output: ShareOutput | None

    def evaluation(self) -> Evaluate:
        """Return what computes relations in a task."""
        return self.place.lake().evaluation(self.memory_mb)

    def read(self, piece: Piece, folder: Path) -> Files | LocalRows:
        """Return the rows of a piece as an input."""
        name, rows = piece
        given = self.inputs[name]
        if isinstance(rows, bytes):
            return rows_of(rows, folder / f"{name}.parquet")
        assert given.table is not None  # noqa: S101 - only tables have files
        return Files(given.table.opened(self.place).snapshot, rows)

    def compute(self, inputs: Mapping[str, Files | LocalRows], folder: Path) -> bytes | JudgedRows:
        """Compute the relation of some rows; inputs that are left out have none."""
        whole = dict(inputs)
        for name, given in self.inputs.items():
            if name not in whole:
                whole[name] = write_local([], given.columns, folder / f"{name}.parquet")
        relation, evaluate = Relation(whole, self.views), self.evaluation()
        if self.output is None:
            return evaluate(relation, to_stream)
        output = self.output.opened(self.place)
        try:
            return evaluate(relation, output.writing())
        except Exception:
            output.discard()
            raise


def share_out(shared: bytes, rows: Iterator[Row]) -> Iterator[Row]:
    """Yield the rows of pieces by their shares: the key of the share's task, the input's name, and a batch."""
    work = _loaded(shared)
    with _folder() as folder:
        for (piece,) in rows:
            try:
                yield from _shared_out(work, cloudpickle.loads(piece), folder)
            except Unavailable:  # Spark tries again
                raise
            except AlluviaError as error:
                yield task_key(0), _ERROR, dumped(error)


def _shared_out(work: SharedWork, piece: Piece, folder: Path) -> Iterator[Row]:
    name = piece[0]
    given = work.inputs[name]
    inputs = {name: work.read(piece, folder)}
    if given.within is not None:
        inputs[_WITHIN] = rows_of(given.within.rows, folder / "within.parquet")
    relation = Relation(inputs, {"pipeline_shares": given.sharing(name, work.shares)})

    path = folder / "shares"

    def take(_: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        with path.open("wb") as file:
            for batch in _gathered(batches, given.columns):
                for share, part in _by_share(batch, given.columns):
                    pickle.dump((task_key(share), name, part), file)

    work.evaluation()(relation, take)
    with path.open("rb") as file:
        while file.peek(1):
            yield pickle.load(file)  # noqa: S301 - its own, on disk since there may be more than fit in memory


def _gathered(batches: Iterator[pa.RecordBatch], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield batches of some size, with columns of the types that they have in files, and last the share's number."""
    schema = columns.append(pa.field("share", pa.int32()))
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        arrays = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
        waiting.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
        if sum(each.nbytes for each in waiting) >= HELD_BYTES:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)


def _by_share(batch: pa.RecordBatch, columns: pa.Schema) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of a batch by their share."""
    numbers = batch.column(len(columns))
    rows = batch.select(range(len(columns))).take(pc.array_sort_indices(numbers))
    at = 0
    for share, count in sorted((each["values"], each["counts"]) for each in pc.value_counts(numbers).to_pylist()):
        yield share, rows.slice(at, count).serialize().to_pybytes()
        at += count


def compute_share(shared: bytes, rows: Iterator[Row]) -> Iterator[Row]:
    """Yield what the relation gives for the rows of one share, or the error; nothing for no rows."""
    work = _loaded(shared)
    error: bytes | None = None
    with _folder() as folder, ExitStack() as stack:
        writers: dict[str, pq.ParquetWriter] = {}
        held: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)
        for _, name, body in rows:
            if name == _ERROR:
                error = bytes(body)
                continue
            columns = work.inputs[name].columns
            if name not in writers:
                path = folder / f"{name}.parquet"
                writers[name] = stack.enter_context(pq.ParquetWriter(path, columns, store_schema=False))
            held[name].append(pa.ipc.read_record_batch(pa.py_buffer(body), work.inputs[name].columns))
            if sum(each.nbytes for each in held[name]) >= HELD_BYTES:
                writers[name].write_table(pa.Table.from_batches(held.pop(name)))
        for name, batches in held.items():
            writers[name].write_table(pa.Table.from_batches(batches))
        stack.close()
        if error is not None:
            yield (error,)
        elif writers:
            inputs = {name: LocalRows(folder / f"{name}.parquet", work.inputs[name].columns) for name in writers}
            yield (_answer(work, inputs, folder),)


def compute_pieces(shared: bytes, rows: Iterable[Row]) -> Iterator[Row]:
    """Yield what the relation gives for the rows of each piece alone, or the error."""
    work = _loaded(shared)
    for (body,) in rows:
        with _folder() as folder:
            piece: Piece = cloudpickle.loads(body)
            yield (_answer(work, {piece[0]: work.read(piece, folder)}, folder),)


def _answer(work: SharedWork, inputs: Mapping[str, Files | LocalRows], folder: Path) -> bytes:
    try:
        return dumped(work.compute(inputs, folder))
    except Unavailable:  # Spark tries again
        raise
    except AlluviaError as error:
        return dumped(error)


def to_stream(columns: pa.Schema, batches: Iterable[pa.RecordBatch]) -> bytes:
    """Return batches as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return bytes(sink.getvalue())


def rows_of(body: bytes, path: Path) -> LocalRows:
    """Return batches that came as bytes as rows in a file."""
    with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
        return write_local(stream, stream.schema, path)


def write_local(batches: Iterable[pa.RecordBatch], columns: pa.Schema, path: Path) -> LocalRows:
    """Return batches as rows in a file."""
    with pq.ParquetWriter(path, columns, store_schema=False) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return LocalRows(path, columns)


@contextmanager
def _folder() -> Iterator[Path]:
    spill_where_spark_does()
    with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
        yield Path(folder)


@lru_cache(maxsize=1)
def _loaded(shared: bytes) -> SharedWork:
    work: SharedWork = cloudpickle.loads(shared)
    return work
