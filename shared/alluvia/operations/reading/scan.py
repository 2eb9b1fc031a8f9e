"""Read rows, as Arrow batches from the files that can match; or count them, by the statistics of files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.arguments import check_names, check_number
from alluvia.delta.data_files.scan import Scan, check_once, check_positions, open_parquet, unreadable
from alluvia.delta.deletion_vectors.storage import read_deletions
from alluvia.delta.log.actions import AddFile, file_key
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.log.files.parquet import UNREADABLE
from alluvia.delta.log.files.sidecars import open_rows
from alluvia.delta.skipping.predicate import Predicate, Unknown
from alluvia.delta.snapshot import Snapshot
from alluvia.delta.statistics.column_bounds import row_counts
from alluvia.errors import Corrupt, ObjectNotFound
from alluvia.store import Store


def scan(
    snapshot: Snapshot,
    store: Store,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    limit: int | None = None,
) -> pa.RecordBatchReader:
    """Return the rows of a snapshot for which an SQL condition holds, the columns asked for in that order.

    At most `limit` rows, and no file after the last of them. One GET a file, when its turn comes. Raises `Invalid` for
    an unknown column or if `where` is not a condition, `Corrupt` if a file is missing or unreadable.
    """
    if columns is not None:
        check_names("columns", columns)
    check_number("limit", limit)
    wanted = read = Scan(snapshot, columns=columns)
    names = wanted.schema.names
    matching: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    if where is not None:
        from alluvia.engine.conditions.condition import condition  # loads what reads conditions

        parsed = condition(where, snapshot.schema)
        read = Scan(snapshot, parsed.predicate, [*names, *(name for name in parsed.columns if name not in names)])
        matching = parsed.filter

    def batches() -> Iterator[pa.RecordBatch]:
        left = limit
        for batch in rows:
            kept = (batch if matching is None else matching(batch)).slice(0, left)
            if len(kept):
                yield kept.select(names)
            left = None if left is None else left - len(kept)
            if left == 0:
                return

    rows = read.read(store)
    return pa.RecordBatchReader.from_batches(wanted.schema, batches())


def predicate_of(snapshot: Snapshot, where: str | None) -> Predicate:
    """Return what prunes files for an SQL condition on a snapshot's rows. Raises `Invalid` if it is not a condition."""
    if where is None:
        return Unknown()
    from alluvia.engine.conditions.condition import condition  # loads DuckDB

    return condition(where, snapshot.schema).predicate


def count(snapshot: Snapshot, store: Store) -> int:
    """Return how many rows a snapshot has, without those that deletion vectors delete.

    Makes no request if the statistics of all files say how many rows they hold; otherwise one GET for each other file,
    and one more for its deletion vector. Raises `Corrupt` if such a file is missing or unreadable.
    """
    files = snapshot.files
    total, others = known_rows(files)
    vectored = [file for file in others if file.deletion_vector]
    again = files.held([file_key(file.path, None) for file in vectored])
    check_once([*vectored, *filter(None, map(files.get, again))])
    for file in others:
        live = file.live_records
        total += _read_count(snapshot, store, file) if live is None else live
    return total


def known_rows(files: ActionSet[AddFile]) -> tuple[int, list[AddFile]]:
    """Return the rows of the files without deletion vectors whose statistics say how many they have; and the others."""
    total = 0
    others: list[AddFile] = []
    open_rows(files.parts)
    for section in files.sections:
        numbers = row_counts(section)
        known = pc.and_not(pc.is_valid(numbers), section.with_vector())
        shown = files.shown(section)
        total += pc.sum(numbers.filter(known if shown is None else pc.and_(known, shown))).as_py() or 0
        others += files.pick(section, pc.invert(known))
    return total, others


def _read_count(snapshot: Snapshot, store: Store, file: AddFile) -> int:
    deleted = read_deletions(store, file, snapshot.locate)
    try:
        rows = int(open_parquet(pa.BufferReader(store.get(snapshot.key(file)))).metadata.num_rows)
    except ObjectNotFound as error:
        raise Corrupt(f"data file {file.path} of version {snapshot.version} is missing") from error
    except UNREADABLE as error:
        raise unreadable(file, error) from error
    check_positions(file, deleted, rows)
    return rows - len(deleted)
