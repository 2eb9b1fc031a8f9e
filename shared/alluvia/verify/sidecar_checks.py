"""Compare a sidecar of a v2 checkpoint with what its action says about it. Pure.

Source: Delta protocol, "Sidecar File Information"; the facts in its tags are this library's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc

from alluvia.log.actions import AddFile, RemoveFile
from alluvia.log.files.parquet import ActionFile
from alluvia.log.files.rows import FileRows
from alluvia.log.files.sidecars import Sidecar, SidecarFacts
from alluvia.table.schema.column_path import find
from alluvia.verify.leaves import Leaf, excludes
from alluvia.verify.statistics_checks import bounds, read_statistics


def wrong_facts(sidecar: Sidecar, data: bytes, leaves: Sequence[Leaf]) -> str | None:
    """Return what its maker recorded of a sidecar that is not so; None if all is. Raises `Corrupt`.

    Readers pass sidecars over by these facts, so a wrong one hides files. `leaves` are the table's stored columns.
    """
    facts = SidecarFacts.from_tags(sidecar.tags)
    file = ActionFile(sidecar.name, data)
    adds: FileRows[AddFile] = FileRows(file, "add", AddFile.from_json)
    removes: FileRows[RemoveFile] = FileRows(file, "remove", RemoveFile.from_json)
    if facts is None:
        return None
    rows, others = (adds, removes) if facts.kind == "add" else (removes, adds)
    if facts.kind not in ("add", "remove") or len(others):
        return f"it is said to hold nothing but {facts.kind} actions"
    if facts.rows != len(rows):
        return f"it is said to hold {facts.rows} files, and holds {len(rows)}"
    if len(rows):
        keys = pc.min_max(rows.keys)
        if (facts.first_key, facts.last_key) != (keys["min"].as_py(), keys["max"].as_py()):
            return f"its files are said to go from {facts.first_key} to {facts.last_key}"
    if facts.size is not None and facts.size != rows.size("size"):
        return f"its files are said to have {facts.size} bytes, and have {rows.size('size')}"
    times: Any = rows.column(("deletionTimestamp",)) if facts.kind == "remove" else None
    if facts.deleted_ms_max is not None and times is not None and facts.deleted_ms_max != pc.max(times).as_py():
        return f"its last file is said to have been removed at {facts.deleted_ms_max}"
    return None if facts.kind != "add" else _wrong_statistics(facts.statistics, adds, leaves)


def _wrong_statistics(text: str | None, adds: FileRows[AddFile], leaves: Sequence[Leaf]) -> str | None:
    """Return what the statistics of all files together leave out of those of one."""
    together = read_statistics(text, leaves)
    if together is None:
        return "the statistics of its files together cannot be read"
    limits = [(leaf, *bounds(together, leaf), find(together.get("nullCount"), leaf.physical)) for leaf in leaves]
    known = [limit for limit in limits if limit[1:] != (None, None, None)]
    for file in adds.actions() if known else ():
        statistics = read_statistics(file.stats, leaves) or {}
        for leaf, low, high, nulls in known:
            least, greatest = bounds(statistics, leaf)
            if least is not None and greatest is not None and excludes(low, high, least, greatest, leaf.kind):
                return f"the values of {leaf.name} in {file.path} lie beyond those of its files together"
            if nulls == 0 and find(statistics.get("nullCount"), leaf.physical):
                return f"{leaf.name} has nulls in {file.path}, and none in its files together"
    return None
