"""The files of a table that its keepers need, for a vacuum or an erasure.

A vacuum looks twice: before it records what it gives up, and after that. What either look has found stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.handle import TableHandle
from alluvia.commit.reads import checkpointed
from alluvia.delta.log.checkpoints.putting import put_single
from alluvia.delta.log.checkpoints.writer import write_checkpoint
from alluvia.delta.log.paths import LOG_FOLDER, checkpoint_name, commit_name
from alluvia.delta.log.replay import Listing, find_segment, read_listing
from alluvia.delta.refs import (
    BRANCH,
    CLONE,
    FILES,
    Keeper,
    Keepers,
    find_keeper,
    keepers_of,
    kept_version,
    pin_key,
    release,
)
from alluvia.delta.snapshot import Snapshot
from alluvia.operations.checkpointing import form_of
from alluvia.operations.references.branch_store import delete_folder
from alluvia.operations.references.clones import is_orphan
from alluvia.operations.references.pinned_versions import PENDING_AGE_MS_MAX
from alluvia.operations.retention.path_hashes import NO_HASHES, hashed
from alluvia.operations.retention.vacuum_keys import needed
from alluvia.store import ObjectInfo

EXPIRED_AGE_MS_MIN = 24 * 60 * 60 * 1000
"""The time from a keeper's expiry to its deletion: until then, its name may be given again."""
CLONE_AGE_MS_MIN = 24 * 60 * 60 * 1000
"""A younger keeper of a clone stays, whatever its clone has: it may still be made."""


