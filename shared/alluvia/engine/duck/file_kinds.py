"""The kinds of a table's files; DuckDB reads all files of a kind in the same way. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pyarrow as pa

from alluvia.delta.file_columns import COLUMNS_TAG, columns_digest, counted_names, counts_all
from alluvia.delta.log.actions import AddFile
from alluvia.delta.promoted_fields import Promoted
from alluvia.delta.schema.variant_shredding import WHOLE, Form, form_of
from alluvia.engine.duck.promoted_sql import trust

COLUMN_SETS_MAX = 8
"""Up to this many sets of columns are parts of a relation each. DuckDB compares the schemas of all other files."""
FileKind = tuple[tuple[bool, ...], Form, str]
"""Whether each promoted field is in its column alone, the form of variants, and the digest of columns, if known."""


class FileKinds:
    """Tells the kinds of files apart, by promoted fields, the form of variants, and columns.

    `schema` and `physical` are as for `relation_parts`, and may lack columns of the table; `columns` is the digest of
    all its columns. `promoted` are the promoted fields as they are stored.
    """

    def __init__(
        self,
        schema: pa.Schema,
        physical: pa.Schema,
        partition_columns: Sequence[str],
        files: Iterable[AddFile],
        promoted: Promoted = (),
        columns: str = "",
    ) -> None:
        self.promoted = promoted
        stored = stored_fields(schema, physical, partition_columns)
        self.columns = columns or columns_digest(stored)
        self._counted = counted_names(stored)
        tags = Counter(file.tags[COLUMNS_TAG] for file in files if COLUMNS_TAG in file.tags)
        self._known = {self.columns, *(tag for tag, _ in tags.most_common(COLUMN_SETS_MAX))}
        self._found: dict[str, FileKind] = {}

    def of(self, file: AddFile) -> FileKind:
        """Return a file's kind."""
        if file.path not in self._found:
            self._found[file.path] = trust(self.promoted, file), form_of(file.tags) or WHOLE, self._columns_of(file)
        return self._found[file.path]

    def _columns_of(self, file: AddFile) -> str:
        columns = file.tags.get(COLUMNS_TAG, "")
        if columns != self.columns and self._counted is not None and counts_all(file, self._counted):
            columns = self.columns
        return columns if columns in self._known else ""


def stored_fields(schema: pa.Schema, physical: pa.Schema, partition_columns: Sequence[str]) -> list[pa.Field]:
    """Return the columns that data files contain."""
    return [theirs for ours, theirs in zip(schema, physical, strict=True) if ours.name not in partition_columns]
