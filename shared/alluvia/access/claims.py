"""Rights as the claims of a token (RFC 7519), and back. Pure.

What is not known here is refused, so that no later limit is ignored by a verifier that has not heard of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alluvia.access.rights import GRANTS_MAX, Grant, Rights
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass

ISSUER = "alluvia"
OURS = "alluvia"
SKEW_SECONDS = 60
"""Clocks may differ so much: a token is valid a minute before it was made, and a minute after it expired."""
AGE_SECONDS_MAX = 10 * 366 * 86400
_NAMES = frozenset({"iss", "jti", "sub", "iat", "exp", OURS})
_OUR_NAMES = frozenset({"grants", "requests_per_minute", "query_bytes"})
_GRANT_NAMES = frozenset({"allow", "tables", "queries", "where", "hide"})


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """What a token says. Times are in seconds since the Unix epoch; `id` is unique, and what is revoked by."""

    id: str
    name: str
    issued_s: int
    expires_s: int
    rights: Rights

    def plain(self) -> dict[str, Any]:
        """Return the claims as JSON has them."""
        rights = self.rights
        ours: dict[str, Any] = {"grants": [plain_grant(grant) for grant in rights.grants]}
        if rights.requests_per_minute is not None:
            ours["requests_per_minute"] = rights.requests_per_minute
        if rights.query_bytes is not None:
            ours["query_bytes"] = rights.query_bytes
        times = {"iat": self.issued_s, "exp": self.expires_s}
        return {"iss": ISSUER, "jti": self.id, "sub": self.name, **times, OURS: ours}


def read_claims(found: object) -> TokenClaims:
    """Read claims. Raises `Invalid`, naming the field, for any that this library does not write."""
    claims = _object(found, "claims", _NAMES)
    if claims.get("iss") != ISSUER:
        raise Invalid("iss: the token was not made by this library")
    ours = _object(claims.get(OURS), OURS, _OUR_NAMES)
    token_id, name, expires_s = _text(claims, "jti"), _text(claims, "sub"), _number(claims, "exp")
    rights = Rights(
        read_grants(ours.get("grants")),
        name,
        token_id,
        _number_or_none(ours, "requests_per_minute"),
        _number_or_none(ours, "query_bytes"),
        expires_s,
    )
    return TokenClaims(token_id, name, _number(claims, "iat"), expires_s, rights)


def check_time(claims: TokenClaims, now_s: float) -> None:
    """Raise `Invalid` for a token that has expired, or that a clock far ahead of ours has made."""
    if now_s > claims.expires_s + SKEW_SECONDS:
        raise Invalid("the token has expired: ask for a new one")
    if claims.issued_s > now_s + SKEW_SECONDS:
        raise Invalid("the token is not valid yet: its maker's clock is ahead")


def plain_grant(grant: Grant) -> dict[str, Any]:
    """Return a grant as JSON has it."""
    names = {"tables": list(grant.tables)} if grant.tables else {"queries": list(grant.queries)}
    found: dict[str, Any] = {"allow": sorted(grant.operations), **names}
    if grant.where is not None:
        found["where"] = grant.where
    if grant.hide:
        found["hide"] = sorted(grant.hide)
    return found


def read_grants(found: object) -> tuple[Grant, ...]:
    """Read a list of grants. Raises `Invalid`, naming the field, for any that this library does not write."""
    if not isinstance(found, list) or len(found) > GRANTS_MAX:
        raise Invalid(f"grants: must be a list of at most {GRANTS_MAX}")
    return tuple(map(_grant, found))


def _grant(found: object) -> Grant:
    given = _object(found, "grants", _GRANT_NAMES)
    where = given.get("where")
    if where is not None and not isinstance(where, str):
        raise Invalid("where: must be a text")
    hide = frozenset(_texts(given, "hide")) if "hide" in given else frozenset()
    tables, queries = (tuple(_texts(given, name)) if name in given else () for name in ("tables", "queries"))
    return Grant(frozenset(_texts(given, "allow")), tables, where, hide, queries)


def _object(found: object, what: str, names: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise Invalid(f"{what}: must be an object")
    unknown = sorted(set(found) - names)
    if unknown:
        raise Invalid(f"{what}: {unknown[0]!r:.50} is unknown here, so a newer version of this library may be needed")
    return found


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or len(value) > 200:
        raise Invalid(f"{name}: must be a text of at most 200 characters")
    return value


def _texts(found: Mapping[str, Any], name: str) -> list[str]:
    values = found.get(name)
    if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
        raise Invalid(f"{name}: must be a list of texts")
    return values


def _number(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name)
    if type(value) is not int or value < 0:
        raise Invalid(f"{name}: must be a whole number, 0 or more")
    return value


def _number_or_none(found: Mapping[str, Any], name: str) -> int | None:
    return _number(found, name) if name in found else None
