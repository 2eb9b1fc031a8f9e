"""Relations that SQL makes of tables: some files of a version, rows in a file of our own, and views over them. Pure.

The SQL names its inputs and the views before it as `alluvia.<name>`. A query puts such a relation in the place of a
name that is not a table's (`query/derived.py`); a rollup is computed with one (`rollups/refresh.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import AddFile
from alluvia.delta.promoted_fields import PROPERTIES
from alluvia.delta.schema.former_names import Names, former_names, together
from alluvia.delta.schema.names import fold, places_by_name
from alluvia.delta.skipping.predicate import Predicate, columns_of, only_about
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog
from alluvia.table_names import MAIN, split_branch

if TYPE_CHECKING:
    from alluvia.engine.duck.relation import RowPlaces


def newest_versions(catalog: Catalog, name: str) -> list[Snapshot]:
    """Return the versions that say what a table's columns are called now; of one on a branch, the lake's comes second.

    The lake may have dropped it: what was on record then still counts.
    """
    snapshots = [catalog.handle(name).newest()]
    branch, table = split_branch(name)
    if (branch or catalog.origin) not in ("", MAIN):
        with suppress(TableNotFound):  # the branch has created it
            snapshots.append(catalog.handle(f"{MAIN}:{table}").newest(dropped=True))
    return snapshots


def names_known(versions: Sequence[Snapshot]) -> Names:
    """Return the names that columns have in versions of a table, or that are on record there, by those in files.

    Columns that have only the name that they have in files may be left out.
    """
    present = ((one.physical_name(name), name) for one in versions for name in one.schema.names)
    return together(
        *(former_names(one.properties) for one in versions),
        *({stored: (name,)} for stored, name in present if stored != name),
    )


def hidden_columns(snapshot: Snapshot, newest: Sequence[Snapshot], hide: Collection[str]) -> frozenset[str]:
    """Return the columns of a version that have one of the names in `hide` (folded), or had it in any version.

    `newest` are `newest_versions`. A column is known by the name that it has in files. One that is neither in the
    newest version nor on record was dropped by a writer that keeps no record: it may have had any name, so it is
    hidden.
    """
    if not hide:
        return frozenset()
    versions = (snapshot, *newest)
    there = {newest[0].physical_name(name) for name in newest[0].schema.names}
    there.update(stored for one in versions for stored in former_names(one.properties))
    known = names_known(versions)
    return frozenset(
        name
        for name in snapshot.schema.names
        for stored in (snapshot.physical_name(name),)
        if stored not in there or any(fold(each) in hide for each in (name, stored, *known.get(stored, ())))
    )


def hidden_keys(snapshot: Snapshot, newest: Sequence[Snapshot], hide: Collection[str]) -> tuple[str, ...]:
    """Return the keys in `properties` of promoted fields whose columns are hidden in a version, or are now."""
    keys: set[str] = set()
    for one in (snapshot, *newest):
        if one.promoted:
            hidden = hidden_columns(one, newest, hide)
            keys.update(field.key for field in one.promoted if field.column in hidden)
    return tuple(sorted(keys)) if PROPERTIES in snapshot.schema.names else ()


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ShownPart:
    """What is shown of a table: some of its columns, and the rows for which all of some SQL conditions hold.

    `without` are keys of promoted fields whose columns are not shown, and that `properties` is shown without.
    """

    columns: tuple[str, ...]
    where: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    def schema(self, snapshot: Snapshot) -> pa.Schema:
        """Return the columns that are shown of a version."""
        return pa.schema([snapshot.schema.field(name) for name in self.columns])


@dataclass(frozen=True, slots=True)
class Files:
    """Data files that are read with the columns of a version; `paths` say where they lie locally, if they do.

    `shown` limits what is seen of them. With `places` there are two more columns, and further ones,
    `fields`, each with the argument of `->>` that finds it in `properties`. `named` are the folded names of all columns
    that are needed; None for all. `results` are those that no condition is about, in order; None if that is not known.
    With `rows`, only their number is needed, and there are no files.
    """

    snapshot: Snapshot
    files: Sequence[AddFile]
    paths: Sequence[str] = ()
    shown: ShownPart | None = None
    places: RowPlaces | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    named: frozenset[str] | None = None
    results: Sequence[str] | None = None
    rows: int | None = None


ROWS_A_FILE = 100_000
"""DuckDB counts up to this many empty rows in less time than it needs to open a file."""


def rows_alone(scan: Scan, named: frozenset[str] | None) -> int | None:
    """Return the number of a scan's rows, from the log, for a query that needs none of their columns.

    Return None for other queries, if the log does not give the number, and if opening the files would be faster.
    """
    if named is None or any(name in places_by_name(scan.snapshot.schema) for name in named):
        return None
    counts = [file.live_records for file in scan.files]
    rows = sum(filter(None, counts))
    return None if None in counts or rows > ROWS_A_FILE * len(counts) else rows


@dataclass(frozen=True, slots=True)
class LocalRows:
    """Rows in a Parquet file on this machine that this library has written, with columns of a table's types."""

    path: Path
    schema: pa.Schema


Inputs = Mapping[str, Files | LocalRows]


@dataclass(frozen=True, slots=True)
class Relation:
    """What the last of `views` gives: SELECTs by name, each over inputs and the views before it.

    A condition on columns of `passing` alone may be put to the rows of the inputs instead of the relation's own.
    """

    inputs: Inputs
    views: Mapping[str, str] = field(default_factory=dict)
    passing: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Return the name of the view that gives the relation's rows."""
        return list(self.views)[-1]

    def narrowed(self, predicate: Predicate) -> Relation:
        """Return the relation over the files that can hold what a query needs, given what its conditions need."""
        known = only_about(predicate, self.passing)
        if not columns_of(known):
            return self
        inputs = {
            name: replace(read, files=Scan(read.snapshot, known).files) if isinstance(read, Files) else read
            for name, read in self.inputs.items()
        }
        return replace(self, inputs=inputs)


@dataclass(frozen=True, slots=True)
class InputSplit:
    """How the rows of an input can be shared out: by SQL of `values` of them. `columns` are those that are needed.

    Without values, each row can be computed by itself.
    """

    values: tuple[str, ...]
    columns: tuple[str, ...]


Split = Mapping[str, InputSplit] | None
"""By the name of each input of a relation; None for a relation whose rows belong together."""


Take = Callable[[pa.Schema, Iterator[pa.RecordBatch]], T]
"""Is called with the columns and the rows of a relation as they come."""


class Evaluate(Protocol):
    """Computes a relation, confined to its inputs, in a process that may be killed at a limit.

    `take` is called with the columns and the rows as they come, and again from the start where a file had to be copied
    for DuckDB first. Raises what `query.engine.run` raises.
    """

    def __call__(self, relation: Relation, take: Take[T]) -> T:
        """Return what `take` returns."""
