"""Which versions of a log belong to the current table, and which to dropped tables with the same name. Pure.

A dropped table's log continues, because the log coordinates writers. The drop is a commit that removes all files and
marks the metadata, and a table that is created or undropped afterwards takes the next version. So versions never start
again, and nothing cached about one table can be applied to another. The marks are properties that only this library
sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from alluvia.errors import Corrupt
from alluvia.lazy_dataclasses import dataclass

DROPPED = "alluvia.dropped"
"""The version of the drop, as long as there is no table of that name."""
DROPPED_TABLES = "alluvia.dropped_tables"
VERSION_GAPS = "alluvia.version_gaps"
UNDONE = "alluvia.undone_versions"
"""The versions whose events a restore or a replacement removed, so that they may be sent again: first and last of each
range."""
LINEAGE = (DROPPED, DROPPED_TABLES, VERSION_GAPS)

Gaps = tuple[tuple[int, int], ...]
"""First and last version of each range, in order, in which the table was not there."""


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A table that was dropped in `version`, at `dropped_ms`: what it was is the version before.

    `parent_id` is the id of the table that it went with, if it held that one's rejected events.
    """

    version: int
    table_id: str
    dropped_ms: int
    parent_id: str | None = None


def is_dropped(configuration: Mapping[str, str]) -> bool:
    """Whether these are the properties of a log whose table was dropped."""
    return DROPPED in configuration


def dropped_tables(configuration: Mapping[str, str]) -> tuple[DroppedTable, ...]:
    """Return the tables of this log that were dropped and not brought back, oldest first. Raises `Corrupt`."""
    entries = _read(configuration, DROPPED_TABLES)
    try:
        return tuple(DroppedTable(int(e["version"]), e["id"], int(e["droppedMs"]), e.get("parentId")) for e in entries)
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(_broken(DROPPED_TABLES)) from error


def version_gaps(configuration: Mapping[str, str]) -> Gaps:
    """Return the ranges of versions that are not the table's own. Raises `Corrupt`."""
    return _ranges(configuration, VERSION_GAPS)


def undone_versions(configuration: Mapping[str, str]) -> Gaps:
    """Return the ranges of versions whose events restores and replacements have removed. Raises `Corrupt`."""
    return _ranges(configuration, UNDONE)


def _ranges(configuration: Mapping[str, str], name: str) -> Gaps:
    try:
        return tuple((int(first), int(last)) for first, last in _read(configuration, name))
    except (TypeError, ValueError) as error:
        raise Corrupt(_broken(name)) from error


def with_undone(configuration: Mapping[str, str], ranges: Sequence[tuple[int, int]]) -> dict[str, str]:
    """Return properties that say so of these versions, and of no others."""
    rest = {name: text for name, text in configuration.items() if name != UNDONE}
    return {**rest, UNDONE: orjson.dumps(ranges).decode()} if ranges else rest


def in_gap(gaps: Gaps, version: int) -> bool:
    """Whether a version is not the table's own."""
    return any(first <= version <= last for first, last in gaps)


def is_own_commit(gaps: Gaps, version: int) -> bool:
    """Whether a version's commit is one of the table's history: it made a version of its own, or dropped it."""
    return not in_gap(gaps, version) or (version > 0 and any(first == version for first, _ in gaps))


def below_gap(gaps: Gaps, version: int) -> int:
    """Return the table's own newest version at or below a version; -1 if there is none."""
    for first, last in reversed(gaps):
        if first <= version <= last:
            version = first - 1
    return version


def first_version(gaps: Gaps) -> int:
    """Return the version that the table was created in."""
    return gaps[0][1] + 1 if gaps and gaps[0][0] == 0 else 0


def with_gap(gaps: Gaps, first: int, last: int) -> Gaps:
    """Return ranges with one more, above all of them."""
    if gaps and gaps[-1][1] + 1 >= first:
        return (*gaps[:-1], (gaps[-1][0], last))
    return (*gaps, (first, last))


def marked(
    configuration: Mapping[str, str],
    tables: Sequence[DroppedTable],
    gaps: Gaps = (),
    dropped_in: int | None = None,
) -> dict[str, str]:
    """Return properties with these marks and no others. `dropped_in` is the version of a drop that is in force."""
    marks: dict[str, str] = {} if dropped_in is None else {DROPPED: str(dropped_in)}
    if tables:
        marks[DROPPED_TABLES] = orjson.dumps([_entry(table) for table in tables]).decode()
    if gaps:
        marks[VERSION_GAPS] = orjson.dumps(gaps).decode()
    return {name: text for name, text in configuration.items() if name not in LINEAGE} | marks


def without_marks(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return properties without any mark, as the first version of a table has them."""
    return {name: text for name, text in configuration.items() if name not in (*LINEAGE, UNDONE)}


def with_marks_of(configuration: Mapping[str, str], marked: Mapping[str, str]) -> dict[str, str]:
    """Return properties with all marks of others, those of restores too, and none of their own."""
    return without_marks(configuration) | {name: marked[name] for name in (*LINEAGE, UNDONE) if name in marked}


def _entry(table: DroppedTable) -> dict[str, Any]:
    entry = {"version": table.version, "id": table.table_id, "droppedMs": table.dropped_ms}
    return entry if table.parent_id is None else {**entry, "parentId": table.parent_id}


def _read(configuration: Mapping[str, str], name: str) -> list[Any]:
    text = configuration.get(name)
    if text is None:
        return []
    try:
        recorded = orjson.loads(text)
    except ValueError as error:
        raise Corrupt(_broken(name)) from error
    if not isinstance(recorded, list):
        raise Corrupt(_broken(name))
    return recorded


def _broken(name: str) -> str:
    return f"property {name} cannot be read: only this library may set it"
