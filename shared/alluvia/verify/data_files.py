"""Read every live data file, one at a time, and compare its rows with what the log says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import pyarrow as pa

from alluvia.arrow_parquet import pq
from alluvia.commit.event_window.id_runs import EVENT_ID
from alluvia.delta.data_files.scan import live_rows, open_parquet, unreadable
from alluvia.delta.data_files.writer import RowCheck
from alluvia.delta.deletion_vectors.storage import read_deletions
from alluvia.delta.file_columns import COLUMNS_TAG, columns_digest
from alluvia.delta.file_schema_adapter import Places, ReadPlan
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.parquet import UNREADABLE
from alluvia.delta.schema.conversion import too_long
from alluvia.delta.schema.nesting import check_required
from alluvia.delta.schema.types import type_name
from alluvia.delta.schema.variant_shredding import form_of, marked
from alluvia.delta.schema.variants import STORED, is_variant
from alluvia.delta.snapshot import Snapshot
from alluvia.delta.statistics.footer import footer_statistics, stored_columns
from alluvia.delta.statistics.vetting import vetted_footer
from alluvia.errors import Corrupt, Invalid, Unsupported
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.reading.datafile import BATCH_ROWS
from alluvia.store import Store
from alluvia.verify.event_ids import EventIds, IdTables
from alluvia.verify.leaves import Leaf, Tally
from alluvia.verify.report import Findings
from alluvia.verify.statistics_checks import read_statistics, untrue

_ALL_COLUMNS = 1 << 30
_BROKEN = (*UNREADABLE, KeyError, ValueError, TypeError)


@dataclass(frozen=True, slots=True)
class RowRules:
    """What rows are compared with: the stored leaf columns, and CHECK constraints by name."""

    leaves: Sequence[Leaf]
    constraints: Mapping[str, RowCheck] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of the table and how it is read from a file; `names` are its columns there."""

    field: pa.Field
    plan: ReadPlan
    names: list[str]


