"""Names of table features. Source: Delta protocol, "Valid Feature Names in Table Features". Pure."""

from __future__ import annotations

APPEND_ONLY = "appendOnly"
ATTACHED_TABLE = "alluviaAttached"
"""Our own, of a log that says where its table is: who does not know it would take that for an empty table."""
CHANGE_DATA_FEED = "changeDataFeed"
CHECK_CONSTRAINTS = "checkConstraints"
COLUMN_MAPPING = "columnMapping"
DELETION_VECTORS = "deletionVectors"
DOMAIN_METADATA = "domainMetadata"
GUARD = "alluvia"
"""Our own, which keeps other writers out of a table."""
IN_COMMIT_TIMESTAMP = "inCommitTimestamp"
INVARIANTS = "invariants"
TIMESTAMP_NTZ = "timestampNtz"
TYPE_WIDENING = "typeWidening"
V2_CHECKPOINT = "v2Checkpoint"
VACUUM_PROTOCOL_CHECK = "vacuumProtocolCheck"
VARIANTS = frozenset({"variantShredding", "variantShredding-preview", "variantType", "variantType-preview"})
WIDENINGS = frozenset({TYPE_WIDENING, "typeWidening-preview"})
CATALOGS = frozenset({"catalogManaged", "catalogOwned-preview"})
