"""Which transactions over several tables are in a snapshot of a lake, by what was read of the tables' logs. Pure.

A transaction is in all tables of a snapshot or in none of them, and so is what it follows. It follows another one if it
has claimed a table after that was carried out there, since a claim that does more than append lets no other commit pass
(docs/TRANSACTIONS.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Protocol

from alluvia.commit.commit_records import Decision
from alluvia.commit.intents import TRANSACTION, Claim, TableAt, placed_in
from alluvia.delta.log.commit import CommitActions
from alluvia.lazy_dataclasses import dataclass

NOT_THERE = -1
"""The version of a table before its log begins."""
Claims = Mapping[str, int]
"""The versions of a transaction's claims, by table."""


@dataclass(frozen=True, slots=True)
class Happened:
    """A transaction that has happened, as one table's log tells: `done` is the version there that carries it out."""

    claims: Claims
    done: float = inf


def carried_out(commits: Iterable[CommitActions]) -> dict[str, Happened]:
    """Return the transactions that some commits of a table have carried out, by their ids."""
    told = [(commit.info[TRANSACTION], commit.version) for commit in commits if TRANSACTION in commit.info]
    return {each["id"]: Happened(each["claims"], version) for each, version in told}


def behind(versions: Claims, transactions: Iterable[Claims]) -> list[str]:
    """Return the tables whose logs were not read up to the claims of all of some transactions, in order.

    `versions` are those that were read. Other tables do not count.
    """
    claims = [claim for each in transactions for claim in each.items()]
    return sorted({name for name, claimed in claims if versions.get(name, claimed) < claimed})


@dataclass(frozen=True, slots=True)
class LogSince:
    """A table's log from a version on: the ids of transactions with claims there or later, and what happened later."""

    version: int
    claimed: frozenset[str]
    later: Mapping[str, Happened]

    def holds(self, transaction_id: str, claimed: int, version: int) -> bool:
        """Whether a transaction that has happened, and has its claim at `claimed`, is in a later version."""
        not_done = inf if transaction_id in self.claimed else NOT_THERE
        done = self.later[transaction_id].done if transaction_id in self.later else not_done
        return max(claimed, done) <= version


def settled(logs: Mapping[str, LogSince]) -> dict[str, int]:
    """Return the first versions of tables, from some on, of which all hold what one of them holds."""
    versions = {name: log.version for name, log in logs.items()}
    before: dict[str, int] = {}
    while versions != before:
        before = dict(versions)
        for name, log in logs.items():
            for one, each in log.later.items():
                others = {other: at for other, at in each.claims.items() if other != name and other in logs}
                if any(logs[other].holds(one, at, versions[other]) for other, at in others.items()):
                    versions[name] = max(versions[name], int(each.done))
    return versions


class Logs(Protocol):
    """Tables' logs, read as far as it is needed."""

    def commits(self, name: str, after: int) -> Sequence[CommitActions]:
        """Return the commits of a table after a version, up to its newest."""

    def committed(self, name: str, claims: Sequence[Claim]) -> Mapping[str, Decision]:
        """Return what was decided about claims in a table whose transactions have happened."""


class Order:
    """The order of the transactions since some tables, `used`, were read at one moment."""

    def __init__(self, logs: Logs, used: Mapping[str, TableAt]) -> None:
        self._logs = logs
        self._used = used

    def with_followers(self, first: Mapping[str, Claims]) -> dict[str, Claims]:
        """Return transactions with those that follow them, by way of tables that were not used."""
        reached: dict[str, Claims] = {}
        waiting = dict(first)
        while waiting:
            one, claims = waiting.popitem()
            reached[one] = claims
            for name, claimed in claims.items():
                if name not in self._used:
                    later = self._followers(one, name, claimed)
                    waiting |= {other: theirs for other, theirs in later.items() if other not in reached}
        return reached

    def is_read(self, one: str, claims: Claims) -> bool:
        """Whether a transaction, or one that follows it, is in a table that was used."""
        return any(
            self._used[name].holds(other, claimed)
            for other, each in self.with_followers({one: claims}).items()
            for name, claimed in each.items()
            if name in self._used
        )

    def _followers(self, one: str, name: str, claimed: int) -> dict[str, Claims]:
        """Return the transactions that have claimed a table after one was carried out there."""
        commits = self._logs.commits(name, claimed)
        done = carried_out(commits).get(one)
        if done is None:
            return {}
        later = [commit for commit in commits if commit.version > done.done]
        lifted = {domain.domain for commit in later for domain in commit.domains if domain.removed}
        standing = [claim for commit in later for claim in placed_in(commit) if claim.domain not in lifted]
        after = {other: each.claims for other, each in carried_out(later).items() if each.claims[name] > done.done}
        return after | {other: each.claims for other, each in self._logs.committed(name, standing).items()}
