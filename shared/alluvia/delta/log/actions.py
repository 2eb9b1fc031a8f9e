"""The actions of a Delta log as values. Pure. Source: Delta protocol, "Actions".

Paths are kept decoded. In the log they are URIs, which are percent-decoded exactly once on reading and encoded once on
writing. A file from another writer keeps its original URI, because some readers match a remove to its add by that text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import lru_cache

import orjson

from alluvia.delta.log.fields import (
    Json,
    flag,
    optional_text,
    optional_whole,
    part,
    text,
    text_list,
    text_map,
    text_or_null_map,
    whole,
)
from alluvia.delta.log.paths import canonical_path, decode_path, encode_path
from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Protocol:
    """The abilities that a client needs. Feature lists are None below reader 3 and writer 7."""

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
        return cls(
            whole(body, "minReaderVersion"),
            whole(body, "minWriterVersion"),
            text_list(body, "readerFeatures"),
            text_list(body, "writerFeatures"),
        )


@dataclass(frozen=True, slots=True)
class Metadata:
    """The table's identity, schema (JSON text), partition columns and properties. `created_time` in ms.

    A log may lack the schema (the first writers left it out): then it is empty text, and rows cannot be read.
    """

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
            id=text(body, "id"),
            schema_string=optional_text(body, "schemaString") or "",
            partition_columns=text_list(body, "partitionColumns") or (),
            configuration=text_map(body, "configuration"),
            created_time=optional_whole(body, "createdTime"),
            name=optional_text(body, "name"),
            description=optional_text(body, "description"),
            format_provider=optional_text(part(body, "format"), "provider") or "parquet",
        )


@dataclass(frozen=True, slots=True)
class AddFile:
    """A data file of the table. `size` in bytes, `modification_time` in ms, `stats` Delta's JSON text.

    `uri` is the path as the log has it.
    """

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    modification_time: int
    data_change: bool
    stats: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    deletion_vector: Json | None = None
    uri: str | None = field(default=None, compare=False, repr=False)

    @property
    def key(self) -> str:
        """Identity of the logical file: its path and its deletion vector."""
        return file_key(self.path, self.deletion_vector)

    @property
    def num_records(self) -> int | None:
        """Rows by the statistics; None where they do not say."""
        return None if self.stats is None else _num_records(self.stats)

    @property
    def live_records(self) -> int | None:
        """Rows that no deletion vector deletes, by the statistics and the vector; None where they do not say."""
        number = self.num_records
        if number is None or self.deletion_vector is None:
            return number
        deleted = self.deletion_vector.get("cardinality")
        return number - deleted if type(deleted) is int and 0 <= deleted <= number else None

    def to_json(self) -> Json:
        """Return the action's body."""
        body: Json = {
            "path": self.uri or encode_path(self.path),
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
        uri = text(body, "path")
        return cls(
            decode_path(uri),
            text_or_null_map(body, "partitionValues"),
            whole(body, "size"),
            whole(body, "modificationTime"),
            flag(body, "dataChange"),
            optional_text(body, "stats"),
            {} if body.get("tags") is None else text_map(body, "tags"),
            None if body.get("deletionVector") is None else _present(part(body, "deletionVector")),
            uri,
        )

    def removed(self, deletion_timestamp: int, *, data_change: bool) -> RemoveFile:
        """Return the tombstone of this file."""
        return RemoveFile(
            self.path, deletion_timestamp, data_change, self.partition_values, self.size, self.deletion_vector, self.uri
        )


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """The tombstone of a data file. `deletion_timestamp` in ms, `uri` the path as the log has it."""

    path: str
    deletion_timestamp: int
    data_change: bool
    partition_values: Mapping[str, str | None] | None = None
    size: int | None = None
    deletion_vector: Json | None = None
    uri: str | None = field(default=None, compare=False, repr=False)

    @property
    def key(self) -> str:
        """Identity of the logical file: its path and its deletion vector."""
        return file_key(self.path, self.deletion_vector)

    def to_json(self) -> Json:
        """Return the action's body."""
        body: Json = {
            "path": self.uri or encode_path(self.path),
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
        known = body.get("partitionValues") is not None
        return cls(
            path=decode_path(text(body, "path")),
            deletion_timestamp=optional_whole(body, "deletionTimestamp") or 0,
            data_change=flag(body, "dataChange", default=True),
            partition_values=text_or_null_map(body, "partitionValues") if known else None,
            size=optional_whole(body, "size"),
            deletion_vector=_present(part(body, "deletionVector")),
            uri=text(body, "path"),
        )


def change_rows(adds: Iterable[AddFile], removes: Iterable[RemoveFile]) -> bool:
    """Whether any of the files changes rows, which a compaction does not do."""
    return any(add.data_change for add in adds) or any(remove.data_change for remove in removes)


@dataclass(frozen=True, slots=True)
class CdcFile:
    """A file with the rows that a commit changed, for readers of changes. `size` in bytes."""

    path: str
    partition_values: Mapping[str, str | None]
    size: int

    def to_json(self) -> Json:
        """Return the action's body."""
        return {
            "path": encode_path(self.path),
            "partitionValues": dict(self.partition_values),
            "size": self.size,
            "dataChange": False,
        }

    @classmethod
    def from_json(cls, body: Json) -> CdcFile:
        """Read the action's body."""
        return cls(decode_path(text(body, "path")), text_or_null_map(body, "partitionValues"), whole(body, "size"))


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
        return cls(text(body, "appId"), whole(body, "version"), optional_whole(body, "lastUpdated"))


@dataclass(frozen=True, slots=True)
class DomainMetadata:
    """A named configuration in addition to the table's own."""

    domain: str
    configuration: str
    removed: bool = False

    def to_json(self) -> Json:
        """Return the action's body."""
        return {"domain": self.domain, "configuration": self.configuration, "removed": self.removed}

    @classmethod
    def from_json(cls, body: Json) -> DomainMetadata:
        """Read the action's body."""
        configuration = optional_text(body, "configuration") or ""
        return cls(text(body, "domain"), configuration, flag(body, "removed", default=False))


@lru_cache(maxsize=16)
def _num_records(stats: str) -> int | None:
    """Return what `AddFile.num_records` gives; a commit of few files asks several times."""
    try:
        number = orjson.loads(stats or "{}").get("numRecords")
    except (ValueError, AttributeError):
        return None
    return number if type(number) is int and number >= 0 else None


def _present(deletion_vector: Json) -> Json | None:
    """Return a deletion vector without the nulls that checkpoints hold; None for a struct of nothing but nulls."""
    present = {name: value for name, value in deletion_vector.items() if value is not None}
    if not present:
        return None
    text(present, "storageType")
    optional_text(present, "pathOrInlineDv")
    for name in ("offset", "sizeInBytes", "cardinality"):
        optional_whole(present, name)
    return present


def file_key(path: str, deletion_vector: Json | None) -> str:
    """Identity of a logical file. Source: Delta protocol, "Deletion Vectors" (unique id)."""
    path = canonical_path(path)
    if not deletion_vector or deletion_vector.get("storageType") is None:
        return path
    offset = deletion_vector.get("offset")
    identity = f"{deletion_vector.get('storageType')}{deletion_vector.get('pathOrInlineDv')}"
    return f"{path}\n{identity}" if offset is None else f"{path}\n{identity}@{offset}"
