"""What must hold afterwards, by what the journals say and what the lake holds."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from alluvia.api.lake import Lake, Table
from alluvia.commit.commit_offers import offers_in
from alluvia.delta.log.commit import EVENT_IDS, CommitActions
from alluvia.verify.report import KINDS, Severity
from tests.judges import canonical, deltalake_rows, duckdb_rows
from tests.processes.events import SLOTS, TABLE, batch_ids, is_doomed, rows_of
from tests.processes.journal import Entry, all_entries

ROLES = {stream: role for role, stream in SLOTS.values() if stream}


@dataclass
class Told:
    """What all journals say together. `deletable` are events that someone meant to delete."""

    entries: list[Entry]
    meant: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    deletable: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for entry in self.entries:
            place = {"intent": self.meant, "ack": self.acknowledged, "delete": self.deletable, "deleted": self.deleted}
            place.get(entry.kind, set()).update(entry.ids)

    def batches(self, kind: str) -> set[str]:
        """Return the batches that have an entry of a kind."""
        return {entry.batch for entry in self.entries if entry.kind == kind}

    def unanswered(self) -> list[tuple[str, int]]:
        """Return stream and number of each batch that was sent and by nobody known to be acknowledged."""
        left = (batch.split("-") for batch in self.batches("intent") - self.batches("ack"))
        return sorted((stream, int(number)) for stream, number in left)


def told_in(folder: Path) -> Told:
    """Read all journals."""
    return Told(all_entries(folder))


def send_unanswered(lake: Lake, told: Told) -> None:
    """Send what nobody knows the fate of once more, as whoever holds it would."""
    table = lake.table(TABLE)
    for stream, number in told.unanswered():
        ids = batch_ids(stream, number)
        rows = rows_of(table.snapshot().schema, ids)
        if ROLES[stream] == "ingest":
            table.ingest(rows)
        else:
            table.append(rows, (stream, number))


def check_rows(table: Table, told: Told, certain: set[str]) -> None:
    """Each of `certain` once, unless someone meant to delete it; others at most once; the deleted not at all."""
    rows = table.scan().read_all()
    ids = rows["event_id"].to_pylist()
    twice = sorted(event_id for event_id, times in Counter(ids).items() if times > 1)
    assert not twice, f"more than once: {twice}"
    lost = sorted(certain - told.deletable - set(ids))
    assert not lost, f"acknowledged and lost: {lost}"
    strange = sorted(set(ids) - told.meant)
    assert not strange, f"never sent: {strange}"
    back = sorted(told.deleted & set(ids))
    assert not back, f"deleted and back: {back}"
    assert all(map(is_doomed, told.deletable))
    assert canonical(rows) == canonical(rows_of(rows.schema, ids)), "rows that are not what was sent"


def check_others_agree(table: Table) -> None:
    """Other readers see the same rows."""
    rows = canonical(table.scan().read_all())
    assert deltalake_rows(table) == rows, "deltalake reads other rows"
    assert duckdb_rows(table) == rows, "delta_scan reads other rows"


def check_log(table: Table, told: Told) -> list[CommitActions]:
    """Versions without gaps, each by one transaction, in order of time; and answers that named the right ones."""
    log = table._handle.log
    versions = sorted(log.listing().commits)
    assert versions == list(range(table.snapshot().version + 1)), "the log has a gap"
    commits = log.read_commits(versions)
    ids = [commit.info["txnId"] for commit in commits]
    assert len(set(ids)) == len(ids), "two versions are of one transaction"
    times = [commit.info["inCommitTimestamp"] for commit in commits]
    assert all(before < after for before, after in itertools.pairwise(times)), "time went back"
    answered = Counter[int]()
    for entry in told.entries:
        if entry.kind == "ack" and entry.rows:
            _check_answer(entry, commits[entry.version])
            answered[entry.version] += entry.rows
        if entry.kind == "again":
            assert entry.rows == 0, f"{entry.batch} was acknowledged, and added again"
    for version, rows in answered.items():
        _check_rows(commits[version], rows)
    return commits


def _check_rows(commit: CommitActions, answered: int) -> None:
    """A commit of several writers may also hold rows of some that were killed before they could tell."""
    added = sum(json.loads(add.stats or "{}")["numRecords"] for add in commit.adds)
    alone = len(offers_in(commit)) < 2
    assert added == answered if alone else added >= answered, f"version {commit.version}: {added} rows, not {answered}"


def _check_answer(entry: Entry, commit: CommitActions) -> None:
    stream = entry.batch.split("-")[0]
    if ROLES[stream] == "ingest":
        assert EVENT_IDS in commit.info
    else:
        assert [txn.app_id for txn in commit.txns] == [stream]


def check_files(table: Table) -> None:
    """Every file that the newest version names is there, with its size."""
    snapshot = table.snapshot()
    there = {info.key: info.size for info in table.lake.store.list(snapshot.root)}
    for file in snapshot.files:
        assert there.get(snapshot.root + file.path) == file.size, f"{file.path} is not there as it should be"


def check_replay(lake: Lake, commits: Sequence[CommitActions]) -> None:
    """The commits alone, without a checkpoint, make the newest version."""
    live: dict[str, int] = {}
    for commit in commits:
        for remove in commit.removes:
            live.pop(remove.path, None)
        live |= {add.path: add.size for add in commit.adds}
    assert live == {file.path: file.size for file in lake.table(TABLE).snapshot().files}, "a checkpoint says otherwise"


def check_verified(table: Table) -> None:
    """`verify` of the table, data and all, finds nothing; of removed files, vacuum has taken many."""
    report = table.verify(full=True)
    kinds = {kind for kind in report.found if KINDS[kind] is not Severity.NOTE}
    assert kinds <= {"tombstone-file-missing"}, report.findings
