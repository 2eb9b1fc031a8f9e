"""Events whose id occurs several times in a job's input: which of them is the row, and which have other content. Pure.

The first one is the row. Those with the same content are duplicates of it; those with other content are rejects.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from alluvia_spark.chunks import (
    CONTENT,
    EVENT_ID,
    ROW,
    SOURCE,
    Chunk,
    by_event,
    decode,
    encode,
    first_of_each,
    identities,
)
from alluvia_spark.job import ROWS, Job
from alluvia_spark.plan import Group, Layout


class IdChunk(NamedTuple):
    """The identities of a chunk's events, as their event ids, with their places in its task, and rows' contents."""

    group: Group
    task: int
    payload: bytes


class Repeats(NamedTuple):
    """What some identities that occur several times mean.

    winners: those in several partitions, each with the group that keeps its event. clashes: by task, the places of the
    rows whose content is not that of their identity's first.
    """

    winners: list[tuple[Group, str]]
    clashes: dict[int, array[int]]


def event_ids(
    job: Job, layouts: Mapping[int, Layout], tables: frozenset[int], parts: int, chunk: Chunk
) -> Iterator[tuple[int, IdChunk]]:
    """Yield the identities of a chunk's events, divided so that equal ones meet in one of `parts` tasks."""
    if chunk.table in tables:
        schema = job.targets[chunk.table].schema
        names = [name for name in (EVENT_ID, SOURCE) if name in schema.names]
        added = [ROW, CONTENT] if chunk.table == ROWS else [ROW]
        places = [*map(schema.get_field_index, names), *range(len(schema), len(schema) + len(added))]
        found = decode(chunk.payload, places)
        ids = pa.table({EVENT_ID: identities(found), **{name: found[name] for name in added}})
        for group, start, end in layouts[chunk.table].places(chunk.groups):
            for number, part in by_event(ids.slice(start, end - start), parts):
                yield number, IdChunk(group, chunk.task, encode(part))


def find_repeats(chunks: Iterable[IdChunk]) -> list[Repeats]:
    """Return what the identities among some chunks that occur several times mean, by table."""
    groups: dict[Group, int] = {}
    tables: dict[int, list[pa.Table]] = {}
    for chunk in chunks:
        number = groups.setdefault(chunk.group, len(groups))
        ids = decode(chunk.payload)
        ids = ids.append_column("group", pa.repeat(number, len(ids)))
        ids = ids.append_column("task", pa.repeat(chunk.task, len(ids)))
        tables.setdefault(chunk.group.table, []).append(ids)
    names = list(groups)
    found = (_repeated(pa.concat_tables(parts)) for parts in tables.values())
    return [Repeats(_winners(ids, names), _clashes(ids)) for ids in found if len(ids)]


def _repeated(ids: pa.Table) -> pa.Table:
    """Return the occurrences of identities that have several, in the input's order."""
    numbers = ids[EVENT_ID].combine_chunks().dictionary_encode()
    if len(numbers.dictionary) == len(ids):
        return ids.slice(0, 0)
    counts = pc.value_counts(numbers.indices)
    several = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    return ids.filter(pc.is_in(numbers.indices, several)).sort_by([("task", "ascending"), (ROW, "ascending")])


def _winners(ids: pa.Table, groups: list[Group]) -> list[tuple[Group, str]]:
    numbers = ids[EVENT_ID].combine_chunks().dictionary_encode().indices
    whence = pa.table({"id": numbers, "group": ids["group"]})
    spans = whence.group_by("id", use_threads=False).aggregate([("group", "min"), ("group", "max")])
    several = spans.filter(pc.not_equal(spans["group_min"], spans["group_max"]))["id"]
    first = first_of_each(ids.filter(pc.is_in(numbers, several.combine_chunks())))
    return [(groups[row["group"]], row[EVENT_ID]) for row in first.select([EVENT_ID, "group"]).to_pylist()]


def _clashes(ids: pa.Table) -> dict[int, array[int]]:
    if CONTENT not in ids.column_names:
        return {}
    numbers = ids[EVENT_ID].combine_chunks().dictionary_encode().indices
    contents = pa.table({"id": numbers, "content": ids[CONTENT]})
    firsts = contents.group_by("id", use_threads=False).aggregate([("content", "first")]).sort_by("id")
    others = ids.filter(pc.not_equal(ids[CONTENT], firsts["content_first"].take(numbers)))
    found: dict[int, array[int]] = {}
    for task, place in zip(others["task"].to_pylist(), others[ROW].to_pylist(), strict=True):
        found.setdefault(task, array("q")).append(place)
    return found
