"""Which transactions over several tables are in all tables of a snapshot, by what was read of their logs alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from alluvia.operations.catalog.transaction_order import NOT_THERE, Happened, LogSince, behind, settled


def log(version: int, claimed: str = "", **later: Happened) -> LogSince:
    return LogSince(version, frozenset(claimed), later)


def test_a_table_is_behind_if_a_claim_was_not_read_there() -> None:
    claims = [{"a": 3, "b": 5, "elsewhere": 9}, {"b": 2}]
    assert behind({"a": 3, "b": 5}, claims) == []
    assert behind({"a": 2, "b": 4, "c": 0}, claims) == ["a", "b"]


def test_what_one_table_holds_all_hold() -> None:
    one = {"a": 1, "b": 1}
    logs = {"a": log(2), "b": log(1, "x", x=Happened(one, 4)), "c": log(7)}
    assert settled(logs) == {"a": 2, "b": 4, "c": 7}


def test_a_claim_that_stands_is_no_reason_to_go_on() -> None:
    one = {"a": 1, "b": 1}
    logs = {"a": log(1, "x", x=Happened(one, 2)), "b": log(1, "x", x=Happened(one, 4))}
    assert settled(logs) == {"a": 1, "b": 1}


def test_a_transaction_that_comes_with_another_is_in_all_tables_too() -> None:
    """To hold x, b goes on past y, which c has to hold then; c was created by it."""
    x, y = {"a": 1, "b": 3}, {"b": 1, "c": 0}
    logs = {
        "a": log(2),
        "b": log(0, "xy", y=Happened(y, 2), x=Happened(x, 4)),
        "c": log(NOT_THERE, "y", y=Happened(y, 1)),
    }
    assert settled(logs) == {"a": 2, "b": 4, "c": 1}


@given(st.data())
def test_any_logs_settle_with_each_transaction_in_all_tables_or_in_none(data: st.DataObject) -> None:
    names = "abc"
    heads = dict.fromkeys(names, -1)
    later: dict[str, dict[str, Happened]] = {name: {} for name in names}
    claimed: dict[str, set[str]] = {name: set() for name in names}
    for one in "uvwxyz":
        tables = data.draw(st.lists(st.sampled_from(names), min_size=2, max_size=3, unique=True))
        claims = {name: heads[name] + data.draw(st.integers(1, 2)) for name in sorted(tables)}
        for name, at in claims.items():
            heads[name] = at + data.draw(st.integers(1, 2))
            later[name][one] = Happened(claims, heads[name])
    starts = {name: data.draw(st.integers(-1, heads[name])) for name in names}
    logs = {}
    for name in names:
        there = {one: each for one, each in later[name].items() if each.done > starts[name]}
        claimed[name] = set(there)
        logs[name] = LogSince(starts[name], frozenset(claimed[name]), there)
    versions = settled(logs)
    assert all(starts[name] <= versions[name] <= heads[name] for name in names)
    for one in "uvwxyz":
        tables = [name for name in names if one in later[name]]
        assert len({later[name][one].done <= versions[name] for name in tables}) == 1
    assert settled({name: LogSince(versions[name], *_since(later[name], versions[name])) for name in names}) == versions


def _since(later: dict[str, Happened], version: int) -> tuple[frozenset[str], dict[str, Happened]]:
    there = {one: each for one, each in later.items() if each.done > version}
    return frozenset(there), there
