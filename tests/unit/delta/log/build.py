"""Small logs for tests, written action by action."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from alluvia.clock import ManualClock
from alluvia.delta.log.actions import AddFile, Metadata, Protocol
from alluvia.delta.log.commit import Action, encode_commit
from alluvia.delta.log.log import Log
from alluvia.delta.log.paths import commit_name
from alluvia.store import CountingStore, MemoryStore, Store

ROOT = "t/"
PROTOCOL = Protocol(1, 7, None, ("appendOnly", "invariants", "inCommitTimestamp", "domainMetadata", "alluvia"))
SCHEMA = '{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]}'
START_MS = 1_700_000_000_000


def metadata(*, in_commit: bool = True) -> Metadata:
    return Metadata("id", SCHEMA, (), {"delta.enableInCommitTimestamps": "true"} if in_commit else {}, START_MS)


def add(path: str) -> AddFile:
    return AddFile(path, {}, 10, START_MS, data_change=True, stats='{"numRecords":1}')


def put_commit(store: Store, version: int, actions: Sequence[Action], timestamp_ms: int, txn_id: str = "other") -> None:
    info = {"inCommitTimestamp": timestamp_ms, "timestamp": timestamp_ms, "txnId": txn_id, "operation": "TEST"}
    store.put(ROOT + commit_name(version), encode_commit(info, actions))


def new_log(
    commits: int = 3, *, in_commit: bool = True, store: MemoryStore | None = None
) -> tuple[ManualClock, CountingStore, Log]:
    """Return a log with that many commits, 10 s apart; commit n > 0 adds the file `f<n>`."""
    clock = ManualClock(START_MS * 1000)
    inner = store or MemoryStore("m", clock)
    for version in range(commits):
        actions: list[Action] = [add(f"f{version}")] if version else [PROTOCOL, metadata(in_commit=in_commit)]
        put_commit(inner, version, actions, clock.now_ms())
        clock.advance(10)
    counting = CountingStore(inner)
    return clock, counting, Log(counting, ROOT, clock)


def paths(log: Log) -> list[str]:
    assert log.state is not None
    return sorted(file.path for file in log.state.files)


def fields_of(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(at) for at in range(kind.num_fields)]
