"""Events that come several times: which of them is the row, and which have other content. Pure.

The one in the table is the row, else the first of the input. Of the others, those with the same content are duplicates
of it, and those with other content are rejects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from alluvia.commit.event_window.id_files import parts_of
from alluvia.commit.event_window.id_runs import CONTENT_BYTES, FINGERPRINT
from alluvia.commit.event_window.window import UNKNOWN
from alluvia_spark.chunks import CONTENT, HEAD, ROW, TAIL

LIVE = -1
"""The task of events that are in the table already."""
TASK = "task"
KIND = "kind"
IDS = pa.schema({TASK: pa.int32(), ROW: pa.int32(), HEAD: pa.uint64(), TAIL: pa.uint32(), CONTENT: pa.uint32()})
DUPLICATE, CLASH = 0, 1
DROPS = pa.schema({TASK: pa.int32(), ROW: pa.int32(), KIND: pa.int8()})
"""Rows of one table that are not to be written, by reading task and place among the task's rows of that table."""
Contents: TypeAlias = Callable[[Sequence[bytes]], Mapping[bytes, Collection[bytes]]]
"""Returns the contents under which a table knows some fingerprints."""
_NO_CONTENT = pa.scalar(0, pa.uint32())
_INSTEAD = pa.scalar(1 << 24, pa.uint32())  # as ingestion has it


def nothing_known(_: Sequence[bytes]) -> Mapping[bytes, Collection[bytes]]:
    """Return the contents where a table knows ids alone."""
    return {}


def ids_of(task: int, rows: pa.Table) -> pa.Table:
    """Return the identities of a chunk's rows, or of live ones; rows without the column `CONTENT` are all alike."""
    count = len(rows)
    content = rows[CONTENT] if CONTENT in rows.column_names else pa.repeat(_NO_CONTENT, count)
    content = pc.if_else(pc.equal(content, _NO_CONTENT), _INSTEAD, content)
    places = pa.repeat(pa.scalar(0, pa.int32()), count) if task == LIVE else rows[ROW]
    numbers = pa.repeat(pa.scalar(task, pa.int32()), count)
    return pa.Table.from_arrays([numbers, places, rows[HEAD], rows[TAIL], content], schema=IDS)


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


def find_repeats(ids: pa.Table, known: Contents = nothing_known) -> tuple[pa.Table, pa.Table]:
    """Return which events of one range are not to be written, and those that are: fingerprints, sorted, contents.

    `ids` are of one table. `known` is asked for the contents of events that are live; without an answer, what comes
    again is a duplicate.
    """
    ids = ids.take(pc.sort_indices(ids[HEAD])).combine_chunks()
    heads = ids[HEAD]
    same = (
        pc.equal(heads.slice(1), heads.slice(0, max(0, len(ids) - 1))) if len(ids) else pa.chunked_array([], pa.bool_())
    )
    if not pc.any(same).as_py():
        return DROPS.empty_table(), _stored(ids)
    no = pa.chunked_array([pa.array([False])])
    several = pc.or_(_joined(no, same), _joined(same, no))
    keys = [HEAD, TAIL, TASK, ROW]
    ordered = ids.filter(several).sort_by([(name, "ascending") for name in keys]).combine_chunks()
    begins = _begins(ordered, [HEAD, TAIL])
    number = _numbers(ordered)
    firsts = ordered.filter(begins)
    live = pc.equal(firsts[TASK], LIVE).take(number)
    lost = pc.and_not(pc.invert(begins), pc.equal(ordered[TASK], LIVE))
    differs = pc.and_not(pc.not_equal(ordered[CONTENT], firsts[CONTENT].take(number)), live).filter(lost)
    rows, of_live = ordered.filter(lost), live.filter(lost)
    if pc.any(of_live).as_py():
        clashes = _clashes(rows.filter(of_live), known)
        differs = pa.chunked_array([pc.replace_with_mask(_array(differs), _array(of_live), clashes)])
    kinds = pc.if_else(differs, pa.scalar(CLASH, pa.int8()), pa.scalar(DUPLICATE, pa.int8()))
    return rows.append_column(KIND, kinds).select(DROPS.names), _stored(
        pa.concat_tables([ids.filter(pc.invert(several)), firsts])
    )


