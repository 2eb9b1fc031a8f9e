"""Which operations on which tables rights allow."""

from __future__ import annotations

import pytest

from alluvia.access.rate import RequestRates
from alluvia.access.rights import Grant, Restriction, Rights, matches, table_pattern
from alluvia.errors import Forbidden, Invalid


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
