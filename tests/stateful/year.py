"""A lake that lives for many days on a replaced clock: what its owners and its schedule do, and a model of its rows."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import RawEvent
from alluvia.operations.results.jobs import clean_jobs
from alluvia.operations.results.results import ResultLimits, clean_results
from alluvia.store import DirectoryStore, MemoryStore
from alluvia.table_names import STREAMS
from alluvia.verify.report import Severity
from alluvia.verify.verification import verify

DAY = 24 * 3600
TTL_DAYS = 30
TAG_DAYS = 21
BRANCH_DAYS = 3
POSTS, PAIRS, MOVES = 2, 2, 2
KINDS = {
    "streams": r"^_alluvia/streams/",
    "commits": r"_delta_log/\d{20}\.json$",
    "checkpoints": r"_delta_log/\d{20}\.checkpoint",
    "decisions": r"_alluvia/transactions/",
    "windows": r"_alluvia/window/",
    "data files": r"part-[^/]*\.parquet$",
    "keepers": r"^_alluvia/kept/",
    "branches": r"^_alluvia/branches/",
    "offers": r"_alluvia/offers/",
}


VALUES = {"accounts": "n", "copied": "user", "debits": "amount", "credits": "amount"}
"""Which column of a table the model has besides the id."""


@dataclass(frozen=True)
class Then:
    """What the model held at a moment: rows by table, ids of events by their times, and when the moment's name ends."""

    rows: dict[str, dict[str, Any]]
    sent: dict[str, datetime]
    moment: datetime
    expires: datetime


