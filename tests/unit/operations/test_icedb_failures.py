"""What loses, doubles or hides rows in IceDB, a merge engine on a log of timestamps, and does not here."""

from __future__ import annotations

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import Invalid, VersionExpired
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import Limits
from alluvia.store import CountingStore

DAY = 86_400
SCHEMA = {"id": "long", "place": "string", "name": "string"}


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table("t", SCHEMA, ["place"], ["name"])


def rows(first: int, count: int) -> list[dict[str, object]]:
    return [{"id": at, "place": ("de", "fr")[at % 2], "name": f"n{-at}"} for at in range(first, first + count)]


def ids(table: Table, version: int | None = None) -> list[int]:
    found: list[int] = table.to_arrow(["id"], version=version)["id"].to_pylist()
    return sorted(found)


def test_the_other_partitions_of_an_insert_outlive_the_clean_up_of_one(table: Table, clock: ManualClock) -> None:
    """IceDB: 20 rows, 10 after one of two partitions is dropped, 0 after the clean-up."""
    table.append(rows(0, 20))
    report = table.delete("place = 'de'")
    assert report.rows_deleted == 10
    assert ids(table) == list(range(1, 20, 2))
    clock.advance(8 * DAY)
    assert len(table.vacuum().data_files) == 1
    assert ids(table) == list(range(1, 20, 2))
    assert table.verify(full=True).ok


def test_rows_that_came_after_a_dropped_partition_outlive_the_clean_up_too(table: Table, clock: ManualClock) -> None:
    table.append(rows(0, 20))
    table.delete("place = 'de'")
    table.append(rows(20, 20))
    table.optimize()
    clock.advance(8 * DAY)
    table.vacuum()
    assert ids(table) == sorted([*range(1, 20, 2), *range(20, 40)])


def test_two_merges_that_overlap_double_no_row(table: Table, lake: Lake, store: CountingStore) -> None:
    """IceDB: 40 rows of 20, unless a lock outside of it keeps merges apart."""
    for first in range(0, 20, 4):
        table.append(rows(first, 4))
    other = Lake(store, ManualClock(seed=5)).table("t")
    removed: list[int] = []

    def other_first() -> bool:
        """Between the plan of the first merge and its work, the other does all of its own."""
        if not removed:
            removed.append(other.optimize().files_removed)
        return True

    table.optimize(go_on=other_first)
    assert removed == [10]
    assert ids(table) == list(range(20))
    assert len(table.files) == 2


def test_two_merges_that_overlap_fold_each_row_once(lake: Lake, store: CountingStore) -> None:
    """IceDB: a merge query sums the rows of overlapping merges twice, and readers must group once more themselves."""
    query = "SELECT place, sum(n) AS n FROM source GROUP BY place"
    table = lake.create_table("hits", {"place": "string", "n": "long"}, properties={"alluvia.merge_query": query})
    for _ in range(20):
        table.append([{"place": "de", "n": 1}])
    other = Lake(store, ManualClock(seed=5)).table("hits")
    folded: list[int] = []

    def other_first() -> bool:
        if not folded:
            folded.append(other.optimize(max_files=10).rows_folded)
        assert lake.sql("FROM hits_final").to_pylist() == [{"place": "de", "n": 20}]
        return True

    table.optimize(go_on=other_first)
    assert folded == [9]
    assert table.to_arrow().to_pylist() == lake.sql("FROM hits_final").to_pylist() == [{"place": "de", "n": 20}]


def test_a_merge_query_that_counts_merged_rows_is_refused(lake: Lake) -> None:
    """IceDB: it is taken, and each merge gives other numbers."""
    query = "SELECT place, count(*) AS n FROM source GROUP BY place"
    with pytest.raises(Invalid, match=r"merge_query: its result depends on what was merged before\. .* sum\(n\) AS n"):
        lake.create_table("hits", {"place": "string", "n": "long"}, properties={"alluvia.merge_query": query})


def test_two_inserts_in_one_millisecond_are_both_kept(table: Table, store: CountingStore, clock: ManualClock) -> None:
    """IceDB: 10 rows of 20, since both write the log file of that host and millisecond."""
    now_ms = clock.now_ms()
    table.append(rows(0, 10))
    Lake(store, clock).table("t").append(rows(10, 10))
    assert clock.now_ms() == now_ms
    assert ids(table) == list(range(20))


