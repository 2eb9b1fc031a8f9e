"""What a branch has changed, as rows and columns: only files that the branch has added or removed are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import pyarrow as pa

from alluvia.commit.event_window.id_runs import EVENT_ID, SOURCE
from alluvia.delta.data_files.scan import read_file
from alluvia.delta.log.actions import AddFile
from alluvia.delta.promoted_fields import PROMOTIONS, as_if_moved
from alluvia.delta.schema.former_names import FORMER_NAMES
from alluvia.delta.schema.types import type_name
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.nearest_name import hint
from alluvia.operations.branches.branch_changes import CHANGED, DROPPED, REPLACED, BranchedTable
from alluvia.operations.changes.row_difference import RowDifference
from alluvia.operations.reading.change_files import AFTER, BEFORE, CHANGE_TYPE, DELETE, INSERT
from alluvia.progress import report
from alluvia.store import Store


@dataclass(frozen=True, slots=True)
class TableDiff:
    """What a branch has done to a table: `kind` is created, dropped, replaced or changed.

    A changed row, by the columns of a key, counts as changed; without a key, `rows_changed` is None, and it counts as
    removed and added. Columns are given by name with their types, those of changed ones before and after. `version`
    is the branch's, `base_version` the lake's version that the branch began with, None for a table that was not there.
    """

    name: str
    kind: str
    base_version: int | None
    version: int
    rows_added: int
    rows_removed: int
    rows_changed: int | None
    files_added: int
    files_removed: int
    columns_added: Mapping[str, str] = field(default_factory=dict)
    columns_removed: Mapping[str, str] = field(default_factory=dict)
    columns_changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    properties: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)


def diff_table(table: BranchedTable, store: Store, key: Sequence[str] | None = None) -> TableDiff | None:
    """Return what a branch has done to a table; None for nothing that is left of it.

    Where rows came and went, the files with them are read; else statistics say how many. `key` has the columns by which
    a row is found again; for a table of events it is the event's id and source. Raises `Invalid` for an unknown one.
    """
    kind = table.kind
    if kind is None:
        return None
    before, after = _snapshots(table, store)
    columns = _columns(before), _columns(after)
    both = columns[0].keys() & columns[1].keys()
    counts = _counted(table, store, _key(table, store, key))
    base = table.base
    old = {} if base is None or kind == REPLACED else base.metadata.configuration
    new = table.metadata.configuration
    return TableDiff(
        table.name,
        kind,
        None if base is None else base.version,
        table.tip.version,
        *counts,
        0 if kind == DROPPED else len(table.adds),
        len(table.removed),
        {name: each for name, each in columns[1].items() if name not in columns[0]},
        {name: each for name, each in columns[0].items() if name not in columns[1]},
        {name: (columns[0][name], columns[1][name]) for name in sorted(both) if columns[0][name] != columns[1][name]},
        {name: (old.get(name), new.get(name)) for name in sorted((old.keys() | new.keys()) - {FORMER_NAMES, PROMOTIONS})
         if kind == CHANGED and old.get(name) != new.get(name)},
    )  # fmt: skip


def diff_rows(table: BranchedTable, store: Store, key: Sequence[str] | None = None) -> pa.RecordBatchReader:
    """Return the rows that a branch has added to a table and removed from it, with the column `_change_type`.

    That is `insert` or `delete`; of a changed row, by the columns of `key`, `update_preimage` and `update_postimage`.
    The columns are those of the branch. Raises `Invalid` for an unknown column of the key.
    """
    shown = _shown(table, store)
    if CHANGE_TYPE in shown.schema.names:
        raise Invalid(f"the table has a column {CHANGE_TYPE}, a name that the rows of a diff use themselves")
    names = _key(table, store, key)
    schema = pa.schema([*shown.schema, pa.field(CHANGE_TYPE, pa.string())])

    def batches() -> Iterator[pa.RecordBatch]:
        with _difference(table, store, names) as difference:
            for changed, kinds in ((False, (DELETE, INSERT)), (True, (BEFORE, AFTER))):
                sides = difference.only_old(changed=changed), difference.only_new(changed=changed)
                for kind, rows in zip(kinds, sides, strict=True):
                    for batch in rows:
                        labels = pa.repeat(pa.scalar(kind), len(batch))
                        yield pa.RecordBatch.from_arrays([*batch.columns, labels], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def files_read(table: BranchedTable) -> list[AddFile]:
    """Return the files that `diff_table` reads: none where the log says how many rows came or went."""
    removed, added = _files(table)
    changed = [*removed, *added]
    return changed if removed and added else [file for file in changed if file.live_records is None]


def _snapshots(table: BranchedTable, store: Store) -> tuple[Snapshot | None, Snapshot | None]:
    """Return the table as it was, None if it did not exist, and as it is on the branch, None if it does not."""
    root = f"{table.name}/"
    before = None if table.base is None else Snapshot(table.base, root, table.name, store)
    after = None if table.kind == DROPPED else Snapshot(table.tip, root, table.name, store)
    return before, after


def _shown(table: BranchedTable, store: Store) -> Snapshot:
    before, after = _snapshots(table, store)
    shown = before if after is None else after
    assert shown is not None  # noqa: S101 - a table that neither existed nor exists has no kind
    return shown


def _columns(snapshot: Snapshot | None) -> dict[str, str]:
    return {} if snapshot is None else {each.name: type_name(each.type) for each in snapshot.schema}


def _key(table: BranchedTable, store: Store, key: Sequence[str] | None) -> list[str]:
    """Return the columns by which rows are found again. Raises `Invalid` for an unknown one."""
    names = _shown(table, store).schema.names
    if key is None:
        return [name for name in (EVENT_ID, SOURCE) if name in names] if EVENT_ID in names else []
    unknown = [name for name in key if name not in names]
    if unknown:
        raise Invalid(f"key: {unknown[0]!r} is not a column of {table.name}{hint(unknown[0], names)}")
    return list(key)


def _files(table: BranchedTable) -> tuple[Sequence[AddFile], Sequence[AddFile]]:
    """Return the files whose rows the branch has removed, and those whose rows it has added."""
    return table.removed, [] if table.kind == DROPPED else table.adds


def _counted(table: BranchedTable, store: Store, key: Sequence[str]) -> tuple[int, int, int | None]:
    """Return how many rows were added, removed, and changed: None without a key."""
    removed, added = _files(table)
    changed = 0 if key else None
    if removed and added:
        with _difference(table, store, key) as difference:
            counts = difference.counts()
        return counts if key else (*counts[:2], None)
    return _rows_of(table, store, added), _rows_of(table, store, removed), changed


def _rows_of(table: BranchedTable, store: Store, files: Sequence[AddFile]) -> int:
    shown, total = _shown(table, store), 0
    for file in files:
        known = file.live_records
        total += sum(map(len, read_file(shown, store, file, pa.schema([])))) if known is None else known
    return total


def _difference(table: BranchedTable, store: Store, key: Sequence[str]) -> RowDifference:
    shown = _shown(table, store)
    before, after = _snapshots(table, store)

    def rows(files: Sequence[AddFile], snapshot: Snapshot | None) -> Iterator[pa.RecordBatch]:
        # Of a table that was replaced, the columns are others: those that it has no more are null.
        own = shown if snapshot is None or table.kind != REPLACED else snapshot
        for number, file in enumerate(files):
            report(f"comparing {table.name}", number, len(files), "files")
            for batch in read_file(own, store, file, own.schema):
                compared = as_if_moved(batch, own.promoted)
                yield compared if own is shown else _fitted(compared, shown.schema)

    removed, added = _files(table)
    return RowDifference(shown.schema, rows(removed, before), rows(added, after), key)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with other columns: nulls where there is none of that name and type."""
    have = {each.name: each.type for each in batch.schema}
    columns = [batch[each.name] if have.get(each.name) == each.type else pa.nulls(len(batch), each.type)
               for each in schema]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=schema)
