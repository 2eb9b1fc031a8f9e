"""Build v2 checkpoints: which sidecars stay, which rows go into new ones, and the file that names them all. Pure.

A sidecar contains up to `rows_each` file actions of one kind, in commit order, so that files from one time are
together. It is written once, and every later checkpoint names it again until one of its files changes. So the cost of a
checkpoint depends on what changed since the last one. Source: Delta protocol, "V2 Spec" and "Sidecar Files".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.arrow_parquet import pq
from alluvia.delta.log.actions import AddFile, RemoveFile
from alluvia.delta.log.checkpoints.writer import (
    ADD,
    REMOVE,
    SCHEMA,
    Form,
    few_actions,
    live_tombstones_of,
    section_structs,
)
from alluvia.delta.log.files.action_rows import FileRows, LogRows, Parse, T
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.log.files.parquet import ActionFile
from alluvia.delta.log.files.sidecars import Sidecar, SidecarFacts, SidecarFile, SidecarRows, open_rows
from alluvia.delta.log.replay import State
from alluvia.lazy_dataclasses import dataclass

SIDECAR_ROWS = 1024
"""Rows of a sidecar, of a table that is not very big: a change of one file rewrites about this many."""
SIDECARS = 128
"""A table with more sidecars than this gets bigger ones: each costs its readers a request, and time of its own."""
_TAGS = pa.map_(pa.string(), pa.string())
# delta-spark 4.4 refuses a checkpoint without the columns of file actions, which are all null here.
_MANIFEST = SCHEMA.append(
    pa.field(
        "sidecar",
        pa.struct({"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64(), "tags": _TAGS}),
    )
).append(pa.field("checkpointMetadata", pa.struct({"version": pa.int64(), "tags": _TAGS})))  # fmt: skip


@dataclass(frozen=True, slots=True)
class SidecarPlan(Generic[T]):
    """A plan for one kind of file actions: sidecars that stay, and rows for new ones."""

    kept: Sequence[SidecarRows[T]]
    new: Sequence[pa.StructArray]


def rows_each(actions: int) -> int:
    """Return how many rows a new sidecar has at most: twice as many for four times the actions."""
    rows, most = SIDECAR_ROWS, SIDECARS * SIDECAR_ROWS
    while actions > most:
        rows, most = 2 * rows, 4 * most
    return rows


def plan_adds(files: ActionSet[AddFile], form: Form) -> SidecarPlan[AddFile]:
    """Divide the live files of a state."""
    return _plan(files, lambda section: section_structs(files, section, form))


def plan_removes(tombstones: ActionSet[RemoveFile], after_ms: int) -> SidecarPlan[RemoveFile]:
    """Divide the tombstones that have not expired. A sidecar stays until all of its tombstones have."""
    parts = [part for part in tombstones.parts if not _expired(part, after_ms)]
    young = ActionSet(RemoveFile.from_json, parts, tombstones.layers)
    return _plan(young, lambda section: live_tombstones_of(young, section, after_ms))


def _expired(part: LogRows[RemoveFile], after_ms: int) -> bool:
    facts = part.file.facts if isinstance(part, SidecarRows) else None
    return facts is not None and facts.deleted_ms_max is not None and facts.deleted_ms_max <= after_ms


def _plan(actions: ActionSet[T], structs_of: Callable[[LogRows[T]], Iterable[pa.StructArray]]) -> SidecarPlan[T]:
    """Keep sidecars that are big enough and unchanged; rewrite others, and combine small remainders with new rows.

    Of a table that has grown, each checkpoint also combines some old sidecars, no more than make a new one.
    """
    open_rows(part for part in actions.parts if actions.touches(part))
    each = rows_each(actions.expected_len)
    whole: list[SidecarRows[T]] = []
    small: list[SidecarRows[T]] = []
    new: list[pa.StructArray] = []
    loose: list[pa.StructArray] = []
    for section in actions.sections:
        if isinstance(section, SidecarRows) and section.file.facts is not None and actions.shown(section) is None:
            (whole if len(section) >= SIDECAR_ROWS // 2 else small).append(section)
            continue
        rows = [batch for batch in structs_of(section) if len(batch)]
        count = sum(map(len, rows))
        if isinstance(section, SidecarRows) and SIDECAR_ROWS // 2 <= count <= each:
            new.append(pa.concat_arrays(rows))
        else:
            loose += rows
    if len(small) == 1 and not loose:
        return SidecarPlan([*whole, *small], new)
    outgrown = _outgrown(whole, each) if loose else []
    open_rows([*small, *outgrown])
    if outgrown:
        new.append(pa.concat_arrays([batch for section in outgrown for batch in structs_of(section)]))
        whole = [section for section in whole if section not in outgrown]
    loose = [batch for section in small for batch in structs_of(section) if len(batch)] + loose
    return SidecarPlan(whole, [*new, *_cut(loose, each)])


def _outgrown(whole: Iterable[SidecarRows[T]], each: int) -> list[SidecarRows[T]]:
    """Return the first sidecars that a smaller table had, as many as fit into one: two or more, or none."""
    small: list[SidecarRows[T]] = []
    for section in whole:
        if len(section) <= each // 2:
            if sum(map(len, small)) + len(section) > each:
                break
            small.append(section)
    return small if len(small) > 1 else []


def _cut(loose: Sequence[pa.StructArray], each: int) -> list[pa.StructArray]:
    """Cut rows into pieces of a sidecar each; several are ordered by folder first, since a folder is a partition."""
    if not loose:
        return []
    rows = pa.concat_arrays(loose)
    if len(rows) > each:
        folders = pc.replace_substring_regex(pc.struct_field(rows, "path"), "[^/]*$", "")
        rows = pc.take(rows, pc.sort_indices(folders))
    return [rows.slice(at, each) for at in range(0, len(rows), each)]


@dataclass(frozen=True, slots=True)
class NewSidecar(Generic[T]):
    """A sidecar to be written."""

    rows: SidecarRows[T]
    data: bytes


def new_sidecar(rows: pa.StructArray, kind: str, parse: Parse[T], name: str, now_ms: int, form: Form) -> NewSidecar[T]:
    """Return a sidecar with some rows, under a name below the table's root."""
    sink = pa.BufferOutputStream()
    table = pa.Table.from_arrays([rows], names=[kind])
    pq.write_table(
        table, sink, compression="zstd", store_schema=False, write_statistics=[f"{kind}.path"], write_page_checksum=True
    )
    data = sink.getvalue().to_pybytes()
    sidecar: FileRows[Any] = FileRows(ActionFile(name, data), kind, parse)
    keys = pc.min_max(sidecar.keys)
    facts = SidecarFacts(
        kind,
        len(rows),
        keys["min"].as_py(),
        keys["max"].as_py(),
        statistics=form.structs.facts(sidecar) if kind == "add" and form.structs is not None else None,
        size=sidecar.size("size") if kind == "add" else None,
        deleted_ms_max=pc.max(pc.struct_field(rows, "deletionTimestamp")).as_py() if kind == "remove" else None,
    )
    file = SidecarFile(Sidecar(name, len(data), now_ms, facts.to_tags()), _nothing)
    file.open(data)
    return NewSidecar(SidecarRows(file, kind, parse, ADD if kind == "add" else REMOVE), data)


def _nothing(names: Sequence[str]) -> Sequence[bytes]:
    raise AssertionError(f"{', '.join(names)} is open already")


def manifest(state: State, sidecars: Iterable[Sidecar]) -> tuple[bytes, int]:
    """Return the bytes of a v2 checkpoint of a state that names some sidecars, and its number of actions."""
    rows: list[tuple[str, Any]] = [("checkpointMetadata", {"version": state.version, "tags": {}})]
    rows += few_actions(state)
    rows += [("sidecar", sidecar.to_json()) for sidecar in sidecars]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist([{kind: body} for kind, body in rows], schema=_MANIFEST)
    pq.write_table(
        table, sink, compression="zstd", store_schema=False, write_statistics=False, write_page_checksum=True
    )
    return sink.getvalue().to_pybytes(), len(rows)
