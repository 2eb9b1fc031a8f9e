"""Tables of a lake as they were at a moment in the past: at a time, or before those that a transaction uses changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import inf

from alluvia.commit.commit_records import Decision, committed
from alluvia.commit.handle import TableHandle
from alluvia.commit.intents import CLAIM, Claim, TableAt, pending, placed_in
from alluvia.commit.versions import oldest_readable
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.log import version_at
from alluvia.delta.log.replay import State
from alluvia.errors import AlluviaError, TableNotFound, VersionExpired, VersionNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.catalog.lake_snapshot import LakeSnapshot, state_at
from alluvia.operations.catalog.transaction_order import (
    NOT_THERE,
    Claims,
    Happened,
    LogSince,
    Order,
    carried_out,
    settled,
)
from alluvia.operations.transactions.lake_commit import check_age
from alluvia.operations.transactions.staging import StagedTable

READ_AT_ONCE = 8
CLOCKS_MS_MAX = 10 * 60 * 1000
"""The clocks of writers are apart by no more than this, for what they say of transactions over several tables."""
COMMITS_AT_ONCE = 50


class _Logs:
    """The logs of tables since a transaction has read those that it `used`; `now` is a later snapshot of them."""

    def __init__(self, catalog: WritableCatalog, used: Mapping[str, StagedTable], now: LakeSnapshot) -> None:
        self._catalog = catalog
        self._used = used
        self._now = now
        self._known: dict[str, tuple[int, Sequence[CommitActions]]] = {}

    def handle(self, name: str) -> TableHandle:
        return self._used[name].inner if name in self._used else self._catalog.log_handle(name)

    def commits(self, name: str, after: int) -> Sequence[CommitActions]:
        start, commits = self._known.get(name, (after + 1, ()))
        if start > after:
            handle = self.handle(name)
            with handle.lock:
                if name not in self._now and handle.log.state is not None:
                    handle.log.refresh()
                known = handle.log.since(after)
            commits = handle.log.following(after, READ_AT_ONCE) if known is None else known
            self._known[name] = (after, commits)
        return [commit for commit in commits if commit.version > after]

    def committed(self, name: str, claims: Sequence[Claim]) -> Mapping[str, Decision]:
        return committed(self.handle(name).log, claims)

    def transactions(self, name: str, commits: Sequence[CommitActions]) -> dict[str, Happened]:
        """Return the transactions that some commits, up to those of now, have carried out, or still have to."""
        held, undone = self._now.table(name).held, self._now.undone
        return carried_out(commits) | {one: Happened(undone[one]) for one in held}


class LateTable:
    """A table, `name`, as it was when the tables `used` last all had the versions of a transaction.

    Two things say where that is in the table's log (docs/TRANSACTIONS.md): the order of transactions over several
    tables, which logs tell, and between the versions that it leaves, the moment of the first change of a table that was
    used. The store's clock says when it took a commit; of those that it took in the same millisecond (or second), the
    writers' clocks decide.

    `now` is a later snapshot of all of these tables, `began_ms` is when the transaction began. Reads the commits since
    then of tables that have changed and, where other transactions have changed several tables, of these too; one LIST
    for each table that has changed. Raises `TransactionExpired`.
    """

    def __init__(
        self, catalog: WritableCatalog, name: str, used: Mapping[str, StagedTable], now: LakeSnapshot, began_ms: int
    ) -> None:
        check_age(catalog.clock, began_ms)
        self._name = name
        self._newest = now.table(name).state
        self._began_ms = began_ms
        self._logs = _Logs(catalog, used, now)
        before = {other: staged.at for other, staged in used.items()}
        self._order = Order(self._logs, before)
        self._end: tuple[float, float] = (inf, inf)
        """When a table that was used changed first: by the store's clock, then by the writer's, both in ms."""
        changed: dict[str, Claims] = {}
        for other, table in before.items():
            changed |= self._changed(other, table)
        self._after = self._order.with_followers(changed)

    def read(self) -> TableAt:
        """Return the table. Raises `TableNotFound` if it was created later."""
        name, newest = self._name, self._newest.version
        handle = self._logs.handle(name)
        stored = handle.log.stored_ms()
        start = newest
        while start >= 0 and stored.get(start, 0) >= self._end[0]:
            start -= 1
        start = min([start, *(claims[name] for claims in self._after.values() if name in claims)])
        commits = [commit for commit in self._logs.commits(name, start) if commit.version <= newest]
        there = self._logs.transactions(name, commits)
        version, needed = self._place(start, commits, there, stored)
        if version < 0:
            raise TableNotFound(
                f"table {name!r} did not exist yet when the transaction read other tables: start the transaction again"
            )
        state = self._newest if version == newest else state_at(handle, version)
        known = [claim for claim in pending(state.domains) if claim.transaction_id in there.keys() - self._after.keys()]
        doubtful = [claim for claim in known if claim.transaction_id not in needed]
        held = needed | committed(handle.log, doubtful, self._end[0]).keys()
        return TableAt(state, [claim for claim in known if claim.transaction_id in held])

    def _changed(self, name: str, table: TableAt) -> dict[str, Claims]:
        """Return the transactions that a table which was used holds now, and did not when it was read. Sets the end."""
        commits = self._logs.commits(name, table.version)
        if commits:
            first = commits[0]
            stored = self._logs.handle(name).log.stored_ms(first.version)
            self._end = min(self._end, (stored.get(first.version, self._began_ms), first.timestamp_ms))
        waiting = [claim for claim in pending(table.state.domains) if claim.transaction_id not in table.held]
        for decision in self._logs.committed(name, waiting).values():
            self._end = min(self._end, (decision.decided_ms, inf))
        now = self._logs.transactions(name, commits)
        return {one: each.claims for one, each in now.items() if one not in table.held}

    def _place(
        self, start: int, commits: Sequence[CommitActions], there: Mapping[str, Happened], stored: Mapping[int, int]
    ) -> tuple[int, set[str]]:
        """Return the version, -1 for none, and the transactions that it must hold; `commits` are those after `start`.

        The table holds the transactions `there` now.
        """
        left_out = [each.done for one, each in there.items() if one in self._after]
        version = int(min([*left_out, self._newest.version + 1])) - 1
        while version > start and self._is_later(commits[version - start - 1], stored):
            version -= 1
        needed = {
            one: each.claims[self._name]
            for one, each in there.items()
            if each.done > version and one not in self._after and self._order.is_read(one, each.claims)
        }
        return max([version, *needed.values()]), set(needed)

    def _is_later(self, commit: CommitActions, stored: Mapping[int, int]) -> bool:
        moment = (stored.get(commit.version, 0), commit.timestamp_ms)
        # An erasure writes old commits again: then their writers' clocks alone tell when they came.
        return moment > self._end and commit.timestamp_ms > self._began_ms


@dataclass(frozen=True, slots=True)
class Then:
    """A table's log now, and its state at the moment: None where it had no version yet.

    `held` are the transactions that the state has although a later version carries them out.
    """

    handle: TableHandle
    now: State
    state: State | None
    held: frozenset[str] = frozenset()

    @property
    def changed(self) -> bool:
        """Whether it has had commits since."""
        return self.state is None or self.state.version != self.now.version


def lake_at(catalog: WritableCatalog, names: Iterable[str], moment_ms: int) -> dict[str, Then]:
    """Return logs by name as they were at a moment, by the times of their commits.

    A transaction over several tables that is in one of them is in all: those that have it later than that moment are
    taken as they were after it. A table that has not changed since costs a look for new commits. Raises
    `VersionExpired` for one whose version of then is gone.
    """
    asked = list(names)
    tables = dict(zip(asked, catalog.store.map(lambda name: _then(catalog, name, moment_ms), asked), strict=True))
    versions = settled({name: _since(then, moment_ms) for name, then in tables.items()})
    for name, version in versions.items():
        handle, now, state = tables[name].handle, tables[name].now, tables[name].state
        if version > (NOT_THERE if state is None else state.version):
            with handle.lock:
                tables[name] = Then(handle, now, handle.log.at(version))
    return tables


def _then(catalog: WritableCatalog, name: str, moment_ms: int) -> Then:
    handle = catalog.log_handle(name)
    snapshot = handle.newest(dropped=True)
    now = snapshot.state
    with suppress(AlluviaError):  # who may not write sees what is in the log
        now = handle.newest(dropped=True).state if handle.carry_out(snapshot) else now
    if handle.attached_place is not None:  # its versions are another lake's
        return Then(handle, now, now)
    if now.timestamp_ms and now.timestamp_ms <= moment_ms:
        return Then(handle, now, now)
    with handle.lock:
        try:
            return Then(handle, now, handle.log.at(version_at(handle.log, moment_ms, oldest_readable(now))))
        except VersionNotFound:
            return Then(handle, now, None)
        except VersionExpired as error:
            raise VersionExpired(f"{name}: {error}") from error


def _since(then: Then, moment_ms: int) -> LogSince:
    """Return what a log says of transactions that were claimed about the moment, and carried out after it."""
    standing = set() if then.state is None else {name for name in then.state.domains if name.startswith(CLAIM)}
    claimed, later = set(standing), dict[str, Happened]()
    for commit in _commits(then):
        if commit.timestamp_ms > moment_ms + CLOCKS_MS_MAX and not standing:
            break
        standing |= {claim.domain for claim in placed_in(commit)}
        claimed |= standing
        later |= {one: each for one, each in carried_out([commit]).items() if CLAIM + one in standing}
        standing -= {domain.domain for domain in commit.domains if domain.removed}
    version = NOT_THERE if then.state is None else then.state.version
    return LogSince(version, frozenset(domain.removeprefix(CLAIM) for domain in claimed), later)


def _commits(then: Then) -> Iterator[CommitActions]:
    first = 0 if then.state is None else then.state.version + 1
    for start in range(first, then.now.version + 1, COMMITS_AT_ONCE):
        yield from then.handle.log.read_commits(range(start, min(start + COMMITS_AT_ONCE, then.now.version + 1)))
