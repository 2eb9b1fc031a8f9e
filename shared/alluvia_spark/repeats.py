"""Events that come several times: which of them is the row, and which have other content. Pure.

The one in the table is the row, else the first of the input. Of the others, those with the same content are duplicates
of it, and those with other content are rejects.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from alluvia.table.event_window.id_files import parts_of
from alluvia_spark.chunks import CONTENT, HEAD, ROW, TAIL
from alluvia_spark.job import ROWS

LIVE = -1
"""The task of events that are in the table already."""
TABLE = "table"
TASK = "task"
KIND = "kind"
IDS = pa.schema(
    {TABLE: pa.int8(), TASK: pa.int32(), ROW: pa.int32(), HEAD: pa.uint64(), TAIL: pa.uint32(), CONTENT: pa.uint32()}
)
DUPLICATE, CLASH, CLASH_AGAIN = 0, 1, 2
DROPS = pa.schema({TASK: pa.int32(), ROW: pa.int32(), KIND: pa.int8()})
"""Rows that are not to be written, by reading task and place. Of clashes that are alike, one is kept as a reject."""
_NO_CONTENT = pa.scalar(0, pa.uint32())
_INSTEAD = pa.scalar(1 << 24, pa.uint32())  # as ingestion has it


def ids_of(table: int, task: int, rows: pa.Table) -> pa.Table:
    """Return the identities of a chunk's rows, or of live ones."""
    count = len(rows)
    content = rows[CONTENT] if table == ROWS and task != LIVE else pa.repeat(_NO_CONTENT, count)
    content = pc.if_else(pc.equal(content, _NO_CONTENT), _INSTEAD, content)
    places = pa.repeat(pa.scalar(0, pa.int32()), count) if task == LIVE else rows[ROW]
    columns = [pa.repeat(pa.scalar(number, kind), count) for number, kind in ((table, pa.int8()), (task, pa.int32()))]
    return pa.Table.from_arrays([*columns, places, rows[HEAD], rows[TAIL], content], schema=IDS)


def divided(ids: pa.Table, parts: int) -> Iterator[tuple[int, pa.Table]]:
    """Yield identities by which of `parts` ranges of fingerprints they are in."""
    if parts == 1:
        yield 0, ids
        return
    numbers = parts_of(ids[HEAD], parts)
    order = pc.sort_indices(numbers)
    ids, counts, start = ids.take(order), pc.value_counts(numbers.take(order)), 0
    for number, count in zip(*(counts.field(at).to_pylist() for at in (0, 1)), strict=True):
        yield number, ids.slice(start, count)
        start += count


def find_repeats(ids: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return which events of one range are not to be written, and the rows that are: fingerprints, sorted, contents."""
    ids = ids.take(pc.sort_indices(ids[HEAD])).combine_chunks()
    heads = ids[HEAD]
    same = (
        pc.equal(heads.slice(1), heads.slice(0, max(0, len(ids) - 1))) if len(ids) else pa.chunked_array([], pa.bool_())
    )
    if not pc.any(same).as_py():
        return DROPS.empty_table(), _stored(ids)
    no = pa.chunked_array([pa.array([False])])
    several = pc.or_(_joined(no, same), _joined(same, no))
    keys = [TABLE, HEAD, TAIL, TASK, ROW]
    found = ids.filter(several).sort_by([(name, "ascending") for name in keys]).combine_chunks()
    begins = _begins(found, [TABLE, HEAD, TAIL])
    number = pc.subtract(pc.cumulative_sum(begins.cast(pa.int64())), 1)
    firsts = found.filter(begins)
    live = pc.equal(firsts[TASK], LIVE).take(number)
    differs = pc.and_not(pc.not_equal(found[CONTENT], firsts[CONTENT].take(number)), live)
    clash = pc.and_(differs, pc.equal(found[TABLE], ROWS))
    kinds = pc.if_else(clash, pa.scalar(CLASH, pa.int8()), pa.scalar(DUPLICATE, pa.int8()))
    lost = found.append_column(KIND, kinds).filter(pc.and_not(pc.invert(begins), pc.equal(found[TASK], LIVE)))
    rows = pa.concat_tables([ids.filter(pc.invert(several)), firsts])
    return _without_repeated_clashes(lost).select(DROPS.names), _stored(rows)


def _without_repeated_clashes(lost: pa.Table) -> pa.Table:
    clashing = pc.equal(lost[KIND], CLASH)
    clashes = lost.filter(clashing)
    if len(clashes) < 2:
        return lost
    clashes = clashes.sort_by([(name, "ascending") for name in (HEAD, TAIL, CONTENT, TASK, ROW)]).combine_chunks()
    again = pc.invert(_begins(clashes, [HEAD, TAIL, CONTENT]))
    kinds = pc.if_else(again, pa.scalar(CLASH_AGAIN, pa.int8()), pa.scalar(CLASH, pa.int8()))
    clashes = clashes.set_column(clashes.column_names.index(KIND), KIND, kinds)
    return pa.concat_tables([lost.filter(pc.invert(clashing)), clashes])


def _begins(rows: pa.Table, names: list[str]) -> pa.ChunkedArray:
    """Return which of some sorted rows differ from the row before."""
    before, after = rows.slice(0, len(rows) - 1), rows.slice(1)
    changed = pc.not_equal(after[names[0]], before[names[0]])
    for name in names[1:]:
        changed = pc.or_(changed, pc.not_equal(after[name], before[name]))
    return _joined(pa.chunked_array([pa.array([True])]), changed)


def _joined(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([*one.chunks, *other.chunks], one.type)


def _stored(ids: pa.Table) -> pa.Table:
    new = ids.filter(pc.and_(pc.equal(ids[TABLE], ROWS), pc.not_equal(ids[TASK], LIVE)))
    return new.select([HEAD, TAIL, CONTENT]).sort_by(HEAD)
