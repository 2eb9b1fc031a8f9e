"""What is known of a branch: a lake of its own to the checker, which goes on from versions that the branch's moment
means; and what may come into the lake of it when it is published."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tests.simulation.checker import LOG, Checker, OnBranch
from tests.simulation.intents import ChangeRows, Intent, PutRows, Rows, difference
from tests.simulation.ledger import Together
from tests.simulation.model import TableModel, Version, event_of, recast
from tests.simulation.scheduler import Violation
from tests.simulation.tags import Kept

BRANCHES = "_alluvia/branches/"
Objects = Mapping[str, tuple[bytes, int]]


@dataclass(frozen=True)
class Shown(Mapping[str, tuple[bytes, int]]):
    """The objects that a branch shows: those of its folder, and the lake's."""

    folder: str
    lake: Objects
    falls_through: Callable[[str], bool]

    def __getitem__(self, key: str) -> tuple[bytes, int]:
        own = self.lake.get(self.folder + key)
        if own is None and not self.falls_through(key):
            raise KeyError(key)
        return self.lake[key] if own is None else own

    def __iter__(self) -> Iterator[str]:
        own = {key.removeprefix(self.folder) for key in self.lake if key.startswith(self.folder)}
        return iter(own | {*filter(self.falls_through, self.lake)})

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass
class BranchModel(Checker):
    """A branch: its tables are those of the lake at its moment, in ms by the store's clock, until they are written."""

    name: str = ""
    id: str = ""
    moment_ms: int = 0
    until_us: int | None = None
    """When it expires, at the earliest."""
    lake: Checker = field(kw_only=True)
    bases: dict[str, int] = field(default_factory=dict)
    changes: dict[str, list[tuple[int, Intent]]] = field(default_factory=dict)
    published: dict[str, int] = field(default_factory=dict)
    """The versions of the branch's tables that were published."""
    publishes: list[Publish] = field(default_factory=list)
    lost: dict[int, object] = field(default_factory=dict)
    """What was committed once it had been given up: nobody may be told that it has happened."""
    ended: bool = False
    busy: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        lake = self.lake
        self.folder = f"{BRANCHES}{self.id}/"
        self.objects = Shown(self.folder, lake.objects, self._falls_through)
        self.sorted_by = lake.sorted_by
        self.erased = lake.erased
        self.events = {name: replace(event, acknowledged=False) for name, event in lake.events.items()}
        self.ledger = lake.ledger.fork(self.totals, lambda at_us: lake.tags.stored_ms(at_us) <= self.moment_ms)
        lake.tags.branches[self.id] = Kept(self.name, None, moment_ms=self.moment_ms)
        lake.branches[self.id] = self

    @property
    def is_there(self) -> bool:
        """Whether nobody has begun to discard it, and it has not expired."""
        if self.until_us is not None and self.scheduler.now_us >= self.until_us:
            self.end()
        return not self.ended

    def end(self) -> None:
        """Nothing is kept for it any more."""
        self.ended = True
        self.lake.tags.branches.pop(self.id, None)

    def put(self, key: str, data: bytes, intent: object) -> None:
        """Take what is written to its folder, by the keys that it would have in the lake."""
        meant = intent.intent if isinstance(intent, OnBranch) else None
        if self.is_there:
            super().put(key, data, meant)
        elif meant is None or self._has_happened(meant):
            return
        elif (log := LOG.match(key)) and log["kind"] == "json" and self._is_given_up():
            self.lost[id(meant)] = meant

    def _has_happened(self, meant: object) -> bool:
        """Whether it was decided before the branch was given up: then it only remains to carry it out."""
        known = None if not isinstance(meant, Together) else meant.transaction_id
        return known is not None and self.ledger.decided(known) == "commit"

    def _is_given_up(self) -> bool:
        """Whether whoever looks for the branch learns that it was discarded."""
        data, _ = self.lake.objects.get(f"_alluvia/kept/_lake/branch/{self.name}.json", (b"", 0))
        return not data or json.loads(data)["id"] != self.id or "discarded" in json.loads(data)["details"]

    def deleted(self, keys: list[str]) -> None:
        """Take what is deleted, by the lake's keys."""
        if not self.is_there:
            return
        if own := [key.removeprefix(self.folder) for key in keys if key.startswith(self.folder)]:
            super().deleted(own)
        gone = {*keys}
        for root, table in self.tables.items():
            theirs = {root + path for path in table.tip.files if self.folder + root + path not in self.lake.objects}
            if lost := gone & theirs:
                raise Violation("what a branch shows is there", f"{self.name}: {sorted(lost)}")

    def _falls_through(self, key: str) -> bool:
        """Whether it shows an object of the lake: of a log, only what is not newer than its base."""
        if key.startswith(BRANCHES):
            return False
        match = LOG.match(key)
        if match is None:
            return True
        self.table(match["root"])
        return int(match["version"]) <= self.bases.get(match["root"], -1)

    def shows(self, root: str, name: str) -> bool:
        """Whether a version of a table that the branch began with, or that it has made, holds a row of a name."""
        table = self.table(root)
        versions = table.versions[self.bases.get(root, 0) :]
        return self.is_there and any(file.holds({name}) for each in versions for file in each.files.values())

    def table(self, root: str) -> TableModel:
        """Return what is known of a table, which goes on from the version that the moment means."""
        known = self.tables.get(root)
        if known is not None:
            return known
        theirs = self.lake.tables.get(root)
        base = None if theirs is None else self.lake.tags.meant(Kept(self.name, None, moment_ms=self.moment_ms), theirs)
        if theirs is None or base is None:
            return super().table(root)
        self.tables[root] = known = theirs.fork(base.number)
        self.bases[root] = base.number
        self.ledger.follow(self.lake.ledger, root, base.number)
        if "event_id" in base.columns:
            at = base.columns.index("event_id")
            self.counts[root] = Counter(event_of(row[at]) for row in base.rows.elements())
        if root in self.lake.totals:
            at = base.columns.index("amount")
            self.totals[root] = sum(row[at] * number for row, number in base.rows.items())
        return known

    def began_with(self, root: str) -> int:
        return self.bases.get(root, -1)

    def took(self, root: str, number: int, intent: Intent) -> None:
        self.changes.setdefault(root, []).append((number, intent))

    def changed(self) -> dict[str, int]:
        """Return the tables with other files than at the beginning, and their versions."""
        return {
            root: table.tip.number
            for root, table in self.tables.items()
            if root in self.bases and {*table.tip.files} != self._files_at_base(root)
        }

    def _files_at_base(self, root: str) -> set[str]:
        """Return the files that a table began with, with those of transactions that had happened by the moment."""
        versions, base = self.tables[root].versions, self.bases[root]
        files = {*versions[base].files}
        for number in self._inherited(root, len(versions) - 1):
            before, after = versions[number - 1].files, versions[number].files
            files = (files - (before.keys() - after.keys())) | (after.keys() - before.keys())
        return files

    def _inherited(self, root: str, tip: int) -> Iterator[int]:
        """Yield the versions that carry out what had happened by the moment, which the branch has not changed."""
        return (at for at in range(self.bases[root] + 1, tip + 1) if self.ledger.was_inherited(root, at))

    def settled(self, root: str, version: int) -> bool:
        """Whether what a version of a table shows is in its log, and not in a transaction that it claims besides."""
        return not any(self.ledger.decided(each) == "commit" for each in self.ledger.standing(root, version))

    def change(self, root: str, tip: int) -> tuple[Rows, Rows, Version]:
        """Return the rows that the branch has taken from a table and put into it, up to a version, and that version."""
        table, base = self.tables[root], self.bases[root]
        began = Counter(table.versions[base].rows)
        for number in self._inherited(root, tip):
            removed, added = difference(table.versions[number - 1], table.versions[number])
            began.subtract(removed)
            began.update(added)
        shown = table.versions[tip]
        began = recast(began, table.versions[base].columns, shown.columns)
        return began - shown.rows, shown.rows - began, shown

    def _commit(self, root: str, number: int, data: bytes, intent: object) -> None:
        if self.table(root).versions and number <= self.bases.get(root, -1):
            raise Violation("a branch begins with what its moment means", f"{self.name}: {root} {number}")
        super()._commit(root, number, data, intent)


