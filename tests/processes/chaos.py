"""One run: a lake, sixteen processes on it, kills, a bad network, and the checks afterwards."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from alluvia.api.lake import Lake
from alluvia.clock import SystemClock
from alluvia.store import open_store
from tests.processes import checks
from tests.processes.events import TABLE
from tests.processes.fleet import Fleet, fleet
from tests.processes.wire import Wire, running_wire
from tests.s3proxy import running_s3proxy
from tests.s3server import S3Endpoint, running_server

STORES = ("directory", "moto", "s3proxy")
PROPERTIES = {"delta.checkpointInterval": "20"}


@dataclass(frozen=True)
class Report:
    """What happened. `fates` are those of requests on the wire, `retries` the errors that workers met and got over."""

    store: str
    seed: int
    seconds: float
    commits: int
    processes: int
    kills: int
    pauses: int
    connections_cut: int
    rows_acknowledged: int
    rows_deleted: int
    rows_left: int
    duplicates_suppressed: int
    outcomes_unknown: int
    batches_redelivered_at_the_end: int
    work: dict[str, int] = field(default_factory=dict)
    retries: dict[str, int] = field(default_factory=dict)
    fates: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        width = max(map(len, asdict(self)))
        return "\n".join(f"{name.replace('_', ' '):<{width}}  {value}" for name, value in asdict(self).items())


@dataclass(frozen=True)
class Place:
    """Where a lake is: for the checks, and for the workers, who see it through the wire if there is one."""

    uri: str
    options: dict[str, str]
    seen_at: dict[str, str]
    wire: Wire | None = None

    def lake(self) -> Lake:
        """Open the lake directly."""
        clock = SystemClock()
        return Lake(open_store(self.uri, clock, **self.options), clock)


@contextmanager
def place_on(server: S3Endpoint, seed: int) -> Iterator[Place]:
    """Give a new lake on an S3 server behind a bad network."""
    uri = f"s3://{server.new_bucket()}/lake"
    with running_wire(int(server.endpoint_url.rpartition(":")[2]), seed) as wire:
        seen_at = {**server.options, "endpoint_url": f"http://127.0.0.1:{wire.port}"}
        yield Place(uri, server.options, seen_at, wire)


@contextmanager
def place(store: str, folder: Path, seed: int) -> Iterator[Place]:
    """Give a new lake in a directory, or on an S3 server that is started for it."""
    if store == "directory":
        yield Place(str(folder / "lake"), {}, {})
        return
    with running_server() if store == "moto" else running_s3proxy() as server, place_on(server, seed) as found:
        yield found


def run(where: Place, store: str, seconds: float, seed: int, keep: Path | None = None) -> Report:
    """Run, and check. Raises `AssertionError` for whatever does not hold; `keep` is where the journals then go."""
    with tempfile.TemporaryDirectory(prefix="alluvia-chaos-") as name:
        folder = Path(name)
        try:
            where.lake().create_events(TABLE, partition_by=(), properties=PROPERTIES)
            with fleet(where.uri, where.seen_at, folder, seed) as ships:
                ships.work(seconds)
            assert not ships.failures, "\n".join(ships.failures)
            if where.wire is not None:
                where.wire.calm()
                assert not where.wire.broken, where.wire.broken
            return _checked(where, store, seconds, ships)
        except BaseException:
            if keep is not None:
                shutil.copytree(folder, keep, dirs_exist_ok=True)
            raise


def _checked(where: Place, store: str, seconds: float, ships: Fleet) -> Report:
    told = checks.told_in(ships.folder)
    table = where.lake().table(TABLE)
    checks.check_rows(table, told, told.acknowledged)
    commits = checks.check_log(table, told)
    checks.send_unanswered(where.lake(), told)
    table = where.lake().table(TABLE)
    checks.check_rows(table, told, told.meant)
    checks.check_log(table, told)
    checks.check_replay(where.lake(), table._handle.log.read_commits(range(table.snapshot().version + 1)))
    checks.check_files(table)
    checks.check_others_agree(table)
    checks.check_verified(table)
    kinds = Counter(entry.kind for entry in told.entries)
    wire = where.wire
    assert told.acknowledged, "nothing was acknowledged"
    return Report(
        store=store,
        seed=ships.seed,
        seconds=seconds,
        commits=len(commits),
        processes=ships.counts["processes"],
        kills=ships.counts["kills"],
        pauses=ships.counts["pauses"],
        connections_cut=0 if wire is None else wire.cut,
        rows_acknowledged=len(told.acknowledged),
        rows_deleted=len(told.deleted),
        rows_left=len(table.scan(["event_id"]).read_all()),
        duplicates_suppressed=sum(entry.duplicates for entry in told.entries),
        outcomes_unknown=kinds["unknown"],
        batches_redelivered_at_the_end=len(told.unanswered()),
        work={kind: kinds[kind] for kind in ("ack", "again", "deleted", "merged", "checkpointed", "vacuumed", "read")},
        retries=dict(Counter(entry.error for entry in told.entries if entry.kind == "retry")),
        fates={} if wire is None else dict(wire.fates),
    )
