"""Read a few fields of all actions of a set, in batches, keeping nothing of what is opened for it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.files.columns import canonical_paths, with_vectors
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.log.files.rows import LogRows, T
from alluvia.delta.log.files.sidecars import SidecarRows

GROUP_ROWS = 1 << 14
SIDECARS_AT_ONCE = 16
"""Sidecars that are fetched together, and so are in memory together."""
VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
KEY_FIELDS = {"path": pa.string(), "deletionVector": VECTOR}


def scanned(actions: ActionSet[T], fields: Mapping[str, pa.DataType]) -> Iterator[pa.StructArray]:
    """Yield the actions of a set as structs: `path` (canonical), `deletionVector`, and some fields more.

    A closed sidecar is fetched and forgotten, so that memory depends neither on the number of files nor of sidecars.
    """
    wanted = {**KEY_FIELDS, **fields}
    kinds = [pa.field(name, kind) for name, kind in wanted.items()]
    for sections in (actions.parts, *((layer.rows,) for layer in actions.layers)):
        newer = actions.keys_above(sections[0]) if sections else pa.array([], pa.string())
        for batch in grouped(rows for section in _opened(sections) for rows in section.structs(wanted)):
            paths = canonical_paths(pc.struct_field(batch, "path"))
            others = [pc.struct_field(batch, name) for name in wanted if name != "path"]
            found = pa.StructArray.from_arrays([paths, *others], fields=kinds)
            if len(newer):
                hidden = pc.is_in(with_vectors(paths, others[0]), value_set=newer)
                found = pc.filter(found, pc.invert(hidden))
            yield found


def _opened(sections: Iterable[LogRows[T]]) -> Iterator[LogRows[T]]:
    """Yield rows that can be read, of each section; those of closed sidecars come last."""
    closed: list[SidecarRows[T]] = []
    for section in sections:
        if isinstance(section, SidecarRows) and not section.is_open:
            closed.append(section)
        else:
            yield section
    waiting = iter(closed)
    while several := list(islice(waiting, SIDECARS_AT_ONCE)):
        data = several[0].file.fetch([each.file.name for each in several])
        for section, body in zip(several, data, strict=True):
            yield section.read(body)


def grouped(batches: Iterable[pa.StructArray], rows_max: int = GROUP_ROWS) -> Iterator[pa.StructArray]:
    """Yield the rows of some batches in bigger ones, of so many rows or less."""
    held: list[pa.StructArray] = []
    for batch in batches:
        if held and sum(map(len, held)) + len(batch) > rows_max:
            yield pa.concat_arrays(held)
            held = []
        if len(batch):
            held.append(batch)
    if held:
        yield pa.concat_arrays(held)
