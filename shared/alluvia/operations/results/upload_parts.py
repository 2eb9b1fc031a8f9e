"""Where a lake keeps files that come in parts: `_alluvia/uploads/<table>/<id>/`, until they are two days old.

They are needed until they are rows of a table. Every erasure of a table's rows deletes those for it, since they may
hold what was erased.
"""

from __future__ import annotations

from typing import NamedTuple

from alluvia.clock import Clock
from alluvia.store import Store

UPLOADS = "_alluvia/uploads/"
UPLOAD_MS_MAX = 24 * 3_600_000
"""How long an upload takes parts, and may be completed."""
KEPT_MS = 2 * UPLOAD_MS_MAX


class CleanedUploads(NamedTuple):
    """How many objects of uploads were deleted, with their bytes, and how many are left."""

    deleted: int
    deleted_bytes: int
    kept: int


def delete_uploads(store: Store, table: str) -> int:
    """Delete all parts of uploads for a table, and return how many objects there were. One LIST and bulk deletes."""
    keys = [info.key for info in store.list(f"{UPLOADS}{table}/")]
    if keys:
        store.delete(keys)
    return len(keys)


def clean_uploads(store: Store, clock: Clock, *, dry_run: bool = False) -> CleanedUploads:
    """Delete what is older than any upload. One LIST for each 1,000 objects, and a bulk delete; a dry run counts."""
    oldest_ms = clock.now_ms() - KEPT_MS
    infos = list(store.list(UPLOADS))
    gone = [info for info in infos if info.modified_ms < oldest_ms]
    if gone and not dry_run:
        store.delete([info.key for info in gone])
    return CleanedUploads(len(gone), sum(info.size for info in gone), len(infos) - len(gone))
