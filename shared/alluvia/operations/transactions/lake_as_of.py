"""Which version of each table of a lake a moment in the past means: never one with half of a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from alluvia.commit.handle import TableHandle, oldest_readable
from alluvia.commit.intents import CLAIM, placed_in
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.log import version_at
from alluvia.delta.log.replay import State
from alluvia.errors import AlluviaError, VersionExpired, VersionNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.catalog.consistent_snapshot import carried_out

CLOCKS_MS_MAX = 10 * 60 * 1000
"""The clocks of writers are apart by no more than this, for what they say of transactions over several tables."""
READ_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Then:
    """A table's log now, and its state at the moment: None where it had no version yet."""

    handle: TableHandle
    now: State
    state: State | None

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
    found = dict(zip(asked, catalog.store.map(lambda name: _then(catalog, name, moment_ms), asked), strict=True))
    later = {name: list(_transactions(then, moment_ms)) for name, then in found.items() if then.changed}
    settled = False
    while not settled:
        settled = True
        for name, transactions in later.items():
            for done, claims, version in transactions:
                state = found[name].state
                if (state is None or state.version < version) and any(
                    _holds(found[other].state, done, at)
                    for other, at in claims.items()
                    if other != name and other in found
                ):
                    handle = found[name].handle
                    with handle.lock:
                        found[name] = Then(handle, found[name].now, handle.log.at(version))
                    settled = False
    return found


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


def _holds(state: State | None, transaction_id: str, claimed: int) -> bool:
    """Whether a transaction was carried out in a state: its claim had come there, and was no more."""
    return state is not None and claimed <= state.version and CLAIM + transaction_id not in state.domains


def _transactions(then: Then, moment_ms: int) -> Iterator[tuple[str, Mapping[str, int], int]]:
    """Yield transactions that were claimed about the moment and carried out after it, their claims, and the version."""
    open_claims = set() if then.state is None else {name for name in then.state.domains if name.startswith(CLAIM)}
    for commit in _commits(then):
        if commit.timestamp_ms > moment_ms + CLOCKS_MS_MAX and not open_claims:
            return
        open_claims |= {claim.domain for claim in placed_in(commit)}
        for one, claims in carried_out([commit]).items():
            if CLAIM + one in open_claims:
                yield one, claims, commit.version
        open_claims -= {domain.domain for domain in commit.domains if domain.removed}


def _commits(then: Then) -> Iterator[CommitActions]:
    first = 0 if then.state is None else then.state.version + 1
    for start in range(first, then.now.version + 1, READ_AT_ONCE):
        yield from then.handle.log.read_commits(range(start, min(start + READ_AT_ONCE, then.now.version + 1)))
