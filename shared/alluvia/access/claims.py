"""Rights as claims of a token: of this lake (RFC 7519), of an identity provider, of a published query's definer. Pure.

Unknown claims are refused, so that a verifier never ignores a limit that a later version adds.

Scopes are those of OAuth: words such as `read:daily_*` in a claim. Where a provider puts the name of an API in front of
its scopes (`lake/read:daily_*`), the settings name that text: a scope of another API grants nothing here, whatever
follows its name. A row filter is a template, in which `$name` stands for the value of a claim.

A published query keeps what its publisher might read. Through it others may read that, and never more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from alluvia.access.rights import GRANTS_MAX, OPERATIONS, QUERY, QUERY_OPERATIONS, READ, Grant, Rights, table_pattern
from alluvia.errors import Forbidden, Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.table_names import REJECTS

ISSUER = "alluvia"
OURS = "alluvia"
SKEW_SECONDS = 60
"""How far the clock of a token's maker may be ahead: a token is valid a minute before it was made, never after its end.
"""
AGE_SECONDS_MAX = 10 * 366 * 86400
_NAMES = frozenset({"iss", "jti", "sub", "iat", "exp", OURS})
_OUR_NAMES = frozenset({"grants", "requests_per_minute", "query_bytes"})
_GRANT_NAMES = frozenset({"allow", "tables", "queries", "where", "hide", "values"})


@dataclass(frozen=True, slots=True)
class TokenClaims:
    """The claims of a token. Times are in seconds since the Unix epoch; `id` is unique, and used to revoke it."""

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


def read_claims(given: object) -> TokenClaims:
    """Read claims. Raises `Invalid`, naming the field, for any that this library does not write."""
    claims = _object(given, "claims", _NAMES)
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
    if now_s > claims.expires_s:
        raise Invalid("the token has expired: ask for a new one")
    if claims.issued_s > now_s + SKEW_SECONDS:
        raise Invalid("the token is not valid yet: its maker's clock is ahead")


def plain_grant(grant: Grant) -> dict[str, Any]:
    """Return a grant as JSON has it."""
    names = {"tables": list(grant.tables)} if grant.tables else {"queries": list(grant.queries)}
    plain: dict[str, Any] = {"allow": sorted(grant.operations), **names}
    if grant.where is not None:
        plain["where"] = grant.where
    if grant.hide:
        plain["hide"] = sorted(grant.hide)
    if grant.values:
        plain["values"] = dict(grant.values)
    return plain


def read_grants(given: object) -> tuple[Grant, ...]:
    """Read a list of grants. Raises `Invalid`, naming the field, for any that this library does not write."""
    if not isinstance(given, list) or len(given) > GRANTS_MAX:
        raise Invalid(f"grants: must be a list of at most {GRANTS_MAX}")
    return tuple(map(_grant, given))


def _grant(plain: object) -> Grant:
    given = _object(plain, "grants", _GRANT_NAMES)
    where = given.get("where")
    if where is not None and not isinstance(where, str):
        raise Invalid("where: must be a text")
    hide = frozenset(_texts(given, "hide")) if "hide" in given else frozenset()
    tables, queries = (tuple(_texts(given, name)) if name in given else () for name in ("tables", "queries"))
    values = given.get("values", {})
    if not isinstance(values, dict) or not all(isinstance(text, str) for text in values.values()):
        raise Invalid("values: must be an object of texts")
    return Grant(frozenset(_texts(given, "allow")), tables, where, hide, queries, tuple(sorted(values.items())))


def _object(given: object, what: str, names: frozenset[str]) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise Invalid(f"{what}: must be an object")
    unknown = sorted(set(given) - names)
    if unknown:
        raise Invalid(f"{what}: {unknown[0]!r:.50} is unknown here, so a newer version of this library may be needed")
    return given


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or len(value) > 200:
        raise Invalid(f"{name}: must be a text of at most 200 characters")
    return value


def _texts(fields: Mapping[str, Any], name: str) -> list[str]:
    values = fields.get(name)
    if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
        raise Invalid(f"{name}: must be a list of texts")
    return values


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or value < 0:
        raise Invalid(f"{name}: must be a whole number, 0 or more")
    return value


def _number_or_none(fields: Mapping[str, Any], name: str) -> int | None:
    return _number(fields, name) if name in fields else None


NAME = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
VALUE_CHARS_MAX = 500


@dataclass(frozen=True, slots=True)
class ClaimsMapping:
    """`scopes` names the claim with the scopes; `where` is the template of a row filter, `hide` has hidden columns.

    `prefix` is the text that begins each scope of this lake. Without one, scopes that have anything in front do not
    count; with one, nor do those without it.
    """

    scopes: str = "scope"
    where: str | None = None
    hide: frozenset[str] = frozenset()
    prefix: str = ""

    def rights(self, claims: Mapping[str, Any]) -> Rights:
        """Return what claims allow: nothing where no scope is known. Raises `Forbidden` for a claim that is missing."""
        where = None if self.where is None else filled(self.where, claims)
        subject = str(claims.get("sub", ""))
        grants = islice(_grants(claims.get(self.scopes), self.prefix, where, self.hide), GRANTS_MAX)
        return Rights(tuple(grants), subject, f"{claims.get('iss', '')} {subject}")


def filled(template: str, claims: Mapping[str, Any]) -> str:
    """Return a condition with literals in the place of `$name`, outside quotes. Raises `Forbidden`."""

    def literal(match: re.Match[str]) -> str:
        value = claims.get(match[1])
        if isinstance(value, bool) or not isinstance(value, str | int) or len(str(value)) > VALUE_CHARS_MAX:
            raise Forbidden(f"this caller's token needs the claim {match[1]}, a text or a whole number")
        text = str(value)
        if "\0" in text:
            raise Forbidden(f"this caller's claim {match[1]} contains a NUL character")
        if isinstance(value, int):
            return f"({text})" if value < 0 else text  # a minus before it would make it a comment
        return "'" + text.replace("'", "''") + "'"

    parts = re.split(r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")", template)
    return "".join(part if at % 2 else NAME.sub(literal, part) for at, part in enumerate(parts))


def _grants(claim: object, prefix: str, where: str | None, hide: frozenset[str]) -> Iterator[Grant]:
    """Yield what the scopes that are ours grant. API Gateway passes a list on as `[one two]`."""
    words = claim.strip("[]").replace(",", " ").split() if isinstance(claim, str) else claim
    for word in words if isinstance(words, list) else ():
        if not isinstance(word, str) or not word.startswith(prefix):
            continue
        operation, colon, name = word.removeprefix(prefix).partition(":")
        tables = (table_pattern(name),) if operation in OPERATIONS else ()
        queries = (name,) if operation in QUERY_OPERATIONS else ()
        if colon and (tables or queries):
            limits = (where, hide) if operation in (READ, QUERY) else (None, frozenset[str]())
            with suppress(Invalid):  # another service may have scopes that look like ours
                yield Grant(frozenset({operation}), tables, *limits, queries)


_EVERYTHING = Grant(frozenset({READ}), ("*", f"*/{REJECTS}"))


def plain_definer(rights: Rights | None) -> dict[str, Any] | None:
    """Return a publisher's rights to read as JSON; None for one that may read all."""
    if rights is None:
        return None
    grants = [plain_grant(grant) for grant in _reads(rights)]
    return {"grants": grants, "subject": rights.subject, "key": rights.key, "expires": rights.expires_s}


