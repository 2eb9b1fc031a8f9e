"""Turn a directory of Parquet files into a table: version 0 adds them, and no data is read or written.

Only the footer of each file is read, in one or two ranged GETs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice
from typing import Any

import pyarrow as pa

from alluvia.arrow_parquet import pq
from alluvia.commit.handle import TableHandle
from alluvia.delta.arguments import check_text
from alluvia.delta.file_columns import columns_tag
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.paths import is_absolute
from alluvia.delta.partitioning.partition import partition_text
from alluvia.delta.partitioning.values import infer_type, is_hidden, parse_partition_text, partition_texts
from alluvia.delta.properties import CONSTRAINT, check_properties, read_properties
from alluvia.delta.schema.column_mapping import own_names
from alluvia.delta.schema.serialization import primitive_type
from alluvia.delta.schema.types import type_name
from alluvia.delta.schema.unified import UnifiedSchema
from alluvia.delta.statistics.footer import StoredColumns, footer_bytes, footer_statistics, stored_columns
from alluvia.delta.statistics.vetting import vetted_footers
from alluvia.errors import Invalid, ObjectNotFound, TableExists, Unavailable
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import NewTable
from alluvia.operations.catalog.schemas import check_may_be_created
from alluvia.operations.tables.create import create, plan_create
from alluvia.operations.tables.drop import find_log
from alluvia.operations.tables.drop_plan import FirstVersion
from alluvia.store import ObjectInfo, Store

BATCH_FILES = 256
_FOLDER_MARKERS = ("/", "_$folder$")
"""Endings of the names of empty objects that some tools use for folders."""

Texts = dict[str, str | None]


@dataclass(slots=True)
class _ReadFiles:
    unified: UnifiedSchema = field(default_factory=UnifiedSchema)
    known: list[tuple[pq.FileMetaData, StoredColumns]] = field(default_factory=list)
    adds: list[tuple[AddFile, Texts]] = field(default_factory=list)


def convert(
    handle: TableHandle,
    *,
    partition_types: Mapping[str, str | pa.DataType] | None = None,
    sort_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> None:
    """Make a table of the files below a root, Hive partitions (`column=value` folders) included, in one commit.

    Every file that is not hidden must be Parquet; their schemas are unified. The type of a partition column is the one
    in `partition_types`, else inferred from its values. One LIST request per 1,000 files, one or two GETs a file, one
    PUT. Raises `TableExists`; `Invalid`, naming the file and the column, for what cannot be a table.
    """
    _check_free(handle)
    given = check_properties(properties or {})
    if any(name.startswith(CONSTRAINT) for name in given):
        raise Invalid(f"property {CONSTRAINT}…: a conversion does not read rows, so it cannot check the constraint")
    files = list(_files(handle))
    folders = {name for file in files for name in partition_texts(file.key)}
    stored = _read(handle.store, handle.root, files, folders, read_properties(given).indexed_columns)
    columns = _partition_columns(files, handle.name)
    kinds = {name: _kind(name, [texts[name] for _, texts in stored.adds], partition_types or {}) for name in columns}
    unknown = sorted(set(partition_types or {}) - set(columns))
    if unknown:
        raise Invalid(
            f"partition_types: {unknown[0]!r} is not a partition column; "
            f"the folders name {', '.join(columns) or 'none'}"
        )
    new = NewTable(_whole_schema(stored.unified.schema, kinds), columns, sort_by, given, cluster_by)
    metadata = plan_create(new, handle.clock.new_id(), handle.clock.now_ms(), own_names)  # which the files have
    adds = [_with_values(add, texts, kinds) for add, texts in stored.adds]
    create(handle, metadata, exist_ok=False, first=FirstVersion("CONVERT", adds=adds, new_log=True))


def read_files(store: Store, files: Sequence[ObjectInfo]) -> tuple[pa.Schema, list[AddFile]]:
    """Return the columns of Parquet files, Hive partitions included, and their adds; keys are those of the store.

    One or two GETs a file. Raises `Invalid`, naming the file and the column, for what cannot be a table.
    """
    folders = {name for file in files for name in partition_texts(file.key)}
    stored = _read(store, "", files, folders, read_properties({}).indexed_columns)
    columns = _partition_columns(files, "the table")
    kinds = {name: _kind(name, [texts[name] for _, texts in stored.adds], {}) for name in columns}
    return _whole_schema(stored.unified.schema, kinds), [_with_values(add, texts, kinds) for add, texts in stored.adds]


def check_place(store: Store, path: str, handle: TableHandle) -> None:
    """Raise `Invalid` unless a path (relative to the store's root, absolute, or a URI) is that of a table's root."""
    check_text("path", path, handle.name)
    root = handle.root.rstrip("/")
    whole = is_absolute(path)
    key = store.locate(path.rstrip("/")) if whole else path.removeprefix("./").rstrip("/")
    if key == root:
        return
    if whole and key is None:
        msg = f"path: {path!r} is outside the lake {store.uri}: open the lake at the directory above it"
    else:
        msg = (
            f"path: the table {handle.name!r} belongs at {root!r} in the lake, not at {path!r}: "
            "move the directory, or use another name"
        )
    raise Invalid(msg)


def _check_free(handle: TableHandle) -> None:
    check_may_be_created(handle.store, handle.name)
    there, may_be_dropped = find_log(handle.store, handle.root)
    if there:
        msg = f"{handle.name!r} is already a table"
        if may_be_dropped:
            msg = f"{handle.name!r} is a table or a dropped table, so it cannot be converted"
        raise TableExists(msg)


def _files(handle: TableHandle) -> Iterator[ObjectInfo]:
    """Yield the files below the root that are not hidden, their keys relative to it. Raises `Invalid` if none are."""
    none = True
    for info in handle.store.list(handle.root):
        path = info.key[len(handle.root) :]
        if "/_delta_log/" in path:
            msg = f"{path.partition('/_delta_log/')[0]} is itself a table, so {handle.name} cannot be converted"
            raise Invalid(msg)
        if is_hidden(path) or path.endswith(_FOLDER_MARKERS):
            continue
        none = False
        yield ObjectInfo(path, info.size, info.modified_ms)
    if none:
        raise Invalid(f"{handle.root.rstrip('/')!r} in the lake holds no Parquet files: there is nothing to convert")


def _partition_columns(files: Sequence[ObjectInfo], name: str) -> list[str]:
    """Return the partition columns, which must be the same, in one order, for all files."""
    columns = list(partition_texts(files[0].key))
    for file in files:
        others = list(partition_texts(file.key))
        if others != columns:
            raise Invalid(
                f"{file.key}: its folders name the partition columns {', '.join(others) or 'none'}, "
                f"but those of {files[0].key} {', '.join(columns) or 'none'}: {name} needs the same for all"
            )
    return columns


def _read(
    store: Store, root: str, files: Sequence[ObjectInfo], partitions: Collection[str], indexed: int
) -> _ReadFiles:
    """Read all footers, some at a time, keeping only what the log will hold."""
    stored = _ReadFiles()
    waiting = iter(files)
    while batch := list(islice(waiting, BATCH_FILES)):
        footers = list(store.map(lambda info: _footer(store, root, info), batch))
        for info, metadata in zip(batch, vetted_footers(footers), strict=True):
            if isinstance(metadata, Invalid):
                raise _refusal(info, metadata)
            columns = _columns(stored, info.key, metadata, partitions)
            stats = footer_statistics(metadata, columns, indexed, partitions)
            own = pa.schema([each for each in columns.schema if each.name not in partitions])
            add = AddFile(info.key, {}, info.size, info.modified_ms, True, stats, columns_tag(own, indexed))
            stored.adds.append((add, partition_texts(info.key)))
    return stored


def _footer(store: Store, root: str, info: ObjectInfo) -> bytes:
    key = root + info.key
    try:
        return footer_bytes(lambda start, end: store.get(key, start, end), info.size)
    except ObjectNotFound as error:
        msg = f"{info.key} was listed, but is gone: convert again when nothing else is changing the directory"
        raise Unavailable(msg) from error
    except Invalid as error:
        raise _refusal(info, error) from error


def _refusal(info: ObjectInfo, why: Invalid) -> Invalid:
    return Invalid(
        f"{info.key} cannot be part of a table: {why}; to exclude it, give it a name that starts with '_' or '.'"
    )


def _columns(so_far: _ReadFiles, file: str, metadata: pq.FileMetaData, partitions: Collection[str]) -> StoredColumns:
    """Return a file's columns, and add their types to the unified schema; files with the same schema cost that once."""
    for like, columns in so_far.known:
        if like.schema.equals(metadata.schema) and _arrow_schema(like) == _arrow_schema(metadata):
            return columns
    try:
        columns = stored_columns(metadata)
    except Invalid as error:
        raise Invalid(f"{file} cannot be part of a table: {error}") from error
    stored = [each for each in columns.schema if each.name not in partitions]
    if not stored:
        raise Invalid(f"{file}: all its columns are partition columns, so none is left for the data files")
    so_far.unified.add(file, pa.schema(stored))
    so_far.known.append((metadata, columns))
    return columns


def _arrow_schema(metadata: pq.FileMetaData) -> bytes | None:
    return (metadata.metadata or {}).get(b"ARROW:schema")


def _kind(name: str, texts: Sequence[str | None], given: Mapping[str, str | pa.DataType]) -> pa.DataType:
    kind: Any = given.get(name)
    if kind is None:
        return infer_type({text for text in texts if text is not None})
    return primitive_type(kind) if isinstance(kind, str) else kind


def _whole_schema(stored: pa.Schema, partitions: Mapping[str, pa.DataType]) -> pa.Schema:
    for name in stored.names:
        if name.lower() in {each.lower() for each in partitions}:
            msg = f"column {name} of the files and a partition column differ only in case, which Delta does not allow"
            raise Invalid(msg)
    return pa.schema([*stored, *(pa.field(name, kind) for name, kind in partitions.items())])


def _with_values(add: AddFile, texts: Texts, kinds: Mapping[str, pa.DataType]) -> AddFile:
    values: Texts = {}
    for name, kind in kinds.items():
        try:
            values[name] = partition_text(parse_partition_text(texts[name], kind), name)
        except (ValueError, ArithmeticError) as error:
            raise Invalid(
                f"{add.path}: partition column {name}: {texts[name]!r} is not a valid {type_name(kind)}; "
                "set its type in partition_types"
            ) from error
    return replace(add, partition_values=values)
