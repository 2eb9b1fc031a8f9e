"""What an actor is about to do to a table, said beforehand, and whether a commit did just that and nothing else.

Each commit must be what its operation makes of the version right before it: then every run equals the serial order of
its versions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from tests.simulation.model import Row, TableModel, Version, event_of
from tests.simulation.scheduler import Violation

Rows = Counter[Row]


class Intent(Protocol):
    """An operation's effect on rows."""

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        """Raise `Violation` unless the rows removed and added are what the operation makes of `before`."""


def _fail(what: object, after: Version, removed: Rows, added: Rows) -> None:
    detail = f"{what} as version {after.number} removed {dict(removed)} and added {dict(added)}"
    raise Violation("a commit does what its operation says", detail)


@dataclass(frozen=True)
class NoRows:
    """Nothing happens to any row: merge, checkpoint, vacuum, evolve."""

    operations: tuple[str, ...]

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        if removed or added or after.operation not in self.operations:
            _fail(self, after, removed, added)


@dataclass(frozen=True)
class AddColumn:
    """A column comes, behind those that there are."""

    name: str

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        if removed or added or after.columns != (*before.columns, self.name):
            _fail(self, after, removed, added)


@dataclass(frozen=True)
class AddEvents:
    """Rows come whose ids are among some."""

    ids: AbstractSet[str]

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        at = after.columns.index("event_id")
        if removed or not {event_of(row[at]) for row in added} <= self.ids:
            _fail("ingest", after, removed, added)


class UnderWay(AbstractSet[str]):
    """Ids that a request sends, and those of requests of the same process that are under way at the moment.

    Threads of a process commit together: any of them may make the rows of all. What is no longer under way is nobody's.
    """

    def __init__(self, own: Iterable[str], others: Callable[[], Iterable[object]]) -> None:
        """`others` gives the intents of the process's threads as they are now."""
        self.own = frozenset(own)
        self._others = others

    def _all(self) -> frozenset[str]:
        found = self.own
        for intent in self._others():
            meant = intent.by_operation.get("WRITE") if isinstance(intent, Steps) else None
            if isinstance(meant, AddEvents):
                found |= meant.ids.own if isinstance(meant.ids, UnderWay) else frozenset(meant.ids)
        return found

    def __contains__(self, each: object) -> bool:
        return each in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


@dataclass(frozen=True)
class AddRows:
    """Exactly these rows come."""

    rows: tuple[Row, ...]
    columns: tuple[str, ...]

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        extra = (None,) * (len(after.columns) - len(self.columns))
        if removed or added != Counter(row + extra for row in self.rows):
            _fail("append", after, removed, added)


@dataclass(frozen=True)
class ChangeRows:
    """Rows that match become others, or go where `change` returns None."""

    matches: Callable[[Mapping[str, object]], bool]
    change: Callable[[dict[str, object]], dict[str, object] | None]

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        wanted: Rows = Counter(after.rows)
        wanted.update(removed)
        wanted.subtract(added)
        result: Rows = Counter()
        for row, number in wanted.items():
            values = dict(zip(after.columns, row, strict=True))
            changed = self.change(values) if self.matches(values) else values
            if changed is not None:
                result[tuple(changed[name] for name in after.columns)] += number
        if result != after.rows:
            _fail("a change of rows", after, removed, added)


@dataclass(frozen=True)
class PutRows:
    """Rows replace those with the same key (or stay away, with `insert_only`), or come anew."""

    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    key: str
    insert_only: bool = False

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        at, rows = after.columns.index(self.key), Counter(_before(after, removed, added))
        for new in self.rows:
            values = dict(zip(self.columns, new, strict=True))
            matched = [row for row in rows.elements() if row[at] == values[self.key]]  # several, after write skew
            if matched and self.insert_only:
                continue
            rows.subtract(matched)
            for row in matched or [(None,) * len(after.columns)]:
                kept = dict(zip(after.columns, row, strict=True))
                rows[tuple((kept | values)[name] for name in after.columns)] += 1
        if +rows != after.rows:
            _fail("an upsert", after, removed, added)


@dataclass(frozen=True)
class ExpireRows:
    """Rows go whose time in a column is before a moment, which is asked for when they go."""

    column: str
    before: Callable[[], datetime]

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        at = after.columns.index(self.column)
        if added or after.operation != "EXPIRE" or any(row[at] >= self.before() for row in removed):
            _fail("expiry", after, removed, added)


@dataclass(frozen=True)
class RestoreRows:
    """The rows of an older version are there again."""

    version: int

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        wanted = table.versions[self.version]
        if after.columns != wanted.columns or wanted.rows != after.rows:
            _fail(self, after, removed, added)


@dataclass
class Steps:
    """Several operations of one call, by the names of their commits, for instance a merge and its checkpoint."""

    by_operation: dict[str, Intent] = field(default_factory=dict)

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        intent = self.by_operation.get(after.operation)
        if intent is None:
            _fail(f"a commit of {after.operation}", after, removed, added)
        else:
            intent.check(table, before, after, removed, added)


def _before(after: Version, removed: Rows, added: Rows) -> Iterable[Row]:
    rows = Counter(after.rows)
    rows.update(removed)
    rows.subtract(added)
    return rows.elements()


def widened(version: Version, columns: tuple[str, ...]) -> Rows:
    """Return a version's rows under the columns of a later one."""
    extra = (None,) * (len(columns) - len(version.columns))
    return Counter({row + extra: number for row, number in version.rows.items()}) if extra else version.rows


def difference(before: Version, after: Version) -> tuple[Rows, Rows]:
    """Return the rows that a version lost and gained."""
    old = before.rows
    if before.columns != after.columns:
        at = {name: index for index, name in enumerate(before.columns)}
        old = Counter()
        for row, number in before.rows.items():
            old[tuple(row[at[name]] if name in at else None for name in after.columns)] += number
    return old - after.rows, after.rows - old
