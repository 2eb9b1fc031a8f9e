"""Published queries: `GET /v1/queries/{name}.{form}`, with the values of their parameters in the query string.

A caller with the scope `query:{name}` runs one with its publisher's rights, and learns nothing of the lake but the
query's rows: no names of tables, and no message that may hold values. Others run it with their own rights, if these are
enough. To everyone else it is as if there was no such query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from alluvia.access.rights import READ, Grant, lacks_query
from alluvia.engine.duck.failures import QueryTooCostly, ResultTooLarge
from alluvia.errors import (
    AlluviaError,
    Corrupt,
    Forbidden,
    Invalid,
    StoreRefused,
    TableNotFound,
    Unavailable,
    VersionExpired,
    VersionNotFound,
    cut,
)
from alluvia.lazy_dataclasses import dataclass
from alluvia.query.parameters import values_of
from alluvia.serverless.http import Response
from alluvia.serverless.routes.query_fields import CACHE, MAX_BYTES_HEADER, RESULT_BYTES, ROWS, VERSION, WRITING_FIELDS
from alluvia.serverless.routes.query_routes import QUERIES_PATH

from .answering import Caller, QueryNotFound, wanted
from .queries import answer_read
from .query_request import QueryRequest, limited, values_by_name

if TYPE_CHECKING:
    from alluvia.query.published import PublishedQuery

TOLD, SHOWN = "Alluvia-", (ROWS, RESULT_BYTES, CACHE)
"""How headers about a result begin, and those that tell nothing of what it was read from. One that told the time would
also tell requests and dollars (see `costs`)."""
_ASK = "ask its publisher"
_VEILS: tuple[tuple[tuple[type[AlluviaError], ...], str], ...] = (
    ((ResultTooLarge,), "the result is too large for an answer"),
    ((QueryTooCostly,), "the query takes more time, memory or bytes than it may here"),
    ((Forbidden,), f"what the query reads is not for its publisher, or not for this caller, to see: {_ASK}"),
    ((StoreRefused,), "the storage of the lake refuses to be read"),
    ((Invalid,), f"the query failed: perhaps a value does not suit it, or its tables have changed. Else {_ASK}"),
    ((TableNotFound, VersionNotFound, VersionExpired), f"a table of the query, or a version of one, is gone: {_ASK}"),
    ((Unavailable,), "the storage of the lake does not answer"),
)
"""Errors for callers that do not know which tables a query reads: the first kind that fits is raised."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A published query that a caller may run: by the grants in `limits` or, without any, by rights of its own."""

    query: PublishedQuery
    limits: tuple[Grant, ...] = ()


def run_published(caller: Caller, name: str) -> Response:
    """Run a published query, and answer as `GET /q` does; without a format in the path, describe it.

    Raises what `GET /q` raises, and `QueryNotFound`.
    """
    if "." not in name:
        from .publishing import describe_query  # which few requests need

        return describe_query(caller, name)
    title, _, form = name.partition(".")
    request = caller.request
    given = values_by_name(request)
    seen = see(caller, title, VERSION.read(given.pop(VERSION.name, None)))
    own = {each.name for each in seen.query.parameters}
    written = {each.name: each.read(given.pop(each.name, None)) for each in WRITING_FIELDS if each.name not in own}
    values = values_of(seen.query.parameters, _with_fixed(given, seen.limits))
    asked = limited(QueryRequest(seen.query.query, values, form, **written), request)
    if seen.limits and asked.max_bytes is not None:
        raise Forbidden(f"{MAX_BYTES_HEADER.name}: a limit on bytes would tell what the query reads: leave it out")
    if request.method == "GET" and "prefer" in request.headers:
        taken = _as_job(asked, seen, caller)
        if taken is not None:
            return taken
    if not seen.limits and not hides_columns(caller, seen.query):
        return answer_read(asked, caller)
    wanted(asked, request.headers)  # what is wrong with it is the caller's own
    try:
        response = answer_read(asked, _lent(seen, caller) if seen.limits else caller)
    except AlluviaError as error:
        raise veiled(error) from error
    return {**response, "headers": veiled_headers(response["headers"])} if seen.limits else response


