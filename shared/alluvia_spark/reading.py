"""A table as a DataFrame: Spark's own Parquet reader on the files that pruning leaves.

What the log says of files comes on top: partition values, by the folders where Spark reads the same values there, else
by a join on the file's name; deletion vectors, by an anti-join on that and the row's number, for the files that have
one. Where only a few partitions or files need a join, each is a scan of its own, with constants instead. Plans have a
limited number of steps however many files there are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, reduce
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark knows it
from pyspark.sql.types import StructField, StructType, VariantType

from alluvia.errors import Invalid, Unavailable, Unsupported
from alluvia.lake import Lake
from alluvia.log.actions import AddFile
from alluvia.table.deletion_vectors.storage import read_deletions
from alluvia.table.handle import TableHandle
from alluvia.table.partitioning.hive import is_hidden
from alluvia.table.partitioning.values import partition_value
from alluvia.table.scan import Scan
from alluvia.table.schema.column_mapping import ColumnMapping
from alluvia.table.snapshot import Snapshot
from alluvia_spark.filters import RowFilter, literal, named
from alluvia_spark.hive_layout import in_paths
from alluvia_spark.schemas import all_nullable, nullable, shown_schema, stored_schema
from alluvia_spark.tables import handle_of, uris_of

_OPTIONS = {
    "__globPaths__": "false",  # characters such as [ are part of a path's name
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
"""What would read other rows than the log says, if a session had it set."""
_BY_ID = "spark.sql.parquet.fieldId.read.enabled"
SCANS_MAX = 32
SCAN_BYTES_MIN = 16 << 20
"""So many scans, each of so many bytes, cost less to plan and to compile than a join costs by the row."""
_PLAIN = re.compile(r"[\w.-]+", re.ASCII)
_FILE, _ROW = "__alluvia_file", "__alluvia_row"
"""Columns that a scan has besides those of the table: the file, as Spark names it, and the row's number in it."""


