"""What the commits of a branch have read: recorded with them, judged by publish, and taken out by erasures."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from alluvia.api.lake import Lake
from alluvia.api.lake_branch import Branch
from alluvia.clock import ManualClock
from alluvia.commit import reads
from alluvia.commit.intents import CLAIM, pending
from alluvia.commit.reads import READS_INFO, checkpointed, decode_reads, encode_reads, without_reads
from alluvia.delta.skipping.predicate import And, Comparison, In, IsNotNull, IsNull, Or, Predicate, Unknown
from alluvia.errors import ConcurrentAppend, ConcurrentDeleteRead, Conflict, Invalid
from alluvia.operations.references.branch_store import branch_folder
from alluvia.store import CountingStore, MemoryStore

Do = Callable[[Lake], Any]


@pytest.fixture
def lake(clock: ManualClock) -> Lake:
    lake = Lake(MemoryStore("reads", clock), clock)
    orders = lake.create_table("orders", {"id": "long", "country": "string", "v": "long"}, partition_by=["country"])
    orders.append(rows((1, "de"), (2, "de"), (3, "fr")))
    lake.create_table("others", {"id": "long"}).append([{"id": 5}])
    clock.advance(1)
    return lake


def rows(*given: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"id": number, "country": country, "v": 0} for number, country in given]


def ids(lake: Lake, table: str = "orders") -> list[int]:
    return sorted(row["id"] for row in lake[table].to_arrow().to_pylist())


def _both(fix: Lake) -> None:
    with fix.transaction(["orders", "others"]) as tx:
        tx.table("orders").delete("id = 1")
        tx.table("others").delete("id = 5")


OURS: dict[str, tuple[Do, list[int]]] = {
    "delete": (lambda on: on["orders"].delete("id = 1"), [2, 3]),
    "delete of a partition": (lambda on: on["orders"].delete("country = 'de'"), [3]),
    "update": (lambda on: on["orders"].update({"v": "1"}, "id < 3"), [1, 2, 3]),
    "upsert": (lambda on: on["orders"].upsert(rows((1, "de"), (30, "de")), on=["id"]), [1, 2, 3, 30]),
    "merge": (lambda on: on.sql("MERGE INTO orders t USING (SELECT 1 AS id) s ON t.id = s.id "
                                "WHEN MATCHED THEN DELETE"), [2, 3]),
    "several tables": (_both, [2, 3]),
    "several writes": (lambda on: [on["orders"].delete("id = 1"), on["orders"].append(rows((40, "it"))),
                                   on["orders"].optimize(full=True)], [2, 3, 40]),
}  # fmt: skip


@pytest.mark.parametrize("kind", OURS)
def test_rows_that_the_branch_has_not_looked_for_go_together_with_it(lake: Lake, fix: Branch, kind: str) -> None:
    """The new row's id lies between those that the upsert names, and no file that can match holds it."""
    act, left = OURS[kind]
    act(fix)
    lake["orders"].append(rows((20, "es")))
    assert {each.how for each in fix.publish().tables if each.name == "orders"} == {"rebased"}
    assert ids(lake) == sorted([*left, 20])


@pytest.mark.parametrize("kind", OURS)
def test_rows_that_it_has_looked_for_conflict(lake: Lake, fix: Branch, kind: str) -> None:
    act, _ = OURS[kind]
    act(fix)
    lake["orders"].append(rows((1, "de")))
    with pytest.raises(ConcurrentAppend, match=r"^table orders: version 2 added .*, which can match what was read"):
        fix.publish()
    assert ids(lake) == [1, 1, 2, 3]


def test_a_row_that_it_has_found_and_left_must_still_be_there(lake: Lake, fix: Branch) -> None:
    fix["orders"].upsert(rows((3, "fr"), (30, "de")), on=["id"], matched="ignore")
    lake["orders"].delete("id = 3")
    with pytest.raises(ConcurrentDeleteRead, match="which was read"):
        fix.publish()


def test_what_rests_on_columns_that_the_branch_made_rests_on_all_rows(lake: Lake, fix: Branch) -> None:
    fix["orders"].evolve(add={"w": "long"})
    fix["orders"].update({"w": "1"}, "id = 1")
    fix["orders"].delete("w = 1")
    lake["orders"].append(rows((20, "es")))
    with pytest.raises(ConcurrentAppend):
        fix.publish()


@pytest.mark.parametrize("limit", ["FILES_MAX", "VALUES_MAX"])
def test_what_is_not_on_record_counts_as_all_rows(
    lake: Lake, fix: Branch, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, limit, 0)
    fix["orders"].upsert(rows((3, "fr"), (30, "de")), on=["id"], matched="ignore")
    lake["orders"].append(rows((20, "es")))
    with pytest.raises(ConcurrentAppend):
        fix.publish()


def test_what_is_not_known_may_have_read_files_that_are_gone(lake: Lake, fix: Branch) -> None:
    lake["orders"].append(rows((8, "it")))
    fix["orders"].restore(0)
    with pytest.raises(Conflict):
        fix.publish()


