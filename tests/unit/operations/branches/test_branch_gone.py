"""A write on a branch that was discarded, or has expired, while it was made: it fails, or it came first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api import lake_branch
from alluvia.api.lake import Lake
from alluvia.api.lake_branch import Branch
from alluvia.clock import ManualClock
from alluvia.delta.refs import BRANCH, keeper_key
from alluvia.errors import AlluviaError, BranchGone, CommitUnknown, Invalid, Unavailable
from alluvia.operations.branches.branch_changes import branched_tables
from alluvia.operations.catalog.views import write_view
from alluvia.store import CountingStore, MemoryStore, Store, Wrapper


@pytest.fixture
def lake(clock: ManualClock) -> Lake:
    lake = Lake(MemoryStore("gone", clock), clock)
    lake.create_table("orders", {"id": "long"}).append([{"id": 1}, {"id": 2}])
    lake.create_table("others", {"id": "long"}).append([{"id": 5}])
    lake.create_events("events")
    clock.advance(1)
    lake.branch("fix")
    clock.advance(1)
    return lake


def events(lake: Lake) -> pa.Table:
    now = lake.clock.now_us()
    return pa.Table.from_pylist([{"event_id": "a", "ts": now, "received_at": now}], lake["events"].schema)


def _both(fix: Branch) -> None:
    with fix.transaction(["orders", "others"]) as tx:
        tx.table("orders").append([{"id": 3}])
        tx.table("others").append([{"id": 6}])


WRITES: dict[str, Callable[[Branch], Any]] = {
    "append": lambda fix: fix["orders"].append([{"id": 3}]),
    "delete": lambda fix: fix["orders"].delete("id = 1"),
    "several tables": _both,
    "create": lambda fix: fix.create_table("made", {"id": "long"}),
    "drop": lambda fix: fix.drop_table("orders"),
    "ingest": lambda fix: fix["events"].ingest(events(fix)),
    "view": lambda fix: write_view(fix.store, fix.clock, "v", "SELECT 1", known=None),
    "tag": lambda fix: fix["orders"].tag("begin"),
}


class Interrupted(Wrapper):
    """Does something else before the request of a number, counted from 0. `looks` are those for the branch itself."""

    def __init__(self, inner: Store, at: int, between: Callable[[], None]) -> None:
        super().__init__(inner)
        self._at = at
        self._between = between
        self._number = 0
        self.looks: list[int] = []

    def request(self, kind: str, key: str, send: Callable[[], Any]) -> Any:
        if self._number == self._at:
            self._between()
        if kind == "get" and key == keeper_key(None, BRANCH, "fix"):
            self.looks.append(self._number)
        self._number += 1
        return send()


@pytest.mark.parametrize("kind", WRITES)
def test_a_write_on_a_discarded_branch_fails_wherever_the_discard_comes(kind: str, clock: ManualClock) -> None:
    """Before each request of a write in turn, the branch is discarded by another process."""
    at, outcomes = 0, set()
    while True:
        memory = MemoryStore(f"gone-{kind}-{at}", clock)
        plain = Lake(memory, clock)
        for name in ("orders", "others"):
            plain.create_table(name, {"id": "long"}).append([{"id": 1}])
        if kind == "ingest":
            plain.create_events("events")
        clock.advance(1)
        plain.branch("fix")
        clock.advance(1)
        happened: list[bool] = []

        def discard(plain: Lake = plain, happened: list[bool] = happened) -> None:
            plain.drop_branch("fix")
            happened.append(True)

        store = Interrupted(memory, at, discard)
        try:
            WRITES[kind](Lake(store, clock).on_branch("fix"))
            outcomes.add("fine")
            assert not happened or at > store.looks[-1], "it reported success after the branch was discarded"
        except BranchGone:
            outcomes.add("gone")
        except AlluviaError:
            assert happened
        if not happened:
            break
        at += 1
    assert outcomes == {"fine", "gone"}


def test_a_discard_that_comes_to_a_later_branch_of_the_name_leaves_it(lake: Lake, clock: ManualClock) -> None:
    memory = lake.store
    at, left = 0, 0
    while True:
        plain = Lake(memory, clock)
        happened: list[bool] = []

        def again(plain: Lake = plain, happened: list[bool] = happened) -> None:
            happened.append(True)
            try:
                plain.branch("fix")
            except Invalid:
                happened.append(False)

        Lake(Interrupted(memory, at, again), clock).drop_branch("fix")
        names = [each.name for each in plain.branches()]
        if happened == [True] and names:
            left += 1
            assert plain.on_branch("fix")["orders"].count() == 2
        if names:
            plain.drop_branch("fix")
        clock.advance(1)
        if not happened:
            break
        plain.branch("fix")
        clock.advance(1)
        at += 1
    assert left > 2


def test_an_expired_branch_takes_no_write(lake: Lake, clock: ManualClock) -> None:
    short = lake.branch("short", expires=timedelta(minutes=5))
    clock.advance(1)
    short["orders"].append([{"id": 3}])
    clock.advance(600)
    with pytest.raises(BranchGone, match="branch 'short' expired meanwhile"):
        short["orders"].append([{"id": 4}])


def test_the_clock_of_a_writer_does_not_matter(lake: Lake, clock: ManualClock) -> None:
    slow = ManualClock(clock.now_us() // 1000 - 60_000)
    late = Lake(lake.store, slow).on_branch("fix")
    late["orders"].append([{"id": 3}])
    dying = Lake(Dying(lake.store), clock)
    with pytest.raises(Unavailable):
        dying.drop_branch("fix")  # it has only said so
    with pytest.raises(BranchGone, match="was discarded"):
        late["orders"].append([{"id": 4}])
    with pytest.raises(Invalid, match="is being discarded"):
        lake.on_branch("fix")
    lake.drop_branch("fix")
    assert lake.branches() == []


class Dying(Wrapper):
    """A store whose process dies before it deletes anything."""

    def request(self, kind: str, key: str, send: Callable[[], Any]) -> Any:
        if kind == "delete":
            raise Unavailable("the process died")
        return send()


class Silent(Wrapper):
    """A store that does not answer when it is asked for a branch, from some time on."""

    silent = False

    def request(self, kind: str, key: str, send: Callable[[], Any]) -> Any:
        if self.silent and kind == "get" and "/branch/" in key:
            raise Unavailable("no answer")
        return send()


def test_where_nobody_can_tell_it_says_so(lake: Lake, clock: ManualClock) -> None:
    store = Silent(lake.store)
    fix = Lake(store, clock).on_branch("fix")
    fix["orders"].append([{"id": 3}])
    store.silent = True
    with pytest.raises(CommitUnknown, match="whether the branch still holds what was written"):
        fix["orders"].append([{"id": 4}])


def test_the_look_is_one_request_of_each_write_on_a_branch_and_none_on_the_lake(lake: Lake, clock: ManualClock) -> None:
    counted = CountingStore(lake.store)
    main = Lake(counted, clock)
    fix = main.on_branch("fix")
    costs = {}
    for name, on in (("lake", main), ("branch", fix)):
        on["orders"].append([{"id": 3}])
        _both(on)  # type: ignore[arg-type]
        counted.reset()
        on["orders"].append([{"id": 4}])
        one = dict(counted.requests)
        counted.reset()
        _both(on)  # type: ignore[arg-type]
        costs[name] = one, dict(counted.requests)
    for lakes, branches in zip(costs["lake"], costs["branch"], strict=True):
        assert branches == {**lakes, "get": lakes.get("get", 0) + 1}


@pytest.mark.parametrize(
    "again",
    [
        lambda fix: fix["orders"].append([{"id": 3}], txn=("app", 1)),
        lambda fix: fix["orders"].delete("id = 99"),
        lambda fix: fix["events"].ingest(events(fix)),
        lambda fix: fix["orders"].optimize(full=True),
    ],
    ids=["append", "delete", "ingest", "optimize"],
)
def test_what_needs_no_commit_on_a_branch_that_is_gone_is_not_reported_as_done(
    lake: Lake, again: Callable[[Branch], Any]
) -> None:
    fix = lake.on_branch("fix")
    fix["orders"].append([{"id": 3}], txn=("app", 1))
    fix["events"].ingest(events(fix))
    lake.drop_branch("fix")
    with pytest.raises((BranchGone, Invalid), match="fix"):
        again(fix)


@pytest.mark.parametrize("act", ["publish", "diff"])
def test_a_branch_that_is_discarded_while_its_tables_are_read_is_gone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    fix = lake.on_branch("fix")
    fix["orders"].append([{"id": 3}])

    def discarded_first(*given: Any) -> Any:
        lake.drop_branch("fix")
        return branched_tables(*given)

    monkeypatch.setattr(lake_branch, "branched_tables", discarded_first)
    with pytest.raises(AlluviaError, match="fix"):
        getattr(fix, act)()
    assert lake["orders"].count() == 2