def _with_fixed(given: Mapping[str, str], limits: Sequence[Grant]) -> dict[str, str]:
    """Return the values that are sent, with those that a caller's grants fix. Raises `Forbidden` for another value."""
    values = dict(given)
    for name, text in (pair for limit in limits for pair in limit.values):
        if values.setdefault(name, text) != text:
            raise Forbidden(f"{name} is fixed for this caller: leave it out")
    return values


def _as_job(asked: QueryRequest, seen: Seen, caller: Caller) -> Response | None:
    """Take a published query in as a job, where its sender would rather not wait, and there are jobs."""
    from .jobs import prefers_async, submit  # which few requests need

    request = caller.request
    if not prefers_async(request):
        return None
    wish = wanted(asked, request.headers)
    if not seen.limits:
        # As if they were lent, so that no error names a column.
        own = caller.rights if hides_columns(caller, seen.query) else None
        return submit(asked, wish, caller, own)
    try:
        lent_rights = _lent(seen, caller).rights
    except AlluviaError as error:
        raise veiled(error) from error
    return submit(asked, wish, caller, lent_rights)


def see(caller: Caller, name: str, version: int | None = None) -> Seen:
    """Return a version of a published query: of those that the caller may run, the current or else the newest.

    Raises `QueryNotFound`, and `Forbidden` for a caller who may not know whether there is such a query.
    """
    from alluvia.query.published import find_published

    rights = caller.rights
    granted = set() if rights is None else rights.versions(name)
    if version is None and granted and None not in granted:
        version = max(each for each in granted if each is not None)
    published = find_published(caller.lake.store, name, version)
    if published is None:
        if rights is None or rights.may_publish(name) or granted & {None, version}:
            which = "" if version is None else f"version {version} of "
            raise QueryNotFound(f"there is no {which}published query {cut(name, 100)!r}: GET {QUERIES_PATH} lists them")
        raise lacks_query(name)
    limits = () if rights is None else tuple(rights.limits(name, published.version, current=published.current))
    if not limits and not may_read_all(caller, published):
        raise lacks_query(name)
    return Seen(published, limits)


def runnable(caller: Caller, query: PublishedQuery) -> PublishedQuery | None:
    """Return the version of a published query that a caller runs by its name, of which the current one is known."""
    rights = caller.rights
    granted = set() if rights is None else rights.versions(query.name)
    if rights is None or None in granted:
        return query
    if not granted:
        return query if may_read_all(caller, query) else None
    try:
        return see(caller, query.name).query
    except QueryNotFound:  # the version that was granted has been withdrawn
        return None


def may_read_all(caller: Caller, query: PublishedQuery) -> bool:
    """Whether a caller may itself read all that a query reads."""
    rights = caller.rights
    if rights is None:
        return True
    return any(grant.tables for grant in rights.grants) and all(rights.may(READ, each) for each in query.tables)


def hides_columns(caller: Caller, query: PublishedQuery) -> bool:
    """Whether columns of the tables that a query reads are hidden from a caller: their names are not for it either."""
    rights = caller.rights
    return rights is not None and any(rights.restriction(each).hide for each in query.tables)


def _lent(seen: Seen, caller: Caller) -> Caller:
    """Return the caller with what the query lends it. Raises `Forbidden` where the publisher's token was revoked."""
    from alluvia.access.claims import lent
    from alluvia.access.registry import is_revoked

    definer, rights = seen.query.definer, caller.rights
    assert rights is not None  # noqa: S101 - only rights have limits
    expires_s = None if definer is None else definer.expires_s
    if definer is not None and expires_s is not None and is_revoked(caller.lake.store, definer.key, expires_s):
        raise Forbidden("the publisher's token has been revoked")
    return replace(caller, rights=lent(definer, seen.limits, rights))


def veiled_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of an answer that tell nothing of what a query reads."""
    return {name: headers[name] for name in headers if not name.startswith(TOLD) or name in SHOWN}


def veiled(error: AlluviaError) -> AlluviaError:
    """Return an error of the same kind that tells nothing of what a query reads."""
    for kinds, message in _VEILS:
        for kind in kinds:
            if isinstance(error, kind):
                return kind(message)
    return Corrupt(f"the query cannot be answered as the lake is now: {_ASK}")
