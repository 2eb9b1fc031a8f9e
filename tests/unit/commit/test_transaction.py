"""A transaction against commits that win before it: it rebases, or says which rule stops it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.changes import Changes
from alluvia.delta.log.actions import AddFile, DomainMetadata, Protocol
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.committer import COURTESY, REQUEST_SECONDS, RETRY, RETRY_MAX
from alluvia.errors import ConcurrentDomain, MetadataChanged, TransactionExpired, Unsupported
from alluvia.operations.append import append
from alluvia.store import CountingStore, MemoryStore, PutResult

SCHEMA = pa.schema([("x", pa.int64())])


class Pair:
    """One table, and two processes that hold it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = CountingStore(MemoryStore("m", self.clock))
        Lake(self.store, self.clock).create_table("t", SCHEMA)
        self.one, self.two = self.table(), self.table()
        self.one.snapshot()
        self.two.snapshot()
        self.store.reset()

    def table(self) -> Table:
        return Lake(self.store, self.clock).table("t")


@pytest.fixture
def pair() -> Pair:
    return Pair()


def add(name: str) -> AddFile:
    return AddFile(name, {}, 10, 1, data_change=True, stats='{"numRecords":2}')


def test_a_commit_is_one_put(pair: Pair) -> None:
    commit = pair.one._handle.transaction(pair.one._handle.at_hand()).commit(Changes("WRITE", adds=[add("a")]))
    assert commit is not None
    assert (commit.version, commit.rows, commit.files) == (1, 2, 1)
    assert pair.store.requests == {"put": 1}


def test_a_lost_race_jumps_to_the_tip(pair: Pair) -> None:
    for number in range(5):
        pair.one.append([{"x": number}])
    pair.store.reset()
    assert pair.two.append([{"x": 9}]).version == 6
    assert pair.store.requests == {"put": 3, "get": 6}
    assert sorted(pair.two.scan().read_all()["x"].to_pylist()) == [0, 1, 2, 3, 4, 9]


def test_what_this_process_has_seen_win_costs_no_race(pair: Pair) -> None:
    base = pair.one._handle.at_hand()
    pair.one.append([{"x": 1}])
    pair.store.reset()
    commit = pair.one._handle.transaction(base).commit(Changes("WRITE", adds=[add("a")]))
    assert commit is not None
    assert commit.version == 2
    assert pair.store.requests == {"put": 1}


def test_in_commit_timestamps_increase_through_rebases_and_backward_clocks(pair: Pair) -> None:
    pair.clock.advance(100)
    first = pair.one.append([{"x": 1}])
    pair.clock.advance(-50)
    second = pair.two.append([{"x": 2}])
    third = pair.one.append([{"x": 3}])
    assert second.timestamp_ms == first.timestamp_ms + 1
    assert third.timestamp_ms == second.timestamp_ms + 1
    assert pair.table().snapshot().timestamp_ms == third.timestamp_ms


def test_tombstones_bear_the_timestamp_of_their_commit(pair: Pair) -> None:
    for number in range(2):
        pair.one.append([{"x": number}])
    pair.clock.advance(-1000)
    pair.two.optimize()
    snapshot = pair.one.snapshot()
    assert {file.deletion_timestamp for file in snapshot.state.tombstones} == {snapshot.timestamp_ms}


def test_a_writer_that_loses_again_and_again_pauses_less(pair: Pair) -> None:
    pauses: list[float] = []
    put_if_absent = pair.store.put_if_absent
    beaten = 0

    def beaten_at_first(key: str, data: bytes) -> PutResult:
        nonlocal beaten
        pair.store.put_if_absent = put_if_absent  # type: ignore[method-assign]
        if beaten < 12:
            beaten += 1
            pair.one.append([{"x": beaten}])
            pair.store.put_if_absent = beaten_at_first  # type: ignore[method-assign]
        return put_if_absent(key, data)

    pair.store.put_if_absent = beaten_at_first  # type: ignore[method-assign]
    pair.clock.sleep = pauses.append  # type: ignore[assignment,method-assign]
    pair.clock.uniform = lambda: 1.0  # type: ignore[method-assign]
    assert pair.two.append([{"x": 99}]).version == 13
    assert len(pauses) == 12
    assert pauses[0] == RETRY * REQUEST_SECONDS
    assert pauses[-1] < pauses[0] / 2
    assert max(pauses) <= RETRY_MAX * REQUEST_SECONDS


