"""The actions of a Delta log as values. Pure. Source: Delta protocol, "Actions".

A path is held decoded: in the log it is a URI, percent-decoded exactly once on reading and encoded once on writing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

import orjson

Json = dict[str, Any]
_SAFE = "/=!$&'()*+,;@~-._"


def decode_path(uri: str) -> str:
    """Path of a data file from the form it has in the log."""
    return unquote(uri) if "%" in uri else uri


def encode_path(path: str) -> str:
    """Return the form that a data file's path has in the log."""
    return quote(path, safe=_SAFE + ":" if "://" in path else _SAFE)


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a client must be able to do. Feature lists are None below reader 3 and writer 7."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None

    def to_json(self) -> Json:
        """Return the action's body."""
        body: Json = {"minReaderVersion": self.min_reader_version, "minWriterVersion": self.min_writer_version}
        if self.reader_features is not None:
            body["readerFeatures"] = list(self.reader_features)
        if self.writer_features is not None:
            body["writerFeatures"] = list(self.writer_features)
        return body

    @classmethod
    def from_json(cls, body: Json) -> Protocol:
        """Read the action's body."""
        reader, writer = body.get("readerFeatures"), body.get("writerFeatures")
        return cls(
            int(body["minReaderVersion"]),
            int(body["minWriterVersion"]),
            None if reader is None else tuple(reader),
            None if writer is None else tuple(writer),
        )


@dataclass(frozen=True, slots=True)
class Metadata:
    """The table's identity, schema (JSON text), partition columns and properties. `created_time` in ms."""

    id: str
    schema_string: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    created_time: int | None = None
    name: str | None = None
    description: str | None = None
    format_provider: str = "parquet"

    def to_json(self) -> Json:
        """Return the action's body."""
        body: Json = {
            "id": self.id,
            "format": {"provider": self.format_provider, "options": {}},
            "schemaString": self.schema_string,
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.configuration),
        }
        optional = {"name": self.name, "description": self.description, "createdTime": self.created_time}
        return body | {key: value for key, value in optional.items() if value is not None}

    @classmethod
    def from_json(cls, body: Json) -> Metadata:
        """Read the action's body."""
        return cls(
            id=body["id"],
            schema_string=body["schemaString"],
            partition_columns=tuple(body.get("partitionColumns") or ()),
            configuration=dict(body.get("configuration") or {}),
            created_time=body.get("createdTime"),
            name=body.get("name"),
            description=body.get("description"),
            format_provider=(body.get("format") or {}).get("provider", "parquet"),
        )


@dataclass(frozen=True, slots=True)
class AddFile:
    """A data file of the table. `size` in bytes, `modification_time` in ms, `stats` Delta's JSON text."""

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    deletion_vector: Json | None = None

    @property
    def key(self) -> str:
        """Identity of the logical file: its path and its deletion vector."""
        return file_key(self.path, self.deletion_vector)

    @property
    def num_records(self) -> int | None:
        """Rows by the statistics; None where they do not say."""
        if self.stats is None:
            return None
        number = orjson.loads(self.stats).get("numRecords")
        return None if number is None else int(number)

    def to_json(self) -> Json:
        """Return the action's body."""
        body: Json = {
            "path": encode_path(self.path),
            "partitionValues": dict(self.partition_values),
            "size": self.size,
            "modificationTime": self.modification_time,
            "dataChange": self.data_change,
        }
        if self.stats is not None:
            body["stats"] = self.stats
        if self.tags:
            body["tags"] = dict(self.tags)
        if self.deletion_vector:
            body["deletionVector"] = self.deletion_vector
        return body

    @classmethod
    def from_json(cls, body: Json) -> AddFile:
        """Read the action's body."""
        return cls(
            path=decode_path(body["path"]),
            partition_values=body.get("partitionValues") or {},
            size=int(body["size"]),
            modification_time=int(body["modificationTime"]),
            data_change=bool(body["dataChange"]),
            stats=body.get("stats"),
            tags=body.get("tags") or {},
            deletion_vector=_present(body.get("deletionVector")),
        )

    def removed(self, deletion_timestamp: int, *, data_change: bool) -> RemoveFile:
        """Return the tombstone of this file."""
        return RemoveFile(
            self.path, deletion_timestamp, data_change, self.partition_values, self.size, self.deletion_vector
        )


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """The tombstone of a data file. `deletion_timestamp` in ms."""

    path: str
    deletion_timestamp: int
    data_change: bool
    partition_values: Mapping[str, str | None] | None = None
    size: int | None = None
    deletion_vector: Json | None = None

    @property
    def key(self) -> str:
        """Identity of the logical file: its path and its deletion vector."""
        return file_key(self.path, self.deletion_vector)

    def to_json(self) -> Json:
        """Return the action's body."""
        body: Json = {
            "path": encode_path(self.path),
            "deletionTimestamp": self.deletion_timestamp,
            "dataChange": self.data_change,
        }
        if self.partition_values is not None and self.size is not None:
            body |= {
                "extendedFileMetadata": True,
                "partitionValues": dict(self.partition_values),
                "size": self.size,
            }
        if self.deletion_vector:
            body["deletionVector"] = self.deletion_vector
        return body

    @classmethod
    def from_json(cls, body: Json) -> RemoveFile:
        """Read the action's body."""
        size = body.get("size")
        return cls(
            path=decode_path(body["path"]),
            deletion_timestamp=int(body.get("deletionTimestamp") or 0),
            data_change=bool(body.get("dataChange", True)),
            partition_values=body.get("partitionValues"),
            size=None if size is None else int(size),
            deletion_vector=_present(body.get("deletionVector")),
        )


@dataclass(frozen=True, slots=True)
class Txn:
    """The last version that an application has recorded. `last_updated` in ms."""

    app_id: str
    version: int
    last_updated: int | None = None

    def to_json(self) -> Json:
        """Return the action's body."""
        body: Json = {"appId": self.app_id, "version": self.version}
        return body if self.last_updated is None else body | {"lastUpdated": self.last_updated}

    @classmethod
    def from_json(cls, body: Json) -> Txn:
        """Read the action's body."""
        return cls(body["appId"], int(body["version"]), body.get("lastUpdated"))


@dataclass(frozen=True, slots=True)
class DomainMetadata:
    """A named configuration beside the table's own."""

    domain: str
    configuration: str
    removed: bool = False

    def to_json(self) -> Json:
        """Return the action's body."""
        return {"domain": self.domain, "configuration": self.configuration, "removed": self.removed}

    @classmethod
    def from_json(cls, body: Json) -> DomainMetadata:
        """Read the action's body."""
        return cls(body["domain"], body.get("configuration") or "", bool(body.get("removed", False)))


def _present(deletion_vector: Json | None) -> Json | None:
    """Return None for the struct of nulls that some checkpoints hold where there is no deletion vector."""
    return deletion_vector if deletion_vector and deletion_vector.get("storageType") is not None else None


def file_key(path: str, deletion_vector: Json | None) -> str:
    """Identity of a logical file. Source: Delta protocol, "Deletion Vectors" (unique id)."""
    if not deletion_vector or deletion_vector.get("storageType") is None:
        return path
    offset = deletion_vector.get("offset")
    identity = f"{deletion_vector.get('storageType')}{deletion_vector.get('pathOrInlineDv')}"
    return f"{path}\n{identity}" if offset is None else f"{path}\n{identity}@{offset}"
