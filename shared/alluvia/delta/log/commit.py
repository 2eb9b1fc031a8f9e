"""One commit as a value: reading its JSON lines and writing them. Pure. Source: Delta protocol, "Delta Log Entries"."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from typing import Any

import orjson

from alluvia.delta.log.actions import AddFile, CdcFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn, change_rows
from alluvia.delta.log.features import IN_COMMIT_TIMESTAMP
from alluvia.delta.log.fields import Json
from alluvia.delta.log.paths import commit_name
from alluvia.errors import Corrupt
from alluvia.lazy_dataclasses import dataclass

EVENT_IDS = "alluviaEventIds"
EVENT_CONTENTS = "alluviaEventContents"
EVENT_FILES = "alluviaEventFiles"
EVENT_TEXTS = frozenset({EVENT_IDS, EVENT_CONTENTS})
EVENTS_INFO = EVENT_TEXTS | {EVENT_FILES}
"""Fields of commitInfo about events: their fingerprints, hashes of their content, or the objects that hold these."""

Action = Protocol | Metadata | Txn | DomainMetadata | AddFile | RemoveFile | CdcFile
_TAGS: dict[type, str] = {
    Protocol: "protocol",
    Metadata: "metaData",
    Txn: "txn",
    DomainMetadata: "domainMetadata",
    AddFile: "add",
    RemoveFile: "remove",
    CdcFile: "cdc",
}
_PARSERS: dict[str, Any] = {tag: kind.from_json for kind, tag in _TAGS.items()}  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class CommitActions:
    """The actions of one commit, by kind. `info` is the commitInfo as it is in the file."""

    version: int
    info: Json = field(default_factory=dict)
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    txns: Sequence[Txn] = ()
    domains: Sequence[DomainMetadata] = ()
    adds: Sequence[AddFile] = ()
    removes: Sequence[RemoveFile] = ()
    cdc: Sequence[CdcFile] = ()

    @property
    def timestamp_ms(self) -> int:
        """The in-commit timestamp, else the commit's own word for its time, else 0."""
        for time in (self.info.get("inCommitTimestamp"), self.info.get("timestamp")):
            if type(time) is int and time.bit_length() < 64:
                return time
        return 0

    def without_info(self, keys: Collection[str]) -> CommitActions:
        """Return the commit without some entries of its commitInfo."""
        info = self.info.copy()
        for key in keys:
            info.pop(key, None)
        files = self.adds, self.removes, self.cdc
        return CommitActions(self.version, info, self.protocol, self.metadata, self.txns, self.domains, *files)

    @property
    def changes_rows(self) -> bool:
        """Whether any of the commit's files changes rows, which a compaction does not do."""
        return change_rows(self.adds, self.removes)


def encode_commit(info: Json, actions: Iterable[Action]) -> bytes:
    """Return a commit file: commitInfo first (as in-commit timestamps demand), then the actions, a line each."""
    lines = [{"commitInfo": info}]
    lines += [{_TAGS[type(action)]: action.to_json()} for action in actions]
    return b"".join(orjson.dumps(line) + b"\n" for line in lines)


def parse_commit(version: int, data: bytes) -> CommitActions:
    """Read a commit file. Raises `Corrupt`, naming the file and the line."""
    info: Json = {}
    actions: dict[str, list[Any]] = {}
    empty = True
    for number, line in enumerate(data.splitlines(), 1):
        if not line or line.isspace():
            continue
        empty = False
        try:
            for tag, body in orjson.loads(line).items():
                if body is None or (tag != "commitInfo" and tag not in _PARSERS):
                    continue
                if type(body) is not dict:
                    raise ValueError(f"{tag} is {repr(body)[:100]}, which is not an object")
                if tag == "commitInfo":
                    info = body
                else:
                    actions.setdefault(tag, []).append(_PARSERS[tag](body))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corrupt(f"{commit_name(version)}, line {number}: {type(error).__name__}: {error}") from error
    if empty:
        raise Corrupt(f"{commit_name(version)} is empty")
    for tag in ("protocol", "metaData"):
        if len(actions.get(tag, ())) > 1:
            raise Corrupt(f"{commit_name(version)} holds {len(actions[tag])} {tag} actions; a commit may hold one")
    return CommitActions(
        version,
        info,
        actions["protocol"][0] if "protocol" in actions else None,
        actions["metaData"][0] if "metaData" in actions else None,
        *(actions.get(tag, ()) for tag in ("txn", "domainMetadata", "add", "remove", "cdc")),
    )


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
