"""What verify asks of the store: one listing, each of the log's files once, and never a write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock, SystemClock
from alluvia.store import CountingStore, MemoryStore, ObjectInfo, open_store
from alluvia.verify.report import VerifyReport
from tests.s3server import S3Server
from tests.unit.verify.damages import codes, make_events

WRITES = {"put", "delete"}


def counted(table: Table, *, full: bool = False) -> tuple[VerifyReport, dict[str, int]]:
    """Verify a table from a fresh handle, and count its requests."""
    store = CountingStore(table.lake.store)
    fresh = Lake(store, table.lake.clock).table(table.name)
    report = fresh.verify(full=full)
    assert not WRITES & set(store.requests)
    return report, dict(store.requests)


@pytest.fixture
def table() -> Table:
    clock = ManualClock()
    return make_events(Lake(MemoryStore("m", clock), clock))


def test_quick_mode_opens_no_data_file(table: Table) -> None:
    report, cost = counted(table)
    assert report.findings == ()
    # 9 commits, a checkpoint, _last_checkpoint and the index of event ids
    assert cost == {"list": 1, "get": 9 + 1 + 1 + 1}


def test_full_mode_opens_each_data_file_and_vector_once(table: Table) -> None:
    report, cost = counted(table, full=True)
    assert (report.findings, report.files) == ((), 6)
    assert cost == {"list": 1, "get": 12 + 6 + 3}


def test_a_listing_of_many_objects_is_one_request_per_thousand(table: Table) -> None:
    for number in range(2100):
        table.lake.store.put(f"events/left/{number:04}.parquet", b"x")
    report, cost = counted(table)
    assert (report.orphans, report.ok) == (2100, True)
    assert cost == {"list": 3, "get": 12}


def test_only_what_the_listing_lacks_is_looked_up(table: Table) -> None:
    lost = [file.path for file in table.snapshot().files][:2]
    table.lake.store.delete([f"events/{path}" for path in lost])
    report, cost = counted(table)
    assert report.found == {"data-file-missing": 2}
    assert cost == {"list": 1, "get": 12, "head": 2}


def test_sidecars_that_checkpoints_share_are_read_once() -> None:
    clock = ManualClock()
    lake = Lake(MemoryStore("m", clock), clock)
    table = lake.create_table("t", {"x": "long"}, properties={"delta.checkpointPolicy": "v2"})
    table.append([{"x": 1}])
    for _ in range(3):
        table.checkpoint()
        table.evolve(properties={"owner": clock.new_id()})
    table.checkpoint()
    report, cost = counted(table)
    assert (report.findings, report.checkpoints) == ((), 4)
    assert cost == {"list": 1, "get": 5 + 4 + 1 + 1}


def test_damage_does_not_make_it_write(table: Table) -> None:
    store = table.lake.store
    for info in list(store.list("events/")):
        before = store.get(info.key)
        store.put(info.key, before[: len(before) // 2])
        for full in (False, True):
            report, _ = counted(table, full=full)
            assert codes(report)
        store.put(info.key, before)
    report, _ = counted(table, full=True)
    assert report.findings == ()


def test_a_file_written_while_the_listing_went_on_is_not_missing(table: Table) -> None:
    """A listing is no snapshot: a commit may be in it, and not the file that it names."""

    class Late(CountingStore):
        def list(self, prefix: str, start_after: str | None = None):  # type: ignore[no-untyped-def]
            hidden = {f"events/{file.path}" for file in files}
            return (info for info in super().list(prefix, start_after) if info.key not in hidden)

    files = list(table.snapshot().files)[-2:]
    report = Lake(Late(table.lake.store), table.lake.clock).table("events").verify(full=True)
    assert report.findings == ()


def test_what_others_commit_while_the_listing_goes_on_is_no_damage(table: Table) -> None:
    """The listing lacks a commit and a checkpoint that were there when the next commit and the hint were."""
    hidden = {f"events/_delta_log/{name}" for name in (f"{7:020d}.json", f"{5:020d}.checkpoint.parquet")}

    class Late(CountingStore):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            late = hidden if prefix == "events/" else set()
            return (info for info in super().list(prefix, start_after) if info.key not in late)

    report = Lake(Late(table.lake.store), table.lake.clock).table("events").verify()
    assert (report.findings, report.versions) == ((), 9)


def test_over_s3(s3_server: S3Server) -> None:
    uri = f"s3://{s3_server.new_bucket()}/lake"
    table = make_events(alluvia.connect(uri, **s3_server.options))
    fresh = Lake(open_store(uri, SystemClock(), **s3_server.options), SystemClock()).table("events")
    s3_server.requests()
    report = fresh.verify()
    assert dict(s3_server.requests()) == {"LIST": 1, "GET": 12}
    assert report.findings == ()
    report = fresh.verify(full=True)
    assert dict(s3_server.requests()) == {"LIST": 1, "GET": 12 + 6 + 3}
    assert (report.findings, report.rows) == ((), 12)
    lost = next(iter(table.snapshot().files)).path
    table.lake.store.delete([f"events/{lost}"])
    table.lake.store.put("events/_delta_log/00000000000000000005.checkpoint.parquet", b"noise")
    s3_server.requests()
    report = fresh.verify()
    assert report.found == {"checkpoint-unreadable": 1, "data-file-missing": 1}
    assert dict(s3_server.requests()) == {"LIST": 1, "GET": 11, "HEAD": 1}


def test_absolute_paths_are_looked_up_one_by_one(tmp_path: Path) -> None:
    source = alluvia.connect(str(tmp_path / "source"))
    table = make_events(source)
    log = tmp_path / "clone" / "events" / "_delta_log"
    log.mkdir(parents=True)
    metadata, protocol = table.snapshot().state.metadata.to_json(), {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "appendOnly"]}
    metadata["configuration"] = {}
    adds = [file.to_json() for file in table.snapshot().files if file.deletion_vector is None]
    for add in adds:
        add["path"] = (tmp_path / "source" / "events").as_uri() + "/" + add["path"]
    actions = [{"protocol": {**protocol, **features}}, {"metaData": metadata}, *({"add": add} for add in adds)]
    (log / "00000000000000000000.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    clone = alluvia.open_table(str(tmp_path / "clone" / "events"))
    report, cost = counted(clone)
    assert (report.findings, report.files) == ((), len(adds))
    assert cost == {"list": 1, "get": 1, "head": len(adds)}
    assert clone.verify(full=True).findings == ()
    in_lake = alluvia.connect(str(tmp_path / "clone")).table("events").verify()
    assert (in_lake.ok, in_lake.found) == (False, {"file-outside-lake": len(adds)})
    Path(adds[0]["path"].removeprefix("file://").replace("%3D", "=")).unlink()
    assert clone.verify().found == {"data-file-missing": 1}
