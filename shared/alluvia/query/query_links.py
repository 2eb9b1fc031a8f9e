"""Addresses of published queries, and signed links to them, which need no token in a header.

A link is a token of the lake in an address: it allows one query, with some parameters fixed, until it expires. It is
revoked as other tokens are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from alluvia.access.rights import LINK, Grant, Rights
from alluvia.errors import Invalid
from alluvia.nearest_name import hint
from alluvia.query.formats import Format
from alluvia.query.parameters import LINK_TOKEN
from alluvia.query.published import PublishedQuery

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from alluvia.access.claims import TokenClaims
    from alluvia.clock import Clock
    from alluvia.store import Store

LINKS_PATH = "/v1/links/"


def link_rights(
    query: PublishedQuery,
    values: Mapping[str, str],
    *,
    pinned: bool = False,
    requests_per_minute: int | None = None,
    query_bytes: int | None = None,
) -> Rights:
    """Return the rights of a link to a query with the values of some parameters: to its current version or, `pinned`,
    to this one. Raises `Invalid` for a parameter that the query does not have, or a value that it does not take.
    """
    declared = {each.name: each for each in query.parameters}
    for name, text in values.items():
        if name not in declared:
            known = ", ".join(map(str, query.parameters)) or "none"
            raise Invalid(f"{name:.100} is not a parameter of {query.name}, which has {known}{hint(name, declared)}")
        declared[name].value(text)
    named = f"{query.name}@{query.version}" if pinned else query.name
    grant = Grant(frozenset({LINK}), queries=(named,), values=tuple(sorted(values.items())))
    return Rights((grant,), query.name, requests_per_minute=requests_per_minute, query_bytes=query_bytes)


def make_link(
    store: Store, clock: Clock, key: Callable[[], Ed25519PrivateKey], rights: Rights, form: Format, lifetime_s: int
) -> tuple[str, TokenClaims]:
    """Return the path of a link with such rights, which is not stored, and the claims of its token.

    `key` is called last, after all checks. The form's way to write CSV is in the query string.
    """
    from alluvia.access.issuing import issue

    token, claims = issue(store, clock, key(), rights, rights.subject, lifetime_s)
    how = form.name.partition("?")[2]
    name = rights.grants[0].queries[0].partition("@")[0]
    return (
        f"{LINKS_PATH}{quote(name)}.{form.suffix}?{'&'.join(filter(None, (urlencode({LINK_TOKEN: token}), how)))}",
        claims,
    )
