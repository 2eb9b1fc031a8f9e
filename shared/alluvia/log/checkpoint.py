"""Checkpoints: a state as Parquet rows, and back. Pure, apart from encoding Parquet in memory.

Source: Delta protocol, "Checkpoints" and "Checkpoint Schema".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from alluvia.errors import Corrupt, Unsupported
from alluvia.log.action_set import ActionSet
from alluvia.log.actions import AddFile, DomainMetadata, Json, Metadata, Protocol, RemoveFile, Txn
from alluvia.log.replay import State

_TEXT_MAP = pa.map_(pa.string(), pa.string())
_DELETION_VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
_ADD = {
    "path": pa.string(),
    "partitionValues": _TEXT_MAP,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "stats": pa.string(),
    "tags": _TEXT_MAP,
    "deletionVector": _DELETION_VECTOR,
}
_REMOVE = {
    "path": pa.string(),
    "deletionTimestamp": pa.int64(),
    "dataChange": pa.bool_(),
    "extendedFileMetadata": pa.bool_(),
    "partitionValues": _TEXT_MAP,
    "size": pa.int64(),
    "deletionVector": _DELETION_VECTOR,
}
SCHEMA = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(_ADD),
        "remove": pa.struct(_REMOVE),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXT_MAP}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXT_MAP,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
        "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
    }
)


def write_checkpoint(state: State, tombstones_after_ms: int) -> tuple[bytes, int]:
    """Return the Parquet bytes of a state's single-file checkpoint and its number of rows.

    Tombstones whose deletion lies at or before `tombstones_after_ms` are left out, as are removed domains.
    """
    live = [file for file in state.tombstones if file.deletion_timestamp > tombstones_after_ms]
    few: list[tuple[str, Json]] = [("protocol", state.protocol.to_json()), ("metaData", state.metadata.to_json())]
    few += [("txn", txn.to_json()) for txn in state.txns.values()]
    few += [("domainMetadata", domain.to_json()) for domain in state.domains.values()]
    few += [("remove", file.to_json()) for file in live]
    few += [("add", {**file.to_json(), "dataChange": False}) for file in state.files.added]
    tables = [pa.Table.from_pylist([{kind: body} for kind, body in few], schema=SCHEMA)]
    if state.files.base is not None and len(state.files.base):
        tables.append(_add_rows(state.files.base))
    table = pa.concat_tables(tables)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", row_group_size=100_000)
    return sink.getvalue().to_pybytes(), len(table)


def last_checkpoint(version: int, rows: int, size_in_bytes: int, files: int) -> bytes:
    """Return the body of `_last_checkpoint`."""
    return orjson.dumps({"version": version, "size": rows, "sizeInBytes": size_in_bytes, "numOfAddFiles": files})


def parse_last_checkpoint(data: bytes) -> int | None:
    """Return the version that a `_last_checkpoint` names; None when it cannot be read, since it is only a hint."""
    try:
        version = orjson.loads(data).get("version")
    except (ValueError, AttributeError):
        return None
    return version if isinstance(version, int) and version >= 0 else None


def read_checkpoint(version: int, parts: Sequence[tuple[str, bytes]]) -> State:
    """Read the state that a checkpoint's files (name and bytes of each) hold.

    Raises `Corrupt`, naming the file, if one cannot be read or if protocol or metadata are missing.
    """
    tables = [_read_part(name, data) for name, data in parts]
    names = ", ".join(name for name, _ in parts)
    protocols = [Protocol.from_json(row) for row in _rows(tables, "protocol", "minReaderVersion")]
    metadata = [Metadata.from_json(row) for row in _rows(tables, "metaData", "id")]
    if not protocols or not metadata:
        msg = f"checkpoint {names} holds no {'metaData' if protocols else 'protocol'} action"
        raise Corrupt(msg)
    txns = [Txn.from_json(row) for row in _rows(tables, "txn", "appId")]
    domains = [DomainMetadata.from_json(row) for row in _rows(tables, "domainMetadata", "domain")]
    return State(
        version,
        protocols[-1],
        metadata[-1],
        files=ActionSet(AddFile.from_json, _columns(tables, "add", _ADD)),
        tombstones=ActionSet(RemoveFile.from_json, _columns(tables, "remove", _REMOVE)),
        txns={txn.app_id: txn for txn in txns},
        domains={domain.domain: domain for domain in domains if not domain.removed},
    )


def _read_part(name: str, data: bytes) -> pa.Table:
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        roots = {column.split(".", 1)[0] for column in _leaves(file)}
        if "sidecar" in roots:
            msg = f"{name} is a v2 checkpoint with sidecars, which this version cannot read"
            raise Unsupported(msg)
        wanted = [column for column in _leaves(file) if not column.startswith(("add.stats_parsed", "add.partitionV"))]
        wanted += [column for column in _leaves(file) if column.startswith("add.partitionValues.")]
        return file.read(columns=wanted)
    except (pa.ArrowInvalid, OSError) as error:
        msg = f"{name} is not a readable Parquet file: {error}"
        raise Corrupt(msg) from error


def _leaves(file: pq.ParquetFile) -> list[str]:
    schema = file.schema
    return [schema.column(at).path for at in range(len(schema))]


def _rows(tables: Iterable[pa.Table], kind: str, key: str) -> list[dict[str, Any]]:
    found = []
    for table in tables:
        if kind in table.column_names:
            column = table[kind]
            valid = pc.is_valid(pc.struct_field(column, key))
            found += column.filter(valid).to_pylist(maps_as_pydicts="strict")
    return found


def _columns(tables: Iterable[pa.Table], kind: str, fields: dict[str, pa.DataType]) -> pa.Table | None:
    """Return the rows of one kind with its fields as columns, absent fields as nulls."""
    found = []
    for table in tables:
        if kind not in table.column_names:
            continue
        column = table[kind]
        rows = column.filter(pc.is_valid(pc.struct_field(column, "path"))).combine_chunks()
        if isinstance(rows, pa.ChunkedArray):
            rows = pa.concat_arrays(rows.chunks) if rows.num_chunks else pa.array([], column.type)
        present = {rows.type.field(at).name for at in range(rows.type.num_fields)}
        columns = {
            name: pc.struct_field(rows, name).cast(kind_) if name in present else pa.nulls(len(rows), kind_)
            for name, kind_ in fields.items()
        }
        found.append(pa.table(columns))
    whole = pa.concat_tables(found) if found else None
    return whole if whole is not None and len(whole) else None


def _add_rows(base: pa.Table) -> pa.Table:
    """Return a checkpoint's add rows again, under the whole checkpoint schema."""
    columns = [base[name].combine_chunks() for name in _ADD]
    columns[list(_ADD).index("dataChange")] = pa.array([False] * len(base), pa.bool_())
    flat = [column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks) for column in columns]
    adds = pa.StructArray.from_arrays(flat, fields=[pa.field(name, kind) for name, kind in _ADD.items()])
    arrays = [adds if field.name == "add" else pa.nulls(len(base), field.type) for field in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)
