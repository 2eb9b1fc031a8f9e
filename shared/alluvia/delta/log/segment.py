"""Which files of a log make a version: the newest checkpoint at or below it, and the commits after it. Pure.

Source: Delta protocol, "Action Reconciliation".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from alluvia.delta.log.paths import CheckpointFile, CommitFile, commit_name, parse_name
from alluvia.errors import Corrupt, VersionExpired, VersionNotFound
from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Segment:
    """The files to read: the parts of one checkpoint (none at the log's start) and the commits after it, in order.

    `witness` is the checkpoint's own version if its commit is still there, to compare it with.
    """

    version: int
    checkpoint: tuple[CheckpointFile, ...]
    commits: tuple[int, ...]
    witness: int | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """What a listing of a log found. `commits` and `checkpoints` are by version."""

    commits: Mapping[int, CommitFile] = field(default_factory=dict)
    checkpoints: Mapping[int, tuple[CheckpointFile, ...]] = field(default_factory=dict)

    @property
    def versions(self) -> range:
        """From the lowest to the highest version that any file names."""
        known = [*self.commits, *self.checkpoints]
        return range(min(known), max(known) + 1) if known else range(0)


def read_listing(names: Iterable[str]) -> Listing:
    """Sort out the names of a log folder; incomplete multi-part checkpoints are left out.

    Of several checkpoints of a version it takes the plainest: single file, then multi-part, then v2.
    """
    commits: dict[int, CommitFile] = {}
    candidates: dict[tuple[int, str, int], list[CheckpointFile]] = {}
    for name in names:
        file = parse_name(name)
        if isinstance(file, CommitFile):
            commits[file.version] = file
        elif file is not None:
            candidates.setdefault((file.version, name if file.v2 else "", file.parts), []).append(file)
    checkpoints: dict[int, tuple[CheckpointFile, ...]] = {}
    for (version, _, parts), files in sorted(candidates.items()):
        # A name may say that there are ten thousand million parts.
        whole = len(files) == parts and {file.part for file in files} == set(range(1, parts + 1))
        if whole and version not in checkpoints:
            checkpoints[version] = tuple(sorted(files, key=lambda file: file.part))
    return Listing(commits, checkpoints)


class CommitMissing(Corrupt):
    """The log has no commit of some version, though it has older and newer ones."""


def taken_ms(stored_ms: Mapping[int, int]) -> dict[int, int]:
    """Return when commits were first put, by their versions, at most: given when the store took what is there now.

    An erasure writes commits again. A commit was there before any later version was, so it is no younger than those.
    """
    found: dict[int, int] = {}
    least = None
    for version in sorted(stored_ms, reverse=True):
        least = stored_ms[version] if least is None else min(least, stored_ms[version])
        found[version] = least
    return found


def find_segment(listing: Listing, version: int | None = None) -> Segment:
    """Choose the files that make a version, the newest by default.

    Raises `VersionNotFound` above the newest, `VersionExpired` below the oldest that can still be made, and
    `CommitMissing` where a commit in between is.
    """
    if not listing.versions:
        raise Corrupt("the log holds no commit and no checkpoint")
    newest = listing.versions[-1]
    wanted = newest if version is None else version
    if wanted > newest or wanted < 0:
        raise VersionNotFound(f"version {wanted} does not exist; the newest is {newest}")
    start = max((at for at in listing.checkpoints if at <= wanted), default=None)
    first = 0 if start is None else start + 1
    missing = next((at for at in range(first, wanted + 1) if at not in listing.commits), None)
    if missing is not None:
        oldest = oldest_version(listing)
        if start is None and oldest is not None and wanted < oldest:
            raise VersionExpired(f"version {wanted} has expired; the oldest version that can be read is {oldest}")
        raise CommitMissing(f"{commit_name(missing)} is missing from the log")
    checkpoint = () if start is None else listing.checkpoints[start]
    witness = start if start in listing.commits else None
    return Segment(wanted, checkpoint, tuple(range(first, wanted + 1)), witness)


def oldest_version(listing: Listing) -> int | None:
    """Return the lowest version that the files of a listing can still make."""
    if 0 in listing.commits:
        return 0
    return min(listing.checkpoints, default=None)
