"""Tags that somebody was told of, and what they must keep: checked whenever something is deleted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.simulation.model import DataFile, TableModel, Version
from tests.simulation.scheduler import Violation

_LOG = re.compile(r"_delta_log/(?P<version>\d{20})\.(?P<kind>json|checkpoint\..*)$")
Holds = Callable[[DataFile], bool]
Objects = Mapping[str, tuple[bytes, int]]


@dataclass(frozen=True)
class Kept:
    """A tag of a version of a table, or of all tables at a moment in ms by the store's clock."""

    name: str
    root: str | None
    version: int = -1
    moment_ms: int = -1


@dataclass
class Tags:
    """The tags that were acknowledged, and that nobody has begun to delete. The store tells time in ticks.

    `branches` keep all tables as they were at a moment, too, by their ids, and no erasure takes it from them.
    """

    known: dict[str, Kept] = field(default_factory=dict)
    branches: dict[str, Kept] = field(default_factory=dict)
    tick_us: int = 1

    def meant(self, tag: Kept, table: TableModel) -> Version | None:
        """Return the version of a table that a tag means."""
        if tag.root is not None:
            return table.versions[tag.version] if tag.root == table.root else None
        taken = [each for each in table.versions if self.stored_ms(each.at_us) <= tag.moment_ms]
        return taken[-1] if taken else None

    def stored_ms(self, at_us: int) -> int:
        """Return a time as the store tells it."""
        return (at_us - at_us % self.tick_us) // 1000

    def is_kept(self, tag: Kept, tables: Iterable[TableModel], holds_erased: Holds) -> bool:
        """Whether a tag is there: one of versions with rows that somebody erases goes, for all tables of the lake."""
        meant = [version for table in tables if (version := self.meant(tag, table)) is not None]
        holding = any(holds_erased(file) for version in meant for file in version.files.values())
        return tag.name in self.known and not holding

    def versions(self, table: TableModel, tables: Iterable[TableModel], holds_erased: Holds) -> list[Version]:
        """Return the versions of a table that are kept."""
        every = list(tables)
        found = ((tag, self.meant(tag, table)) for tag in self.known.values())
        tagged = [each for tag, each in found if each is not None and self.is_kept(tag, every, holds_erased)]
        shown = (self.meant(branch, table) for branch in self.branches.values())
        return [*tagged, *(each for each in shown if each is not None)]

    def check_there(
        self, deleted: Sequence[str], tables: Mapping[str, TableModel], objects: Objects, holds_erased: Holds
    ) -> None:
        """Raise `Violation` if something was deleted that a tag needs: a file, or what its version is made of."""
        if not self.known and not self.branches:
            return
        gone = set(deleted)
        for table in tables.values():
            log = any(key.startswith(f"{table.root}_delta_log/") and _LOG.search(key) for key in deleted)
            if not log and not table.is_clone and not any(key.startswith(table.root) for key in deleted):
                continue
            for version in self.versions(table, tables.values(), holds_erased):
                if lost := gone & set(map(table.key, version.files)):
                    raise Violation("what a tag needs is kept", f"{table.root} {version.number}: {sorted(lost)}")
                if log and not _is_made(table.root, version.number, objects):
                    raise Violation("what a tag needs is kept", f"the log of {table.root} {version.number}")


def _is_made(root: str, version: int, objects: Objects) -> bool:
    found = [match for key in objects if key.startswith(f"{root}_delta_log/") and (match := _LOG.search(key))]
    commits = {int(match["version"]) for match in found if match["kind"] == "json"}
    starts = [int(match["version"]) for match in found if match["kind"] != "json"]
    start = max((each for each in starts if each <= version), default=-1)
    return commits >= set(range(start + 1, version + 1))


def left_over(table: TableModel, objects: Objects, before_us: int) -> Iterator[str]:
    """Yield the data files of a table that were removed before a moment and are still there."""
    for path, removed_us in table.removed_us.items():
        if removed_us < before_us and table.key(path).startswith(table.root) and table.key(path) in objects:
            yield path
