"""Which objects the versions of a table need, as columns of hashes: 8 bytes a file, however long its path. Pure.

A hash has 64 bits. Where an object shares one with a live file, it stays though it could go; with a removed file, an
object that nothing names yet goes as early as a removed one. With a million files, the chance of either is one in ten
million million for each such object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.intents import pending
from alluvia.delta.deletion_vectors.descriptors import stored_vector
from alluvia.delta.deletion_vectors.storage import whole
from alluvia.delta.log.actions import RemoveFile
from alluvia.delta.log.files.columns import any_matches
from alluvia.delta.log.files.file_set import ActionSet, scanned
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Unsupported
from alluvia.operations.retention.path_hashes import NO_HASHES, hashed
from alluvia.store.base import restarted

_UNUSUAL = ("//", r"/\.", ":/")
"""Paths whose key may not be the table's root and the path: absolute ones, and those with `.`, `..` or empty parts."""
_NONE = pa.table({"key": NO_HASHES, "ms": pa.array([], pa.int64())})
RUN_KEYS = 1 << 12
NEAR = 4
"""Runs of live keys around a block of a listing are compared with it, unless they have this many times as many keys."""


class Run(NamedTuple):
    """Hashes of some keys, and the least and the greatest of the keys."""

    first: str
    last: str
    hashes: pa.Array


class Needed:
    """Hashes of keys in the store: of what is live, in runs, and of what was removed with the time of that in ms.

    What transactions that claim the table will add is live, too; `claimed` is what only they need.
    """

    def __init__(self, version: int, runs: Sequence[Run], claimed: pa.Array, dead: pa.Array, dead_ms: pa.Array) -> None:
        self.version = version
        self._runs = runs
        self.claimed = claimed
        self.dead = dead
        self._dead_ms = dead_ms

    @property
    def live(self) -> pa.Array:
        """Return the hashes of all live keys."""
        return pa.concat_arrays([NO_HASHES, *(run.hashes for run in self._runs)])

    def is_live(self, hashes: pa.Array, between: tuple[str, str] | None = None) -> pa.BooleanArray:
        """Return which of some keys the version needs; `between` are the least and the greatest, if that is known.

        A checkpoint has the files of a partition together, so that few runs are near a part of the listing.
        """
        if between is not None:
            near = [run.hashes for run in self._runs if run.first <= between[1] and between[0] <= run.last]
            if sum(map(len, near)) <= NEAR * len(hashes):
                return pc.is_in(hashes, value_set=pa.concat_arrays([NO_HASHES, *near]))
        live = self._sorted
        if not len(live):
            return pa.repeat(pa.scalar(False, pa.bool_()), len(hashes))
        at = pc.search_sorted(live, hashes)
        return pc.equal(pc.take(live, pc.min_element_wise(at, pa.scalar(len(live) - 1, at.type))), hashes)

    @cached_property
    def _sorted(self) -> pa.Array:
        live = self.live
        return pc.take(live, pc.sort_indices(live))

    def removed_ms(self, hashes: pa.Array) -> pa.Array:
        """Return when each was removed; null for those that were not."""
        return pc.take(self._dead_ms, pc.index_in(hashes, value_set=self.dead))