class FileVerification:
    """The verification of one data file."""

    def __init__(self, store: Store, snapshot: Snapshot, rules: RowRules, file: AddFile, findings: Findings) -> None:
        self._store = store
        self._snapshot = snapshot
        self._rules = rules
        self._file = file
        self._findings = findings
        self._told: set[tuple[str, str]] = set()

    def run(
        self, path: Path, *, vector_known: bool, ids: EventIds | IdTables | None, committed_ms: int | None
    ) -> int | None:
        """Read the file at a path, and return how many live rows it has; None where that cannot be told.

        With `vector_known` its deletion vector can be read; without, only its footer is looked at.
        """
        try:
            with open_parquet(path) as parquet:
                return self._read(path, parquet, vector_known, ids, committed_ms)
        except _BROKEN as error:
            self._unreadable(error)
        return None

    def _unreadable(self, error: Exception) -> None:
        reason = unreadable(self._file, error)
        kind = "data-file-unsupported" if isinstance(reason, Unsupported) else "data-file-unreadable"
        self._findings.add(kind, str(reason), file=self._file.path)

    def _read(
        self,
        path: Path,
        parquet: pq.ParquetFile,
        vector_known: bool,
        ids: EventIds | IdTables | None,
        committed_ms: int | None,
    ) -> int | None:
        rows = parquet.metadata.num_rows
        said = self._file.num_records
        if said is not None and said != rows:
            self._report("row-count-wrong", f"has {rows} rows, its statistics say {said}")
        columns = list(self._columns(parquet.schema_arrow))
        if not vector_known:
            return None
        deleted = self._deleted(rows)
        if deleted is None:
            return None
        tally = Tally(self._rules.leaves)
        wanted = list(dict.fromkeys(name for column in columns for name in column.names))
        start = 0
        for batch in parquet.iter_batches(BATCH_ROWS, columns=wanted):
            fitted = self._fitted(batch, columns)
            live = live_rows(fitted, deleted, start)
            start += len(batch)
            tally.take(fitted, live)
            self._check_rows(live)
            if ids is not None and EVENT_ID in live.schema.names:
                ids.add(live, committed_ms)
        self._check_statistics(tally)
        self._check_footer(path, tally)
        return tally.rows - tally.deleted

    def _columns(self, stored: pa.Schema) -> Iterator[_Column]:
        """Yield the table's columns that a file can give, and report the others."""
        places = Places(list(stored), self._snapshot.mapping)
        for column in self._snapshot.schema:
            plan = self._snapshot.stored_plan(pa.schema([column]))
            try:
                names = plan.stored_names(stored, self._file, places)
                empty = pa.RecordBatch.from_arrays(
                    [pa.nulls(0, stored.field(name).type) for name in names],
                    schema=pa.schema([stored.field(name) for name in names]),
                )
                plan.fit(empty, self._file)
            except Corrupt as error:
                self._misfit(column.name, error)
            else:
                yield _Column(column, plan, names)

    def _misfit(self, column: str, error: Corrupt) -> None:
        if column not in self._snapshot.partition_columns:  # those were looked at in the log
            reason = str(error) if self._file.path in str(error) else f"data file {self._file.path}: {error}"
            self._findings.add("column-misfit", reason, file=self._file.path, column=column)

    def _fitted(self, batch: pa.RecordBatch, columns: list[_Column]) -> pa.RecordBatch:
        """Return a batch with the table's columns. One whose values do not fit goes from `columns` as well."""
        arrays = []
        for column in list(columns):
            try:
                arrays.append(column.plan.fit(batch.select(column.names), self._file).column(0))
            except Corrupt as error:
                self._misfit(column.field.name, error)
                columns.remove(column)
        if not arrays:
            return batch.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([column.field for column in columns]))

    def _deleted(self, rows: int) -> pa.Int64Array | None:
        try:
            deleted = read_deletions(self._store, self._file, self._snapshot.locate)
        except (Corrupt, Unsupported) as error:
            self._findings.add("deletion-vector-unreadable", str(error), file=self._file.path)
            return None
        if len(deleted) and deleted[-1].as_py() >= rows:
            what = f"has {rows} rows, but its deletion vector deletes row {deleted[-1]}"
            self._report("deletion-vector-out-of-range", what)
            return None
        return deleted

    def _check_rows(self, live: pa.RecordBatch) -> None:
        for column in live.schema:
            if column.name in self._snapshot.partition_columns:
                continue
            array = live.column(column.name)
            if array.null_count and not column.nullable:
                what = f"column {column.name} must not be null, but {array.null_count} rows have no value"
                self._report_once("null-in-required-column", column.name, what)
            if (long_value := too_long(array)) is not None:
                what = f"column {column.name}: {long_value:f} has more digits than {type_name(column.type)} allows"
                self._report_once("value-out-of-range", column.name, what)
            try:
                check_required(pa.chunked_array([array]), column.type, column.name)
            except Invalid as error:
                self._report_once("null-in-required-column", column.name, str(error))
        if len(live.schema) < len(self._snapshot.schema):
            return
        for name, check in self._rules.constraints.items():
            try:
                check(pa.Table.from_batches([live]))
            except Invalid as error:
                self._report_once("constraint-broken", name, str(error), column=None)

    def _check_statistics(self, tally: Tally) -> None:
        statistics = read_statistics(self._file.stats, self._rules.leaves)
        for kind, column, what in untrue(statistics or {}, tally):
            self._report(kind, f"column {column}: {what}", column)

    def _check_footer(self, path: Path, tally: Tally) -> None:
        """Compare a file's own statistics, by which readers skip row groups, with its rows."""
        try:
            metadata = vetted_footer(path)
        except Invalid as error:
            self._unreadable(error)
            return
        try:
            columns = stored_columns(metadata)
            text = footer_statistics(metadata, columns, _ALL_COLUMNS)
        except Invalid:  # a type that our tables never have: its rows were still read
            return
        self._check_columns(columns.schema)
        for kind, column, what in untrue(read_statistics(text, self._rules.leaves) or {}, tally):
            if kind == "bounds-wrong" or (kind == "null-count-wrong" and not tally.deleted):
                self._report("footer-wrong", f"column {column}: by its own footer, {what}", column)

    def _check_columns(self, stored: pa.Schema) -> None:
        """Compare a file's columns with their digest in the log, on which queries rely."""
        snapshot, said = self._snapshot, self._file.tags.get(COLUMNS_TAG)
        if said is None:
            return
        pairs = list(zip(snapshot.schema, snapshot.physical_schema, strict=True))
        in_log = {theirs.name for ours, theirs in pairs if ours.name in snapshot.partition_columns}
        variants = {theirs.name for ours, theirs in pairs if is_variant(ours, theirs)}
        if form_of(self._file.tags) is not None:  # perhaps for a column that was dropped
            dropped = (each for each in stored if each.name not in snapshot.physical_schema.names)
            variants |= {each.name for each in dropped if pa.types.is_struct(each.type) and _holds_variant(each.type)}
        columns = [marked(each) if each.name in variants else each for each in stored if each.name not in in_log]
        if columns_digest(columns) != said:
            self._report("columns-wrong", "has other columns than the log says")

    def _report(self, kind: str, what: str, column: str | None = None) -> None:
        joined = " " if what.startswith("has ") else ": "
        self._findings.add(kind, f"data file {self._file.path}{joined}{what}", file=self._file.path, column=column)

    def _report_once(self, kind: str, name: str, what: str, column: str | None = "") -> None:
        if (kind, name) not in self._told:
            self._told.add((kind, name))
            self._report(kind, what, name if column == "" else column)


def _holds_variant(kind: pa.StructType) -> bool:
    return {field.name for field in STORED} <= {field.name for field in kind.fields}
