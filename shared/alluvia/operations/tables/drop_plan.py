"""The commits that drop a table, undrop it, and create another with its name. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from alluvia.commit.changes import UNDROP, Changes
from alluvia.commit.intents import CLAIM
from alluvia.commit.transaction import FILE_AGE_MS_MAX
from alluvia.commit.versions import in_reach, oldest_readable
from alluvia.delta.lineage import DroppedTable, Gaps, marked, version_gaps, with_gap, with_marks_of, with_undone
from alluvia.delta.log.actions import AddFile, DomainMetadata, Metadata, Protocol, Txn
from alluvia.delta.log.commit import ENABLED_TIMESTAMP, ENABLED_VERSION
from alluvia.delta.log.features import ATTACHED_TABLE, DOMAIN_METADATA, GUARD
from alluvia.delta.log.replay import State
from alluvia.delta.properties import OLDEST_READABLE, names_text
from alluvia.delta.protocols import has_domains, with_features
from alluvia.delta.schema.former_names import inherited, noted, with_names_of
from alluvia.errors import TransactionExpired
from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FirstVersion:
    """What the first version of a table has besides its metadata; the protocol is that of its properties by default.

    With `new_log`, no table may have had the name before. None of the files was written, or began to be kept, before
    `begun_ms`; None: all were there before.
    """

    operation: str = "CREATE TABLE"
    parameters: Mapping[str, str] = field(default_factory=dict)
    adds: Sequence[AddFile] = ()
    protocol: Protocol | None = None
    txns: Mapping[str, Txn] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)
    new_log: bool = False
    begun_ms: int | None = None

    def check_young(self, name: str, now_ms: int) -> None:
        """Raise `TransactionExpired` where the files are so old that vacuum may have deleted some."""
        if self.begun_ms is not None and now_ms - self.begun_ms > FILE_AGE_MS_MAX:
            raise TransactionExpired(
                f"making the table {name} took over 12 hours, so vacuum may have deleted some of its files: try again"
            )


EMPTY = FirstVersion()


def plan_drop(state: State, now_ms: int, parent_id: str | None = None) -> Changes:
    """Return the commit that drops a table. Pure."""
    before = state.metadata.configuration

    def metadata_at(version: int) -> Metadata:
        table = DroppedTable(version, state.metadata.id, now_ms, parent_id)
        configuration = marked(before, (*in_reach(state), table), version_gaps(before), version)
        return replace(state.metadata, configuration=configuration)

    return Changes(
        "DROP TABLE",
        removes=[file.removed(now_ms, data_change=True) for file in state.files],
        metadata=metadata_at(state.version + 1),
        metadata_at=metadata_at,
        protocol=_changed(state.protocol, with_features(state.protocol, (GUARD,))),
        can_match=lambda _: True,
    )


def never_created(metadata: Metadata, protocol: Protocol) -> State:
    """Return what comes before a new log: a dropped table, so that a claim can stand there before the table does. Pure.

    Readers of other libraries see an empty table as long as it does.
    """
    configuration = marked(metadata.configuration, (), (), 0)
    protocol = with_features(protocol, (GUARD, DOMAIN_METADATA))
    return State(-1, protocol, replace(metadata, configuration=configuration))


def plan_recreate(
    state: State, metadata: Metadata, protocol: Protocol, now_ms: int, first: FirstVersion = EMPTY
) -> Changes:
    """Return the commit that starts a new table in a dropped one's log. Pure.

    What applications recorded of the old table is set back to -1, since the log knows no way to remove it.
    """
    protocol = _readable_on(protocol, state.protocol)
    named = with_names_of(inherited(metadata, state.metadata).configuration, state.metadata.configuration)

    def metadata_at(version: int) -> Metadata:
        configuration = marked(named, in_reach(state), ((0, version - 1),) if version else ())
        return replace(metadata, configuration=_with_oldest(configuration, protocol, oldest_readable(state)))

    return Changes(
        first.operation,
        {"partitionBy": names_text(metadata.partition_columns), **first.parameters},
        adds=list(first.adds),
        removes=[file.removed(now_ms, data_change=True) for file in state.files],
        metadata=metadata_at(state.version + 1),
        metadata_at=metadata_at,
        protocol=protocol,
        txns=_txns(state.txns, first.txns, now_ms),
        domains=_domains(state, first.domains, protocol),
        can_match=lambda _: True,
    )


def plan_replace(
    state: State, metadata: Metadata, protocol: Protocol, now_ms: int, undone: Gaps | None = None
) -> Changes:
    """Return the commit that puts a new, empty table in the place of one, whose versions can still be read. Pure.

    It has an id of its own, so what follows the old one begins again. It does not know the events of the old one:
    `undone` are the versions up to that of `state` whose events it does not have, in order; all by default.
    """
    before = state.metadata.configuration
    timed = {name: before[name] for name in (ENABLED_VERSION, ENABLED_TIMESTAMP) if name in before}
    protocol = _readable_on(protocol, state.protocol)
    metadata = noted(inherited(metadata, state.metadata), state.metadata)
    configuration = with_marks_of({**metadata.configuration, **timed}, before)
    configuration = _with_oldest(configuration, protocol, oldest_readable(state))
    undone = ((0, state.version),) if undone is None else undone

    def metadata_at(version: int) -> Metadata:
        # What transactions over several tables had done to the old one may come into its log after its last version.
        ranges = [(first, version - 1 if last == state.version else last) for first, last in undone]
        return replace(metadata, configuration=with_undone(configuration, ranges))

    return Changes(
        "CREATE OR REPLACE TABLE",
        {"partitionBy": names_text(metadata.partition_columns)},
        removes=[file.removed(now_ms, data_change=True) for file in state.files],
        metadata=metadata_at(state.version + 1),
        metadata_at=metadata_at,
        protocol=_changed(state.protocol, protocol),
        txns=_txns(state.txns, {}, now_ms),
        domains=_domains(state, {}, protocol),
        can_match=lambda _: True,
    )


def plan_undrop(state: State, base: State, table: DroppedTable, now_ms: int) -> Changes:
    """Return the commit that brings back a table whose last version is `base`. Pure.

    Files that the log holds now stay: rejects that were kept since the drop.
    """
    oldest = oldest_readable(state)
    gaps = with_gap(version_gaps(base.metadata.configuration), table.version, state.version)
    others = [other for other in in_reach(state) if other != table]
    protocol = _readable_on(base.protocol, state.protocol)
    named = with_names_of(base.metadata.configuration, state.metadata.configuration)
    configuration = marked(named, others, gaps)
    return Changes(
        UNDROP,
        {"version": str(table.version)},
        adds=[replace(file, data_change=True) for file in base.files if state.files.get(file.key) is None],
        metadata=replace(base.metadata, configuration=_with_oldest(configuration, protocol, oldest)),
        protocol=_changed(state.protocol, protocol),
        txns=_txns(state.txns, base.txns, now_ms),
        domains=_domains(state, base.domains, protocol),
        can_match=lambda _: True,
        domains_read=frozenset({OLDEST_READABLE}),
    )


def _readable_on(protocol: Protocol, before: Protocol) -> Protocol:
    """Return a protocol with what reading the log needed before: its checkpoints and tombstones are still there.

    Of an attached table there are none.
    """
    known = protocol.reader_features or ()
    kept = [each for each in before.reader_features or () if each not in known and each != ATTACHED_TABLE]
    return (
        replace(with_features(protocol, kept), min_reader_version=3, reader_features=(*known, *kept))
        if kept
        else protocol
    )


def _changed(before: Protocol, after: Protocol) -> Protocol | None:
    return None if before == after else after


def _with_oldest(configuration: Mapping[str, str], protocol: Protocol, oldest: int) -> dict[str, str]:
    """Return properties with vacuum's record, where the protocol has no other place for it."""
    rest = {name: text for name, text in configuration.items() if name != OLDEST_READABLE}
    return rest if has_domains(protocol) or not oldest else {**rest, OLDEST_READABLE: str(oldest)}


def _txns(now: Mapping[str, Txn], wanted: Mapping[str, Txn], now_ms: int) -> list[Txn]:
    """Return what makes the recorded transactions those wanted."""
    unknown = [Txn(app_id, -1, now_ms) for app_id, txn in now.items() if app_id not in wanted and txn.version != -1]
    return unknown + [txn for app_id, txn in wanted.items() if now.get(app_id) != txn]


def _domains(state: State, wanted: Mapping[str, DomainMetadata], protocol: Protocol) -> list[DomainMetadata]:
    """Return what makes the metadata domains those wanted; vacuum's record stays, whichever table it was made of.

    So do claims, which only a commit settles.
    """
    oldest = oldest_readable(state)
    wanted = {name: domain for name, domain in wanted.items() if not name.startswith(CLAIM)}
    if has_domains(protocol) and oldest:
        wanted = {**wanted, OLDEST_READABLE: DomainMetadata(OLDEST_READABLE, str(oldest))}
    gone = [replace(domain, removed=True) for name, domain in state.domains.items()
            if name not in wanted and not name.startswith(CLAIM)]  # fmt: skip
    return gone + [domain for name, domain in wanted.items() if state.domains.get(name) != domain]
