"""Rows of a run on their way into files: those that meet the expectations, and those that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.data_files.writer import FileWriter
from alluvia.delta.log.actions import AddFile
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.pipelines.declarations.declaration import DROP, FAIL, QUARANTINE, Declaration, Expectation

FAILED, VERSIONS = "_failed", "_source_versions"
"""Columns of a table of failed rows besides those of the rows: the expectations, and the sources' versions as JSON."""
CHUNK_ROWS = 1 << 20
CHUNK_BYTES = 64 << 20
_SHOWN_CHARS = 300


class ExpectationFailed(Invalid):
    """A row does not meet an expectation ON VIOLATION FAIL: the table is left as it was."""


@dataclass(slots=True)
class JudgedRows:
    """Files of rows: those that go to the table, and to the table of failed rows; and counts.

    `made` counts the rows that were computed, and `failed` those of them that did not meet each expectation.
    """

    adds: list[AddFile] = field(default_factory=list)
    quarantined: list[AddFile] = field(default_factory=list)
    made: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    rows_quarantined: int = 0

    def add(self, more: JudgedRows) -> None:
        """Take in further rows of the same declaration."""
        self.adds += more.adds
        self.quarantined += more.quarantined
        self.made += more.made
        self.failed = {name: count + more.failed[name] for name, count in self.failed.items()}
        self.rows_quarantined += more.rows_quarantined


def quarantine_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the table of a table's failed rows."""
    own = [pa.field(FAILED, pa.list_(pa.string())), pa.field(VERSIONS, pa.string())]
    return pa.schema([*(each.with_nullable(True) for each in schema), *own])


def sorting(
    declaration: Declaration,
    schema: pa.Schema,
    versions: dict[str, int],
    writer: FileWriter,
    quarantine: FileWriter | None,
    written: list[AddFile],
    set_aside: list[AddFile],
) -> Callable[[pa.Schema, Iterator[pa.RecordBatch]], JudgedRows]:
    """Return a function that writes rows of a step to files, and notes each file at once in `written`, or `set_aside`.

    The rows have the columns of `schema`, and the further ones of `computing.py`, or none of these. It raises
    `ExpectationFailed`, which names the row.
    """

    def take(_: pa.Schema, batches: Iterator[pa.RecordBatch]) -> JudgedRows:
        done = JudgedRows(failed={each.name: 0 for each in declaration.expectations})
        rows = _Chunks(schema, writer, done.adds, written)
        failed = (
            None if quarantine is None else _Chunks(quarantine_schema(schema), quarantine, done.quarantined, set_aside)
        )
        text = orjson.dumps(versions, option=orjson.OPT_SORT_KEYS).decode()
        for batch in batches:
            kept, left = _judged(declaration, schema, batch, done)
            rows.add(kept)
            if failed is not None and left is not None:
                done.rows_quarantined += len(left)
                said = pa.repeat(pa.scalar(text), len(left))
                failed.add(pa.RecordBatch.from_arrays([*left.columns, said], schema=failed.schema))
        rows.end()
        if failed is not None:
            failed.end()
        return done

    return take


def _judged(
    declaration: Declaration, schema: pa.Schema, batch: pa.RecordBatch, done: JudgedRows
) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Return the rows of a batch that are kept, and those that go to the table of failed rows, with the reasons."""
    width = len(schema)
    names = batch.schema.names
    rows = pa.RecordBatch.from_arrays(
        [batch.column(names.index(each.name)).cast(each.type) for each in schema], schema=schema
    )
    if batch.num_columns == width:
        done.made += len(rows)
        return rows, None
    made = batch.column(width).cast(pa.bool_())
    done.made += pc.sum(made).as_py() or 0
    met = [batch.column(at).cast(pa.bool_()).fill_null(False) for at in range(width + 1, batch.num_columns)]
    failures = [pc.and_(made, pc.invert(each)) for each in met]
    for each, failure in zip(declaration.expectations, failures, strict=True):
        count = pc.sum(failure).as_py() or 0
        done.failed[each.name] += count
        if count and each.action == FAIL:
            raise _failed(declaration, each, rows.filter(failure).slice(0, 1))
    gone = _any(declaration, failures, (DROP, QUARANTINE), len(rows))
    held = _any(declaration, failures, (QUARANTINE,), len(rows))
    reasons = _names(declaration.expectations, failures, held)
    left = rows.filter(held)
    quarantined = pa.RecordBatch.from_arrays([*left.columns, reasons], names=[*schema.names, FAILED])
    return rows.filter(pc.invert(gone)), quarantined


def _any(
    declaration: Declaration, failures: Sequence[pa.BooleanArray], actions: Sequence[str], rows: int
) -> pa.BooleanArray:
    found = pa.repeat(pa.scalar(False), rows)
    for each, failure in zip(declaration.expectations, failures, strict=True):
        if each.action in actions:
            found = pc.or_(found, failure)
    return found


def _names(expectations: Sequence[Expectation], failures: Sequence[pa.BooleanArray], held: pa.BooleanArray) -> pa.Array:
    columns = [failure.filter(held).to_pylist() for failure in failures]
    rows = zip(*columns, strict=True) if columns else ()
    named = [[each.name for each, failed in zip(expectations, row, strict=True) if failed] for row in rows]
    return pa.array(named, pa.list_(pa.string()))


def _failed(declaration: Declaration, expectation: Expectation, row: pa.RecordBatch) -> ExpectationFailed:
    shown = ", ".join(f"{name}={value!r}" for name, value in row.to_pylist()[0].items())
    if len(shown) > _SHOWN_CHARS:
        shown = f"{shown[:_SHOWN_CHARS]}…"
    return ExpectationFailed(
        str(
            declaration.wrong(
                f"a row does not meet the expectation {expectation.name} ({expectation.condition}): {shown}"
            )
        )
    )


class _Chunks:
    """Rows that are written to files in tables of a size."""

    def __init__(self, schema: pa.Schema, writer: FileWriter, adds: list[AddFile], written: list[AddFile]) -> None:
        self.schema = schema
        self._writer, self._adds, self._written = writer, adds, written
        self._waiting: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        if len(batch):
            self._waiting.append(batch)
        if sum(map(len, self._waiting)) >= CHUNK_ROWS or sum(each.nbytes for each in self._waiting) >= CHUNK_BYTES:
            self.end()

    def end(self) -> None:
        """Write the rows that wait."""
        if self._waiting:
            for add in self._writer.write(pa.Table.from_batches(self._waiting, self.schema)):
                self._adds.append(add)
                self._written.append(add)
            self._waiting = []