@pytest.mark.parametrize("behind_s", [5 * 3600, 30 * DAY, -30 * DAY])
def test_a_host_with_a_wrong_clock_doubles_and_hides_no_row(
    table: Table, store: CountingStore, clock: ManualClock, behind_s: int
) -> None:
    """IceDB: a merge by a host with a slow clock sorts before the inserts that it merged, which come back to life."""
    wrong = Lake(store, ManualClock(clock.now_ms() * 1000 - behind_s * 1_000_000, seed=3)).table("t")
    for first in range(0, 20, 4):
        (wrong if first % 8 else table).append(rows(first, 4))
    assert wrong.optimize().files_removed > 0
    assert ids(table) == ids(wrong) == list(range(20))
    table.append(rows(20, 4))
    assert ids(wrong) == list(range(24))
    assert table.optimize().files_removed > 0
    assert ids(wrong) == ids(table) == list(range(24))


def test_a_merge_keeps_the_order_and_added_columns(table: Table) -> None:
    """IceDB: a merge without a query of one's own writes files unsorted, and drops columns that came later."""
    table.append(rows(0, 10))
    table.evolve(add={"score": "long"})
    table.append([{**row, "score": 7} for row in rows(10, 10)])
    table.optimize()
    assert len(table.files) == 2
    for place in ("de", "fr"):
        names = table.to_arrow(["name"], where=f"place = '{place}'")["name"].to_pylist()
        assert len(names) == 10
        assert names == sorted(names)
    scores = table.to_arrow(["id", "score"]).sort_by("id")["score"].to_pylist()
    assert scores == [None] * 10 + [7] * 10


def test_a_value_of_another_type_is_refused_and_the_table_stays_readable(table: Table) -> None:
    """IceDB takes it, and every later read fails."""
    table.append(rows(0, 2))
    with pytest.raises(Invalid, match="id"):
        table.append([{"id": "seven", "place": "de", "name": "x"}])
    with pytest.raises(Invalid, match="name"):
        table.append([{"id": 3, "place": "de", "name": 5}])
    assert ids(table) == [0, 1]


def test_a_batch_whose_column_is_all_null_leaves_the_table_readable(table: Table) -> None:
    """IceDB: the column has another type in that file, and every later read fails."""
    table.append([{"id": 0, "place": "de", "name": None}])
    table.append(rows(1, 2))
    table.append([{"id": 3, "place": "fr"}])
    table.optimize()
    names = table.to_arrow(["id", "name"]).sort_by("id")["name"].to_pylist()
    assert names == [None, "n-1", "n-2", None]


def test_an_event_of_another_type_becomes_a_reject(lake: Lake) -> None:
    lake.create_events("hits", pa.schema([("status", pa.int64())]))
    body = b'{"event_id":"a","event":"get","status":200}\n{"event_id":"b","event":"get","status":"later"}'
    found = split(body, content_type=None, content_encoding=None, limits=Limits())
    answer = ingest_batch(lake.catalog, "hits", found.events, found.rejects, arrival_us=1_700_000_000_000_000)
    assert (answer.accepted, answer.rejected) == (1, 1)
    assert lake.table("hits").to_arrow(["status"])["status"].to_pylist() == [200]
    [reject] = lake.table("hits/_rejects").to_arrow(["reason"])["reason"].to_pylist()
    assert "status" in reject


def test_files_of_failed_inserts_are_collected_in_bulk(table: Table, store: CountingStore, clock: ManualClock) -> None:
    """IceDB never collects them, and deletes what it does collect key by key."""
    table.append(rows(0, 2))
    store.put_new_many({f"t/part-{at:04}.parquet": b"x" for at in range(1500)})
    clock.advance(8 * DAY)
    store.requests.clear()
    report = table.vacuum()
    assert len(report.orphans) == 1500
    assert store.requests["delete"] <= 2
    assert ids(table) == [0, 1]


def test_a_version_that_clean_up_has_taken_is_refused_by_name(table: Table, clock: ManualClock) -> None:
    """IceDB: a query of an earlier moment fails in the store, for a missing file."""
    for first in (0, 2, 4):
        table.append(rows(first, 2))
    table.optimize()
    clock.advance(8 * DAY)
    table.vacuum()
    with pytest.raises(VersionExpired, match="the oldest version that can be read is 5"):
        ids(table, version=2)
    assert ids(table, version=5) == list(range(6))


def test_a_merge_with_nothing_to_do_does_not_read_the_log(table: Table, store: CountingStore) -> None:
    """IceDB reads the log from its start: 16 seconds at its author's scale."""
    for first in range(0, 80, 2):
        table.append(rows(first, 2))
    table.optimize()
    store.requests.clear()
    assert table.optimize().files_removed == 0
    assert dict(store.requests) == {"get": 1}
