"""Encode checkpoints: a state as Parquet rows. Pure; encodes Parquet in memory.

Rows from an earlier checkpoint are copied as columns. If there are many, adds and all other actions have separate row
groups, so that a reader of one decodes little of the other. Source: Delta protocol, "Checkpoints" and "Checkpoint
Schema".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Protocol

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.arrow_parquet import pq
from alluvia.delta.log.actions import AddFile, RemoveFile
from alluvia.delta.log.fields import Json
from alluvia.delta.log.files.action_rows import LogRows, T
from alluvia.delta.log.files.columns import statistics_texts
from alluvia.delta.log.files.file_set import ActionSet, grouped
from alluvia.delta.log.files.sidecars import open_rows
from alluvia.delta.log.replay import State
from alluvia.lazy_dataclasses import dataclass

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
ADD = {
    "path": pa.string(),
    "partitionValues": _TEXT_MAP,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "stats": pa.string(),
    "tags": _TEXT_MAP,
    "deletionVector": _DELETION_VECTOR,
}
REMOVE = {
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
        "add": pa.struct(ADD),
        "remove": pa.struct(REMOVE),
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


STRUCT = "stats_parsed"
GROUP_ROWS = 16_384
"""Rows of a row group: a reader that needs a few files decodes the groups that hold them."""
JOINED_ROWS_MAX = 1024
"""Up to this many rows, one row group is smaller and faster to decode than one for each kind of action."""


class StructForm(Protocol):
    """How a checkpoint stores statistics and partition values as structs, which takes the table's schema to know."""

    @property
    def fields(self) -> Mapping[str, pa.DataType]:
        """Return the fields of an add that it fills: `stats_parsed`, `partitionValues_parsed`."""

    def filled(self, adds: pa.StructArray) -> list[pa.Array]:
        """Return those fields for adds that have all fields of `ADD`, and `stats_parsed` if they had it before."""

    def facts(self, rows: LogRows[AddFile]) -> str | None:
        """Return the statistics of many files together, in the form of one file's."""


@dataclass(frozen=True, slots=True)
class Form:
    """What a checkpoint holds of statistics: as JSON text, as structs, or as both."""

    json: bool = True
    structs: StructForm | None = None

    @property
    def add_fields(self) -> dict[str, pa.DataType]:
        """Return the fields of an add."""
        plain = {name: kind for name, kind in ADD.items() if self.json or name != "stats"}
        return plain | dict(self.structs.fields if self.structs is not None else {})


def write_checkpoint(state: State, tombstones_after_ms: int, form: Form | None = None) -> tuple[bytes, int]:
    """Return the Parquet bytes of a state's single-file checkpoint and its number of rows.

    Tombstones whose deletion lies at or before `tombstones_after_ms` are left out, as are removed domains.
    """
    form = form or Form()
    state = in_one_layer(state)
    open_rows((*state.files.parts, *state.tombstones.parts))
    add = pa.struct(list(form.add_fields.items()))
    schema = SCHEMA.set(SCHEMA.get_field_index("add"), pa.field("add", add))
    few = few_actions(state)
    together = len(few) + len(state.files) + len(state.tombstones) <= JOINED_ROWS_MAX
    tables = chain([_few_table(few, schema)], _file_actions(state, tombstones_after_ms, form, schema))
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        store_schema=False,
        write_page_checksum=True,
        use_dictionary=not together,  # of few rows they take longer than all else, and make a file no smaller
    ) as writer:
        rows = 0
        for table in _few_groups(tables):
            rows += len(table)
            writer.write_table(table, row_group_size=GROUP_ROWS)
    return sink.getvalue().to_pybytes(), rows


def in_one_layer(state: State) -> State:
    """Return a state whose file actions are cheaper to go through, which several may share."""
    return replace(state, files=state.files.in_one_layer(), tombstones=state.tombstones.in_one_layer())


