"""How rows lie in a table's data files: under which names and field ids, which users of the table never see. Pure."""

from __future__ import annotations

import pyarrow as pa

from alluvia.delta.file_schema_adapter import fit_array
from alluvia.delta.properties import Properties
from alluvia.delta.schema.column_mapping import ColumnMapping
from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileForm:
    """The columns as the table has them and, field by field, as its files do.

    `settings` are the table's properties, with Bloom filters by the names that columns have in files.
    """

    schema: pa.Schema
    physical: pa.Schema
    settings: Properties

    def stored(self, rows: pa.Table) -> pa.Table:
        """Return rows as files have them. Columns that the table does not have stay as they are."""
        if self.physical is self.schema:
            return rows
        pairs = [self._stored(rows.schema.field(at), rows.column(at)) for at in range(rows.num_columns)]
        return pa.Table.from_arrays([column for _, column in pairs], schema=pa.schema([field for field, _ in pairs]))

    def _stored(self, field: pa.Field, column: pa.ChunkedArray) -> tuple[pa.Field, pa.ChunkedArray]:
        at = self.schema.get_field_index(field.name)
        if at < 0:
            return field, column
        ours, theirs = self.schema.field(at), self.physical.field(at).with_nullable(field.nullable)
        if pa.types.is_nested(theirs.type):
            # As files are read, with the two kinds of names exchanged.
            chunks = [fit_array(chunk, theirs.type, ours.type, ColumnMapping.NONE) for chunk in column.chunks]
            column = pa.chunked_array(chunks, theirs.type)
        return theirs, column
