"""Claims: how a table's log says that a transaction over several tables is under way. Pure.

A claim is a commit that changes no row. It puts one `domainMetadata` action into the table's state, which holds what
the transaction will do to this table once it is decided. As long as it stands, the table takes no other commit, unless
the claim and the other commit both only append.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from alluvia.delta.log.actions import DomainMetadata
from alluvia.delta.log.commit import Action, CommitActions, encode_commit, parse_commit
from alluvia.delta.log.fields import text, text_list, whole
from alluvia.delta.log.replay import State, replay
from alluvia.errors import Corrupt
from alluvia.lazy_dataclasses import dataclass
from alluvia.table_names import STREAM_LOG, TABLE_OR_REJECTS

CLAIM = "alluvia.claim."
_TABLE = re.compile(rf"{TABLE_OR_REJECTS.pattern}|{STREAM_LOG.pattern}")
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
TRANSACTION = "alluviaTransaction"
"""What commitInfo says where a claim is carried out: the transaction's id, and the versions of all its claims."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One table's part of a transaction. `commit` is what it will commit, in the form of a commit file.

    `table` is the table's name in its lake, `tables` are the names of all that take part, `started_ms` is when the
    transaction began by its own clock.
    """

    transaction_id: str
    table: str
    tables: tuple[str, ...]
    started_ms: int
    only_appends: bool
    commit: str

    @property
    def domain(self) -> str:
        """The name under which the claim stands in the table's state."""
        return CLAIM + self.transaction_id

    def intended(self, version: int) -> CommitActions:
        """Return what the transaction will commit, as a version of the table."""
        return parse_commit(version, self.commit.encode())

    def placed(self) -> DomainMetadata:
        """Return the action that puts the claim into the table's state."""
        body = {
            "table": self.table,
            "tables": self.tables,
            "startedMs": self.started_ms,
            "onlyAppends": self.only_appends,
            "commit": self.commit,
        }
        return DomainMetadata(self.domain, orjson.dumps(body).decode())

    def lifted(self) -> DomainMetadata:
        """Return the action that takes the claim out of the table's state."""
        return DomainMetadata(self.domain, "", removed=True)


def claim_of(
    transaction_id: str,
    tables: Sequence[str],
    started_ms: int,
    table: str,
    intended: CommitActions,
    *,
    only_appends: bool,
) -> Claim:
    """Return a claim with the actions that a transaction is to commit to one of its tables."""
    several = (intended.txns, intended.domains, intended.removes, intended.adds, intended.cdc)
    actions: list[Action] = [each for each in (intended.protocol, intended.metadata) if each is not None]
    actions += [action for actions in several for action in actions]
    return Claim(
        transaction_id,
        table,
        tuple(tables),
        started_ms,
        only_appends,
        encode_commit(intended.info, actions).decode(),
    )


def pending(domains: Mapping[str, DomainMetadata]) -> list[Claim]:
    """Return the claims that stand in a table's state, oldest first. Raises `Corrupt`."""
    return [parse_claim(domain) for name, domain in domains.items() if name.startswith(CLAIM)]


def placed_in(commit: CommitActions) -> list[Claim]:
    """Return the claims that a commit puts into the table's state. Raises `Corrupt`."""
    return pending({domain.domain: domain for domain in commit.domains if not domain.removed})


def with_claims(state: State, claims: Sequence[Claim]) -> State:
    """Return a table's state as it will be when some claims have been carried out."""
    for claim in claims:
        intended = claim.intended(state.version + 1)
        state = replace(replay(state, [intended]), version=state.version, timestamp_ms=state.timestamp_ms)
    return state


@dataclass(frozen=True, slots=True)
class TableAt:
    """A table at a moment: its state in the log, and the claims there whose transactions have happened by then."""

    state: State
    claims: Sequence[Claim] = ()

    @property
    def version(self) -> int:
        """The version of the state in the log."""
        return self.state.version

    @property
    def held(self) -> frozenset[str]:
        """The ids of the transactions that the table holds before its log does."""
        return frozenset(claim.transaction_id for claim in self.claims)

    @property
    def shown(self) -> State:
        """The state that readers see."""
        return with_claims(self.state, self.claims)

    @property
    def ahead(self) -> list[CommitActions]:
        """The commits of the claims, which the table holds before its log does."""
        return [claim.intended(self.version) for claim in self.claims]

    def holds(self, transaction_id: str, claimed: int) -> bool:
        """Whether a transaction that has happened, and whose claim is the version `claimed` here, is in the table."""
        standing = CLAIM + transaction_id in self.state.domains
        return claimed <= self.version and (not standing or transaction_id in self.held)


def parse_claim(domain: DomainMetadata) -> Claim:
    """Read a claim, whose names may become parts of a key. Raises `Corrupt`."""
    try:
        body: dict[str, Any] = orjson.loads(domain.configuration)
        names = [text(body, "table"), *(text_list(body, "tables") or ())]
        transaction_id = domain.domain.removeprefix(CLAIM)
        if names[1:] == [] or not all(map(_TABLE.fullmatch, names)) or not _ID.fullmatch(transaction_id):
            raise ValueError("no transaction of a lake has such names")
        started_ms = whole(body, "startedMs")
        return Claim(
            transaction_id, names[0], tuple(names[1:]), started_ms, bool(body["onlyAppends"]), text(body, "commit")
        )
    except (ValueError, AttributeError) as error:
        raise Corrupt(f"the domain {domain.domain} cannot be read: only this library may set it") from error
