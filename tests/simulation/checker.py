"""What must hold at every moment of a run: checked as each write and each delete takes effect."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.commit.reads import READS_INFO
from tests.simulation.faults import MINUTE_US
from tests.simulation.intents import Intent, NoRows, Steps, difference, widened
from tests.simulation.ledger import Ledger, ReadOnly, Together
from tests.simulation.model import DataFile, Row, TableModel, Version, event_of, tuples
from tests.simulation.offers import Offers
from tests.simulation.scheduler import Scheduler, Violation
from tests.simulation.tags import Tags

LOG = re.compile(r"^(?P<root>.*?)_delta_log/(?P<version>\d{20})\.(?P<kind>json|checkpoint\..*)$")
_BRANCH = re.compile(r"^_alluvia/branches/(?P<id>[^/]+)/(?P<rest>.*)$", re.DOTALL)
_HOUR_MS = 3_600_000
DAY_MS = 24 * _HOUR_MS


@dataclass(frozen=True)
class Limits:
    """What a table promises, in ms, and how wrong a clock may be."""

    window_ms: int
    log_retention_ms: int
    file_retention_ms: int
    skew_ms: int


@dataclass
class Event:
    """An event that a client has: when it was first sent, and what it was told.

    Under the id of one that is `disputed`, clients send different contents; with `posted`, only in requests, whose
    rejects are kept. Those of a `branch` are sent there until it is published.
    """

    id: str
    first_us: int
    reject: bool = False
    disputed: bool = False
    posted: bool = False
    branch: str | None = None
    acknowledged: bool = False
    deleted: bool = False
    late: bool = False


class Branched(Protocol):
    """What is known of a branch: it takes what is written to its folder, and what is deleted, by keys of the lake."""

    def put(self, key: str, data: bytes, intent: object) -> None: ...

    def deleted(self, keys: list[str]) -> None: ...

    def shows(self, root: str, name: str) -> bool: ...

    def end(self) -> None: ...


@dataclass(frozen=True)
class OnBranch:
    """What an actor is about to do on a branch, and not in the lake."""

    intent: object


@dataclass
class Checker:
    """Looks on at the store, and holds what takes effect against the model."""

    scheduler: Scheduler
    limits: Limits
    objects: Mapping[str, tuple[bytes, int]] = field(default_factory=dict)
    tables: dict[str, TableModel] = field(default_factory=dict)
    events: dict[str, Event] = field(default_factory=dict)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    sorted_by: dict[str, tuple[str, ...]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    kept: list[object] = field(default_factory=list)
    erased: set[str] = field(default_factory=set)
    offers: Offers = field(default_factory=Offers)
    tags: Tags = field(default_factory=Tags)
    branches: dict[str, Branched] = field(default_factory=dict)
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.totals)

    def put(self, key: str, data: bytes, intent: object) -> None:
        """Take a write, before it takes effect."""
        if branched := _BRANCH.match(key):
            if branch := self.branches.get(branched["id"]):
                branch.put(branched["rest"], data, intent)
            return
        match = LOG.match(key)
        if isinstance(intent, OnBranch):
            if match is not None:
                raise Violation("what is written on a branch stays there", key)
            intent = None
        if isinstance(intent, ReadOnly):
            raise Violation("who only reads writes nothing", key)
        if match is None:
            self._plain_put(key, data)
            self.offers.put(key, data, intent)
            self.ledger.decide(key, data, self.scheduler.now_us, self.tables)
            return
        root, version = match["root"], int(match["version"])
        if match["kind"] == "json" and key in self.objects:
            if said(self.objects[key][0]) != said(data):
                raise Violation("a commit says the same for ever", key)
        elif match["kind"] == "json":
            self._commit(root, version, data, intent)
        elif match["kind"].endswith(".parquet"):
            self._checkpoint(root, version, data)

    def deleted(self, keys: list[str]) -> None:
        """Take a delete that has taken effect."""
        for branch in self.branches.values():
            branch.deleted(keys)
        keys = [key for key in keys if not _BRANCH.match(key)]
        logs = set()
        for key in keys:
            root = self._root_of(key)
            match = LOG.match(key)
            if match is not None:
                logs.add(match["root"])
            elif root is not None and key.endswith(".parquet"):
                self._data_deleted(self.tables[root], key[len(root) :])
        for root in sorted(logs):
            self._log_deleted(self.tables[root])
        self.tags.check_there(keys, self.tables, self.objects, self.holds_erased)
        self._check_clones(keys)

    def acknowledged(self, ids: Iterable[str], root: str, rejects: str) -> None:
        """Note that a client was told that its events are safe."""
        for each in ids:
            event = self.events[each]
            event.acknowledged = True
            self.scheduler.note(f"acknowledged {each}")
            self._check_there(event, root, rejects)

    def refused(self, intent: object) -> None:
        """Note that an operation failed, and said that it changed nothing."""
        if intent is None or isinstance(intent, (Steps, NoRows, ReadOnly)):
            return
        self.failed.add(id(intent))
        self.kept.append(intent)
        if id(intent) in self.done:
            detail = f"it committed version {self.done[id(intent)]}"
            raise Violation("an operation that failed changes nothing", detail)

    def same_rows(self, what: str, found: Iterable[Row], version: Version, columns: tuple[str, ...]) -> None:
        """Hold rows that were read against the model's."""
        rows = Counter(found)
        wanted = widened(version, columns)
        if rows != wanted:
            detail = f"{what}: version {version.number} lacks {dict(wanted - rows)}, has {dict(rows - wanted)} too much"
            raise Violation("a snapshot holds its version's rows", detail)

    def is_kept(self, table: TableModel, version: int) -> bool:
        """Whether a version must still be readable, by the log's retention, the files' and the table's own record."""
        if version >= table.tip.number:
            return True
        if version < table.erased_below:
            return False
        ended_ms = table.versions[version + 1].at_us // 1000
        kept_ms = min(self.limits.file_retention_ms, max(self.limits.log_retention_ms, DAY_MS))
        age_ms = self.scheduler.now_us // 1000 - ended_ms
        return age_ms < kept_ms - 2 * self.limits.skew_ms - 60_000

    def holds_erased(self, file: DataFile) -> bool:
        """Whether a file holds a row that somebody erases: an event, or one of a name."""
        return file.holds(self.erased)

    def table(self, root: str) -> TableModel:
        """Return what is known of a table, which may be nothing."""
        return self.tables.setdefault(root, TableModel(root))

    def took(self, root: str, number: int, intent: Intent) -> None:
        """Note which operation a commit was, in which rows came or went."""

    def _check_clones(self, deleted: list[str]) -> None:
        """Shallow clones have files of others, whose tables delete only what no clone can read."""
        gone = set(deleted)
        for table in self.tables.values():
            if table.is_clone and (lost := gone & table.needed()):
                raise Violation("what a clone can read is there", f"{table.root} needs {min(lost)}")

    def _root_of(self, key: str) -> str | None:
        found = [root for root in self.tables if key.startswith(root)]
        return max(found, key=len, default=None)

    def _plain_put(self, key: str, data: bytes) -> None:
        old = self.objects.get(key)
        if old is not None and key.endswith(".parquet") and old[0] != data:
            raise Violation("data files never change", key)

    def _commit(self, root: str, number: int, data: bytes, intent: object) -> None:
        table = self.table(root)
        before = table.versions[-1] if table.versions else None
        after = table.commit(number, data, self.scheduler.now_us, self.objects)
        if after is None:
            self.scheduler.note(f"phantom {root} {number}")
            return
        self.scheduler.note(f"version {root} {number} {after.operation} {sum(after.rows.values())} rows")
        if before is None:
            self.counts[root] = Counter()
            if after.operation == "CLONE":
                self._check_clone(after)
            return
        removed, added = difference(before, after)
        if after.operation == "CLONE":
            self._check_clone(after)
        actions = [json.loads(line) for line in data.splitlines()]
        info = actions[0]["commitInfo"]
        carried_out = info.get("alluviaTransaction")
        if after.operation == "CLAIM":
            assert isinstance(intent, Together)
            transaction_id = info["operationParameters"]["transaction"]
            claim = next(each for each in actions if transaction_id in str(each.get("domainMetadata")))
            self.ledger.claimed(
                transaction_id, intent, json.loads(claim["domainMetadata"]["configuration"])["startedMs"]
            )
        self.ledger.pass_claims(root, number, actions)
        if "alluviaOffers" in info:
            intent = self.offers.take(table, after, info, intent, sum(added.values()))
        if carried_out is not None:
            self.ledger.carry_out(carried_out["id"], table, before, after, removed, added)
        elif intent is not None:
            checked: Intent = intent  # type: ignore[assignment]
            checked.check(table, before, after, removed, added)
            if (removed or added) and not isinstance(checked, Steps):
                if id(checked) in self.done:
                    raise Violation("an operation commits once", f"{root} {self.done[id(checked)]} and {number}")
                if id(checked) in self.failed:
                    raise Violation("an operation that failed changes nothing", f"{root} {number}")
                self.done[id(checked)] = number
                self.kept.append(checked)
                self.took(root, number, checked)
        self._check_files(root, before, after)
        if "event_id" in after.columns and not table.is_clone:
            self._check_ids(root, after, removed, added)
        if root in self.totals:
            self._check_total(root, after)

    def _check_clone(self, after: Version) -> None:
        """A clone begins with the rows of its source's version."""
        root = f"{after.parameters['source']}/"
        source = self.tables[root].versions[int(after.parameters["sourceVersion"])]
        if self.ledger.standing(root, source.number):  # it may show transactions besides
            return
        if source.rows != after.rows or source.columns != after.columns:
            raise Violation("a clone is what its source was", f"{after.parameters}: {dict(after.rows)}")

    def _check_files(self, root: str, before: Version, after: Version) -> None:
        """Data files are sorted as the table says."""
        for path in after.files.keys() - before.files.keys():
            file = after.files[path]
            places = [file.columns.index(name) for name in self.sorted_by.get(root, ()) if name in file.columns]
            keys = [tuple((row[at] is None, row[at]) for at in places) for row in file.rows]
            if keys != sorted(keys):
                raise Violation("data files are sorted", f"{root}{path}: {keys}")

    def _check_ids(self, root: str, after: Version, removed: Counter[Row], added: Counter[Row]) -> None:
        at = after.columns.index("event_id")
        counts = self.counts[root]
        for row, number in removed.items():
            counts[event_of(row[at])] -= number
        for row, number in added.items():
            known = event_of(row[at])
            counts[known] += number
            event = self.events.get(known)
            if event is None or counts[known] < 2:
                continue
            window_us = 1000 * (self.limits.window_ms - 2 * self.limits.skew_ms) - 5 * MINUTE_US
            event.late = event.late or self.scheduler.now_us - event.first_us > window_us
            if not event.late:
                raise Violation("an event is one row", f"{known} {counts[known]} times in {root} {after.number}")
        for known in {event_of(row[at]) for row in removed}:
            if known in self.events and counts[known] <= 0:
                self.events[known].deleted = True

    def _check_total(self, root: str, after: Version) -> None:
        at = after.columns.index("amount")
        total = sum(row[at] * number for row, number in after.rows.items())
        if after.operation in ("RESTORE", "PUBLISH") and self.ledger.known:  # of a branch that has restored it, too
            self.totals[root] = total
        if total != self.totals[root]:
            raise Violation("the bank's total never changes", f"{total} in version {after.number}")

    def _check_there(self, event: Event, root: str, rejects: str) -> None:
        place = rejects if event.reject else root
        count = self.counts.get(place, Counter())[event.id]
        if count == 0 and not event.deleted:
            raise Violation("an acknowledged event is there", f"{event.id} is not in {place}")

    def check_acknowledged(self, root: str, rejects: str) -> None:
        """Check every event that was acknowledged."""
        for event in self.events.values():
            if event.acknowledged:
                self._check_there(event, root, rejects)
            if not event.posted and self.counts.get(rejects if not event.reject else root, Counter())[event.id]:
                raise Violation("an event is a row or a reject", event.id)

    def began_with(self, root: str) -> int:
        """Return the version of a table that the log goes on from; an erasure may have forgotten its tombstones."""
        return -1

    def _checkpoint(self, root: str, number: int, data: bytes) -> None:
        table = self.table(root)
        version = table.versions[number]
        found = pq.ParquetFile(pa.BufferReader(data)).read(["add.path", "remove.path"], use_threads=False)
        adds = {unquote(row["path"]) for row in found["add"].to_pylist() if row and row["path"]}
        removes = {unquote(row["path"]) for row in found["remove"].to_pylist() if row and row["path"]}
        if adds != set(version.files):
            raise Violation("a checkpoint is its version", f"{root} {number}: {sorted(adds ^ set(version.files))}")
        if number < table.tip.oldest_readable:  # an erasure gives each version that is kept one of its own
            return
        kept_after_ms = self.scheduler.now_us // 1000 - self.limits.file_retention_ms + 2 * self.limits.skew_ms + 60_000
        for path, at in table.removed_at.items():
            if self.began_with(root) < at <= number and table.removed_ms[path] > kept_after_ms and path not in removes:
                raise Violation("a tombstone stays until it expires", f"{root}{path} is not in checkpoint {number}")
        if "event_id" in version.columns and f"{root}_alluvia/window/{number:020d}.arrow" not in self.objects:
            raise Violation("a checkpoint has its window beside it", f"{root} {number}")

    def _data_deleted(self, table: TableModel, path: str) -> None:
        if not table.versions:
            return
        if path in table.tip.files:
            raise Violation("no needed object is deleted", f"{table.root}{path} is live")
        removed_us = table.removed_us.get(path)
        if removed_us is None:
            return
        if table.removed_at[path] <= table.erased_below and self.holds_erased(table.known[path]):
            return
        age_ms = (self.scheduler.now_us - removed_us) // 1000
        if age_ms < self.limits.file_retention_ms - 2 * self.limits.skew_ms - 60_000:
            raise Violation("no needed object is deleted", f"{table.root}{path} was removed {age_ms} ms ago")
        if table.removed_at[path] > table.tip.oldest_readable:
            detail = f"{table.root}{path}, which version {table.removed_at[path] - 1} needs; "
            raise Violation("versions that are on record are kept", detail + f"oldest is {table.tip.oldest_readable}")

    def _log_deleted(self, table: TableModel) -> None:
        """The newest version, and those within the retention, can still be made from the log."""
        names = [key for key in self.objects if key.startswith(f"{table.root}_delta_log/")]
        found = [match for match in map(LOG.match, names) if match is not None]
        commits = {int(match["version"]) for match in found if match["kind"] == "json"}
        starts = [int(match["version"]) for match in found if match["kind"] != "json"]
        kept_ms = max(self.limits.log_retention_ms, DAY_MS) - 2 * self.limits.skew_ms - 60_000
        for version in reversed(table.versions):
            old = version.number < table.tip.number and (
                self.scheduler.now_us - table.versions[version.number + 1].at_us > kept_ms * 1000
            )
            if old or version.number < table.erased_below:
                break
            start = max((each for each in starts if each <= version.number), default=-1)
            if any(number not in commits for number in range(start + 1, version.number + 1)):
                raise Violation("the log keeps what its retention says", f"{table.root} {version.number}")


def said(data: bytes | str) -> list[object]:
    """Return what a commit says, without bounds, tags, reads and texts of conditions, which an erasure may take out."""
    actions = [json.loads(line) for line in data.splitlines() if line]
    for action in actions:
        for body in action.values():
            body.pop("tags", None)
            body.pop(READS_INFO, None)
            body.get("operationParameters", {}).pop("predicate", None)
            if "stats" in body:
                statistics = json.loads(body["stats"])
                body["stats"] = {key: statistics[key] for key in statistics if not key.endswith("Values")}
            if str(body.get("domain")).startswith("alluvia.claim.") and body["configuration"]:
                claim = json.loads(body["configuration"])
                body["configuration"] = {**claim, "commit": said(claim["commit"])}
    return actions


__all__ = ["Checker", "Event", "Limits", "tuples"]
