"""The leaf columns in a table's data files. Pure."""

from __future__ import annotations

from alluvia.errors import Corrupt
from alluvia.log.actions import Metadata, Protocol
from alluvia.table.schema.column_mapping import ColumnMapping, mapping_of, physical_schema
from alluvia.table.schema.serialization import arrow_schema
from alluvia.verify.leaves import Leaf, leaves_of


def stored_leaves(protocol: Protocol | None, metadata: Metadata) -> tuple[Leaf, ...]:
    """Return the leaf columns in a table's data files. Raises `Corrupt` or `Unsupported`."""
    schema = arrow_schema(metadata.schema_string)
    lacking = [name for name in metadata.partition_columns if name not in schema.names]
    if lacking:
        msg = f"the table's metaData names the partition column {lacking[0]!r}, which is not in its schemaString"
        raise Corrupt(msg)
    mapping = ColumnMapping.NONE if protocol is None else mapping_of(protocol, metadata)
    physical = physical_schema(metadata.schema_string, mapping)
    return tuple(leaf for leaf in leaves_of(schema, physical) if leaf.path[0] not in metadata.partition_columns)