class KeptFiles:
    """What keepers need, gathered by looks: `versions` below the oldest that stays readable, and hashes of keys."""

    def __init__(
        self,
        handle: TableHandle,
        known: dict[int, pa.Array] | None = None,
        seen: Callable[[Snapshot], None] = lambda _: None,
    ) -> None:
        """`known` remembers for several of these what versions need, and `seen` is shown each that is read for it."""
        self._handle = handle
        self._kept = Keepers()
        self._known = {} if known is None else known
        self._seen = seen
        self.versions: dict[int, list[Keeper]] = {}
        self.live = NO_HASHES

    def look(self, below: int, oldest: int) -> bool:
        """Look for keepers of versions `below` one. `oldest` is the oldest readable one by the log before.

        Returns whether there are versions that no look has found before. Two LISTs, one GET for each keeper that is
        new; one LIST more if there are keepers of the lake; and what reading the versions costs, in one pass over the
        log. Raises `Corrupt` where a version cannot be read that is kept.
        """
        handle = self._handle
        self._kept = kept = keepers_of(handle.store, handle.root, handle.name)
        live = kept.live(handle.clock.now_ms())
        stored_ms = handle.log.stored_ms() if any(keeper.table is None for keeper in live) else {}
        wanted: list[tuple[Keeper, int]] = []
        for keeper in live:
            if FILES in keeper.details:
                keys = [handle.root + key for key in orjson.loads(keeper.details[FILES])]
                self.live = pc.unique(pa.concat_arrays([self.live, hashed(pa.array(keys, pa.string()))]))
                continue
            version = kept_version(keeper, kept.pins, stored_ms, oldest)
            # What waits for a version that was given up will not be told that it is kept.
            left = keeper.pending and (version is None or version < oldest or self._is_left(keeper))
            if version is not None and version < below and not left:
                wanted.append((keeper, version))
        added = self._take({version for _, version in wanted} - self.versions.keys())
        for keeper, version in wanted:
            if version not in self.versions:
                continue
            for keepers in self.versions.values():
                keepers[:] = [each for each in keepers if each.id != keeper.id]
            self.versions[version].append(keeper)
        return added

    def pin(self, below: int, oldest: int) -> None:
        """Put on record what the keepers of the lake mean, for versions `below` one: the log may forget it.

        One that has just been put may mean a version that comes in the same second: then this waits, and looks again.
        """
        handle = self._handle
        if any(self._unpinned(below)):
            handle.clock.sleep(1.0 if handle.store.parallel else 0.001)
            self.look(below, oldest)
        for keeper, version in self._unpinned(below):
            handle.store.put(pin_key(handle.name, keeper, version), b"")

    def _unpinned(self, below: int) -> Iterator[tuple[Keeper, int]]:
        for version, keepers in self.versions.items():
            for keeper in keepers:
                if keeper.table is None and version < below and keeper.id not in self._kept.pins:
                    yield keeper, version

    def _is_left(self, keeper: Keeper) -> bool:
        """Whether a pending keeper was left by a process that has died."""
        return keeper.stored_ms < self._handle.clock.now_ms() - PENDING_AGE_MS_MAX

    def log_files(self, listed: Iterable[ObjectInfo]) -> frozenset[str]:
        """Return the files of the log, by their keys below the table's root, that the versions are made of."""
        listing = read_listing(info.key.removeprefix(LOG_FOLDER) for info in listed)
        names: set[str] = set()
        for version in self.versions:
            segment = find_segment(listing, version)
            names |= {LOG_FOLDER + part.name for part in segment.checkpoint}
            names |= {commit_name(each) for each in (*segment.commits, segment.witness) if each is not None}
        return frozenset(names)

    def write_checkpoints(self) -> frozenset[str]:
        """Give each version a checkpoint of its own, without what was removed before: it needs no earlier file then.

        Returns what `checkpoints` does.
        """

        handle = self._handle
        listing = handle.log.listing() if self.versions else Listing()
        for state in handle.log.states(version for version in self.versions if version not in listing.checkpoints):
            snapshot = Snapshot(state, handle.root, handle.name, handle.store)
            shown = checkpointed(state) if handle.store.is_branch else state
            data, _ = write_checkpoint(shown, handle.clock.now_ms(), form_of(snapshot))
            put_single(handle.store, handle.root + checkpoint_name(state.version), data)
        return self.checkpoints()

    def checkpoints(self) -> frozenset[str]:
        """Return the versions' own checkpoints, by their keys below the table's root; one LIST if there are any."""
        parts = self._handle.log.listing().checkpoints if self.versions else {}
        return frozenset(LOG_FOLDER + part.name for each in self.versions for part in parts.get(each, ()))

    def clean_up(self) -> None:
        """Delete keepers that nothing needs, those that were never finished, and pins of keepers that are gone."""
        handle, now_ms = self._handle, self._handle.clock.now_ms()
        released: list[Keeper] = []
        for keeper in self._kept.keepers:
            expired = keeper.expires_ms is not None and keeper.expires_ms < now_ms - EXPIRED_AGE_MS_MIN
            if keeper.pending and self._is_left(keeper):
                released.append(keeper)
            elif keeper.kind == CLONE and not keeper.pending:
                if keeper.stored_ms < now_ms - CLONE_AGE_MS_MIN and is_orphan(handle, keeper):
                    released.append(keeper)
            elif expired and not keeper.pending:
                known = find_keeper(handle.store, keeper.table, keeper.kind, keeper.name)
                if known is not None and known.id == keeper.id:
                    if keeper.kind == BRANCH:
                        delete_folder(handle.store, keeper.id)
                    released.append(keeper)
        for keeper in released:
            release(handle.store, keeper)
        ids = {keeper.id for keeper in self._kept.keepers if keeper not in released}
        handle.store.delete([self._kept.pin_keys[each] for each in self._kept.pins if each not in ids])

    def _take(self, versions: Collection[int]) -> bool:
        """Add what versions need. Where the log of one is gone, a process that slept has put its keeper.

        Returns whether there is any.
        """
        handle = self._handle
        there = [version for version in versions if version in self._known]
        for state in handle.log.states(version for version in versions if version not in self._known):
            snapshot = Snapshot(state, handle.root, handle.name, handle.store)
            self._known[state.version] = needed(snapshot).live
            self._seen(snapshot)
            there.append(state.version)
        for version in there:
            self.versions[version] = []
        self.live = pc.unique(pa.concat_arrays([self.live, *(self._known[version] for version in there)]))
        return bool(there)
