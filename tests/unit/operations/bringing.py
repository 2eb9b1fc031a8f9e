"""Commits that have their event ids in files, as those of big backfills do, however few they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from alluvia.api.lake import Table
from alluvia.commit.changes import Changes
from alluvia.commit.event_window.id_files import ID_FOLDER, IdFiles, encode_range, files_info, heads_of, parts_of
from alluvia.commit.event_window.id_files import prints_of as prints_array
from alluvia.commit.event_window.id_runs import content_hashes
from alluvia.commit.event_window.window import fingerprints
from tests.contract.workers import events


def divided(ids: Sequence[str], files: IdFiles, contents: Sequence[bytes]) -> dict[int, bytes]:
    """Return the object of each range of some ids."""
    prints = fingerprints(ids, [""] * len(ids))
    numbers = parts_of(heads_of(prints_array(b"".join(prints))), files.ranges).to_pylist()
    found: dict[int, list[tuple[int, int, int]]] = {number: [] for number in range(files.ranges)}
    for number, each, content in zip(numbers, prints, contents, strict=True):
        fields = (each[:8], each[8:], content)
        head, tail, what = (int.from_bytes(field, "little") for field in fields)
        found[number].append((head, tail, what))
    return {number: encode_range(files, number, _columns(sorted(rows))) for number, rows in found.items()}


def bring(table: Table, *ids: str, files: IdFiles | None = None) -> int:
    """Append events in a commit that names files of their ids. Returns its version."""
    handle = table._handle
    files = files or IdFiles(f"{ID_FOLDER}{handle.clock.new_id()}/", len(ids), 2, 2, 64)
    snapshot = handle.newest()
    rows = events(snapshot.schema, ids)
    objects = divided(ids, files, content_hashes(rows))
    handle.store.put_new_many({handle.root + files.name(number): data for number, data in objects.items()})
    adds = handle.writer(snapshot).write(rows)
    info = files_info([replace(files, ids=len(ids))])
    commit = handle.transaction(snapshot).commit(Changes("WRITE", {"mode": "Append"}, adds=adds, info=info))
    assert commit is not None
    return commit.version


def _columns(rows: Sequence[tuple[int, int, int]]) -> pa.Table:
    kinds = (pa.uint64(), pa.uint32(), pa.uint32())
    return pa.table(
        [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)], ["head", "tail", "content"]
    )
