"""What each operation asks of the store, exactly: the cost of everything here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock, SystemClock
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import Limits
from alluvia.store import CountingStore, MemoryStore, open_store
from tests.contract.workers import events
from tests.s3server import S3Server
from tests.unit.query.conftest import fill, query

SCHEMA = pa.schema([("x", pa.int64())])


class Place:
    """A lake in a store that counts, on a clock that stands still."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = CountingStore(MemoryStore("m", self.clock))

    def lake(self) -> Lake:
        return Lake(self.store, self.clock)

    def cost(self, action: Callable[[], Any]) -> dict[str, int]:
        self.store.reset()
        action()
        return dict(self.store.requests)


@pytest.fixture
def place() -> Place:
    return Place()


def test_creating_a_table(place: Place) -> None:
    assert place.cost(lambda: place.lake().create_table("t", SCHEMA)) == {"list": 2, "put": 1}


def test_a_warm_append_is_two_puts_and_nothing_else(place: Place) -> None:
    table = place.lake().create_table("t", SCHEMA)
    for _ in range(3):
        assert place.cost(lambda: table.append([{"x": 1}])) == {"put": 2}
    for number in range(3):
        table.evolve({f"y{number}": "long"})
        assert place.cost(lambda: table.append([{"x": 1}])) == {"put": 2}
        row = {"x": 1, f"y{number}": 1}
        assert place.cost(partial(table.append, [row])) == {"put": 2}
    table.evolve(properties={"owner": "me"})
    table.optimize()
    table.checkpoint()
    assert place.cost(lambda: table.append([{"x": 1}])) == {"put": 2}
    assert place.cost(lambda: table.append([])) == {}


def test_an_append_costs_a_put_for_each_partition(place: Place) -> None:
    schema = pa.schema([("x", pa.int64()), ("c", pa.string())])
    table = place.lake().create_table("t", schema, partition_by=["c"])
    rows = [{"x": number, "c": str(number % 5)} for number in range(20)]
    assert place.cost(lambda: table.append(rows)) == {"put": 5 + 1}


def test_an_append_with_a_transaction_looks_for_it(place: Place) -> None:
    table = place.lake().create_table("t", SCHEMA)
    assert place.cost(lambda: table.append([{"x": 1}], txn=("app", 1))) == {"get": 1, "put": 2}
    assert place.cost(lambda: table.append([{"x": 1}], txn=("app", 1))) == {"get": 1}


def test_a_warm_ingest_is_two_puts_and_a_batch_of_duplicates_one_get(place: Place) -> None:
    """That GET finds out whether the table that knows them has been dropped since."""
    table = place.lake().create_events("t", partition_by=())
    schema = table.snapshot().schema
    table.ingest(events(schema, ["a"]))
    assert place.cost(lambda: table.ingest(events(schema, ["a", "b"]))) == {"put": 2}
    assert place.cost(lambda: table.ingest(events(schema, ["a", "b"]))) == {"get": 1}


def test_following_costs_a_get_for_each_new_commit_and_one_more(place: Place) -> None:
    table, other = place.lake().create_table("t", SCHEMA), place.lake().table("t")
    other.snapshot()
    assert place.cost(other.snapshot) == {"get": 1}
    for number in range(7):
        table.append([{"x": number}])
    assert place.cost(other.snapshot) == {"get": 8}


@pytest.mark.parametrize("files", [1, 40])
def test_a_cold_open_is_four_gets_and_a_listing_beyond_the_new_commits(place: Place, files: int) -> None:
    table = place.lake().create_table("t", SCHEMA)
    for number in range(files):
        table.append([{"x": number}])
    assert place.cost(lambda: place.lake().table("t").snapshot()) == {"get": 1 + files + 1, "list": 1}
    table.checkpoint()
    cost = place.cost(lambda: place.lake().table("t").snapshot())
    assert cost["get"] <= 4
    assert cost == {"get": cost["get"], "list": 1}
    for number in range(5):
        table.append([{"x": number}])
    cost = place.cost(lambda: place.lake().table("t").snapshot())
    assert cost["get"] <= 4 + 5
    assert cost == {"get": cost["get"], "list": 1}