def find_absent(ids: pa.Table, known: Contents = nothing_known) -> pa.Table:
    """Return which events of one range are not live, or have other content than the rows of their id.

    The latter are `CLASH`, the former `DUPLICATE`, as all that come again of an event that is not live. `known` is
    asked for the contents of live events; without an answer for each of the rows, the first event is taken for one.
    """
    ordered = ids.sort_by([(name, "ascending") for name in (HEAD, TAIL, TASK, ROW)]).combine_chunks()
    if not len(ordered):
        return DROPS.empty_table()
    number, stored = _numbers(ordered), pc.equal(ordered[TASK], LIVE)
    lives = Counter(number.filter(stored).to_pylist())
    number, rows = number.filter(pc.invert(stored)), ordered.filter(pc.invert(stored))
    if not len(rows):
        return DROPS.empty_table()
    live = pc.is_in(number, pa.array(lives, number.type))
    firsts = rows.filter(_begins(rows, [HEAD, TAIL]))[CONTENT]
    clash = pc.and_(live, pc.not_equal(rows[CONTENT], firsts.take(_numbers(rows))))
    if lives and pc.any(live).as_py():
        counts = [lives[each] for each in number.filter(live).to_pylist()]
        judged = _clashes(rows.filter(live), known, counts, clash.filter(live).to_pylist())
        clash = pa.chunked_array([pc.replace_with_mask(_array(clash), _array(live), judged)])
    kinds = pc.if_else(clash, pa.scalar(CLASH, pa.int8()), pa.scalar(DUPLICATE, pa.int8()))
    return rows.append_column(KIND, kinds).filter(pc.or_(clash, pc.invert(live))).select(DROPS.names)


def _clashes(
    rows: pa.Table, known: Contents, lives: Sequence[int] | None = None, unknown: Sequence[bool] | None = None
) -> pa.Array:
    """Return which of some events, all of them live, the table knows with other content alone.

    `lives` says how many rows have the id of each event, one by default. `unknown` says whether an event clashes if the
    table does not know that many contents; by default it does not.
    """
    prints = [FINGERPRINT.pack(*each) for each in zip(rows[HEAD].to_pylist(), rows[TAIL].to_pylist(), strict=True)]
    held = known(prints)
    clashing = []
    for each, content, live, otherwise in zip(
        prints,
        rows[CONTENT].to_pylist(),
        lives or [1] * len(prints),
        unknown or [False] * len(prints),
        strict=True,
    ):
        contents = held.get(each, ())
        same = content.to_bytes(CONTENT_BYTES, "little") in contents
        complete = len(contents) >= live and UNKNOWN not in contents
        clashing.append(not same and (complete or otherwise))
    return pa.array(clashing, pa.bool_())


def _numbers(rows: pa.Table) -> pa.ChunkedArray:
    """Return the number of each sorted row's id."""
    return pc.subtract(pc.cumulative_sum(_begins(rows, [HEAD, TAIL]).cast(pa.int64())), 1)


def _begins(rows: pa.Table, names: list[str]) -> pa.ChunkedArray:
    """Return which of some sorted rows differ from the row before."""
    before, after = rows.slice(0, len(rows) - 1), rows.slice(1)
    changed = pc.not_equal(after[names[0]], before[names[0]])
    for name in names[1:]:
        changed = pc.or_(changed, pc.not_equal(after[name], before[name]))
    return _joined(pa.chunked_array([pa.array([True])]), changed)


def _joined(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([*one.chunks, *other.chunks], one.type)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks)


def _stored(ids: pa.Table) -> pa.Table:
    new = ids.filter(pc.not_equal(ids[TASK], LIVE))
    return new.select([HEAD, TAIL, CONTENT]).sort_by(HEAD)
