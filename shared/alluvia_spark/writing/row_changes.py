"""Update and delete on Spark: the library's operations, with their files worked on by Spark's tasks.

The driver plans and commits, with the library's conflict rules. A task does to some files what the library would do to
them: it reads them, and writes what replaces them, or their deletion vectors. A commit that loses a race is planned
again, with tasks only for files that are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark knows it

from alluvia.clock import SystemClock
from alluvia.commit.handle import TableHandle
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.replay import State
from alluvia.delta.schema.names import fold
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.evaluators import at_one_time
from alluvia.errors import AlluviaError, Invalid
from alluvia.operations.rows.edits import Edit, RowChanges
from alluvia.operations.rows.parts import Outcome, Part, files_left, still_good
from alluvia.operations.rows.rewriting import Rewriter
from alluvia.operations.rows.row_changes import change_rows
from alluvia.operations.rows.where_edits import DeleteEdit, UpdateEdit
from alluvia_spark.file_groups import grouped
from alluvia_spark.frames import spare_later_tasks
from alluvia_spark.tables import TablePlace
from alluvia_spark.wording import finding, resolving, unresolved

ReadEdit = Callable[[Snapshot], Edit]
Transaction = tuple[str, int] | None
"""An application and its number, with which a change is made once."""


@dataclass(frozen=True)
class TableTask:
    """The part of an operation that all its tasks share: the table, at a version of which they get the files."""

    place: TablePlace
    state: State

    def opened(self) -> tuple[TableHandle, Snapshot]:
        """Return the table, and its version."""
        handle = self.place.handle()
        return handle, Snapshot(self.state, handle.root, handle.name, handle.store)


@dataclass(frozen=True)
class EditTask(TableTask):
    """Tasks of an edit, whose `number` no other edit has."""

    edit: ReadEdit
    number: str


def update(
    spark: SparkSession, place: TablePlace, values: Mapping[str, str], where: str | None, txn: Transaction
) -> RowChanges:
    """Set columns of rows, as `Table.update` does."""
    given = dict(values)

    def edit(snapshot: Snapshot) -> Edit:
        known = {fold(name) for name in snapshot.schema.names}
        with resolving("where", where, snapshot.schema):
            try:
                return UpdateEdit(snapshot, given, where or "true")
            except Invalid as error:
                unknown = next((name for name in given if "." not in name and fold(name) not in known), None)
                if unknown is None:
                    raise
                raise unresolved("values", unknown, snapshot.schema.names) from error

    return _change(spark, place, "update", edit, txn)


def delete(spark: SparkSession, place: TablePlace, where: str, txn: Transaction) -> RowChanges:
    """Delete rows, as `Table.delete` does."""

    def edit(snapshot: Snapshot) -> Edit:
        with resolving("where", where, snapshot.schema):
            return DeleteEdit(snapshot, where)

    return _change(spark, place, "delete", edit, txn)


def _change(spark: SparkSession, place: TablePlace, name: str, edit: ReadEdit, txn: Transaction) -> RowChanges:
    def worker(handle: TableHandle, snapshot: Snapshot, planned: Edit) -> SparkWorker:
        return SparkWorker(handle, snapshot, planned, spark, place, edit)

    with finding(place.uri, place.table):
        return change_rows(place.handle(), name, edit, worker, txn)


class SparkWorker:
    """Lets Spark's tasks work on files, and a rewriter here do the rest, for which the log is enough."""

    def __init__(
        self,
        handle: TableHandle,
        snapshot: Snapshot,
        edit: Edit,
        spark: SparkSession,
        place: TablePlace,
        read_edit: ReadEdit,
    ) -> None:
        self.edit = edit
        self._rewriter = Rewriter(handle, snapshot, edit)
        self._clock = handle.clock
        self._spark = spark
        self._task = EditTask(place, without_files(snapshot), read_edit, SystemClock().new_id())

    @property
    def parts(self) -> list[Part]:
        """Return the results of the tasks and the rewriter."""
        return self._rewriter.parts

    def work(self, snapshot: Snapshot, candidates: Sequence[AddFile]) -> list[Outcome]:
        """Bring the outcomes up to a snapshot. `candidates` are its files that can match."""
        parts = still_good(self.parts, candidates, self._clock.now_ms())
        groups = grouped(file for file in files_left(parts, candidates) if not self.edit.goes_whole(file))
        if groups:
            parts += self._worked_on(groups)
        self._rewriter.parts = parts
        return self._rewriter.work(snapshot, candidates)

    def _worked_on(self, groups: Sequence[Sequence[AddFile]]) -> list[Part]:
        shared = dumped((self._task, groups))

        def work(at: int) -> bytes:
            task, all_groups = _loaded(shared)
            return _work(task, all_groups[at])

        numbers = self._spark.range(0, len(groups), 1, len(groups))
        answers = numbers.select(F.udf(work, "binary", useArrow=False).asNondeterministic()("id")).collect()
        parts: list[Part] = []
        for done, found_out in answered(answers):
            parts += done
            self.edit.take(found_out)
        return parts


@lru_cache(maxsize=1)
def _loaded(shared: bytes) -> tuple[EditTask, Sequence[Sequence[AddFile]]]:
    spare_later_tasks()
    loaded: tuple[EditTask, Sequence[Sequence[AddFile]]] = cloudpickle.loads(shared)
    return loaded


def without_files(snapshot: Snapshot) -> State:
    """Return the state of a version without its files."""
    return State(snapshot.version, snapshot.protocol, snapshot.state.metadata)


def dumped(value: object) -> bytes:
    """Return a value as tasks get it."""
    return bytes(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]  # of functions too


def answered(answers: Iterable[Row]) -> Iterator[Any]:
    """Yield what tasks have answered. Raises the error of one that failed for good."""
    for answer in answers:
        value: Any = cloudpickle.loads(bytes(answer[0]))
        if isinstance(value, AlluviaError):
            raise value
        yield value


_edits: dict[str, Edit] = {}
"""The edit of the operation that this process has last worked for."""


def _work(task: EditTask, files: Sequence[AddFile]) -> bytes:
    """Work on some files, and return the resulting parts and what the edit has found out, or a permanent error."""
    try:
        handle, snapshot = task.opened()
        if task.number not in _edits:
            _edits.clear()
            with at_one_time():
                _edits[task.number] = task.edit(snapshot)
        edit = _edits[task.number]
        rewriter = Rewriter(handle, snapshot, edit)
        rewriter.work(snapshot, files)
        return dumped((rewriter.parts, edit.found_out()))
    except AlluviaError as error:
        return dumped(error)
