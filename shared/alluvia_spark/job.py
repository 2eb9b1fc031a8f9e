"""A backfill job as values: all that its tasks need to know, and what they report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from alluvia.ingest.values import Limits
from alluvia.log.actions import AddFile
from alluvia.log.fields import Json
from alluvia.operations.constraints import row_check
from alluvia.store import Store, open_store
from alluvia.table.event_window.id_files import IdFiles
from alluvia.table.file_form import FileForm
from alluvia.table.partitioning.partition import misfits
from alluvia.table.partitioning.spec import PartitionSpec
from alluvia.table.properties import Properties
from alluvia.table.snapshot import Snapshot
from alluvia_spark.files import SourceOptions

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
        return lambda rows: misfits(rows, stored) | ({} if check is None else check.broken(rows))


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
class JobOutcome:
    """What a job's tasks have written, before it is committed.

    `rejects` counts lines of the input; `conflicting` those of them whose id stands earlier with other content.
    `ids` is where the rows' identities are kept, None if there are none.
    """

    rows: int
    duplicates: int
    rejects: int
    conflicting: int
    written: tuple[Written, ...]
    ids: IdFiles | None = None

    def files(self, table: int) -> tuple[AddFile, ...]:
        """Return the files of one of the job's tables."""
        return tuple(file for part in self.written if part.table == table for file in part.files)


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a job.

    `version` is one of the table that holds the job's rows, the very one that added them unless `already_applied`: then
    an earlier or a simultaneous run of the job has committed. Counts are None where that run left nothing to do here.
    `duplicates` are events that stand earlier in the input; `rejects` are lines that could not become rows, and
    `conflicting` those of them whose id stands earlier with other content.
    """

    job_id: str
    table: str
    version: int
    already_applied: bool
    rows: int | None = None
    duplicates: int | None = None
    rejects: int | None = None
    conflicting: int | None = None
    files: int | None = None
    bytes: int | None = None