@dataclass(frozen=True)
class PublishTable:
    """What a branch has done to a table happens to that of the lake, and nothing else."""

    branch: BranchModel
    reads: bool

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        branch, root = self.branch, table.root
        where = f"{branch.name}: {root} {after.number}"
        tip = table.apps.get(f"alluvia.branch:{branch.id}", -1)
        if root in branch.published:
            raise Violation("a branch is published once", f"{where}, version {tip} and {branch.published[root]}")
        if root not in branch.tables or not branch.bases[root] < tip <= branch.tables[root].tip.number:
            raise Violation("a publish says what it publishes", f"{where}, version {tip}")
        branch.published[root] = tip
        if not branch.settled(root, tip):
            return
        gone, come, shown = branch.change(root, tip)
        wanted = [recast(rows, shown.columns, after.columns) for rows in (gone, come)]
        if [removed, added] != wanted:
            detail = f"{where} removed {dict(removed)}, added {dict(added)}, not {dict(wanted[0])}, {dict(wanted[1])}"
            raise Violation("a publish is what the branch has done", detail)
        if self.reads:
            self._check_reads(table, before, tip)

    def _check_reads(self, table: TableModel, before: Version, tip: int) -> None:
        """Raise `Violation` if rows came since the branch was cut that its changes would have found."""
        base = table.versions[self.branch.bases[table.root]]
        if self.branch.ledger.standing(table.root, base.number):
            return
        since = difference(base, before)[1]
        for row in since:
            named = dict(zip(before.columns, row, strict=True))
            for number, intent in self.branch.changes.get(table.root, ()):
                if number <= tip and _finds(intent, named):
                    detail = f"{self.branch.name}: {table.root} {before.number} has {row}, which {intent} would find"
                    raise Violation("a publish is as if its changes were made now", detail)


def _finds(intent: Intent, row: Mapping[str, object]) -> bool:
    if isinstance(intent, ChangeRows):
        return intent.matches(row)
    return isinstance(intent, PutRows) and any(
        row[intent.key] == each[intent.columns.index(intent.key)] for each in intent.rows
    )


class Publish(Together):
    """A publish of a branch: which tables that are shows in what it commits or claims."""

    def __init__(self, branch: BranchModel, *, reads: bool) -> None:
        self._parts: dict[str, Intent] = {}
        super().__init__(self._parts)
        self._part = PublishTable(branch, reads)
        branch.publishes.append(self)

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        if after.operation == "CLAIM":
            super().check(table, before, after, removed, added)
            self._parts[table.root] = self._part
        elif after.operation == "UNDO OPTIMIZE":
            if removed or added:
                detail = f"{table.root} {after.number}: {removed} {added}"
                raise Violation("to undo a compaction changes no rows", detail)
        else:
            self._part.check(table, before, after, removed, added)
