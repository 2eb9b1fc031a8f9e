"""Which tables this library can read and write, and the protocol of the tables that it creates. Pure.

Source: Delta protocol, "Table Features" and "Valid Feature Names in Table Features".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from alluvia.delta.log import features
from alluvia.delta.log.actions import Metadata, Protocol
from alluvia.delta.log.commit import IN_COMMIT_TIMESTAMPS, has_in_commit_timestamps
from alluvia.delta.log.features import COLUMN_MAPPING
from alluvia.delta.log.fields import Json
from alluvia.delta.properties import (
    APPEND_ONLY,
    ATTACHED,
    CHANGE_DATA_FEED,
    CHECKPOINT_POLICY,
    CONSTRAINT,
    DELETION_VECTORS,
    Properties,
    read_properties,
)
from alluvia.delta.schema import unified
from alluvia.delta.schema.column_mapping import MODE, mapping_of
from alluvia.delta.schema.nesting import all_fields
from alluvia.delta.schema.serialization import SCHEMAS_KEPT, schema_fields, uses_type
from alluvia.delta.variant_properties import has_variant_properties, other_variants
from alluvia.errors import Corrupt, Unsupported

READER_FEATURES = (
    features.VARIANTS
    | features.WIDENINGS
    | {
        *(features.COLUMN_MAPPING, features.DELETION_VECTORS, features.TIMESTAMP_NTZ),
        *(features.V2_CHECKPOINT, features.VACUUM_PROTOCOL_CHECK, features.ATTACHED_TABLE),
    }
)
WRITER_FEATURES = frozenset(
    {
        *(features.APPEND_ONLY, features.CHANGE_DATA_FEED, features.CHECK_CONSTRAINTS, features.DELETION_VECTORS),
        *(features.DOMAIN_METADATA, features.IN_COMMIT_TIMESTAMP, features.INVARIANTS, features.TIMESTAMP_NTZ),
        *(features.V2_CHECKPOINT, features.VACUUM_PROTOCOL_CHECK, features.GUARD, features.COLUMN_MAPPING),
        features.ATTACHED_TABLE,
    }
)
_MARKS = {
    **dict.fromkeys(features.VARIANTS, "variant"),
    **dict.fromkeys(features.WIDENINGS, "delta.typeChanges"),
    features.COLUMN_DEFAULTS: "CURRENT_DEFAULT",
    features.GENERATED_COLUMNS: "delta.generationExpression",
    features.IDENTITY_COLUMNS: "delta.identity.",
}
"""Features that this library does not write and that bind a writer only where a column has a type, or such metadata."""
_BY_PROPERTY = {
    APPEND_ONLY: features.APPEND_ONLY,
    DELETION_VECTORS: features.DELETION_VECTORS,
    CHANGE_DATA_FEED: features.CHANGE_DATA_FEED,
}
_READER_WRITER_FEATURES = frozenset(
    {
        *(features.VARIANT_TYPE, features.VARIANT_SHREDDING),
        *(features.COLUMN_MAPPING, features.DELETION_VECTORS, features.TIMESTAMP_NTZ, features.V2_CHECKPOINT),
        features.ATTACHED_TABLE,
    }
)
_DEFAULT_FEATURES = (*features.implied(2), features.IN_COMMIT_TIMESTAMP, features.DOMAIN_METADATA, features.GUARD)


def new_protocol(writers: str, schema_string: str, configuration: Mapping[str, str] | None = None) -> Protocol:
    """Return the protocol of a new table: guarded by a writer feature of ours, or open to any writer.

    `configuration` holds the table's properties, some of which need a feature.
    """
    needed = features_needed(schema_string, configuration or {})
    if writers == "any":
        return with_features(Protocol(1, 2), needed)
    return with_features(Protocol(1, 7, None, _DEFAULT_FEATURES), needed)


def features_needed(schema_string: str, configuration: Mapping[str, str]) -> tuple[str, ...]:
    """Return the features without which a table of a schema and of properties cannot be."""
    needed = [features.TIMESTAMP_NTZ] if uses_type(schema_string, "timestamp_ntz") else []
    needed += [feature for name, feature in _BY_PROPERTY.items() if configuration.get(name, "").lower() == "true"]
    needed += [features.VARIANT_TYPE, features.VARIANT_SHREDDING] if has_variant_properties(configuration) else []
    needed += [features.V2_CHECKPOINT] if configuration.get(CHECKPOINT_POLICY, "").lower() == "v2" else []
    needed += [features.COLUMN_MAPPING] if configuration.get(MODE, "none").lower() != "none" else []
    needed += [features.ATTACHED_TABLE] if ATTACHED in configuration else []
    needed += [features.CHECK_CONSTRAINTS] if any(name.startswith(CONSTRAINT) for name in configuration) else []
    return tuple(needed)


def with_features(protocol: Protocol, features: Sequence[str]) -> Protocol:
    """Return a protocol with some features added; itself if it has them."""
    if protocol.min_writer_version < 7:
        legacy = known_features(protocol)
        features = [feature for feature in features if feature not in legacy]
        if not features:
            return protocol
        protocol = Protocol(protocol.min_reader_version, 7, protocol.reader_features, legacy)
    present, readers = protocol.writer_features or (), protocol.reader_features or ()
    if protocol.min_reader_version == 2:  # which is column mapping, and says so by its number
        readers = (COLUMN_MAPPING,)
    writer = (*present, *(feature for feature in features if feature not in present))
    needed = [feature for feature in features if feature in _READER_WRITER_FEATURES and feature not in readers]
    if not needed:
        return Protocol(protocol.min_reader_version, 7, protocol.reader_features, writer)
    return Protocol(3, 7, (*readers, *needed), writer)


def check_readable(protocol: Protocol, metadata: Metadata) -> None:
    """Raise `Unsupported`, naming the feature, for a table that this library would read wrongly."""
    version = protocol.min_reader_version
    if version > 3:
        raise Unsupported(f"the table needs reader version {version}; this library reads up to 3")
    if version == 3 and protocol.reader_features is None:
        raise Corrupt("the table's protocol needs reader version 3, but does not list readerFeatures")
    unknown = sorted(set(protocol.reader_features or ()) - READER_FEATURES)
    by_catalog = [feature for feature in unknown if feature in features.CATALOGS]
    if version == 3 and by_catalog:
        msg = f"the table has the reader feature {by_catalog[0]}: only its catalog may know its newest commits"
        raise Unsupported(msg)
    if version == 3 and unknown:
        raise Unsupported(f"the table needs the reader feature {', '.join(unknown)}, which this version does not have")
    mapping_of(protocol, metadata)
    if set(protocol.reader_features or ()) & features.WIDENINGS:
        unified.check_type_changes(metadata.schema_string)
    if metadata.format_provider != "parquet":
        raise Unsupported(f"the table's files are {metadata.format_provider}; this library reads Parquet")


def check_writable(protocol: Protocol, metadata: Metadata) -> None:
    """Raise `Unsupported`, naming the feature, for a table whose rules this library could break."""
    check_readable(protocol, metadata)
    version = protocol.min_writer_version
    if version > 7:
        raise Unsupported(f"the table needs writer version {version}; this library writes up to 7")
    others = sorted({*known_features(protocol)} - WRITER_FEATURES)
    if has_variant_properties(metadata.configuration) and other_variants(metadata.schema_string):
        raise Unsupported(
            "the table has a column of the type variant besides properties, which this version reads only"
        )
    known = features.VARIANTS if has_variant_properties(metadata.configuration) else frozenset()
    others = [each for each in others if each not in known]
    unknown = [each for each in others if each not in _MARKS or _uses_mark(metadata.schema_string, _MARKS[each])]
    if unknown:
        raise Unsupported(f"the table needs the writer feature {', '.join(unknown)}, which this version does not have")
    if metadata.configuration.get(MODE, "none").lower() != "none" and mapping_of(protocol, metadata).value == "none":
        raise Unsupported(f"property {MODE} is set, but the table's protocol does not have the feature columnMapping")
    for name in _fields_with_invariants(metadata.schema_string):
        raise Unsupported(f"column {name} has an invariant, which this version cannot check before it writes")


def known_features(protocol: Protocol) -> tuple[str, ...]:
    """Return the features that a writer of a table must know, also where its version stands for them."""
    return protocol.writer_features or features.implied(protocol.min_writer_version)


@lru_cache(maxsize=SCHEMAS_KEPT)
def _uses_mark(schema_string: str, mark: str) -> bool:
    """Whether a column, or a field in one, has a type or a key of its metadata that a feature is for."""
    if mark not in schema_string:
        return False
    if mark == "variant":
        return uses_type(schema_string, mark)
    return any(key.startswith(mark) for _, field in all_fields(schema_fields(schema_string)) for key in _keys(field))


def _keys(field: Json) -> Collection[str]:
    metadata = field.get("metadata")
    return metadata if isinstance(metadata, dict) else ()


def has_domains(protocol: Protocol) -> bool:
    """Whether a table may hold domain metadata."""
    return features.DOMAIN_METADATA in (protocol.writer_features or ())


def settings_of(protocol: Protocol, metadata: Metadata) -> Properties:
    """Return the table's properties that are in effect. Raises `Corrupt`, naming a broken one.

    One that turns on a feature counts only if the protocol has the feature, because other clients require that.
    """
    properties = read_properties(metadata.configuration)
    known = known_features(protocol)
    return replace(
        properties,
        deletion_vectors=properties.deletion_vectors and features.DELETION_VECTORS in known,
        change_data_feed=properties.change_data_feed and features.CHANGE_DATA_FEED in known,
        in_commit_timestamps=has_in_commit_timestamps(protocol, metadata),
    )


def default_properties(writers: str) -> Mapping[str, str]:
    """Return the properties that a new table of a kind always has."""
    return {} if writers == "any" else {IN_COMMIT_TIMESTAMPS: "true"}


@lru_cache(maxsize=SCHEMAS_KEPT)
def _fields_with_invariants(schema_string: str) -> tuple[str, ...]:
    fields = all_fields(schema_fields(schema_string))
    try:
        return tuple(path for path, field in fields if "delta.invariants" in (field.get("metadata") or {}))
    except TypeError as error:
        raise Corrupt(f"the table's schemaString cannot be read: {type(error).__name__}: {error}") from error