def test_the_lake_records_nothing(lake: Lake, fix: Branch) -> None:
    lake["orders"].delete("id = 3")
    fix["orders"].delete("id = 1")
    fix.publish()
    commits = lake.catalog.handle("orders").log.read_commits(range(lake["orders"].version + 1))
    assert all(READS_INFO not in commit.info for commit in commits)


PREDICATES: list[Predicate] = [
    Unknown(),
    And((Comparison(("a", "b"), ">=", 2**70), Comparison(("a",), "!=", "x'\n"))),
    Or((IsNull(("a",)), IsNotNull(("b",)), In(("c",), (1.5, float("inf"), Decimal("1.20"), b"\xff", True)))),
    In(("d",), (date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, 6, UTC), datetime(2026, 1, 2))),
    In(("none",), ()),
]


def test_what_is_recorded_is_what_is_read() -> None:
    found = decode_reads(encode_reads(PREDICATES, frozenset({"b", "a"})))
    assert found is not None
    assert found.predicates == tuple(PREDICATES)
    assert found.files == {"a", "b"}
    assert encode_reads(None, frozenset()) == {}
    assert encode_reads([Comparison(("a",), "=", object())], frozenset()) == {}
    for wrong in ({}, {READS_INFO: 1}, {READS_INFO: {"predicates": [{"is": "Not"}], "files": []}}):
        assert decode_reads(wrong) is None
    assert without_reads(b'{"add":{"path":"x"}}\n') == b'{"add":{"path":"x"}}\n'


def test_an_erasure_takes_the_conditions_out_of_branches(lake: Lake, clock: ManualClock) -> None:
    """One of the branch's commits is a claim that is still there, as if the process had died."""
    lake.create_table("people", {"name": "string"}).append([{"name": "Ann"}])
    clock.advance(1)
    fix = lake.branch("fix")
    clock.advance(1)
    fix["people"].delete("name IN ('Ann', 'Zoe')")
    with fix.transaction(["people", "others"]) as tx:
        tx.table("people").append([{"name": "Ben"}])
        tx.table("people").delete("name IN ('Ben', 'Zoe')")
        tx.table("others").append([{"id": 6}])
    lake["people"].append([{"name": "Zoe"}])
    log = [info.key for info in lake.store.list(f"{branch_folder(fix.keeper.id)}people/_delta_log/")]
    assert sum(b"Zoe" in lake.store.get(key) for key in log) == 3
    lake["people"].erase("name = 'Zoe'")
    assert [lake.store.get(key) for key in log if b"Zoe" in lake.store.get(key)] == []
    fresh = Lake(lake.store, clock).on_branch("fix")
    assert fresh["people"].to_arrow().num_rows == 0
    with pytest.raises(Conflict):
        fresh.publish()


def test_to_judge_reads_costs_nothing(lake: Lake, fix: Branch) -> None:
    costs = []
    for act in (lambda: fix["orders"].append(rows((9, "de"))), lambda: fix["orders"].delete("country = 'fr'")):
        act()
        lake["orders"].append(rows((20, "es")))
        store = CountingStore(lake.store)
        Lake(store, lake.clock).on_branch("fix").publish(dry_run=True)
        costs.append(dict(store.requests))
    one_more_commit_on_each_side = {**costs[0], "get": costs[0]["get"] + 3}  # the branch's is read twice
    assert costs[1] == one_more_commit_on_each_side


def test_conditions_that_are_nested_deeply_are_not_recorded(lake: Lake, fix: Branch) -> None:
    condition = "id = 1"
    for number in range(60):
        condition = f"({condition} OR id = {-number - 1}) AND v = 0"
    assert fix["orders"].delete(condition).rows_deleted == 1
    lake["orders"].append(rows((7, "it")))
    with pytest.raises(ConcurrentAppend):
        fix.publish()


def test_an_erasure_that_is_refused_takes_nothing_out(lake: Lake, fix: Branch) -> None:
    fix["orders"].delete("id = 1")
    fix["orders"].append(rows((9, "it")))
    with pytest.raises(Invalid, match="by branch fix"):
        lake["orders"].erase("id = 9")
    lake["orders"].append(rows((7, "it")))
    assert fix.publish(dry_run=True).tables[0].conflict is None


def test_checkpoints_of_branches_do_not_say_what_claims_have_read(lake: Lake, fix: Branch) -> None:
    handle = fix.catalog.handle("orders")
    _both(fix)
    assert READS_INFO in str([each.info for each in handle.log.following(1)])
    state = handle.log.at(2)
    (claim,) = (each for name, each in state.domains.items() if name.startswith(CLAIM))
    assert READS_INFO in claim.configuration
    found = checkpointed(state)
    assert READS_INFO not in str(found.domains)
    (left,) = pending(found.domains)
    assert left.intended(3).removes == pending(state.domains)[0].intended(3).removes
    assert checkpointed(found) is found