def test_a_writer_that_saw_others_commit_gives_way_to_them(pair: Pair) -> None:
    for number in range(5):
        pair.one.append([{"x": number}])
    pair.two.append([{"x": 9}])
    pauses: list[float] = []
    pair.clock.sleep = pauses.append  # type: ignore[assignment,method-assign]
    pair.clock.uniform = lambda: 0.5  # type: ignore[method-assign]
    pair.two.append([{"x": 9}])
    assert pauses == [pytest.approx(COURTESY * 5 * 0.8 * REQUEST_SECONDS)]
    pair.two.append([{"x": 9}])
    assert len(pauses) == 1


def test_the_caller_may_change_its_mind_after_a_loss(pair: Pair) -> None:
    pair.one.append([{"x": 1}])
    seen: list[int] = []

    def after_loss(winners: Sequence[CommitActions]) -> Changes | None:
        seen.extend(winner.version for winner in winners)
        return None

    transaction = pair.two._handle.transaction(pair.two._handle.at_hand())
    assert transaction.commit(Changes("WRITE", adds=[add("a")]), after_loss) is None
    assert seen == [1]
    assert pair.table().snapshot().version == 1

    transaction = pair.two._handle.transaction(pair.two.snapshot(0))
    other = transaction.commit(Changes("WRITE", adds=[add("a")]), lambda _: Changes("WRITE", adds=[add("b"), add("c")]))
    assert other is not None
    assert other.files == 2
    assert {file.path for file in pair.table().snapshot().files} >= {"b", "c"}


def test_a_conflict_is_raised_and_nothing_is_committed(pair: Pair) -> None:
    base = pair.two._handle.at_hand()
    pair.one.evolve({"y": "long"})
    with pytest.raises(MetadataChanged, match="version 1"):
        pair.two._handle.transaction(base).commit(Changes("SET", metadata=base.state.metadata))
    domain = Changes("X", domains=[DomainMetadata("d", "1")])
    one, two = (pair.table()._handle for _ in range(2))
    one_base, two_base = one.newest(), two.newest()
    one.transaction(one_base).commit(domain)
    with pytest.raises(ConcurrentDomain, match="version 2"):
        two.transaction(two_base).commit(domain)
    assert pair.table().snapshot().version == 2


def test_a_blind_append_goes_on_over_an_added_column(pair: Pair) -> None:
    pair.one.evolve({"y": "long"})
    assert pair.two.append([{"x": 1}]).version == 2
    assert pair.two.scan().read_all().to_pylist() == [{"x": 1, "y": None}]


def test_a_table_that_became_one_we_cannot_write_is_left_alone(pair: Pair) -> None:
    handle = pair.one._handle
    future = Protocol(1, 7, None, ("alluvia", "someFutureFeature"))
    handle.transaction(handle.at_hand()).commit(Changes("UPGRADE", protocol=future))
    with pytest.raises(Unsupported, match="someFutureFeature"):
        pair.two.append([{"x": 1}])
    with pytest.raises(Unsupported, match="someFutureFeature"):
        pair.table().append([{"x": 1}])
    assert pair.table().snapshot().version == 1


def test_a_transaction_has_a_maximum_age(pair: Pair) -> None:
    handle = pair.one._handle
    transaction = handle.transaction(handle.at_hand())
    pair.clock.advance(3601)
    with pytest.raises(TransactionExpired, match="60 minutes"):
        transaction.commit(Changes("WRITE", adds=[add("a")]))
    patient = handle.transaction(handle.at_hand(), age_ms_max=10_000_000)
    pair.clock.advance(9000)
    assert patient.commit(Changes("WRITE", adds=[add("a")])) is not None


def test_rows_that_took_too_long_to_write_are_not_committed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vacuum may come for a file that no commit has named for a day."""
    monkeypatch.setattr(append, "GATHERED_BYTES", 1000)
    pair.one.evolve(properties={"alluvia.target_file_size": "1"})

    def slowly() -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"x": pa.nulls(1000, pa.int64())})
            yield pa.record_batch({"x": pa.nulls(1000, pa.int64())})
            pair.clock.advance(13 * 3600)
            yield pa.record_batch({"x": [2]})

        return pa.RecordBatchReader.from_batches(SCHEMA, batches())

    with pytest.raises(TransactionExpired):
        pair.one.append(slowly())
    assert pair.table().snapshot().version == 1


def test_commit_info_says_who_did_what(pair: Pair) -> None:
    pair.one.append([{"x": 1}, {"x": 2}])
    log = pair.table()._handle.log
    commit = log.read_commit(1)
    assert commit is not None
    info = commit.info
    assert next(iter(info)) == "inCommitTimestamp"
    assert (info["operation"], info["operationParameters"], info["readVersion"]) == ("WRITE", {"mode": "Append"}, 0)
    assert info["isBlindAppend"] is True
    assert info["operationMetrics"]["numOutputRows"] == "2"
    other = log.read_commit(0)
    assert other is not None
    assert len({info["txnId"], other.info["txnId"]}) == 2
