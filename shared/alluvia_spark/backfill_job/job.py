"""A backfill job as values: all that its tasks need to know, and what they report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

import pyarrow as pa

from alluvia.commit.event_window.id_files import IdFiles
from alluvia.delta.file_schema_adapter import FileForm
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.fields import Json
from alluvia.delta.partitioning.partition import misfits
from alluvia.delta.partitioning.spec import PartitionSpec
from alluvia.delta.properties import Properties
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import AlluviaError
from alluvia.events.ingest.values import Limits, OddTimes, odd_times_said
from alluvia.operations.planning.layout import row_check
from alluvia.store import Store, open_store
from alluvia_spark.sources.files import SourceOptions

ROWS, REJECTS = 0, 1  # the numbers of a job's two tables


@dataclass(frozen=True, slots=True)
class Target:
    """A table to write to, as it was when the job began. `root` is its key prefix in the lake's store."""

    root: str
    schema: pa.Schema
    spec: PartitionSpec
    form: FileForm

    @classmethod
    def of(cls, snapshot: Snapshot) -> Target:
        """Return a snapshot's table."""
        return cls(snapshot.root, snapshot.schema, snapshot.partition_spec, snapshot.file_form)

    @property
    def settings(self) -> Properties:
        """Return the table's properties."""
        return self.form.settings

    def refusals(self) -> Callable[[pa.Table], Mapping[int, str]]:
        """Return what says why the table cannot take some rows, by their numbers, as ingestion says it."""
        check = row_check(self.settings.constraints, self.schema)
        stored = PartitionSpec(tuple(field for field in self.spec.fields if field.transform is None))

        def refused(rows: pa.Table) -> Mapping[int, str]:
            broken = {} if check is None else check.broken(rows)
            return misfits(rows, stored) | broken | self.form.refusals(rows)

        return refused


@dataclass(frozen=True, slots=True)
class Job:
    """What every task knows. `options` are the stores', secrets included.

    `arrival_us` is the same for all attempts, and so is `manifest`, the key of the job's files in the lake's store.
    `folder` is the key prefix of what runs of the job leave to each other, `run` that of this run's own objects.
    """

    lake_uri: str
    arrival_us: int
    targets: tuple[Target, Target]
    manifest: str
    folder: str
    run: str
    reading: SourceOptions = field(default_factory=SourceOptions)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: Limits = field(default_factory=Limits)
    stores: Callable[..., Store] = open_store

    @property
    def run_id(self) -> str:
        """Return the id of this run, the last folder of `run`."""
        return self.run.split("/")[-2]


@dataclass(frozen=True, slots=True)
class Written:
    """What one task has written for one of the job's tables."""

    table: int
    rows: int
    files: tuple[AddFile, ...]

    def to_json(self) -> Json:
        """Return it as it passes to the driver and between runs."""
        return {"table": self.table, "rows": self.rows, "files": [file.to_json() for file in self.files]}

    @classmethod
    def from_json(cls, body: Json) -> Written:
        """Read what `to_json` wrote."""
        return cls(body["table"], body["rows"], tuple(map(AddFile.from_json, body["files"])))


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a job's lines. Each step counts its own work.

    `lines` are those of the input that are not blank; `rows` and `rejects` what the reading tasks made of them.
    `duplicates` and `conflicting` are rows that are not to be written; `clashes` are the rejects that were made of the
    latter, and `repeated` the rejects of both kinds that are not to be written, since `_rejects` has their like.
    `odd_times` are those of the rows that the reading tasks made, by kind.
    """

    lines: int = 0
    rows: int = 0
    rejects: int = 0
    duplicates: int = 0
    conflicting: int = 0
    clashes: int = 0
    repeated: int = 0
    odd_times: Mapping[str, OddTimes] = field(default_factory=dict)

    def check(self, written: Mapping[int, int]) -> None:
        """Raise `AlluviaError` unless each line has become one thing. `written` are the rows in each table's files."""
        stored, kept = written.get(ROWS, 0), written.get(REJECTS, 0)
        pairs = {
            "lines read, and the rows and rejects made of them": (self.lines, self.rows + self.rejects),
            "rows made, and those written, duplicates and conflicting": (
                self.rows,
                stored + self.duplicates + self.conflicting,
            ),
            "conflicting rows, and the rejects made of them": (self.conflicting, self.clashes),
            "rejects made, and those written or kept already": (self.rejects + self.clashes, kept + self.repeated),
        }
        wrong = [f"{what}: {one} and {other}" for what, (one, other) in pairs.items() if one != other]
        if wrong:
            raise AlluviaError(
                f"the job's counts do not agree ({'; '.join(wrong)}), so nothing was committed: run it again, and "
                "if this error comes again, report it as a bug in Alluvia"
            )


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What a job's tasks have written, before it is committed.

    `ids` is where the identities of each table's rows are kept, for tables that get some.
    """

    counts: Counts
    written: tuple[Written, ...] = ()
    ids: Mapping[int, IdFiles] = field(default_factory=dict)

    def rows_of(self, table: int) -> int:
        """Return how many rows were written for one of the job's tables."""
        return sum(part.rows for part in self.written if part.table == table)

    def files(self, table: int) -> tuple[AddFile, ...]:
        """Return the files of one of the job's tables."""
        return tuple(file for part in self.written if part.table == table for file in part.files)

    def check(self) -> None:
        """Raise `AlluviaError` unless each line of the input is accounted for by what was written."""
        self.counts.check({table: self.rows_of(table) for table in (ROWS, REJECTS)})


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a job.

    `version` is one of the table that holds the job's rows, the very one that added them unless `already_applied`: then
    an earlier or a simultaneous run of the job has committed. Counts are None where that run left nothing to do here.
    `lines` are those of the input that are not blank, each of which is counted in `rows`, `duplicates` or `rejects`.
    `duplicates` are events that stand earlier in the input, or in the table; `rejects` are lines that could not become
    rows, `conflicting` those of them whose id is another event's, and `stored_rejects` those that the job has added to
    `_rejects`: it has each of them once. `odd_times` are those of rows, duplicates among them.
    """

    job_id: str
    table: str
    version: int
    already_applied: bool
    lines: int | None = None
    rows: int | None = None
    duplicates: int | None = None
    rejects: int | None = None
    conflicting: int | None = None
    stored_rejects: int | None = None
    files: int | None = None
    bytes: int | None = None
    odd_times: Mapping[str, OddTimes] = field(default_factory=dict)

    def said(self) -> dict[str, object]:
        """Return the report of a command, with `unreadable_times` and `future_times` if there are any."""
        facts = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "odd_times"}
        return facts | odd_times_said(self.odd_times)
