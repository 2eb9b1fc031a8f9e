"""What a search for erased rows finds, and the report of an erasure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from datetime import datetime

from alluvia.errors import ObjectNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.erasure.erase_log import LogView
from alluvia.store import ByteRange, ObjectInfo, OldVersion, Store

NO_WORDS = "it could not be judged: the condition has no text or number to look for"


@dataclass(slots=True)
class Traces:
    """What a search has found, `commits` being all commits that there are, in order."""

    logs: LogView
    traces: list[Trace] = field(default_factory=list)
    searched: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    commits: list[ObjectInfo] = field(default_factory=list)

    def count(self, kind: str, size: int) -> None:
        """Count an object that was searched."""
        self.searched[kind][0] += 1
        self.searched[kind][1] += size

    @property
    def removable(self) -> list[Trace]:
        """Return the traces that can be removed now."""
        return [trace for trace in self.traces if trace.removable]

    def totals(self) -> list[Searched]:
        """Return what was searched, by kind."""
        return [Searched(kind, objects, size) for kind, (objects, size) in self.searched.items()]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a file has matching rows, deleted ones included, and what of it could not be judged."""

    holds: bool
    unclear: frozenset[str] = frozenset()


@dataclass(slots=True)
class KnownTraces:
    """What holds for good: which files hold matching rows, which commits show none, what commits have named.

    `named` are hashes of keys; `values` are the partition values of paths, where the condition asks for them.
    """

    holds: dict[str, Judgement] = field(default_factory=dict)
    clean: set[ObjectInfo] = field(default_factory=set)
    named: set[int] = field(default_factory=set)
    values: dict[str, Mapping[str, str | None]] = field(default_factory=dict)


def unclear(reasons: Collection[str]) -> str:
    """Return what is said of an object of which something could not be judged."""
    return f"it could not be judged: {'; '.join(sorted(reasons))}"


def read_present(store: Store, infos: Sequence[ObjectInfo]) -> list[tuple[ObjectInfo, bytes]]:
    """Return small objects with their bytes, without those that clean-up has deleted since they were listed."""
    try:
        return list(zip(infos, store.get_many(ByteRange(info.key) for info in infos), strict=True))
    except ObjectNotFound:
        there = ((info, read_if_there(store, info.key)) for info in infos)
        return [(info, data) for info, data in there if data is not None]


def read_if_there(store: Store, key: str) -> bytes | None:
    """Return an object's bytes; None if there is none."""
    try:
        return store.get(key)
    except ObjectNotFound:
        return None


DATA, CHANGES, COMMIT, CHECKPOINT, SIDECAR = "data files", "change files", "commits", "checkpoints", "sidecars"
VECTORS, WINDOWS, OTHER = "deletion vectors", "windows of event ids", "other"
RESULT_FILES, JOB_FILES, UPLOAD_FILES = "results of queries", "files of jobs", "parts of uploads"
BRANCH_FILES, TEXTS = "files of branches", "files of the lake"
ENDED_TEXTS = "texts of ended tokens, views and published queries"
OF_LAKE = frozenset({RESULT_FILES, JOB_FILES, BRANCH_FILES, TEXTS})
"""Kinds of objects that belong to no single table: the search of each table finds the same ones."""


@dataclass(frozen=True, slots=True)
class Trace:
    """An object that holds matching rows, or shows their values: its `key` in the lake, and `why` it counts.

    `until` is when it may be removed, None if that is now or unknown; `removable` whether an erasure removes it now.
    """

    kind: str
    key: str
    why: str
    until: datetime | None = None
    removable: bool = True


@dataclass(frozen=True, slots=True)
class Searched:
    """How many objects of a kind were searched, and their size in bytes."""

    kind: str
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Proof:
    """A search of every object of a table: `searched` by kind, and what was found, at best nothing.

    `version` is the newest version at that time. `old_versions` of the table's objects are what the bucket still keeps
    of replaced and deleted ones, which were not searched; None, with the reason in `unlisted`, if it does not say.
    """

    version: int
    searched: Sequence[Searched]
    found: Sequence[Trace]
    old_versions: Sequence[OldVersion] | None = ()
    unlisted: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.found


@dataclass(frozen=True, slots=True)
class EraseReport:
    """What an erasure did to a table.

    `rows` were deleted from current versions (None if some files did not say how many they held), `rows_arrived` of
    them came while the erasure ran. `removed` counts deleted objects by kind. From `commits_redacted` commits, bounds
    and conditions were taken out. `oldest_version` is the oldest version that can be read after it. `rounds` counts
    how often it looked. `not_deleted` are objects that the store refused to delete. `rollups_failed` are rollups of
    the table, with the reason, that could not take over the deletion while its changes could be read. `rejects` is the
    report of the table's rejected events, `proof` that of the search afterwards. `unjudged` are objects with values of
    which the erasure could not tell whether they are meant, with the reason. `unknown` are fields of the condition that
    neither a column nor a row of the table has: they may be misspelt.
    """

    version: int
    rows: int | None = 0
    rows_arrived: int | None = 0
    files_rewritten: int = 0
    removed: Mapping[str, int] = field(default_factory=dict)
    commits_redacted: int = 0
    oldest_version: int = 0
    rounds: int = 0
    not_deleted: Sequence[str] = ()
    rollups_failed: Mapping[str, str] = field(default_factory=dict)
    unjudged: Sequence[Trace] = ()
    unknown: Sequence[str] = ()
    rejects: EraseReport | None = None
    proof: Proof | None = None

    @property
    def ok(self) -> bool:
        """Whether all could be judged and no search has found anything, that of the rejects included."""
        every = [each for each in (self, self.rejects) if each is not None]
        return all(not each.unjudged and (each.proof is None or each.proof.ok) for each in every)