def _few_table(few: Sequence[tuple[str, Json]], schema: pa.Schema) -> pa.Table:
    kinds = {kind for kind, _ in few}
    columns = [
        pa.array([body if kind == field.name else None for kind, body in few], field.type)
        if field.name in kinds
        else pa.nulls(len(few), field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _file_actions(state: State, after_ms: int, form: Form, schema: pa.Schema) -> Iterator[pa.Table]:
    for kind, batches in (
        ("remove", live_tombstones(state.tombstones, after_ms)),
        ("add", add_structs(state.files, form)),
    ):
        for batch in grouped(batches, GROUP_ROWS):
            columns = [
                batch if name == kind else pa.nulls(len(batch), schema.field(name).type) for name in schema.names
            ]
            yield pa.Table.from_arrays(columns, schema=schema)


def _few_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Join tables of few rows into one row group: each has a chunk of every column, however little is in it."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(map(len, held)) > JOINED_ROWS_MAX:
            yield from held
            yield from tables
            return
    yield pa.concat_tables(held)


def few_actions(state: State) -> list[tuple[str, Json]]:
    """Return the actions of a checkpoint other than file actions."""
    few: list[tuple[str, Json]] = [("protocol", state.protocol.to_json()), ("metaData", state.metadata.to_json())]
    few += [("txn", txn.to_json()) for txn in state.txns.values()]
    return few + [("domainMetadata", domain.to_json()) for domain in state.domains.values()]


def add_structs(files: ActionSet[AddFile], form: Form) -> Iterator[pa.StructArray]:
    """Yield the live adds of a state as a checkpoint has them."""
    for section in files.sections:
        yield from section_structs(files, section, form)


def section_structs(files: ActionSet[AddFile], section: LogRows[AddFile], form: Form) -> Iterator[pa.StructArray]:
    """Yield the live adds of one section of a state's files."""
    earlier = section.type_of((STRUCT,))
    kind = pa.struct(list(form.add_fields.items()))
    for adds in live_structs(files, section, ADD if earlier is None else {**ADD, STRUCT: earlier}):
        columns = dict(zip((field.name for field in adds.type), adds.flatten(), strict=True))
        columns["dataChange"] = pa.repeat(pa.scalar(value=False, type=pa.bool_()), len(adds))
        if form.structs is not None:
            columns |= dict(zip(form.structs.fields, form.structs.filled(adds), strict=True))
        if form.json and earlier is not None:
            columns["stats"] = _texts(columns["stats"], pc.struct_field(adds, STRUCT))
        yield pa.StructArray.from_arrays([columns[field.name] for field in kind], fields=list(kind))


def _texts(texts: pa.Array, structs: pa.Array) -> pa.Array:
    """Return statistics as JSON, including those that an earlier checkpoint held only as structs."""
    only = pc.and_(pc.is_null(texts), pc.is_valid(structs))
    if not pc.any(only).as_py():
        return texts
    made = statistics_texts(pc.filter(structs, only))
    return pc.replace_with_mask(texts, only, pa.array(made, pa.string()))


def live_structs(
    actions: ActionSet[T], section: LogRows[T], fields: Mapping[str, pa.DataType]
) -> Iterator[pa.StructArray]:
    """Yield the rows of a section that still hold, as structs of some fields."""
    shown = actions.shown(section)
    start = 0
    for batch in section.structs(fields):
        mask = None if shown is None else shown.slice(start, len(batch))
        start += len(batch)
        yield batch if mask is None else pc.filter(batch, mask)


def live_tombstones(tombstones: ActionSet[RemoveFile], after_ms: int) -> Iterator[pa.StructArray]:
    """Yield the tombstones that have not expired."""
    for section in tombstones.sections:
        yield from live_tombstones_of(tombstones, section, after_ms)


def live_tombstones_of(
    tombstones: ActionSet[RemoveFile], section: LogRows[RemoveFile], after_ms: int
) -> Iterator[pa.StructArray]:
    """Yield the tombstones of one section that have not expired."""
    for removes in live_structs(tombstones, section, REMOVE):
        never, after = pa.array([0, after_ms], pa.int64())  # plain numbers would load what parses dates
        times = pc.coalesce(pc.struct_field(removes, "deletionTimestamp"), never)
        yield pc.filter(removes, pc.greater(times, after))
