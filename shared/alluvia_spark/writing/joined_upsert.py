"""Upsert on Spark: a join says which rows belong to which files, and tasks put them there.

The new rows are never collected; of up to `KEYS_SORTED_MAX`, the driver has the keys, to choose the files. A task holds
the rows that match a group of files, and does with both what an upsert of the library does. Others insert the rows that
match nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark knows it
from pyspark.sql.types import IntegerType, StructField, StructType

from alluvia.commit.handle import TableHandle
from alluvia.delta.arguments import check_names
from alluvia.delta.deletion_vectors.storage import NO_POSITIONS
from alluvia.delta.log.actions import AddFile
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.evaluators import at_one_time
from alluvia.errors import AlluviaError
from alluvia.operations.reading.datafile import opened
from alluvia.operations.rows.edits import Edit, RowChanges
from alluvia.operations.rows.parts import Outcome, Part, files_left, outcomes_of, part_of, still_good
from alluvia.operations.rows.rewriting import Rewriter
from alluvia.operations.rows.row_changes import change_rows
from alluvia.operations.rows.source_keys import KEYS_SORTED_MAX, SourceKeys, repeated_key
from alluvia.operations.rows.upsert import Rules, check_rules, read_rows, upsert_edit
from alluvia_spark.file_groups import grouped
from alluvia_spark.frames import mapped_batches, numbered, tasks
from alluvia_spark.schemas import fitted, shown_schema, spelled, with_texts, written_schema
from alluvia_spark.tables import TablePlace
from alluvia_spark.wording import finding, unresolved
from alluvia_spark.writing.row_changes import TableTask, answered, dumped, without_files

INSERTED_BYTES = 128 << 20
"""About the bytes of rows that a task inserts at once."""
INSERTED_ROWS = 1 << 20
"""New rows for each task that inserts."""
_GROUP, _KEY = "__alluvia_group", "__alluvia_key"
"""Columns that rows have besides their own, which are numbered: the group that they go to, and their key, as the table
has it."""
Groups = Sequence[Sequence[AddFile]]


def upsert(
    place: TablePlace, rows: DataFrame, on: Sequence[str], rules: Rules, txn: tuple[str, int] | None = None
) -> RowChanges:
    """Update, delete and insert rows by key, as `Table.upsert` does. Columns have the table's names in any case."""
    check_rules(rules)
    check_names("on", on)
    handle = place.handle()
    with finding(place.uri, place.table):
        schema = handle.newest().schema
    for name in spelled(on, schema):
        if name not in schema.names:
            raise unresolved("on", name, schema.names)
    if rules.columns is not None:
        check_names("columns", rules.columns)
        rules = replace(rules, columns=spelled(rules.columns, schema))
    level = rows.storageLevel
    is_kept = level.useMemory or level.useDisk
    try:
        source = SourceRows(rows if is_kept else rows.persist(), on, schema)  # every job is to see the same rows

        def edit(snapshot: Snapshot) -> Edit:
            given = source.columns.empty_table()
            return upsert_edit(snapshot, given, source.on, rules, source.known_keys(snapshot), source.count)

        def worker(handle: TableHandle, snapshot: Snapshot, planned: Edit) -> JoinWorker:
            return JoinWorker(handle, snapshot, planned, place, source, rules)

        return change_rows(handle, "upsert", edit, worker, txn)
    finally:
        if not is_kept:
            rows.unpersist()