def needed(snapshot: Snapshot, forgotten: Iterable[RemoveFile] = ()) -> Needed:
    """Return what a version needs, and what its tombstones and those `forgotten` removed.

    Raises `Unsupported` for a live file that may lie anywhere, and `Corrupt` for a claim that cannot be read.
    """
    runs = [run for batch in scanned(snapshot.files, {}) for run in _runs(_keys(snapshot, batch, strict=True)[0])]
    dead = []
    lost: ActionSet[RemoveFile] = ActionSet(RemoveFile.from_json).changed((file.key, file) for file in forgotten)
    for removes in (snapshot.state.tombstones, lost):
        for batch in scanned(removes, {"deletionTimestamp": pa.int64()}):
            names, rows = _keys(snapshot, batch, strict=False)
            times = pc.coalesce(pc.struct_field(batch, "deletionTimestamp"), whole(0))
            dead.append(pa.table({"key": hashed(names), "ms": times if rows is None else pc.take(times, rows)}))
    keys, times = _last(pa.concat_tables([_NONE, *dead]))
    claims = pa.array(_claimed(snapshot), pa.string())
    if not len(claims):  # to find none among millions takes 50 MB
        return Needed(snapshot.version, runs, NO_HASHES, keys, times)
    claimed = hashed(claims)
    known = pc.is_in(claimed, value_set=pa.concat_arrays([NO_HASHES, *(run.hashes for run in runs)]))
    return Needed(snapshot.version, [*runs, *_runs(claims)], pc.filter(claimed, pc.invert(known)), keys, times)


def _claimed(snapshot: Snapshot) -> list[str]:
    """Return the keys of what claims will add: files, their deletion vectors, and files of changes."""
    keys: list[str] = []
    for claim in pending(snapshot.state.domains):
        intended = claim.intended(snapshot.version + 1)
        vectors = [stored_vector(add.deletion_vector) for add in intended.adds if add.deletion_vector is not None]
        paths = [*(add.path for add in intended.adds), *(file.path for file in intended.cdc)]
        paths += [vector.path for vector in vectors if vector is not None]
        keys += map(snapshot.locate, paths)
    return keys


def _runs(keys: pa.Array) -> Iterator[Run]:
    hashes = hashed(keys)
    for at in range(0, len(keys), RUN_KEYS):
        yield Run(*key_range(keys.slice(at, RUN_KEYS)), hashes.slice(at, RUN_KEYS))


def key_range(keys: pa.Array) -> tuple[str, str]:
    """Return the least and the greatest of some keys; empty texts if there are none."""
    ends = pc.min_max(keys)
    return ends["min"].as_py() or "", ends["max"].as_py() or ""


def _last(removed: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return each key once, with the last of its times. Not by `group_by`, which loads all of pyarrow's datasets."""
    order = pc.sort_indices(removed, sort_keys=[("key", "ascending"), ("ms", "ascending")])
    keys, times = (pc.take(removed[name].combine_chunks(), order) for name in ("key", "ms"))
    if len(keys):
        ends = pc.not_equal(keys.slice(0, len(keys) - 1), keys.slice(1))
        final = pa.concat_arrays([ends, pa.array([True], pa.bool_())])
        keys, times = pc.filter(keys, final), pc.filter(times, final)
    return keys, times


def _keys(snapshot: Snapshot, batch: pa.StructArray, *, strict: bool) -> tuple[pa.Array, pa.Array | None]:
    """Return the keys of files and of their deletion vectors, and their rows; None for one a row.

    Unless `strict`, files outside the lake are left out.
    """
    paths = pc.struct_field(batch, "path")
    vectors = pc.struct_field(batch, "deletionVector")
    having = pc.is_valid(pc.struct_field(vectors, "storageType"))
    if not pc.any(having).as_py() and not any_matches(paths, *_UNUSUAL):
        return restarted(paths, "", snapshot.root), None
    named = list(enumerate(paths.to_pylist()))
    rows = pc.indices_nonzero(having).to_pylist()
    for row, descriptor in zip(rows, pc.filter(vectors, having).to_pylist(), strict=True):
        stored = stored_vector(descriptor)
        if stored is not None:
            named.append((row, stored.path))
    keyed = [(row, key) for row, path in named if (key := _key(snapshot, path, strict=strict)) is not None]
    return pa.array([key for _, key in keyed], pa.string()), pa.array([row for row, _ in keyed], pa.int64())


def _key(snapshot: Snapshot, path: str, *, strict: bool) -> str | None:
    """Return a path's key in the store; None if it lies elsewhere."""
    try:
        return snapshot.locate(path)
    except Unsupported:
        if strict:
            raise
        return None
