"""Clones: what they share with their source, what they are told of it, and tables that cannot be cloned."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import Invalid, TableExists, TableNotFound, VersionExpired, VersionNotFound
from alluvia.operations.retention.vacuum import vacuum
from alluvia.store import CountingStore
from tests.judges import canonical
from tests.unit.operations.ingesting import ingest
from tests.unit.operations.tables.clones import DELETES, NONE, ROWS, SCHEMA, ids, kept, partly_deleted, wipe
from tests.unit.operations.vacuuming import DAY


@pytest.fixture
def source(lake: Lake) -> Table:
    return partly_deleted(lake)


def test_a_clone_is_one_commit_that_copies_nothing(lake: Lake, store: CountingStore, source: Table) -> None:
    source.snapshot()
    store.reset()
    clone = lake.clone("events", "dev")
    assert store.bytes_written < 10_000
    assert store.requests["put"] == 3
    assert sum(store.requests.values()) <= 15
    assert [clone.version, ids(clone)] == [0, ROWS]
    assert not [info for info in store.list("dev/") if "_delta_log" not in info.key]
    (entry,) = clone.history()
    assert entry.operation == "CLONE"
    assert {name: entry.parameters[name] for name in ("source", "sourceVersion", "isShallow")} == {
        "source": "events",
        "sourceVersion": "2",
        "isShallow": "true",
    }


def test_requests_do_not_grow_with_the_table(lake: Lake, store: CountingStore) -> None:
    counts = []
    for name, files in (("few", 2), ("many", 40)):
        table = lake.create_table(name, {"id": "long", "p": "long"}, ["p"])
        table.append([{"id": number, "p": number} for number in range(files)])
        store.reset()
        lake.clone(name, f"{name}_dev")
        counts.append(sum(store.requests.values()))
    assert counts[0] == counts[1]


def test_a_clone_is_what_its_source_was(lake: Lake) -> None:
    properties = {**DELETES, "alluvia.target_file_size": "1 mb", "delta.constraints.small": "id < 1000"}
    source = lake.create_table("events", SCHEMA, ["day"], ["id"], properties)
    source.append([{"id": 1, "day": "d", "name": "a"}], txn=("app", 7))
    source.evolve(rename={"name": "title"})
    clone = lake.clone("events", "dev")
    before, after = source.snapshot(), clone.snapshot()
    assert after.schema == before.schema
    assert after.partition_spec == before.partition_spec
    assert after.protocol == before.protocol
    assert after.state.metadata.id != before.state.metadata.id
    gone = {"alluvia.clone"}
    assert {name: text for name, text in after.properties.items() if name not in gone} == dict(before.properties)
    assert [file.stats for file in after.files] == [file.stats for file in before.files]
    with pytest.raises(Invalid, match="small"):
        clone.append([{"id": 1000, "day": "d", "title": "a"}])
    assert clone.append([{"id": 2, "day": "d", "title": "a"}], txn=("app", 7)).files == 0
    assert lake.sql("SELECT title FROM dev WHERE day = 'd'").to_pylist() == [{"title": "a"}]


def test_versions_and_times_can_be_cloned(lake: Lake, clock: ManualClock, source: Table) -> None:
    clock.advance(DAY)
    source.append([{"id": 50, "day": "d 0", "name": "new"}])
    assert ids(lake.clone("events", "v1", version=1)) == list(range(10))
    moment = datetime.fromtimestamp(source.snapshot(version=2).timestamp_ms / 1000, UTC)
    assert ids(lake.clone("events", "then", timestamp=moment)) == ROWS
    source.tag("release", version=1)
    assert ids(lake.clone("events", "released", tag="release")) == list(range(10))
    assert ids(lake.clone("events", "released_deep", tag="release", deep=True)) == list(range(10))
    lake.drop_table("released")
    lake.drop_table("released_deep")
    source.drop_tag("release")
    with pytest.raises(VersionNotFound):
        lake.clone("events", "later", version=9)
    with pytest.raises(VersionNotFound):
        lake.clone("events", "later", tag="none")
    with pytest.raises(Invalid, match="give one of them"):
        lake.clone("events", "later", version=1, tag="release")
    source.delete("true")
    source.vacuum(NONE)
    with pytest.raises(VersionExpired):
        lake.clone("events", "late", version=3)
    assert ids(lake.clone("events", "again", version=1)) == list(range(10)), "a clone keeps it"
    assert lake.tables() == ["again", "events", "then", "v1"]


def test_both_sides_are_written_and_neither_sees_the_other(lake: Lake, source: Table) -> None:
    clone = lake.clone("events", "dev")
    clone.append([{"id": 100, "day": "d 0", "name": "mine"}])
    clone.delete("id = 5")
    clone.update({"name": "'z'"}, "id = 6")
    clone.upsert([{"id": 7, "day": "d 1", "name": "u"}, {"id": 8, "day": "d 0", "name": "u"}], ["id", "day"])
    source.append([{"id": 200, "day": "d 0", "name": "theirs"}])
    source.delete("id = 9")
    assert ids(clone) == [0, 1, 2, 4, 6, 7, 8, 9, 100]
    assert ids(source) == [0, 1, 2, 4, 5, 6, 7, 8, 200]
    for table in (clone, source):
        table.optimize(full=True)
        table.checkpoint()
        table.vacuum(NONE)
        assert table.verify(full=True).findings == ()
    assert ids(clone) == [0, 1, 2, 4, 6, 7, 8, 9, 100]
    assert ids(source) == [0, 1, 2, 4, 5, 6, 7, 8, 200]
    named = {row["name"]: row["n"] for row in lake.sql("SELECT name, count(*) AS n FROM dev GROUP BY name").to_pylist()}
    assert named == {"a": 5, "z": 1, "u": 2, "mine": 1}


def test_a_deep_clone_has_files_of_its_own(lake: Lake, clock: ManualClock, source: Table) -> None:
    lake.clone("events", "dev").append([{"id": 100, "day": "d 0", "name": "mine"}])
    deep = lake.clone("dev", "deep", deep=True)
    assert [kept(lake), kept(lake, "dev")] == [1, 0]
    assert all(not file.path.startswith(("file:", "memory:")) for file in deep.files)
    lake.drop_table("dev")
    for _ in range(2):
        clock.advance(8 * DAY)
        lake.table("dev").vacuum(NONE)
        wipe(source, clock)
    assert ids(deep) == [*ROWS, 100]
    assert deep.verify(full=True).findings == ()
    assert canonical(deep.to_arrow(where="id = 1"))


def test_names_that_are_taken_or_wrong_are_refused_and_leave_nothing(lake: Lake, source: Table) -> None:
    lake.create_table("taken", SCHEMA)
    for name, error in (("taken", TableExists), ("events", TableExists), ("Not A Name", Invalid)):
        with pytest.raises(error):
            lake.clone("events", name)
    with pytest.raises(TableNotFound):
        lake.clone("nothing", "dev")
    assert kept(lake) == 0
    lake.clone("events", "dev")
    lake.drop_table("dev")
    assert ids(lake.clone("events", "dev", version=1)) == list(range(10)), "the name of a dropped table is free"
    assert source.version == 2


def test_clones_in_sql(lake: Lake, source: Table) -> None:
    (done,) = lake.sql("CREATE TABLE dev SHALLOW CLONE events VERSION AS OF 1").to_pylist()
    assert (done["table"], done["source_version"], done["files"]) == ("dev", 1, 2)
    lake.sql("CREATE TABLE IF NOT EXISTS dev SHALLOW CLONE events")
    lake.sql("CREATE TABLE deep DEEP CLONE dev")
    source.tag("release")
    lake.sql("CREATE TABLE tagged SHALLOW CLONE events TAG AS OF 'release'")
    assert ids(lake["tagged"]) == ROWS
    lake.drop_table("tagged")
    assert ids(lake["dev"]) == ids(lake["deep"]) == list(range(10))
    for text, message in (
        ("CREATE TABLE x CLONE events", "SHALLOW CLONE, which shares the files"),
        ("CREATE OR REPLACE TABLE dev SHALLOW CLONE events", "DROP TABLE dev first"),
        ("CREATE TABLE x SHALLOW CLONE events PARTITION BY (day)", "the columns of its source"),
        ("CREATE TABLE x SHALLOW CLONE events; DELETE FROM x", "cannot be part of a transaction"),
    ):
        with pytest.raises(Invalid, match=message):
            lake.sql(text)
    assert lake.tables() == ["deep", "dev", "events"]
    assert source.version == 2


def test_a_clone_knows_no_event_ids_of_its_source(lake: Lake) -> None:
    """What was sent to one of the two may be sent to the other; each ingests it once."""
    events = lake.create_events("clicks", partition_by=())
    assert ingest(events, "a") == (1, 0)
    clone = lake.clone("clicks", "dev")
    assert ingest(clone, "a", "b") == (2, 0)
    assert ingest(clone, "a", "b") == (0, 2)
    assert ingest(events, "a", "b") == (1, 1)


def test_erasure_goes_through_the_clones_first(lake: Lake, store: CountingStore, clock: ManualClock) -> None:
    """What is erased is in no object of either table, and the clone has what it should have."""
    source = lake.create_table("events", {"id": "long", "name": "string"}, properties={"alluvia.target_file_size": "1"})
    for number in range(4):
        source.append([{"id": number, "name": f"person-{number}"}])
    clone, nested = lake.clone("events", "dev"), lake.clone("dev", "nested")
    where = "name = 'person-2'"
    with pytest.raises(Invalid, match="by clone dev of events, clone nested of events: erase in the clones"):
        source.erase(where)
    assert ids(source) == ids(clone) == [0, 1, 2, 3]
    for table in (clone, nested):
        report = table.erase(where, prove=True)
        assert report.proof is not None
        assert report.proof.ok
    assert ids(clone) == ids(nested) == [0, 1, 3]
    report = source.erase(where, prove=True)
    assert report.proof is not None
    assert report.proof.ok
    for info in store.list(""):
        assert b"person-2" not in store.get(info.key), info.key
    third = lake.clone("dev", "third")
    source.delete("true")
    for _ in range(2):
        clock.advance(8 * DAY)
        source.vacuum(NONE)
    assert ids(clone) == ids(nested) == ids(third) == [0, 1, 3]
    for table in (source, clone, nested, third):
        assert table.verify(full=True).findings == ()
    for name in ("dev", "nested", "third"):
        lake.drop_table(name)
    for _ in range(3):
        clock.advance(8 * DAY)
        for name in ("dev", "nested", "third", "events"):
            lake.table(name).vacuum(NONE)
    assert kept(lake) == 0
    assert not [info for info in store.list("events/") if info.key.endswith(".parquet") and "_log" not in info.key]


def test_verify_finds_a_clone_whose_files_were_lost(lake: Lake, store: CountingStore, source: Table) -> None:
    clone = lake.clone("events", "dev")
    store.delete([info.key for info in store.list("events/") if info.key.endswith(".parquet")])
    found = clone.verify().findings
    assert len(found) == 2
    assert all("events/" in str(each) for each in found)


def test_a_tag_of_the_lake_from_before_a_clone_keeps_nothing_for_it(
    lake: Lake, source: Table, clock: ManualClock
) -> None:
    lake.tag("release")
    clock.advance(DAY)
    lake.clone("events", "dev")
    lake.tag("later")
    lake.drop_table("dev")
    clock.advance(8 * DAY)
    vacuum(lake.catalog.handle("dev"), NONE)
    clock.advance(DAY)
    wipe(source, clock)
    assert kept(lake) == 1  # by the later tag, whose version of the clone needs it
    lake.drop_tag("later")
    vacuum(lake.catalog.handle("dev"), NONE)
    source.append([{"id": 50, "day": "d 0", "name": "a"}])
    wipe(source, clock)
    assert kept(lake) == 0