def read_definer(kept: object) -> Rights | None:
    """Read what `plain_definer` has written. Raises `Invalid`, `KeyError`, `TypeError`."""
    if kept is None:
        return None
    if not isinstance(kept, dict) or not isinstance(kept["expires"], int | None):
        raise Invalid("the rights of its publisher cannot be read")
    grants = read_grants(kept["grants"])
    return Rights(grants, str(kept["subject"]), str(kept["key"]), expires_s=kept["expires"])


def lent(definer: Rights | None, limits: Iterable[Grant], caller: Rights) -> Rights:
    """Return what a caller may read through a published query: what its publisher might, within `limits`.

    `limits` are the grants that let the caller run it, whose row filters and hidden columns hold for all tables.
    """
    reads = [_EVERYTHING] if definer is None else _reads(definer)
    narrowed = [
        Grant(each.operations, each.tables, limit.where, limit.hide)
        for limit in limits
        if limit.where is not None or limit.hide
        for each in reads
    ]
    return Rights((*reads, *narrowed), caller.subject, caller.key, query_bytes=caller.query_bytes)


def _reads(rights: Rights) -> list[Grant]:
    readers = (grant for grant in rights.grants if READ in grant.operations)
    return [Grant(frozenset({READ}), grant.tables, grant.where, grant.hide) for grant in readers]