def read_table(
    spark: SparkSession,
    place: str | Lake,
    table: str | None = None,
    *,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    where: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of a version of a table, the newest by default, as `alluvia_spark.read_table` says."""
    handle = handle_of(place, table, options or {})
    snapshot = handle.readable(version, timestamp)
    kept = None if where is None else RowFilter.of(where, snapshot.schema)
    files = Scan(snapshot).files if kept is None else Scan(snapshot, kept.parsed.predicate).files
    source = SnapshotSource(spark, handle, snapshot, uris_of(spark, place, handle))
    rows = source.rows(files)
    return rows if kept is None else kept.apply(rows)


class SnapshotSource(NamedTuple):
    """A snapshot that a session reads. `uri` gives a file's URI in the session, by its key."""

    spark: SparkSession
    handle: TableHandle
    snapshot: Snapshot
    uri: Callable[[str], str]

    def rows(self, files: Sequence[AddFile]) -> DataFrame:
        """Return the rows of some files of the snapshot: the table's columns, in its order.

        Raises `Unsupported` for a table that Spark's reader would read wrongly.
        """
        shown = shown_schema(self.snapshot)
        if not files:
            return self.spark.createDataFrame([], all_nullable(shown))
        self._check(files)
        whole = self._scans([file for file in files if file.deletion_vector is None])
        deleted = self._scans([file for file in files if file.deletion_vector is not None], alone=True)
        found = [*(scan.rows for scan in whole), *(scan.live for scan in deleted)]
        parts = [part.select(*self._columns(shown)) for part in found]
        return reduce(DataFrame.union, parts)

    def _scans(self, files: Sequence[AddFile], *, alone: bool = False) -> list[_Scan]:
        """Return scans of files: a few, where constants can then be had in the place of a join, else one.

        `alone` is each file by itself.
        """
        groups: dict[object, list[AddFile]] = {}
        for file in files:
            same = file.path if alone else tuple(sorted(file.partition_values.items()))
            groups.setdefault(same, []).append(file)
        scans = [_Scan(self, files)] if files else []
        if len(groups) > SCANS_MAX or (not alone and scans and scans[0].complete):
            return scans
        if len(groups) > 1 and sum(file.size for file in files) < len(groups) * SCAN_BYTES_MIN:
            return scans
        return [_Scan(self, group, constant=True) for group in groups.values()]

    def _check(self, files: Sequence[AddFile]) -> None:
        if self.snapshot.mapping is ColumnMapping.ID and self.spark.conf.get(_BY_ID, "false") != "true":
            msg = f"table {self.snapshot.name} maps its columns by id: spark.conf.set({_BY_ID!r}, 'true') first"
            raise Invalid(msg)
        for file in files:
            if is_hidden(file.path.rpartition("/")[2]):
                msg = f"Spark skips files with a name such as {file.path}: read the table with format('alluvia')"
                raise Unsupported(msg)

    def _columns(self, shown: StructType) -> list[Column]:
        physical = stored_schema(self.snapshot)
        return [_column(ours, theirs).alias(ours.name) for ours, theirs in zip(shown, physical, strict=True)]


def _column(ours: StructField, theirs: StructField) -> Column:
    """Return a column as users see it, from what it is in files."""
    stored = named(theirs.name)
    if isinstance(ours.dataType, VariantType):
        return F.to_json(stored)
    if "variant" in ours.dataType.simpleString():
        raise Unsupported(f"column {ours.name} holds variants inside: read the table with format('alluvia')")
    wanted = nullable(ours.dataType)
    return stored if wanted == nullable(theirs.dataType) else stored.cast(wanted)


class _Scan:
    """A scan of some files by Spark's reader: the columns of `stored_schema`."""

    def __init__(self, source: SnapshotSource, files: Sequence[AddFile], *, constant: bool = False) -> None:
        self._source = source
        self._snapshot = source.snapshot
        self._files = {source.uri(source.snapshot.key(file)): file for file in files}
        physical, logical = stored_schema(source.snapshot), source.snapshot.schema
        pairs = [(name, source.snapshot.physical_name(name)) for name in source.snapshot.partition_columns]
        self._partitioned = [pa.field(stored, logical.field(name).type) for name, stored in pairs]
        names = [field.name for field in self._partitioned]
        others = [field.name for field in physical if field.name not in names]
        self._types = {field.name: field.dataType for field in physical}
        self._constant = constant
        self._by_path = bool(names) and not constant and in_paths(files, self._partitioned, others)
        self._stored = physical if self._by_path else StructType([each for each in physical if each.name not in names])
        shown = {uri.rpartition("/")[2] for uri in self._files}
        plain = len(shown) == len(self._files) and all(map(_PLAIN.fullmatch, shown))
        self._key = "file_name" if plain else "file_path"

    @cached_property
    def _read(self) -> DataFrame:
        reader = self._source.spark.read.options(**_OPTIONS).schema(self._stored)
        if self._by_path:
            reader = reader.option("basePath", self._source.uri(f"{self._snapshot.root}x").removesuffix("/x"))
        else:
            reader = reader.option("recursiveFileLookup", "true")
        return reader.parquet(*self._files)

    @property
    def rows(self) -> DataFrame:
        """The rows of the files, deleted ones included."""
        return self._constants(self._read) if self.complete else self._valued(self._located(self._read))

    @property
    def live(self) -> DataFrame:
        """The rows that their deletion vectors do not delete."""
        rows = self._located(self._read)
        deleted = self._deleted()
        if deleted is not None:
            keys = [_ROW] if len(self._files) == 1 else [_FILE, _ROW]
            rows = rows.join(deleted.select(*keys), keys, "left_anti")
        return self._constants(rows) if self.complete else self._valued(rows)

    @property
    def complete(self) -> bool:
        """Whether the scan has the partition columns without a join."""
        return self._by_path or self._constant or not self._partitioned

    def _located(self, rows: DataFrame) -> DataFrame:
        metadata = rows.metadataColumn("_metadata")
        return rows.select("*", metadata.getField(self._key).alias(_FILE), metadata.getField("row_index").alias(_ROW))

    def _deleted(self) -> DataFrame | None:
        paths, positions = [], []
        for path, file in self._by_key().items():
            deleted = read_deletions(self._source.handle.store, file, self._snapshot.locate)
            paths.append(pa.repeat(pa.scalar(path, pa.string()), len(deleted)))
            positions.append(deleted)
        table = pa.table({_FILE: pa.chunked_array(paths, pa.string()), _ROW: pa.chunked_array(positions, pa.int64())})
        return F.broadcast(self._source.spark.createDataFrame(table)) if len(table) else None

    def _constants(self, rows: DataFrame) -> DataFrame:
        """Add the values of the partition columns where all files have the same."""
        if not self._constant:
            return rows
        file = next(iter(self._files.values()))
        values = {field.name: partition_value(file, field.name, field.type) for field in self._partitioned}
        return rows.withColumns({name: literal(each).cast(self._types[name]) for name, each in values.items()})

    def _valued(self, rows: DataFrame) -> DataFrame:
        """Add the values of the partition columns."""
        found = self._by_key()
        columns: list[pa.Array] = [pa.array(list(found), pa.string())]
        columns += [
            pa.array([partition_value(file, field.name, field.type) for file in found.values()], field.type)
            for field in self._partitioned
        ]
        schema = pa.schema([pa.field(_FILE, pa.string()), *self._partitioned])
        values = self._source.spark.createDataFrame(pa.Table.from_arrays(columns, schema=schema))
        return rows.join(F.broadcast(values), _FILE)

    def _by_key(self) -> Mapping[str, AddFile]:
        """Return the files by what a scan says of them: their names where those differ, else their paths."""
        if self._key == "file_name":
            return {uri.rpartition("/")[2]: file for uri, file in self._files.items()}
        known = {_plain(uri): file for uri, file in self._files.items()}
        found = {_shown(path): known.pop(_plain(unquote(path)), None) for path in self._read.inputFiles()}
        if known:
            raise Unavailable(f"Spark does not list the data file {min(known)}: read the table again")
        return {path: file for path, file in found.items() if file is not None}


def _plain(uri: str) -> str:
    """Return a URI without the slashes that a scheme may have."""
    scheme, _, rest = uri.partition(":")
    return f"{scheme}:{rest.lstrip('/')}"


def _shown(path: str) -> str:
    """Return a path of `inputFiles` as `_metadata` has it."""
    return path.replace("file:///", "file:/", 1)
