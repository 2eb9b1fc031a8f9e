"""Rights from the claims of somebody else's token (a JWT of an identity provider), by a deployment's settings. Pure.

Scopes are those of OAuth: words such as `read:daily_*` in a claim. Where a provider puts the name of an API in front of
its scopes (`lake/read:daily_*`), the settings name that text: a scope of another API grants nothing here, whatever
follows its name. A row filter is a template, in which `$name` stands for the value of a claim.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from alluvia.access.rights import GRANTS_MAX, OPERATIONS, QUERY, QUERY_OPERATIONS, READ, Grant, Rights, table_pattern
from alluvia.errors import Forbidden, Invalid
from alluvia.lazy_dataclasses import dataclass

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
