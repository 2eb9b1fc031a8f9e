"""A scan: some columns of the rows of a snapshot that match, and so the files that must be read for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property

import pyarrow as pa

from alluvia.delta.data_files.reader import read_file
from alluvia.delta.log.actions import AddFile
from alluvia.delta.skipping.predicate import Predicate, Unknown, physical_predicate
from alluvia.delta.skipping.pruning import prune, prune_buckets
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Corrupt, Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import Store


@dataclass(frozen=True)
class Scan:
    """What is read of a snapshot: rows for which `predicate` holds, or more of them, and `columns`, by default all."""

    snapshot: Snapshot
    predicate: Predicate = field(default_factory=Unknown)
    columns: Sequence[str] | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """Return the columns, in the order asked for. Raises `Invalid`, naming one that is unknown or repeated."""
        schema = self.snapshot.schema
        if self.columns is None:
            return schema
        unknown = sorted(set(self.columns) - set(schema.names))
        if unknown or len(set(self.columns)) < len(self.columns):
            raise Invalid(f"columns: {unknown[0]!r} is not in the table" if unknown else "columns: a name is repeated")
        return pa.schema([schema.field(name) for name in self.columns])

    @cached_property
    def files(self) -> list[AddFile]:
        """Return the snapshot's files that can hold such rows. Raises `Corrupt` if one of them is listed twice."""
        found = self._pruned(self.snapshot.files)
        check_once(found)
        return found

    def can_match(self, file: AddFile) -> bool:
        """Whether a file of the table, also one of another version, can hold such rows."""
        return bool(self._pruned([file]))

    def read(self, store: Store) -> Iterator[pa.RecordBatch]:
        """Return the rows of the files. One GET a file, when its turn comes. Raises `Corrupt`, as `read_file` does."""
        files, schema = self.files, self.schema
        return (batch for file in files for batch in read_file(self.snapshot, store, file, schema))

    def _pruned(self, files: Iterable[AddFile]) -> list[AddFile]:
        found = prune(files, *self._rule)
        return prune_buckets(found, self.predicate, self.snapshot.partition_spec)

    @cached_property
    def _rule(self) -> tuple[Predicate, pa.Schema, list[str]]:
        """The predicate, the schema and the partition columns by the names that columns have in files."""
        one, predicate = self.snapshot, self.predicate
        if one.physical_schema is not one.schema:
            predicate = physical_predicate(predicate, one.schema, one.physical_schema)
        return predicate, one.physical_schema, [one.physical_name(name) for name in one.partition_columns]


def check_once(files: Sequence[AddFile]) -> None:
    """Raise `Corrupt` where a data file is listed with two deletion vectors, so that its rows would count twice."""
    if not any(file.deletion_vector for file in files):
        return
    seen: set[str] = set()
    for file in files:
        if file.path in seen:
            raise Corrupt(f"data file {file.path} is in the table twice, with different deletion vectors")
        seen.add(file.path)
