"""What an erasure does about tags, clones and branches: it never leaves a kept version with rows that are to go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from itertools import chain

import pyarrow as pa

from alluvia.commit.handle import TableHandle
from alluvia.commit.intents import pending, placed_in
from alluvia.commit.reads import READS_INFO, without_reads
from alluvia.commit.versions import oldest_readable
from alluvia.commit.warm_table import WarmTable
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.paths import commit_name
from alluvia.delta.refs import BRANCH, CLONE, TAG, Keeper, list_keepers, release
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Corrupt, Invalid, ObjectNotFound, Unavailable
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.erasure.erase_files import judged_batches
from alluvia.operations.erasure.erase_matching import Matching
from alluvia.operations.reading.datafile import opened
from alluvia.operations.references.branch_store import NOT_THERE, BranchStore, delete_left
from alluvia.operations.references.clones import keep_only, still_used
from alluvia.operations.retention.referenced_files import KeptFiles
from alluvia.store import Store

REWRITE_TRIES = 5
NAMES_MAX = 10
"""Names of keepers in an error."""


@dataclass(slots=True)
class KeptFacts:
    """What an erasure has found out of kept versions, which never change.

    `live` has hashes of what each needs, `holding` whether it holds a matching row, and `files` whether a file does.
    """

    live: dict[int, pa.Array] = field(default_factory=dict)
    holding: dict[int, bool] = field(default_factory=dict)
    files: dict[str, bool] = field(default_factory=dict)


def without_rows(
    handle: TableHandle,
    matching: Matching,
    below: int | None = None,
    *,
    release_tags: bool,
    facts: KeptFacts | None = None,
) -> KeptFiles:
    """Return what keepers need of a table, of versions `below` one, of all by default: no row there matches.

    `matching` is that of the newest version. Keepers of versions that hold a matching row, also one that a deletion
    vector deletes, are named by `Invalid`; with `release_tags`, those that are tags are deleted. That of a clone which
    can read no such row any more, since it was erased there, keeps from now on only the files that the clone can read.
    Two LISTs without keepers; with them, what it takes to read their versions and the files that can match, in one pass
    over the log, and only of those that are not among the `facts`.
    """
    facts = facts or KeptFacts()
    snapshot = matching.snapshot
    limit = snapshot.version + 1 if below is None else below

    def seen(version: Snapshot) -> None:
        added = chain(version.state.files, _claimed(version))
        facts.holding[version.version] = any(_holds(handle, matching, added, facts.files))

    kept = KeptFiles(handle, facts.live, seen)
    kept.look(limit, oldest_readable(snapshot.state))
    holding, narrowed = _holding(handle, matching, kept, facts)
    if narrowed:
        return without_rows(handle, matching, below, release_tags=release_tags, facts=facts)
    branches = list(_branches(handle))
    holding += _written(branches, matching)
    if not holding:
        for _, branch, commits in branches:
            _forget_reads(branch, commits)
        return kept
    refused = [keeper for keeper in holding if keeper.kind != TAG or not release_tags]
    if refused:
        raise Invalid(_refusal(handle, refused, release_tags=release_tags))
    for keeper in holding:
        release(handle.store, keeper)
    return without_rows(handle, matching, below, release_tags=release_tags, facts=facts)


def _claimed(snapshot: Snapshot) -> list[AddFile]:
    """Return what claims add: a transaction may have happened since, and a keeper of its claim keeps its rows."""
    claims = pending(snapshot.state.domains)
    return [add for claim in claims for add in claim.intended(snapshot.version).adds]


def _holding(handle: TableHandle, matching: Matching, kept: KeptFiles, facts: KeptFacts) -> tuple[list[Keeper], bool]:
    """Return the keepers of versions that hold a matching row, and whether clones have released such versions."""
    holders: dict[str, Keeper] = {}
    narrowed = False
    for version, keepers in kept.versions.items():
        if not facts.holding[version]:
            continue
        clones = [keeper for keeper in keepers if keeper.kind == CLONE and not keeper.pending]
        holders.update((keeper.key, keeper) for keeper in keepers if keeper not in clones)
        if not clones:
            continue
        with handle.lock:
            state = handle.log.at(version)
        snapshot = Snapshot(state, handle.root, handle.name, handle.store)
        for keeper in clones:
            used = still_used(handle, keeper, snapshot, [*state.files, *_claimed(snapshot)])
            if any(_holds(handle, matching, used, facts.files)):
                holders[keeper.key] = keeper
            else:
                narrowed = keep_only(handle, keeper, snapshot, used) or narrowed
    return list(holders.values()), narrowed


def _branches(handle: TableHandle) -> Iterator[tuple[Keeper, TableHandle, list[CommitActions]]]:
    """Yield the branches on which the table was written, and their own commits. A LIST for each branch."""
    if handle.root != f"{handle.name}/":  # opened without its lake
        return
    delete_left(handle.store)
    for keeper in list_keepers(handle.store, None, BRANCH):
        store = BranchStore(handle.store, keeper.id, lambda _: NOT_THERE, lambda: 0, lambda: None)
        first = store.first_own(handle.name)
        if first is not None:
            branch = WarmTable(store, handle.root, handle.name, handle.clock)
            yield keeper, branch, branch.log.following(first - 1)


def _written(
    branches: Iterable[tuple[Keeper, TableHandle, list[CommitActions]]], matching: Matching
) -> Iterator[Keeper]:
    """Yield the branches on which matching rows were written, whatever the lake holds."""
    for keeper, branch, commits in branches:
        if any(_holds(branch, matching, (file for commit in commits for file in commit.adds), {})):
            yield keeper


def _forget_reads(branch: TableHandle, commits: Iterable[CommitActions]) -> None:
    """Take out what a branch's commits say of conditions: it may have the values of any rows.

    It counts as having read all of the table when it is published.
    """
    for commit in commits:
        if READS_INFO in commit.info or placed_in(commit):
            rewrite(branch.store, branch.root + commit_name(commit.version), without_reads)


def rewrite(store: Store, key: str, renewed: Callable[[bytes], bytes]) -> bool:
    """Replace an object by what `renewed` makes of it, unless it is gone. Returns whether it is there."""
    for _ in range(REWRITE_TRIES):
        try:
            data, tag = store.get_tagged(key)
        except ObjectNotFound:
            return False
        plain = renewed(data)
        if plain == data or store.put_if_same(key, plain, tag):
            return True
    raise Unavailable(f"{key} was changed {REWRITE_TRIES} times while it was rewritten: try again")


def _holds(handle: TableHandle, matching: Matching, files: Iterable[AddFile], known: dict[str, bool]) -> Iterator[bool]:
    """Yield for each file that can match whether it does; `known` gets what is found, by path."""
    for file in files:
        # Bounds say nothing of rows that a deletion vector deletes.
        if file.deletion_vector is None and not matching.can_match(file):
            continue
        if file.path not in known:
            known[file.path] = _file_holds(handle, matching, file)
        yield known[file.path]


def _file_holds(handle: TableHandle, matching: Matching, file: AddFile) -> bool:
    """Whether any row of a file matches, deleted ones included. One that cannot be read counts as matching."""
    try:
        for data in opened(handle, matching.snapshot, [file], {}):
            with data:
                return any(judged.mask.true_count > 0 for judged in judged_batches(data, matching))
    except Corrupt:
        return True
    return False


def _refusal(handle: TableHandle, keepers: list[Keeper], *, release_tags: bool) -> str:
    every = sorted(set(map(str, keepers)))
    more = f" and {len(every) - NAMES_MAX:,} more" if len(every) > NAMES_MAX else ""
    names = ", ".join(every[:NAMES_MAX]) + more
    tags = [keeper for keeper in keepers if keeper.kind == TAG]
    fixes = []
    if tags and not release_tags:
        fixes.append("delete the tags, or erase with release_tags=True (--release-tags)")
    kinds = {keeper.kind for keeper in keepers}
    if CLONE in kinds:
        fixes.append("erase in the clones first, or drop them")
    if BRANCH in kinds:
        fixes.append("discard the branches, after publishing what is to stay")
    return f"erase: versions of {handle.name} that are kept hold such rows, by {names}: {'; '.join(fixes)}"
