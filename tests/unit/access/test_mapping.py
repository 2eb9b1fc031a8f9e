"""Rights from an identity provider's claims."""

from __future__ import annotations

from typing import Any

import pytest

from alluvia.access.claims import ClaimsMapping, filled
from alluvia.access.rights import Restriction
from alluvia.errors import Forbidden


@pytest.mark.parametrize(
    "claim",
    [
        "openid append:clicks read:daily_* email",
        ["append:clicks", "read:daily_*", 7, "fly:away"],
        "[append:clicks read:daily_*]",  # so API Gateway passes a list on
        "append:clicks read:daily_* read:DROP read:",
    ],
)
def test_scopes_of_every_form(claim: object) -> None:
    rights = ClaimsMapping().rights({"sub": "ada", "iss": "i", "scope": claim})
    allowed = [
        (operation, table)
        for operation in ("append", "read", "write", "admin")
        for table in ("clicks", "daily_hits", "other")
        if rights.may(operation, table)
    ]
    assert allowed == [("append", "clicks"), ("read", "daily_hits")]
    assert (rights.subject, rights.key) == ("ada", "i ada")


OTHERS = (
    "read:users",
    "https://other.example/read:users",
    "lake2/read:users",
    "lake/read:users",
    "lake/lake/read:users",
)


@pytest.mark.parametrize(
    ("prefix", "counts"),
    [
        ("", "read:users"),
        ("lake/", "lake/read:users"),
        ("https://lake.example/", None),
        ("other", None),
        ("lake", None),
    ],
)
def test_what_is_in_front_of_a_scope_must_be_what_the_settings_name(prefix: str, counts: str | None) -> None:
    mapping = ClaimsMapping(prefix=prefix)
    assert [each for each in OTHERS if mapping.rights({"scope": each}).may("read", "users")] == [counts] * bool(counts)
    assert mapping.rights({"scope": " ".join(OTHERS)}).may("read", "users") is bool(counts)


def test_scopes_of_published_queries_have_the_row_filter_of_reads() -> None:
    claims = {"tenant": "a", "scope": "query:top@3 query:daily_* publish:mine query:Top publish:mine@1"}
    rights = ClaimsMapping(where="tenant = $tenant").rights(claims)
    assert (rights.versions("top"), rights.versions("daily_hits"), len(rights.grants)) == ({3}, {None}, 3)
    assert [grant.where for grant in rights.limits("daily_hits", 0, current=True)] == ["tenant = 'a'"]
    assert rights.may_publish("mine")


@pytest.mark.parametrize("claims", [{}, {"scope": None}, {"scope": 7}, {"scope": "openid"}, {"scope": {"read": "*"}}])
def test_without_scopes_there_are_no_rights(claims: dict[str, Any]) -> None:
    assert ClaimsMapping().rights(claims).grants == ()


def test_limits_are_filled_with_claims_and_hold_for_reads() -> None:
    mapping = ClaimsMapping("permissions", "tenant = $tenant AND n < $level", frozenset({"email"}))
    rights = mapping.rights({"permissions": "read:t append:t", "tenant": "a' OR 'a' = 'a", "level": 7})
    assert rights.restriction("t") == Restriction(("tenant = 'a'' OR ''a'' = ''a' AND n < 7",), frozenset({"email"}))
    assert rights.may("append", "t")


def test_a_number_below_zero_begins_no_comment() -> None:
    assert filled("a <= 9-$n AND b > -$n", {"n": -1}) == "a <= 9-(-1) AND b > -(-1)"
    assert filled("a <= 9-$n", {"n": 1}) == "a <= 9-1"


def test_a_claim_is_never_put_into_a_literal() -> None:
    assert filled("a = '$x' AND \"$x\" = $x", {"x": "v"}) == "a = '$x' AND \"$x\" = 'v'"
    assert filled("a = 'it''s $x'", {}) == "a = 'it''s $x'"


@pytest.mark.parametrize("value", [None, True, 1.5, ["a"], {"a": 1}, "a\0b", "x" * 501])
def test_a_claim_that_is_missing_or_odd_is_refused(value: object) -> None:
    with pytest.raises(Forbidden, match="claim tenant"):
        filled("tenant = $tenant", {} if value is None else {"tenant": value})
