"""What an operation does to the rows of a file: which of them change, and into what. The values that pass between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from alluvia.log.actions import AddFile
from alluvia.operations.datafile import DataFile
from alluvia.table.masks import count


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows of a file that an operation is about: `mask` has a value for each row of the file.

    `updated` and `sources` have one for each row of the mask, in order: whether it is updated (else deleted, and null
    if it stays as it is; None: all are deleted), and for an upsert the number of the source's row (None elsewhere).
    """

    mask: pa.BooleanArray
    updated: pa.BooleanArray | None = None
    sources: pa.Int64Array | None = None

    def among(self, rows: pa.BooleanArray) -> Hits:
        """Return the hits that are rows of another mask too."""
        return self._kept(rows.filter(self.mask))

    def changing(self) -> Hits:
        """Return the hits without the rows that stay as they are."""
        if self.updated is None or not self.updated.null_count:
            return self
        return self._kept(pc.is_valid(self.updated))

    def _kept(self, kept: pa.BooleanArray) -> Hits:
        updated = None if self.updated is None else self.updated.filter(kept)
        sources = None if self.sources is None else self.sources.filter(kept)
        return Hits(pc.replace_with_mask(self.mask, self.mask, kept), updated, sources)

    def slice(self, start: int, length: int) -> Hits:
        """Return the hits of some rows that follow one another."""
        mask = self.mask.slice(start, length)
        before, here = count(self.mask.slice(0, start)), count(mask)
        updated = None if self.updated is None else self.updated.slice(before, here)
        sources = None if self.sources is None else self.sources.slice(before, here)
        return Hits(mask, updated, sources)

    @property
    def changed(self) -> int:
        """Return the number of rows."""
        return count(self.mask)

    @property
    def rows_updated(self) -> int:
        """Return the number of rows that are updated."""
        return 0 if self.updated is None else count(self.updated)

    @property
    def nbytes(self) -> int:
        """Return the memory that it takes."""
        return sum(part.nbytes for part in (self.mask, self.updated, self.sources) if part is not None)


class Edit(Protocol):
    """One operation on the rows of a table, planned for one schema."""

    operation: str
    parameters: Mapping[str, str]
    in_place: bool
    """Whether an updated row may stay where its file and the file's order have it."""

    def goes_whole(self, file: AddFile) -> bool:
        """Whether every row of a file is deleted, by what the log says of it."""

    def find(self, data: DataFile) -> Hits | None:
        """Return the rows that change, of those that are not deleted yet; None if there are none."""

    def renew(self, rows: pa.Table, sources: pa.Int64Array | None) -> pa.Table:
        """Return what updated rows become: the same columns, in the table's types."""
