"""The state and findings of a search for erased rows, and reading objects that may be gone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from alluvia.errors import ObjectNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.erasure.erase_log import LogView
from alluvia.operations.erasure.erase_report import Searched, Trace
from alluvia.store import ByteRange, ObjectInfo, Store

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