class SourceRows:
    """The new rows, and what the driver knows of them.

    `rows` has their columns numbered, `columns` by name. These and the key columns `on` are spelled as the table's
    `schema` does.
    """

    def __init__(self, rows: DataFrame, on: Sequence[str], schema: pa.Schema) -> None:
        self.rows = numbered(rows)
        self.columns = fitted(written_schema(rows.schema), schema)
        self.on = spelled(on, schema)

    @property
    def keys_of_rows(self) -> list[str]:
        """The key columns of `rows`."""
        return [self.rows.columns[self.columns.names.index(name)] for name in self.on]

    @cached_property
    def _known(self) -> pa.Table:
        """Their number, and the least and the greatest value of each key column."""
        bounds = [side(name) for name in self.keys_of_rows for side in (F.min, F.max)]
        totals = self.rows.agg(F.count(F.lit(1)), *bounds).toArrow()
        return plain_rows(totals.rename_columns(list(map(str, range(totals.num_columns)))))

    @cached_property
    def count(self) -> int:
        """How many they are."""
        return int(self._known.column(0)[0].as_py())

    @cached_property
    def keys(self) -> pa.Table | None:
        """Their keys, if they are not too many for the driver."""
        if self.count > KEYS_SORTED_MAX:
            return None
        return plain_rows(self.rows.select(self.keys_of_rows).toArrow().rename_columns(list(self.on)))

    @cached_property
    def _bounds(self) -> pa.Table:
        """The least and the greatest value of each key column. Raises `RepeatedKey` for a key that two rows have."""
        keys = self.keys_of_rows
        each = self.rows.dropna(subset=keys).groupBy(keys).agg(F.count(F.lit(1)).alias(_GROUP))
        for repeated in each.where(F.col(_GROUP) > 1).limit(1).collect():
            raise repeated_key(self.on, list(repeated))
        known = self._known
        columns = [
            pa.chunked_array([*known[1 + 2 * at].chunks, *known[2 + 2 * at].chunks]) for at in range(len(self.on))
        ]
        return pa.table(dict(zip(self.on, columns, strict=True)))

    def known_keys(self, snapshot: Snapshot) -> SourceKeys:
        """Return what says which files of a table can hold their keys. Raises `RepeatedKey`."""
        if self.keys is None:
            return _source_keys(self._bounds, snapshot, self.on, bounds=True)
        return _source_keys(self.keys, snapshot, self.on)


def _source_keys(keys: pa.Table, snapshot: Snapshot, on: Sequence[str], *, bounds: bool = False) -> SourceKeys:
    return SourceKeys(read_rows(keys, snapshot.schema, on, lambda _: False).select(on), bounds=bounds)


def plain_rows(rows: pa.Table) -> pa.Table:
    """Return rows of Spark's with moments in UTC: it gives them in the session's zone."""
    fields = [
        each.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(each.type) and each.type.tz else each
        for each in rows.schema
    ]
    return rows.cast(pa.schema(fields)).combine_chunks()


@dataclass(frozen=True)
class UpsertTask(TableTask):
    """Tasks of an upsert. `columns` are the names of the rows' columns."""

    columns: Sequence[str]
    on: Sequence[str]
    rules: Rules


class JoinWorker:
    """Has Spark join the new rows with those of files, and its tasks change the files and insert what is left."""

    def __init__(
        self,
        handle: TableHandle,
        snapshot: Snapshot,
        edit: Edit,
        place: TablePlace,
        source: SourceRows,
        rules: Rules,
    ) -> None:
        self.edit = edit
        self.parts: list[Part] = []
        self._clock = handle.clock
        self._source = source
        self._rules = rules
        self._keys = StructType(
            [
                StructField(f"{_KEY}{at}", with_texts(shown_schema(snapshot))[name].dataType)
                for at, name in enumerate(source.on)
            ]
        )
        self._task = UpsertTask(place, without_files(snapshot), source.columns.names, source.on, rules)

    def work(self, snapshot: Snapshot, candidates: Sequence[AddFile]) -> list[Outcome]:  # noqa: ARG002
        """Bring the outcomes up to a snapshot. `candidates` are its files that can match."""
        now_ms = self._clock.now_ms()
        good = still_good(self.parts, candidates, now_ms)
        pending = files_left(good, candidates)
        self.parts = [part for part in good if part.outcomes]  # rows that were inserted may match a file now
        waiting = {file.key for file in pending}
        done = [file for file in candidates if file.key not in waiting] if self._rules.inserts else []
        groups = grouped(pending)
        if self._source.count and (groups or self._rules.inserts):
            self.parts += self._worked_on(groups, grouped(done))
        self.parts += [part_of(now_ms, Outcome(file, changed=False)) for file in files_left(self.parts, candidates)]
        return outcomes_of(self.parts)

    def _worked_on(self, groups: Groups, done: Groups) -> list[Part]:
        routed = self._routed([*groups, *done], len(groups))
        count = len(groups) + self._inserters
        rows = routed.repartition(count, _GROUP).sortWithinPartitions(_GROUP)
        answers = mapped_batches(rows, partial(_put, dumped((self._task, groups))), "parts binary").collect()
        return [part for parts in answered(answers) for part in parts]

    @property
    def _inserters(self) -> int:
        return 1 + self._source.count // INSERTED_ROWS if self._rules.inserts else 0

    def _routed(self, scanned: Groups, groups: int) -> DataFrame:
        """Return the new rows, each with the number of a group that it matches rows of, or of a task that inserts it.

        Only the first `groups` of the groups are worked on.
        """
        rows, spark = self._source.rows, self._source.rows.sparkSession
        shared = dumped((self._task, scanned, self._source.keys))
        schema = StructType([StructField(_GROUP, IntegerType()), *self._keys])
        stored = mapped_batches(tasks(spark, max(len(scanned), 1)), partial(_found, shared), schema).distinct()
        pairs = zip(self._source.keys_of_rows, self._keys, strict=True)
        keys = {each.name: F.col(name).cast(each.dataType) for name, each in pairs}
        given = rows.withColumns(keys)
        joined = given.join(stored, list(keys), "left" if self._rules.inserts else "inner")
        if self._rules.inserts:
            inserter = F.pmod(F.hash(*keys), F.lit(self._inserters)) + len(scanned)
            joined = joined.withColumn(_GROUP, F.coalesce(F.col(_GROUP), inserter))
        kept = joined.where((F.col(_GROUP) < groups) | (F.col(_GROUP) >= len(scanned)))
        return kept.select(_GROUP, *rows.columns)


