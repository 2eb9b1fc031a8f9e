"""Transactions over several tables: what they ask of the store, and many processes at once over each store."""

from __future__ import annotations

from collections import Counter

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock, SystemClock
from alluvia.errors import Conflict, TableExists
from alluvia.store import CountingStore, MemoryStore, open_store
from tests.contract.test_concurrency import arguments
from tests.contract.workers import workers
from tests.s3server import S3Endpoint, S3Server
from tests.transactions import NAMES, again, amounts, filled

PROCESSES = 16
ACCOUNTS = 100 * 2 * len(NAMES)


def lake_of(number: int) -> tuple[CountingStore, Lake, list[str]]:
    clock = ManualClock()
    store = CountingStore(MemoryStore("m", clock))
    lake = Lake(store, clock)
    names = [f"t{at}" for at in range(number)]
    for name in names:
        lake.create_table(name, {"x": "long"}).append([{"x": 0}])
    store.reset()
    return store, lake, names


@pytest.mark.parametrize(("number", "puts", "gets"), [(1, 2, 0), (2, 7, 4), (10, 31, 20)])
def test_a_transaction_costs_a_look_at_each_table_and_three_puts_and_one_more(
    number: int, puts: int, gets: int
) -> None:
    """One table costs what its append costs, k tables at most 3k + 1 PUT and 2k GET, the look included."""
    store, lake, names = lake_of(number)
    with lake.transaction(names) as tx:
        assert store.requests == {"get": number}
        for name in names:
            tx.table(name).append([{"x": 1}])
        assert store.requests == {"get": number, "put": number}
    assert store.requests["put"] == puts
    assert store.requests["get"] <= max(gets, number)
    assert set(store.requests) == {"get", "put"}
    store.reset()
    lake.table(names[0]).append([{"x": 1}])
    assert store.requests == {"put": 2}


def test_a_transaction_that_only_reads_puts_nothing() -> None:
    store, lake, names = lake_of(3)
    with lake.transaction(names) as tx:
        assert [tx.table(name).count() for name in names] == [1, 1, 1]
    assert store.requests == {"get": 3}
    store.reset()
    with lake.transaction() as tx:
        tx.sql("SELECT count(*) FROM t0, t1, t2")
    assert store.requests["put"] == 0


def test_two_writers_a_reader_and_a_race_to_create(lake: Lake) -> None:
    """The scenario of otf's tests: what is not committed is not seen, and of two that conflict one fails."""
    one, two = again(lake), again(lake)
    first, second = one.transaction(), two.transaction()
    first.create_table("x", {"a": "long"})
    second.create_table("x", {"a": "long"})
    first.commit()
    with pytest.raises(TableExists):
        second.commit()
    with two.transaction() as writing:
        writing.table("x").append([{"a": 1}])
        writing.table("x").append([{"a": 2}])
    reader = one.transaction(["x"])
    assert reader.table("x").count() == 2
    left, right = one.transaction(["x"]), two.transaction(["x"])
    left.table("x").update({"a": "a + 10"}, "a = 1")
    right.table("x").update({"a": "a + 20"}, "a = 1")
    right.commit()
    with pytest.raises(Conflict):
        left.commit()
    assert sorted(reader.table("x").to_arrow()["a"].to_pylist()) == [1, 2]
    reader.commit()
    assert sorted(again(lake).table("x").to_arrow()["a"].to_pylist()) == [2, 21]


@pytest.fixture(params=["directory", "s3_server", "s3proxy"])
def bank(request: pytest.FixtureRequest, tmp_path: object) -> Lake:
    """A lake that several processes can open, with the tables of `filled`."""
    clock = SystemClock()
    uri, options = f"{tmp_path}/lake", dict[str, str]()
    if request.param != "directory":
        server: S3Endpoint = request.getfixturevalue(request.param)
        if isinstance(server, S3Server):
            server.inject()
        uri, options = f"s3://{server.new_bucket()}/lake", server.options
    return filled(Lake(CountingStore(open_store(uri, clock, **options)), clock))


@pytest.mark.slow
def test_sixteen_processes_move_amounts_and_each_reader_sees_the_total(bank: Lake) -> None:
    """Half of those who move die between two requests of a commit, and so do their processes."""
    given = arguments(bank)
    given.pop("table")
    movers = [("move", {**given, "seed": seed, "rounds": 4, "dies": seed % 2}) for seed in range(PROCESSES - 4)]
    readers = [("see_total", {**given, "seed": seed, "rounds": 8}) for seed in range(4)]
    with workers([*movers, *readers]) as running:
        results = [worker.results() for worker in running]
    totals = Counter(total for found in results[len(movers) :] for total in found)
    assert totals == {ACCOUNTS: 4 * 8}
    done = Counter(each for found in results[: len(movers)] for each in found)
    assert done["done"] == 4 * len(movers)
    assert done["died"] == len(movers) // 2
    assert sum(amounts(bank)) == ACCOUNTS
