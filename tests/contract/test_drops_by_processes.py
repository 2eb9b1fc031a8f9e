"""Processes that drop, create and write the same name at once, on a shared store."""

from __future__ import annotations

import pytest

from alluvia.api.lake import Lake
from alluvia.store import CountingStore, DirectoryStore
from tests.contract.workers import ingest_while_there, race
from tests.judges import judges_agree
from tests.s3server import S3Server


def place(lake: Lake, s3_server: S3Server) -> tuple[str, dict[str, str]]:
    assert isinstance(lake.store, CountingStore)
    return lake.uri, {} if isinstance(lake.store.inner, DirectoryStore) else s3_server.options


def ids(lake: Lake) -> list[str]:
    return sorted(lake.table("t").scan(["event_id"]).read_all()["event_id"].to_pylist())


@pytest.mark.slow
def test_every_acknowledged_event_is_in_one_of_the_tables(shared_lake: Lake, s3_server: S3Server) -> None:
    shared_lake.create_events("t", partition_by=())
    uri, options = place(shared_lake, s3_server)
    common = {"uri": uri, "options": options, "table": "t"}
    *acknowledged, versions = race(
        [
            *(("ingest_while_there", {**common, "worker": worker, "batches": 30}) for worker in range(2)),
            ("drop_and_create", {**common, "rounds": 4}),
        ]
    )
    found = [ids(shared_lake)]
    judges_agree(shared_lake.table("t"), [shared_lake.table("t").snapshot().version])
    for version in versions:
        shared_lake.drop_table("t")
        shared_lake.undrop("t", version)
        found.append(ids(shared_lake))
    assert sorted(each for table in found for each in table) == sorted(each for job in acknowledged for each in job)


def test_a_process_that_first_looks_between_a_drop_and_the_next_creation_sends_on(
    shared_lake: Lake, s3_server: S3Server
) -> None:
    shared_lake.create_events("t", partition_by=())
    shared_lake.drop_table("t")
    uri, options = place(shared_lake, s3_server)
    assert list(ingest_while_there(uri, options, "t", 0, 2)) == []
    shared_lake.create_events("t", partition_by=())
    assert list(ingest_while_there(uri, options, "t", 1, 2)) == ["1-0", "1-1"] == ids(shared_lake)


@pytest.mark.slow
def test_one_of_two_processes_creates_the_table_after_a_drop(shared_lake: Lake, s3_server: S3Server) -> None:
    shared_lake.create_table("t", {"x": "long"})
    shared_lake.drop_table("t")
    uri, options = place(shared_lake, s3_server)
    common = {"uri": uri, "options": options, "table": "t"}
    answers = race([("create", {**common, "column": column}) for column in ("a", "b")])
    assert sorted(answers) == [[False], [True]]
    assert shared_lake.table("t").snapshot().schema.names == ["a" if answers[0] == [True] else "b"]