@lru_cache(maxsize=2)
def _loaded(shared: bytes) -> Any:
    return cloudpickle.loads(shared)


def _found(shared: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the keys that the files of some groups have, of those that the new rows have, where these are known."""
    task, groups, keys = _loaded(shared)
    handle, snapshot = task.opened()
    names = [f"{_KEY}{at}" for at in range(len(task.on))]
    source = None
    if keys is not None:
        source = _source_keys(keys, snapshot, task.on)
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        for data in opened(handle, snapshot, groups[number] if number < len(groups) else (), {}):
            with data:
                start = 0
                for batch in data.batches(task.on):
                    live = data.live.slice(start, len(batch))
                    start += len(batch)
                    for name in task.on:
                        live = pc.and_(live, pc.is_valid(batch[name]))
                    rows = pa.Table.from_batches([batch.filter(live)])
                    if source is not None:
                        rows = rows.take(source.pairs(rows)[0])
                    if len(rows):
                        group = pa.repeat(pa.scalar(number, pa.int32()), len(rows))
                        yield from rows.rename_columns(names).add_column(0, _GROUP, group).combine_chunks().to_batches()


def _put(shared: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the parts made of rows, ordered by group, and their files; or a permanent error."""
    task, groups = _loaded(shared)
    try:
        handle, snapshot = task.opened()
        for number, rows in _by_group(batches, len(groups)):
            inserts = number >= len(groups)
            rules = task.rules if inserts else replace(task.rules, unmatched="ignore")  # all match rows of the group
            with at_one_time():
                edit = upsert_edit(snapshot, rows.rename_columns(task.columns), task.on, rules)
            rewriter = Rewriter(handle, snapshot, edit, with_others=inserts)
            rewriter.work(snapshot, [] if inserts else list(filter(edit.matcher(snapshot), groups[number])))
            yield _answer(list(map(_small, rewriter.parts)))
    except AlluviaError as error:
        yield _answer(error)


def _answer(value: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([dumped(value)], pa.binary())], ["parts"])


def _small(part: Part) -> Part:
    """Return a part without the numbers of rows, which mean something to its task alone."""
    outcomes = {
        key: each if each.sources is None else replace(each, sources=NO_POSITIONS)
        for key, each in part.outcomes.items()
    }
    return replace(part, outcomes=outcomes, inserted=None)


def _by_group(batches: Iterable[pa.RecordBatch], groups: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows of each group of files, and those to insert, a part at a time, with columns still numbered."""
    current, waiting = -1, list[pa.RecordBatch]()
    for batch in batches:
        start = 0
        for each in batch.column(0).value_counts().to_pylist():
            number, rows = each["values"], batch.slice(start, each["counts"])
            start += len(rows)
            full = number >= groups and sum(one.nbytes for one in waiting) >= INSERTED_BYTES
            if waiting and (number != current or full):
                yield current, _rows(waiting)
                waiting = []
            current = number
            waiting.append(rows)
    if waiting:
        yield current, _rows(waiting)


def _rows(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    rows = pa.Table.from_batches(list(batches))
    return plain_rows(rows.select(rows.column_names[1:]))