class Year:
    """A lake and its model: ids of rows by table, which rows have left, and when they came."""

    def __init__(self, seed: int = 0) -> None:
        self.clock = ManualClock()
        self.lake = Lake(MemoryStore("year", self.clock), self.clock)
        self.chance = Random(seed)
        self.rows: dict[str, dict[str, Any]] = {"accounts": {}, "copied": {}, "debits": {}, "credits": {}, "people": {}}
        self.sent: dict[str, datetime] = {}
        self.rejected: list[datetime] = []
        self.tagged: dict[str, Then] = {}
        self.branched: dict[str, Then] = {}
        self.number = 0
        self.people_of: dict[str, str] = {}
        lake = self.lake
        ttl = {"alluvia.ttl": f"{TTL_DAYS} days"}
        lake.create_events("events", pa.schema([("n", pa.int64())]), properties=ttl)
        lake.create_table("accounts", {"id": "string", "n": "long"}, properties={"delta.enableDeletionVectors": "true"})
        for name in ("debits", "credits"):
            lake.create_table(name, {"id": "string", "amount": "long"})
        lake.create_table("copied", {"id": "string", "user": "string"})
        lake.create_table("people", {"id": "string", "name": "string"})
        lake.create_stream("new", "events", appends_only=True)

    def day(self, day: int) -> None:
        """Live a day: work, then the merges and the sweep of the schedule."""
        for _ in range(POSTS):
            self.post(day)
            self._pass(3600)
        self.change_accounts()
        for _ in range(PAIRS):
            self.move_amounts()
        for _ in range(MOVES):
            self.move_stream()
        for act in self._on(day):
            act()
        self._pass(3600)
        self.merge()
        self.sweep()
        self._pass(DAY - self.clock.now_us() // 1_000_000 % DAY)

    def _on(self, day: int) -> list[Callable[[], None]]:
        week, of_week, of_month = day // 7, day % 7, day % 30
        acts: list[Callable[[], None]] = []
        if of_week == 0 and week % 4 == 3:
            acts += [lambda: self.tag(day), lambda: self.erase(f"victim-{week}", keeps_tags=False)]
        elif of_week == 0:
            acts += [lambda: self.erase(f"victim-{week}"), lambda: self.tag(day)]
        if of_week == 2:
            acts.append(lambda: self.branch(day, publishes=week % 2 == 0))
        if of_month == 10:
            acts.append(lambda: self.add_column(day))
        if of_month == 15:
            acts.append(lambda: self.rename_column(day))
        if of_month == 20:
            acts.append(self.drop_and_undrop)
        if of_month == 24:
            acts.append(self.restore_accounts)
        return acts

    @property
    def now(self) -> datetime:
        """Return the time of the replaced clock."""
        return datetime.fromtimestamp(self.clock.now_us() / 1e6, UTC)

    def then(self, days: int) -> Then:
        """Return what the model holds now, for a name that ends after so many days."""
        rows = {name: dict(rows) for name, rows in self.rows.items()}
        return Then(rows, dict(self.sent), self.now, self.now + timedelta(days=days))

    def _pass(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def _new(self, what: str) -> str:
        self.number += 1
        return f"{what}-{self.number}"

    def post(self, day: int) -> None:
        """Post new events, one that was sent before, and one that is rejected."""
        now = self.now
        user = f"victim-{day // 7 + 1}" if day % 7 == 6 else self.chance.choice(["ann", "bob", "cho"])
        new = [self._new("e") for _ in range(3)]
        events: list[dict[str, Any]] = [
            {"event_id": event, "event": "view", "ts": now.isoformat(), "n": at, "user_id": user}
            for at, event in enumerate(new)
        ]
        again = events[0]
        bad = {"event_id": self._new("bad"), "event": "view", "n": "many"}
        raw = [RawEvent(at, event) for at, event in enumerate([*events, again, bad])]
        done = ingest_batch(self.lake.catalog, "events", raw, arrival_us=self.clock.now_us())
        assert (done.stored, done.duplicates, done.rejected) == (3, 1, 1)
        self.sent.update(dict.fromkeys(new, now))
        self.people_of.update(dict.fromkeys(new, user))
        self.rejected.append(now)

    def change_accounts(self) -> None:
        table, rows = self.lake.table("accounts"), self.rows["accounts"]
        new: list[dict[str, Any]] = [
            {"id": f"a{self.chance.randrange(60)}", "n": self.chance.randrange(100)} for _ in range(3)
        ]
        new = list({row["id"]: row for row in new}.values())
        table.upsert(new, on=["id"])
        rows.update({row["id"]: row["n"] for row in new})
        wanted = f"a{self.chance.randrange(60)}"
        table.update({"n": "n + 1"}, where=f"id = '{wanted}'")
        if wanted in rows:
            rows[wanted] += 1
        gone = f"a{self.chance.randrange(60)}"
        table.delete(f"id = '{gone}'")
        rows.pop(gone, None)

    def move_amounts(self) -> None:
        """Append to two tables, which nobody else writes."""
        row: dict[str, Any] = {"id": self._new("m"), "amount": self.chance.randrange(100)}
        with self.lake.transaction(["debits", "credits"]) as tx:
            tx.table("debits").append([row])
            tx.table("credits").append([row])
        for name in ("debits", "credits"):
            self.rows[name][row["id"]] = row["amount"]

    def move_stream(self) -> None:
        """Copy new events in a transaction with the stream that says which are new."""
        with self.lake.transaction() as tx:
            new = tx.stream("new").to_arrow().to_pylist()
            rows = [{"id": row["event_id"], "user": self.people_of[row["event_id"]]} for row in new]
            tx.table("copied").append(rows)
        assert self.rows["copied"].keys().isdisjoint(row["id"] for row in rows)
        self.rows["copied"].update({row["id"]: row["user"] for row in rows})

    def tag(self, day: int) -> None:
        self.tagged[f"week-{day}"] = self.tagged[f"own-{day}"] = self.then(TAG_DAYS)
        self.lake.tag(f"week-{day}", expires=timedelta(days=TAG_DAYS))
        self.lake.table("accounts").tag(f"own-{day}", expires=timedelta(days=TAG_DAYS))

    def branch(self, day: int, *, publishes: bool) -> None:
        """Write on a branch, which is published or left to expire."""
        branch = self.lake.branch(f"b{day}", expires=timedelta(days=BRANCH_DAYS))
        row = {"id": self._new("p"), "name": "x"}
        gone = self.chance.choice(sorted(self.rows["debits"]))
        branch.table("people").append([{"id": row["id"]}])
        branch.table("debits").delete(f"id = '{gone}'")
        there = self.branched[f"b{day}"] = self.then(BRANCH_DAYS)
        there.rows["people"][row["id"]] = None
        del there.rows["debits"][gone]
        if publishes:
            branch.publish()
            del self.branched[f"b{day}"]
            self.rows["people"][row["id"]] = None
            del self.rows["debits"][gone]

    def erase(self, user: str, *, keeps_tags: bool = True) -> None:
        """Erase a person from the events and the copies; tags that keep such rows are named first."""
        gone = {event for event, whose in self.people_of.items() if whose == user}
        if not gone:
            return
        self.move_stream()
        for name, where in (("events", f"user_id = '{user}'"), ("copied", f"\"user\" = '{user}'")):
            if not keeps_tags:
                try:
                    self.lake.table(name).erase(where)
                except Invalid as error:
                    assert "tag week-" in str(error)  # noqa: PT017 - the tag goes on the next line
                    self.tagged = {tag: then for tag, then in self.tagged.items() if f"tag {tag}" not in str(error)}
            report = self.lake.table(name).erase(where, prove=True, release_tags=not keeps_tags)
            assert report.ok, report
        for event in gone:
            self.sent.pop(event, None)
            self.rows["copied"].pop(event, None)
            self.people_of.pop(event)

    def add_column(self, day: int) -> None:
        self.lake.table("events").evolve({f"extra_{day}": "string"})
        if day < 30:
            self.lake.table("events").evolve({"user_id": "string"})

    def rename_column(self, day: int) -> None:
        table = self.lake.table("people")
        old = next(name for name in table.schema.names if name.startswith("name"))
        table.evolve(rename={old: f"name_{day}"})

    def drop_and_undrop(self) -> None:
        self.lake.drop_table("people")
        self._pass(600)
        self.lake.undrop("people")

    def restore_accounts(self) -> None:
        table = self.lake.table("accounts")
        version, rows = table.version, dict(self.rows["accounts"])
        self.change_accounts()
        table.restore(version=version)
        self.rows["accounts"] = rows

    def merge(self) -> None:
        for name in self.lake.tables(rejects=True):
            self.lake.table(name).optimize()

    def sweep(self) -> None:
        """Do what the schedule has the vacuum function do."""
        for name in self.lake.tables(rejects=True, dropped=True):
            table = self.lake.table(name)
            table.expire()
            table.vacuum(names_max=0)
        clean_results(self.lake.store, self.clock, ResultLimits())
        clean_jobs(self.lake.store, self.clock, 7 * DAY * 1000)

    def check_rows(self) -> None:
        """Compare the rows of all tables with the model: those of now, of each tag, and of each branch."""
        lake = Lake(self.lake.store, self.clock)
        check_same(lake, self.then(0))
        kept = [at for at in self.rejected if at >= self.now - timedelta(days=TTL_DAYS)]
        found = lake.table("events/_rejects").to_arrow(["received_at"])["received_at"].to_pylist()
        assert sorted(at for at in found if at >= self.now - timedelta(days=TTL_DAYS)) == kept
        assert all(at >= self.now - timedelta(days=TTL_DAYS + 2) for at in found)
        live = {name: then for name, then in self.tagged.items() if then.expires > self.now}
        assert sorted(tag.name for tag in lake.tags(tables=True) if not tag.expired) == sorted(live)
        for name, then in live.items():
            check_same(lake, then, tag=name, only=("accounts",) if name.startswith("own-") else None)
        open_ones = {name: then for name, then in self.branched.items() if then.expires > self.now}
        for name, then in open_ones.items():
            check_same(lake.on_branch(name), then)

    def kept_versions(self, lake: Lake, name: str) -> set[int]:
        """Return the versions of a table that are its newest, or that a tag keeps."""
        table = lake.table(name)
        tags = [tag.name for tag in lake.tags(tables=True) if not tag.expired and tag.table in (None, name)]
        return {table.version, *(table.snapshot(tag=tag).version for tag in tags)}

    def check_verified(self) -> None:
        """Have `verify` look at every table and stream: it finds nothing that is wrong."""
        lake = Lake(self.lake.store, self.clock)
        handles = [lake.catalog.handle(name) for name in lake.tables(rejects=True)]
        handles += [lake.catalog.log_handle(f"{STREAMS}{each.name}") for each in lake.streams()]
        for handle in handles:
            report = verify(handle, full=True)
            wrong = [finding for finding in report.findings if finding.severity is not Severity.NOTE]
            assert wrong == [], (handle.name, wrong)

    def objects(self) -> Counter[str]:
        """Count the objects of the lake by kind."""
        found: Counter[str] = Counter()
        for info in self.lake.store.list(""):
            kind = next((kind for kind, pattern in KINDS.items() if re.search(pattern, info.key)), "other")
            found[kind] += 1
        return found

    def on_disk(self, path: Path) -> Lake:
        """Return the lake as files, as old as its objects are."""
        for info in self.lake.store.list(""):
            place = path / info.key
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(self.lake.store.get(info.key))
            os.utime(place, (info.modified_ms / 1000,) * 2)
        return Lake(DirectoryStore(path), self.clock)


def check_same(lake: Lake, then: Then, tag: str | None = None, only: tuple[str, ...] | None = None) -> None:
    """Compare tables of a lake, as they are or as a tag has them, with what the model held."""
    for name, rows in then.rows.items():
        if only is not None and name not in only:
            continue
        value = VALUES.get(name)
        found = lake.table(name).to_arrow(tag=tag).to_pylist()
        assert len(found) == len(rows), (name, tag)
        assert {row["id"]: row[value] if value else None for row in found} == rows, (name, tag)
    if only is not None:
        return
    young = then.moment - timedelta(days=TTL_DAYS)
    found = lake.table("events").to_arrow(["event_id", "ts"], tag=tag).to_pylist()
    assert len({row["event_id"] for row in found}) == len(found), tag
    assert sorted(row["event_id"] for row in found if row["ts"] >= young) == sorted(
        event for event, at in then.sent.items() if at >= young
    ), tag
    assert all(row["ts"] >= young - timedelta(days=2) for row in found), tag
