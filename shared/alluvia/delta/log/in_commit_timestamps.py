"""Which commits of a log contain their own timestamp. Source: Delta protocol, "In-Commit Timestamps". Pure."""

from __future__ import annotations

from alluvia.delta.log.actions import Metadata, Protocol
from alluvia.delta.log.features import IN_COMMIT_TIMESTAMP

IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
ENABLED_VERSION = "delta.inCommitTimestampEnablementVersion"
ENABLED_TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"


def has_in_commit_timestamps(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether a table's commits must carry their time: by its property, where the protocol has the feature."""
    feature = IN_COMMIT_TIMESTAMP in (protocol.writer_features or ())
    return feature and metadata.configuration.get(IN_COMMIT_TIMESTAMPS, "").lower() == "true"


def timed_since(protocol: Protocol, metadata: Metadata) -> int | None:
    """Return the version from which on commits carry their time, None where they do not."""
    if not has_in_commit_timestamps(protocol, metadata):
        return None
    text = metadata.configuration.get(ENABLED_VERSION, "0")
    return int(text) if text.isdecimal() else 0
