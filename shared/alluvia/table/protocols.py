"""Which tables this library can read and write, and the protocols that it gives its own. Pure.

Source: Delta protocol, "Table Features" and "Valid Feature Names in Table Features".
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from alluvia.errors import Unsupported
from alluvia.log.actions import Metadata, Protocol

GUARD = "alluvia"
READER_FEATURES = frozenset({"timestampNtz", "vacuumProtocolCheck"})
WRITER_FEATURES = frozenset(
    {"appendOnly", "invariants", "inCommitTimestamp", "domainMetadata", "timestampNtz", "vacuumProtocolCheck", GUARD}
)
_DEFAULT_FEATURES = ("appendOnly", "invariants", "inCommitTimestamp", "domainMetadata", GUARD)


def new_protocol(writers: str, schema_string: str) -> Protocol:
    """Return the protocol of a new table: guarded by a writer feature of ours, or open to any writer."""
    without_zone = '"timestamp_ntz"' in schema_string
    if writers == "any" and not without_zone:
        return Protocol(1, 2)
    features = ("appendOnly", "invariants") if writers == "any" else _DEFAULT_FEATURES
    if without_zone:
        return Protocol(3, 7, ("timestampNtz",), (*features, "timestampNtz"))
    return Protocol(1, 7, None, features)


def check_readable(protocol: Protocol, metadata: Metadata) -> None:
    """Raise `Unsupported`, naming the feature, for a table that this library would read wrongly."""
    version = protocol.min_reader_version
    if version > 3:
        msg = f"the table needs reader version {version}; this library reads up to 3"
        raise Unsupported(msg)
    unknown = sorted(set(protocol.reader_features or ()) - READER_FEATURES)
    if version == 3 and unknown:
        msg = f"the table needs the reader feature {', '.join(unknown)}, which this version does not have"
        raise Unsupported(msg)
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        msg = "the table uses column mapping, which this version does not have"
        raise Unsupported(msg)
    if metadata.format_provider != "parquet":
        msg = f"the table's files are {metadata.format_provider}; this library reads Parquet"
        raise Unsupported(msg)


def check_writable(protocol: Protocol, metadata: Metadata) -> None:
    """Raise `Unsupported`, naming the feature, for a table whose rules this library could break."""
    check_readable(protocol, metadata)
    version = protocol.min_writer_version
    if version > 7:
        msg = f"the table needs writer version {version}; this library writes up to 7"
        raise Unsupported(msg)
    if 2 < version < 7:
        msg = f"the table needs writer version {version}; this library writes 1, 2, and 7 with features"
        raise Unsupported(msg)
    unknown = sorted(set(protocol.writer_features or ()) - WRITER_FEATURES)
    if version == 7 and unknown:
        msg = f"the table needs the writer feature {', '.join(unknown)}, which this version does not have"
        raise Unsupported(msg)
    for name in _fields_with_invariants(metadata.schema_string):
        msg = f"column {name} has an invariant, which this version cannot check before it writes"
        raise Unsupported(msg)


def has_domains(protocol: Protocol) -> bool:
    """Whether a table may hold domain metadata."""
    return "domainMetadata" in (protocol.writer_features or ())


def default_properties(writers: str) -> Mapping[str, str]:
    """Return the properties that a new table of a kind always has."""
    return {} if writers == "any" else {"delta.enableInCommitTimestamps": "true"}


def _fields_with_invariants(schema_string: str) -> list[str]:
    fields = orjson.loads(schema_string)["fields"]
    return [field["name"] for field in fields if "delta.invariants" in (field.get("metadata") or {})]
