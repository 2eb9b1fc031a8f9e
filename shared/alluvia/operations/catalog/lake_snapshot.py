"""Tables of a lake as they are at one moment: each transaction over several tables is in all of them or in none.

All logs are looked up, then all of them once more for what has come since: a transaction that one of them holds at the
first look has its claims in all of them by the second. If the second look finds another transaction in one log, the
others are read up to its claims, too. A claim that stands in a log then counts as carried out if its transaction was
decided by the time of the question, and all its claims are in what was read: what it follows is then there as well,
since no table takes another claim before the last one has gone (docs/TRANSACTIONS.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from alluvia.commit.commit_records import COMMIT_AGE_MS_MAX, Decisions
from alluvia.commit.handle import TableHandle
from alluvia.commit.intents import Claim, TableAt, pending
from alluvia.commit.versions import expired_message, oldest_readable
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.replay import State
from alluvia.errors import Corrupt, Invalid, TableNotFound, TransactionExpired, Unavailable, Unsupported, VersionExpired
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.catalog.transaction_order import NOT_THERE, Claims, behind, carried_out
from alluvia.store import Store
from alluvia.table_names import STREAMS, TABLE_NAME

TABLES_MAX = 100
"""A lake of more tables is not looked up as a whole."""
LOOKS_MAX = 100
"""How often logs are followed: once, and again only if the last time met a new transaction."""
_SKIPPED = (Corrupt, Invalid, Unsupported)
"""A fault of one table, or a missing right, stops no transaction over others."""


class _Log:
    """A table's log as it was read: its newest version, and that version's state where this process has it.

    `commits` are those that were met one by one since the first look.
    """

    def __init__(self, handle: TableHandle) -> None:
        self.handle = handle
        with handle.lock:
            log = handle.log
            self.state = None if log.stale else log.state
            self.version = log.newest_listed() if self.state is None else self.state.version
        self.commits: Sequence[CommitActions] = ()
        self._known = self.version

    def follow(self) -> bool:
        """Look for new commits. False where the log was opened again, so that not all commits were met."""
        log = self.handle.log
        if self.state is None:
            self.commits = [*self.commits, *log.following(self.version)]
            self.version = self._known + len(self.commits)
            return True
        with self.handle.lock:
            self.state = log.refresh()
            since = log.since(self._known)
        self.version = self.state.version
        if since is None:
            self._known = self.version
        self.commits = since or ()
        return since is not None

    def opened(self) -> State:
        """Return the state of the version. Raises `TransactionExpired` where retention has taken it."""
        if self.state is None:
            self.state = state_at(self.handle, self.version)
        return self.state


def _looked_up(handle: TableHandle) -> _Log | None:
    with suppress(*_SKIPPED):  # a reader of the table gets the error
        log = _Log(handle)
        return None if log.version == NOT_THERE else log
    return None


def _followed(log: _Log) -> bool | None:
    with suppress(*_SKIPPED):
        return log.follow()
    return None


class LakeSnapshot:
    """Tables at the moment when this is made. Of each, only its version is looked up, and its state when it is used."""

    def __init__(self, store: Store, logs: Iterable[_Log], *, skips: bool = False) -> None:
        """Look for new commits in some logs; those that cannot be read are left out if it `skips`.

        Raises `Unavailable` if each of `LOOKS_MAX` looks meets a new transaction.
        """
        self._store = store
        self._skips = skips
        self._logs = {log.handle.name: log for log in logs}
        self._decided: dict[str, Claims] = {}
        late, known = list(self._logs), set[str]()
        for _ in range(LOOKS_MAX):
            late = self._late(known) if self._follow(late) else list(self._logs)
            if not late:
                return
        raise Unavailable(
            f"no consistent snapshot of {len(self._logs)} tables in {LOOKS_MAX} looks: other writers kept committing "
            "transactions over several tables: try again when fewer writers are active"
        )

    @classmethod
    def of_tables(cls, store: Store, handles: Sequence[TableHandle]) -> LakeSnapshot:
        """Return some tables as they are now. One GET for each that is warm; others are opened before.

        Raises what opening a table raises.
        """
        for handle in handles:
            handle.known_state()
        return cls(store, map(_Log, handles))

    @classmethod
    def of_lake(cls, catalog: WritableCatalog, names: Iterable[str]) -> LakeSnapshot:
        """Return all tables of a lake as they are now; `names` are those that will be needed first.

        Of logs of streams, it has those among `names`. Costs one LIST, and for each table one GET, with one LIST more
        if this process does not know it. Tables of rejected events are left out, and what this process may not list or
        read. A lake of more than `TABLES_MAX` tables counts as one without any.
        """
        first = list(names)
        for name in first:
            with suppress(TableNotFound):
                catalog.log_handle(name).at_hand()
        all_names = [*_tables(catalog.store), *(name for name in first if name.startswith(STREAMS))]
        logs = catalog.store.map(_looked_up, map(catalog.log_handle, all_names))
        return cls(catalog.store, [log for log in logs if log is not None], skips=True)

    def __contains__(self, name: str) -> bool:
        return name in self._logs

    def table(self, name: str) -> TableAt:
        """Return a table. Raises `TransactionExpired` where retention has taken its version since.

        One GET and one HEAD for each claim that stands, if the tables that were asked for before had none of its
        transaction.
        """
        log = self._logs[name]
        state = log.opened()
        return TableAt(state, [claim for claim in pending(state.domains) if self._claims(claim, log)])

    @property
    def undone(self) -> dict[str, Claims]:
        """Return the transactions that the tables that were asked for hold before their logs do."""
        return {one: claims for one, claims in self._decided.items() if claims}

    def _follow(self, names: Sequence[str]) -> bool:
        """Look for new commits of some tables. False where not all that came since the first look were met."""
        look = _followed if self._skips else _Log.follow
        met = self._store.map(look, [self._logs[name] for name in names])
        for name, each in zip(names, met, strict=True):
            if each is None:
                del self._logs[name]
        return False not in met

    def _late(self, known: set[str]) -> list[str]:
        """Return the tables to look at once more; `known` are the transactions that had happened by the last look.

        These are the tables that were not read up to the claims of a transaction. If a new one has changed other
        tables, too, it may follow, by way of these, a transaction that came to a table after the look at it: then all.
        """
        met = {one: each.claims for log in self._logs.values() for one, each in carried_out(log.commits).items()}
        if late := self._behind(met.values()):
            return late
        self._decided = self.undone
        if not self._skips:  # else claims are asked about when a table is used
            for log in self._logs.values():
                met |= {claim.transaction_id: self._claims(claim, log) for claim in pending(log.opened().domains)}
        new = [one for one, claims in met.items() if claims and one not in known]
        known.update(new)
        beyond = any(met[one].keys() - self._logs.keys() for one in new)
        return list(self._logs) if beyond and len(self._logs) > 1 else []

    def _behind(self, transactions: Iterable[Claims]) -> list[str]:
        return behind({name: log.version for name, log in self._logs.items()}, transactions)

    def _claims(self, claim: Claim, log: _Log) -> Claims:
        """Return the claims of a transaction that counts; none for another.

        The first answer stays, whatever is decided afterwards.
        """
        if claim.transaction_id not in self._decided:
            claims = _decided(claim, log)
            self._decided[claim.transaction_id] = {} if self._behind([claims]) else claims
        return self._decided[claim.transaction_id]


def _decided(claim: Claim, log: _Log) -> Claims:
    """Return the claims of a transaction that has happened; none if it has not been decided that it does."""
    handle = log.handle
    decision = Decisions.about(handle.log, claim).read(claim)
    if decision is None and handle.clock.now_ms() - claim.started_ms > COMMIT_AGE_MS_MAX:
        # A decision is deleted when all claims have been carried out, which the log then says.
        done = carried_out(handle.log.following(log.version)).get(claim.transaction_id)
        return {} if done is None else done.claims
    return {} if decision is None else decision.claims


def _tables(store: Store) -> list[str]:
    with suppress(*_SKIPPED):
        names = [name for name in store.list_folders("") if TABLE_NAME.fullmatch(name)]
        return names if len(names) <= TABLES_MAX else []
    return []


def state_at(handle: TableHandle, version: int) -> State:
    """Return a table's state at a version. Raises `TransactionExpired` where retention or an erasure has taken it."""
    newest = handle.known_state()
    if newest.version == version:
        return newest
    try:
        oldest = oldest_readable(newest)
        if version < oldest:
            raise VersionExpired(expired_message(handle.name, version, oldest))
        with handle.lock:
            return handle.log.at(version)
    except VersionExpired as error:
        raise TransactionExpired(f"table {handle.name}: {error}: start the transaction again") from error
