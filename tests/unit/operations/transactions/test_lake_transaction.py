"""Every kind of change inside a transaction over several tables: seen by itself at once, by others all or nothing."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.api.lake_transaction import LakeTransaction
from alluvia.errors import Conflict, Invalid, TableExists, TableNotFound
from alluvia.operations.catalog.catalog import NewTable
from alluvia.store import CountingStore
from tests.judges import canonical, deltalake_rows, duckdb_rows
from tests.unit.operations.transactions.tables import NUMBERS, amounts, two


def test_a_transaction_sees_its_own_changes_and_others_see_all_of_them_or_none(lake: Lake, other: Lake) -> None:
    two(lake)
    with lake.transaction() as tx:
        tx.table("a").append([{"n": 3}])
        tx.table("a").delete("n = 1")
        tx.table("b").update({"n": "n * 10"})
        tx.table("b").upsert([{"n": 20}, {"n": 5}], on=["n"])
        assert (amounts(tx, "a"), amounts(tx, "b")) == ([2, 3], [5, 10, 20])
        assert tx.sql("SELECT sum(a.n) AS s FROM a, b WHERE b.n = 5").to_pylist() == [{"s": 5}]
        assert (amounts(other, "a"), amounts(other, "b")) == ([1, 2], [1, 2])
    assert (amounts(other, "a"), amounts(other, "b")) == ([2, 3], [5, 10, 20])


def test_a_table_created_with_rows_in_a_transaction_of_its_own_is_one_commit(lake: Lake, store: CountingStore) -> None:
    store.reset()
    with lake.transaction() as tx:
        tx.create_table("t", {"n": "long"}).append([{"n": 1}])
    assert store.requests == {"list": 2, "put": 2}
    assert lake.table("t").version == 0
    assert amounts(lake, "t") == [1]
    assert [entry.operation for entry in lake.table("t").history()] == ["TRANSACTION"]


def test_a_table_is_created_together_with_a_change_of_another(lake: Lake, other: Lake) -> None:
    two(lake)
    with lake.transaction() as tx:
        created = tx.create_table("c", {"n": "long"})
        created.append([{"n": 7}])
        created.evolve({"m": "string"}, {"alluvia.target_file_size": "1000000"})
        created.append([{"n": 8, "m": "x"}])
        tx.table("a").delete("true")
        assert amounts(tx, "c") == [7, 8]
        assert "c" not in other
        assert other.tables() == ["a", "b"]
    assert other.tables() == ["a", "b", "c"]
    assert (amounts(other, "a"), amounts(other, "c")) == ([], [7, 8])
    assert other.table("c").snapshot().properties["alluvia.target_file_size"] == "1000000"
    other.table("c").append([{"n": 9}])
    assert amounts(lake, "c") == [7, 8, 9]
    assert lake.table("c").verify().ok
    other.drop_table("c")
    assert "c" not in lake
    lake.undrop("c")
    assert amounts(other, "c") == [7, 8, 9]


def test_a_dropped_table_is_created_again_in_a_transaction(lake: Lake, other: Lake) -> None:
    two(lake)
    lake.drop_table("a")
    with lake.transaction() as tx:
        tx.create_table("a", {"m": "string"}).append([{"m": "new"}])
        tx.table("b").append([{"n": 3}])
    assert other.table("a").to_arrow().to_pylist() == [{"m": "new"}]
    assert amounts(other, "b") == [1, 2, 3]
    other.drop_table("a")
    assert [table.name for table in lake.dropped()] == ["a", "a"]
    lake.undrop("a", lake.dropped()[0].version)
    assert amounts(other, "a") == [1, 2]


def test_what_is_not_committed_creates_nothing(lake: Lake, other: Lake) -> None:
    two(lake)

    def fails() -> None:
        with lake.transaction() as tx:
            tx.create_table("c", {"n": "long"}).append([{"n": 7}])
            tx.drop_table("a")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert other.tables() == ["a", "b"]
    with lake.transaction() as tx:
        tx.create_table("c", {"n": "long"}).append([{"n": 7}])
        tx.drop_table("c")
        with pytest.raises(TableNotFound):
            tx.table("c").count()
    assert other.tables() == ["a", "b"]


@pytest.mark.parametrize("more", [False, True])
def test_of_two_that_create_a_table_one_wins(lake: Lake, other: Lake, more: bool) -> None:
    two(lake)

    def begun(who: Lake) -> LakeTransaction:
        tx = who.transaction()
        tx.create_table("c", {"n": "long"}).append([{"n": 7}])
        if more:
            tx.table("a").append([{"n": 7}])
        return tx

    one, late = begun(lake), begun(other)
    one.commit()
    with pytest.raises(TableExists, match="another writer created table 'c' meanwhile: start the transaction again"):
        late.commit()
    assert amounts(other, "c") == [7]
    assert amounts(other, "a") == ([1, 2, 7] if more else [1, 2])


def test_the_create_of_a_table_that_lost_leaves_no_table(lake: Lake, other: Lake) -> None:
    two(lake)
    tx = lake.transaction()
    tx.create_table("aa", {"n": "long"}).append([{"n": 7}])
    tx.table("b").delete("n = 1")
    other.table("b").delete("n = 1")
    with pytest.raises(Conflict):
        tx.commit()
    assert (lake.tables(), other.tables(), "aa" in other) == (["a", "b"], ["a", "b"], False)
    for use in (lambda: other.drop_table("aa"), lambda: other.undrop("aa"), lambda: other.table("aa").count()):
        with pytest.raises(TableNotFound):
            use()
    assert lake.dropped() == []
    lake.create_table("aa", {"m": "string"}).append([{"m": "x"}])
    assert other.table("aa").to_arrow().to_pylist() == [{"m": "x"}]
    assert other.table("aa").verify().ok


def test_a_drop_takes_the_rejects_along_and_both_come_back(lake: Lake, other: Lake) -> None:
    two(lake)
    lake.catalog.create("a/_rejects", NewTable(NUMBERS), exist_ok=False)
    lake.table("a/_rejects").append([{"n": 100}])
    with lake.transaction() as tx:
        tx.drop_table("a")
        tx.table("b").append([{"n": 3}])
        with pytest.raises(TableNotFound):
            tx.table("a").count()
    assert other.tables(rejects=True) == ["b"]
    assert amounts(other, "b") == [1, 2, 3]
    other.undrop("a")
    assert amounts(lake, "a") == [1, 2]
    assert amounts(lake, "a/_rejects") == [100]
    assert lake.table("a").verify().ok


def test_a_table_is_dropped_and_created_again_in_one_transaction(lake: Lake, other: Lake) -> None:
    two(lake)
    with lake.transaction() as tx:
        tx.table("a").append([{"n": 3}])
        tx.drop_table("a")
        tx.create_table("a", {"m": "string"}).append([{"m": "new"}])
        tx.table("b").append([{"n": 3}])
        assert tx.table("a").to_arrow().to_pylist() == [{"m": "new"}]
        assert amounts(other, "a") == [1, 2]
    assert other.table("a").to_arrow().to_pylist() == [{"m": "new"}]
    assert amounts(other, "b") == [1, 2, 3]
    assert list(other.table("a").scan(version=1).read_all()["n"].to_pylist()) == [1, 2]
    assert other.table("a").verify().ok


@pytest.mark.parametrize("more", [False, True])
def test_who_replaces_a_table_loses_to_a_writer_of_it(lake: Lake, other: Lake, more: bool) -> None:
    two(lake)
    with pytest.raises(Conflict), lake.transaction() as tx:  # noqa: PT012 - the block is what is tested
        tx.create_table("a", {"m": "string"}, replace=True)
        if more:
            tx.table("b").append([{"n": 3}])
        other.table("a").append([{"n": 9}])
    assert (amounts(other, "a"), amounts(other, "b")) == ([1, 2, 9], [1, 2])
    with pytest.raises(Invalid, match=r"a table is replaced in a transaction: call create_table on lake.transaction"):
        lake.create_table("a", {"m": "string"}, replace=True)


def test_a_restore_goes_with_other_changes(lake: Lake, other: Lake) -> None:
    two(lake)
    lake.table("a").delete("true")
    with lake.transaction() as tx:
        tx.table("a").restore(1)
        tx.table("a").append([{"n": 3}])
        tx.table("b").delete("true")
        assert amounts(tx, "a") == [1, 2, 3]
    assert (amounts(other, "a"), amounts(other, "b")) == ([1, 2, 3], [])


NOW = datetime(2026, 1, 31, tzinfo=UTC)


def events(*keys: str) -> pa.Table:
    return pa.Table.from_pylist([{"event_id": key, "source": "web", "ts": NOW, "received_at": NOW} for key in keys])


def ids(lake: Lake) -> list[str]:
    return sorted(lake.table("e").to_arrow()["event_id"].to_pylist())


def test_events_are_ingested_once_whatever_the_transaction(lake: Lake, other: Lake) -> None:
    two(lake)
    lake.create_events("e")
    lake.table("e").ingest(events("x"))
    with lake.transaction() as tx:
        assert tx.table("e").ingest(events("x", "y")).appended == 1
        assert tx.table("e").ingest(events("y", "z")).appended == 1
        tx.table("a").append([{"n": 3}])
    assert ids(other) == ["x", "y", "z"]
    assert other.table("e").ingest(events("x", "y", "z")).appended == 0
    with lake.transaction() as tx:
        tx.table("e").ingest(events("w"))
        tx.table("e").restore(1)
        tx.table("e").ingest(events("y"))
        tx.table("a").append([{"n": 4}])
    assert ids(other) == ["x", "y"]
    assert other.table("e").ingest(events("x", "y", "z", "w")).appended == 2


@pytest.mark.parametrize("more", [False, True])
def test_an_event_that_another_writer_ingests_meanwhile_is_a_conflict(lake: Lake, other: Lake, more: bool) -> None:
    two(lake)
    lake.create_events("e")
    for key, conflicts in (("x", True), ("y", False)):
        tx = lake.transaction()
        tx.table("e").ingest(events(f"{key}1"))
        if more:
            tx.table("a").append([{"n": 3}])
        other.table("e").ingest(events(f"{key}1" if conflicts else f"{key}2"))
        if conflicts:
            with pytest.raises(Conflict, match="another writer ingested the same events into e"):
                tx.commit()
        else:
            tx.commit()
    assert ids(other) == ["x1", "y1", "y2"]


REFUSED = {
    *("commit_files", "optimize", "vacuum", "checkpoint", "expire", "erase", "refresh", "verify", "history", "changes"),
    *("freshness", "final", "replay_rejects", "suggest", "tag", "drop_tag"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_be_part_of_a_transaction_says_so(lake: Lake, name: str) -> None:
    two(lake)
    table = lake.transaction().table("a")
    with pytest.raises(Invalid, match=f"{name} cannot be part of a transaction: call it on lake.table"):
        getattr(table, name)


def test_a_table_in_a_transaction_offers_what_a_transaction_can_hold(lake: Lake) -> None:
    two(lake)
    table = lake.transaction().table("a")
    names = {name for name in dir(lake.table("a")) if not name.startswith("_")}
    assert names - {name for name in dir(table) if not name.startswith("_")} == REFUSED
    with pytest.raises(AttributeError, match=r"TransactionTable has no .insert.; use table\.append"):
        table.insert  # type: ignore[attr-defined]  # noqa: B018


def test_a_transaction_that_is_over_takes_nothing(lake: Lake) -> None:
    two(lake)
    with lake.transaction() as tx:
        pass
    for use in (lambda: tx.table("a"), lambda: tx.create_table("c", {"n": "long"}), lambda: tx.drop_table("a")):
        with pytest.raises(Invalid, match="the transaction is over: begin another"):
            use()


def test_other_libraries_read_each_table_after_a_transaction(disk: Lake) -> None:
    two(disk)
    with disk.transaction() as tx:
        tx.create_table("c", {"n": "long"}).append([{"n": 7}])
        tx.table("a").delete("n = 1")
        tx.drop_table("b")
    for name, rows in (("a", [2]), ("b", []), ("c", [7])):
        table = Table(disk, disk.catalog.handle(name))
        for read in (deltalake_rows, duckdb_rows):
            assert read(table) == canonical(pa.table({"n": pa.array(rows, pa.int64())}))


def test_a_statement_alone_writes_only_to_the_table_that_it_changes(lake: Lake, other: Lake) -> None:
    two(lake)
    lake.sql("CREATE TABLE c AS SELECT a.n FROM a JOIN b USING (n)")
    lake.sql("INSERT INTO c SELECT max(n) + 1 FROM c")
    assert (lake.table("a").version, lake.table("b").version, lake.table("c").version) == (1, 1, 1)
    assert amounts(other, "c") == [1, 2, 3]