def test_a_scan_costs_a_get_for_each_file_that_can_match(place: Place) -> None:
    table = place.lake().create_table("t", SCHEMA)
    for number in range(10):
        table.append([{"x": number}])
    assert place.cost(lambda: table.scan().read_all()) == {"get": 1 + 10}
    assert place.cost(lambda: table.scan(where="x = 3").read_all()) == {"get": 1 + 1}
    assert place.cost(lambda: table.scan(where="x > 99").read_all()) == {"get": 1}


@pytest.mark.parametrize("others", [0, 30])
def test_merging_a_hundred_files_is_103_requests_whatever_else_the_table_holds(place: Place, others: int) -> None:
    schema = pa.schema([("x", pa.int64()), ("c", pa.string())])
    properties = {"delta.checkpointInterval": "1000"}
    table = place.lake().create_table("t", schema, partition_by=["c"], properties=properties)
    for number in range(others):
        table.append([{"x": 1, "c": f"other {number}"}])
    for number in range(100):
        table.append([{"x": number, "c": "small"}])
    place.store.reset()
    report = table.optimize()
    assert (report.files_removed, report.files_added) == (100, 1)
    assert place.store.requests == {"get": 1 + 100, "put": 2}
    assert place.store.requests.total() == 103
    assert place.cost(table.optimize) == {"get": 1}


def test_a_checkpoint_is_two_puts_and_an_index_where_there_are_events(place: Place) -> None:
    table = place.lake().create_table("t", SCHEMA)
    table.append([{"x": 1}])
    assert place.cost(table.checkpoint) == {"get": 1, "put": 2}
    assert place.cost(table.checkpoint) == {"get": 1}
    stream = place.lake().create_events("e")
    stream.ingest(events(stream.snapshot().schema, ["a"]))
    assert place.cost(stream.checkpoint) == {"get": 1, "put": 3}


def test_vacuum_of_nothing_is_a_listing(place: Place) -> None:
    table = place.lake().create_table("t", SCHEMA)
    for number in range(5):
        table.append([{"x": number}])
    assert place.cost(table.vacuum) == {"get": 1, "list": 1}
    assert place.cost(lambda: table.vacuum(timedelta(0), dry_run=True)) == {"get": 1, "list": 1}


def test_vacuum_costs_a_request_for_each_thousand_objects(place: Place) -> None:
    table = place.lake().create_table("t", SCHEMA)
    for number in range(30):
        table.append([{"x": number}])
    table.optimize()
    place.clock.advance(1)
    place.store.reset()
    report = table.vacuum(timedelta(0))
    assert len(report.data_files) == 30
    counts = place.store.requests
    assert (counts["list"], counts["delete"], counts["put"]) == (2 + 4, 1, 1)  # tags and the like are looked for twice
    assert counts["get"] <= 2 + 6


def test_a_cold_window_after_hundreds_of_commits_is_ten_requests(place: Place) -> None:
    quiet = {"delta.checkpointInterval": "1000"}  # else one is written in the background meanwhile
    table = place.lake().create_events("t", partition_by=(), properties=quiet)
    schema = table.snapshot().schema
    for number in range(300):
        table.ingest(events(schema, [f"e{number}", f"f{number}"]))
        place.clock.advance(1)
    table.checkpoint()
    cold = place.lake().table("t")
    place.store.reset()
    answer = cold.ingest(events(schema, ["new", "e0", "f299"]))
    assert (answer.appended, answer.duplicates) == (1, 2)
    assert place.store.requests["put"] == 2
    assert place.store.requests.total() - 2 <= 10


def test_an_event_is_refused_for_one_look_at_the_log(place: Place) -> None:
    lake = place.lake()
    lake.create_events("clicks", SCHEMA)

    def post(body: bytes) -> None:
        found = split(body, content_type=None, content_encoding=None, limits=Limits())
        ingest_batch(lake.catalog, "clicks", found.events, found.rejects, arrival_us=0)

    post(b'[{"event_id":"a","x":1},{"event_id":"b","x":"bad"}]')
    assert place.cost(lambda: post(b'{"event_id":"c","x":1}')) == {"put": 2}
    assert place.cost(lambda: post(b'[{"event_id":"d","x":1},{"event_id":"e","x":"bad"}]')) == {"put": 4, "get": 1}
    assert place.cost(lambda: post(b'{"event_id":"f"')) == {"put": 2}
    lake.table("clicks").evolve({"y": "long"})
    assert place.cost(lambda: post(b'{"event_id":"g","x":1,"y":1}')) == {"put": 2}


