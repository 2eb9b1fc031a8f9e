"""Which operations on which tables rights allow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from alluvia.access.claims import lent, plain_definer, read_definer
from alluvia.access.rights import Grant, Restriction, Rights, matches, table_pattern
from alluvia.errors import Forbidden, Invalid
from alluvia.serverless.authorization import RequestRates

READ, QUERY = frozenset({"read"}), frozenset({"query"})


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("clicks", ["clicks"], ["click", "clicks2", "clicks/_rejects", ""]),
        ("*", ["a", "clicks"], ["clicks/_rejects"]),
        ("a*", ["a", "ab"], ["ba", "a/_rejects"]),
        ("*a", ["a", "ba"], ["ab"]),
        ("a*a", ["aa", "aba"], ["a", "ab"]),
        ("a*b*c", ["abc", "axbxc", "abbc"], ["acb", "ac", "abcd"]),
        ("*a*a*", ["aa", "xaxax"], ["a", "xax"]),
        ("clicks/_rejects", ["clicks/_rejects"], ["clicks"]),
        ("*/_rejects", ["clicks/_rejects"], ["clicks"]),
    ],
)
def test_patterns(pattern: str, names: list[str], others: list[str]) -> None:
    assert [name for name in (*names, *others) if matches(pattern, name)] == names


def test_rejects_may_be_named_as_in_sql() -> None:
    assert table_pattern("clicks._rejects") == "clicks/_rejects"
    assert table_pattern("clicks") == "clicks"


@pytest.mark.parametrize(
    "pattern", ["", "Clicks", "a b", "a/b", "a/_rejects/b", "../a", "a\n", "_a", "1", "é", "a" * 201]
)
def test_patterns_that_no_table_could_match_are_refused(pattern: str) -> None:
    with pytest.raises(Invalid, match="tables"):
        Grant(frozenset({"read"}), (pattern,))


@pytest.mark.parametrize("pattern", ["", "Top", "top@", "top@01", "top@-1", "top*@1", "top@1@2", "a/_rejects", "top.x"])
def test_patterns_that_no_published_query_could_match_are_refused(pattern: str) -> None:
    with pytest.raises(Invalid, match="queries"):
        Grant(frozenset({"query"}), queries=(pattern,))


@pytest.mark.parametrize(
    ("operations", "names", "reason"),
    [
        ({"query"}, {"tables": ("t",)}, "queries: name at least one"),
        ({"query"}, {"tables": ("t",), "queries": ("q",)}, "queries: name at least one, and nothing else"),
        ({"read"}, {"queries": ("q",)}, "tables: name at least one"),
        ({"read", "query"}, {"queries": ("q",)}, "apart"),
        ({"publish"}, {"queries": ("q@1",)}, "cannot be granted for one"),
        ({"publish"}, {"queries": ("q",), "where": "a = 1"}, "where and hide"),
        ({"fly"}, {"queries": ("q",)}, "'fly' must be one of append, read, write, admin, query, publish"),
    ],
)
def test_operations_on_published_queries_are_granted_apart(
    operations: set[str], names: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Invalid, match=reason):
        Grant(frozenset(operations), **names)


def test_a_query_means_its_current_version_unless_one_is_named() -> None:
    any_top, old = Grant(QUERY, queries=("top*",)), Grant(QUERY, (), "a = 1", queries=("top@3", "other@4"))
    rights = Rights((any_top, old, Grant(frozenset({"publish"}), queries=("top",))))
    assert (rights.versions("top"), rights.versions("topper"), rights.versions("other")) == ({None, 3}, {None}, {4})
    assert rights.limits("top", 3, current=False) == [old]
    assert rights.limits("top", 3, current=True) == [any_top, old]
    assert rights.limits("top", 4, current=True) == [any_top]
    assert rights.limits("top", 4, current=False) == rights.limits("hop", 3, current=True) == []
    assert [name for name in ("top", "topper") if rights.may_publish(name)] == ["top"]
    assert not any(rights.may(operation, "top") for operation in ("append", "read", "write", "admin"))
    with pytest.raises(Forbidden, match="no scope for any table"):
        rights.check_any_table()


def test_what_is_lent_is_what_the_publisher_may_read_within_the_callers_limits() -> None:
    publisher = Rights((Grant(READ, ("a*",), "x = 1"), Grant(frozenset({"write"}), ("b",)), Grant(READ, ("ab",))))
    limits = [Grant(QUERY, (), "y = 2", frozenset({"z"}), ("q",)), Grant(QUERY, queries=("q",))]
    found = lent(read_definer(json.loads(json.dumps(plain_definer(publisher)))), limits, Rights((), query_bytes=7))
    assert [name for name in ("a", "ab", "b", "c") if found.may("read", name)] == ["a", "ab"]
    assert found.restriction("ab") == Restriction(("x = 1", "y = 2"), frozenset({"z"}))
    assert not any(found.may(operation, "a") for operation in ("append", "write", "admin"))
    assert found.query_bytes == 7
    everything = lent(read_definer(plain_definer(None)), limits, Rights(()))
    assert everything.may("read", "c")
    assert everything.may("read", "c/_rejects")
    assert everything.restriction("c/_rejects") == Restriction(("y = 2",), frozenset({"z"}))
    assert not lent(Rights(()), limits, Rights(())).may("read", "a")


def test_each_operation_is_granted_by_itself_and_whoever_writes_may_append() -> None:
    rights = Rights((Grant(frozenset({"write"}), ("t",)), Grant(frozenset({"append"}), ("u",))))
    allowed = {(each, name) for each in ("append", "read", "write", "admin") for name in "tu" if rights.may(each, name)}
    assert allowed == {("append", "t"), ("write", "t"), ("append", "u")}
    with pytest.raises(Forbidden, match="scope read:t,") as error:
        rights.check("read", "t")
    assert error.value.scope == "read:t"


def test_of_several_grants_all_limits_hold() -> None:
    read = frozenset({"read"})
    rights = Rights((Grant(read, ("*",), "a = 1", frozenset({"x"})), Grant(read, ("t",), "b = 2", frozenset({"y"}))))
    assert rights.restriction("t") == Restriction(("a = 1", "b = 2"), frozenset({"x", "y"}))
    assert rights.restriction("u") == Restriction(("a = 1",), frozenset({"x"}))
    assert not Rights((Grant(read, ("t",)),)).restriction("t")


def test_requests_are_counted_by_caller_and_come_back_with_time() -> None:
    rates = RequestRates()
    assert [rates.wait_ms("a", 3, 0) for _ in range(5)] == [0, 0, 0, 20_000, 20_000]
    assert rates.wait_ms("b", 3, 0) == 0
    assert rates.wait_ms("a", 3, 20_000) == 0
    assert rates.wait_ms("a", 3, 20_000) == 20_000
    assert [rates.wait_ms("a", 3, 10_000_000) for _ in range(4)] == [0, 0, 0, 20_000]
