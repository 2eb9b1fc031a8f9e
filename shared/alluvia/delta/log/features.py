"""Names of table features. Source: Delta protocol, "Valid Feature Names in Table Features". Pure."""

from __future__ import annotations

APPEND_ONLY = "appendOnly"
ATTACHED_TABLE = "alluviaAttached"
"""Our own, of a log that says where its table is: who does not know it would take that for an empty table."""
CHANGE_DATA_FEED = "changeDataFeed"
CHECK_CONSTRAINTS = "checkConstraints"
COLUMN_MAPPING = "columnMapping"
DELETION_VECTORS = "deletionVectors"
COLUMN_DEFAULTS = "allowColumnDefaults"
DOMAIN_METADATA = "domainMetadata"
GENERATED_COLUMNS = "generatedColumns"
GUARD = "alluvia"
"""Our own, which keeps other writers out of a table."""
IDENTITY_COLUMNS = "identityColumns"
IN_COMMIT_TIMESTAMP = "inCommitTimestamp"
INVARIANTS = "invariants"
TIMESTAMP_NTZ = "timestampNtz"
TYPE_WIDENING = "typeWidening"
V2_CHECKPOINT = "v2Checkpoint"
VACUUM_PROTOCOL_CHECK = "vacuumProtocolCheck"
VARIANT_TYPE, VARIANT_SHREDDING = "variantType", "variantShredding"
VARIANTS = frozenset({VARIANT_SHREDDING, "variantShredding-preview", VARIANT_TYPE, "variantType-preview"})
WIDENINGS = frozenset({TYPE_WIDENING, "typeWidening-preview"})
CATALOGS = frozenset({"catalogManaged", "catalogOwned-preview"})
OF_VERSIONS = (
    (2, (APPEND_ONLY, INVARIANTS)),
    (3, (CHECK_CONSTRAINTS,)),
    (4, (CHANGE_DATA_FEED, GENERATED_COLUMNS)),
    (5, (COLUMN_MAPPING,)),
    (6, (IDENTITY_COLUMNS,)),
)
"""The features that a writer version below 7 stands for, besides those of the versions before it."""


def implied(writer_version: int) -> tuple[str, ...]:
    """Return the features that a writer version stands for; none for 7, which lists its own."""
    if writer_version > 6:
        return ()
    return tuple(feature for version, of_version in OF_VERSIONS if version <= writer_version for feature in of_version)