def test_a_cold_window_is_cheap_also_where_nothing_was_ingested(place: Place) -> None:
    table = place.lake().create_events("t", partition_by=())
    schema = table.snapshot().schema
    for number in range(50):
        table.append(events(schema, [f"e{number}"]))
    table.checkpoint()
    cold = place.lake().table("t")
    place.store.reset()
    assert cold.ingest(events(schema, ["new"])).appended == 1
    assert place.store.requests.total() - 2 <= 10


def test_the_servers_own_count_agrees(s3_server: S3Server) -> None:
    s3_server.inject()
    clock = SystemClock()
    uri = f"s3://{s3_server.new_bucket()}/lake"

    def lake() -> tuple[CountingStore, Lake]:
        store = CountingStore(open_store(uri, clock, **s3_server.options))
        return store, Lake(store, clock)

    store, first = lake()
    table = first.create_table("t", SCHEMA, properties={"delta.checkpointInterval": "1000"})

    def cost(action: Callable[[], Any], counting: CountingStore) -> Counter[str]:
        s3_server.requests()
        counting.reset()
        action()
        counted = s3_server.requests()
        ours = Counter({kind.upper(): number for kind, number in counting.requests.items()})
        ours["POST"] = ours.pop("DELETE", 0)
        assert +ours == counted
        return counted

    assert cost(lambda: table.append([{"x": 1}]), store) == {"PUT": 2}
    for number in range(12):
        table.append([{"x": number}])
    assert cost(table.optimize, store) == {"GET": 14, "PUT": 2}
    table.checkpoint()
    cold_store, cold = lake()
    opened: list[Table] = []
    counted = cost(lambda: opened.append(_opened(cold)), cold_store)
    assert counted["LIST"] == 1
    assert counted["GET"] <= 4
    assert cost(lambda: opened[0].append([{"x": 1}]), cold_store) == {"PUT": 2}
    vacuumed = cost(lambda: table.vacuum(timedelta(0)), store)
    assert (vacuumed["POST"], vacuumed["PUT"], vacuumed["LIST"]) == (1, 1, 2 + 4)


def test_on_s3_commits_of_others_take_as_many_requests_as_one_by_one_and_few_waits(s3_server: S3Server) -> None:
    uri = f"s3://{s3_server.new_bucket()}/lake"
    store = CountingStore(open_store(uri, SystemClock(), **s3_server.options))
    table = alluvia.connect(uri, **s3_server.options).create_table("t", SCHEMA)
    reader = Lake(store, SystemClock()).table("t")
    reader.snapshot()
    for number in range(10):
        table.append([{"x": number}])
    s3_server.requests()
    store.reset()
    assert len(reader.snapshot().files) == 10
    assert s3_server.requests() == {"GET": 10, "LIST": 1}
    assert [kind for kind, _ in store.keys][:3] == ["get", "get", "list"]  # those after it wait for none


def test_on_a_branch_commits_of_others_take_no_list_of_what_the_lake_has_committed_since(s3_server: S3Server) -> None:
    uri = f"s3://{s3_server.new_bucket()}/lake"
    lake = alluvia.connect(uri, **s3_server.options)
    lake.create_table("t", SCHEMA)
    writer = lake.branch("b").table("t")
    reader = alluvia.connect(uri, **s3_server.options).on_branch("b").table("t")
    reader.snapshot()
    for number in range(4):
        writer.append([{"x": number}])
    body = lake.store.get("t/_delta_log/00000000000000000000.json")
    for version in range(1, 40):
        lake.store.put(f"t/_delta_log/{version:020}.json", body)
    s3_server.requests()
    assert len(reader.snapshot().files) == 4
    assert s3_server.requests()["LIST"] == 0


def _opened(lake: Lake) -> Table:
    table = lake.table("t")
    table.snapshot()
    return table


def test_on_s3_nothing_is_asked_of_files_that_are_left_out(s3_server: S3Server) -> None:
    lake = alluvia.connect(f"s3://{s3_server.new_bucket()}/lake", clock=None, **s3_server.options)
    fill(lake)
    lake.table("events").snapshot()
    s3_server.requests()
    assert query(lake, "SELECT count(*), sum(value) FROM events WHERE n = 21") == [(1, 2.0)]
    assert s3_server.requests() == {"GET": 2}  # the look for a newer commit, and the file
