"""Publish, withdraw, describe and list queries: `PUT`, `DELETE` and `GET /v1/queries/{name}`, and `GET /v1/queries`.

Publishing is a right of its own. A query keeps its publisher's rights, which may be lent to other callers.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from alluvia.clock import datetime_of
from alluvia.errors import Invalid, cut
from alluvia.query import published
from alluvia.query.parameters import Declared, to_json
from alluvia.query.permitted import permitted
from alluvia.query.published import Condition, PublishedQuery, find_published
from alluvia.serverless.http import Response
from alluvia.serverless.routes.bodies import DEFAULT, TYPE
from alluvia.serverless.routes.query_fields import VERSION
from alluvia.serverless.routes.query_routes import HINT

from .answering import VARY, Caller, QueryNotFound, facts
from .published import hides_columns, may_read_all, runnable, see
from .query_request import read_fields


def publish(caller: Caller, name: str, *, query: str, parameters: Mapping[str, Any]) -> Response:
    """Publish a query: 201 for a new name, else 200, also where nothing changes."""
    declared = {parameter: _parameter(parameter, value) for parameter, value in parameters.items()}
    is_new = find_published(caller.lake.store, name) is None
    catalog = permitted(caller.lake.catalog, caller.rights)
    made = published.publish(catalog, name, query, declared, _condition(caller.request.headers))
    return _told(_facts(made, caller), 201 if is_new else 200, made)


def withdraw(caller: Caller, name: str) -> Response:
    """Withdraw a query with all its versions."""
    if find_published(caller.lake.store, name) is None:
        raise QueryNotFound(f"there is no published query {cut(name, 100)!r}")
    made = published.unpublish(permitted(caller.lake.catalog, caller.rights), name, _condition(caller.request.headers))
    return _told({"name": name, "withdrawn": True, "version": made.version})


def describe_query(caller: Caller, name: str) -> Response:
    """Describe a published query."""
    query = _described(caller, name, read_fields(caller.request, (VERSION,), HINT)[VERSION.name])
    return _told(_facts(query, caller), 200, query)


def list_published(caller: Caller, *, after: str, limit: int) -> Response:
    """List the queries that the caller may run or publish, page by page, ordered by name."""
    shown, following = _page(caller, after, limit)
    return _told({"queries": [_facts(each, caller) for each in shown], "next": following})


def _page(caller: Caller, after: str, limit: int) -> tuple[list[PublishedQuery], str | None]:
    """Return the next queries of which a caller may know, and the last one's name if there are more of them.

    A page is filled with those, however many others lie between: the name of none of these may be told.
    """
    shown: list[PublishedQuery] = []
    following: str | None = after
    while following is not None and len(shown) <= limit:
        queries, following = published.list_published(caller.lake.store, following, limit)
        shown += [known for each in queries if (known := _as_known(caller, each)) is not None]
    return shown[:limit], shown[limit - 1].name if len(shown) > limit else None


def _described(caller: Caller, name: str, version: int | None) -> PublishedQuery:
    """Return a query that the caller may run or publish. Raises `QueryNotFound`, `Forbidden`."""
    rights = caller.rights
    if rights is not None and rights.may_publish(name):
        query = find_published(caller.lake.store, name, version)
        if query is not None:
            return query
    return see(caller, name, version).query


def _as_known(caller: Caller, query: PublishedQuery) -> PublishedQuery | None:
    """Return what a caller may know of: a query that it may publish, or the version that it would run."""
    rights = caller.rights
    return query if rights is not None and rights.may_publish(query.name) else runnable(caller, query)


def _facts(query: PublishedQuery, caller: Caller) -> dict[str, Any]:
    """Return what the caller may know of a query: its text only if it may read all columns of all that it names."""
    told: dict[str, Any] = {
        "name": query.name,
        "version": query.version,
        "path": query.path,
        "parameters": {each.name: _declared(each) for each in query.parameters},
        "published": datetime_of(query.published_ms).isoformat(),
    }
    if may_read_all(caller, query) and not hides_columns(caller, query):
        told |= {"query": query.query, "publisher": query.publisher}
    return told


def _declared(parameter: Declared) -> dict[str, str]:
    default = {} if parameter.default is None else {DEFAULT: parameter.default}
    return {TYPE: parameter.type, **default}


def _parameter(name: str, value: object) -> str:
    """Return a parameter as `type` or `type=default`, from that or from an object. Raises `Invalid`."""
    if isinstance(value, str):
        return value
    kind = value.get(TYPE) if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str) or "=" in kind or not value.keys() <= {TYPE, DEFAULT}:
        raise Invalid(
            f'parameter {cut(name, 100)}: send a type, such as "long", "long=10" or {{"type": "long", "default": 10}}'
        )
    default = value.get(DEFAULT)
    if default is None:
        return kind
    if not isinstance(default, str | int | float | Decimal):
        raise Invalid(f"parameter {cut(name, 100)}: the default must be text, a number, true or false")
    return f"{kind}={default if isinstance(default, str) else to_json(default)}"


def _condition(headers: Mapping[str, str]) -> Condition | None:
    """Return what If-Match and If-None-Match ask for (RFC 9110, section 13.1), where versions are the tags."""
    match, none_match = headers.get("if-match"), headers.get("if-none-match")
    if match is None and none_match is None:
        return None

    def holds(known: PublishedQuery | None) -> bool:
        asked = match is None or _names(match, known, weak=False)
        return asked and (none_match is None or not _names(none_match, known, weak=True))

    return holds


def _names(header: str, known: PublishedQuery | None, *, weak: bool) -> bool:
    """Whether a list of tags has that of a query; `*` stands for any."""
    if known is None:
        return False
    tags = [tag.strip() for tag in header.split(",")]
    return "*" in tags or _tag(known) in [tag.removeprefix("W/") if weak else tag for tag in tags]


def _tag(query: PublishedQuery) -> str:
    return f'"{query.version}"'


def _told(body: dict[str, Any], status: int = 200, query: PublishedQuery | None = None) -> Response:
    tag = {} if query is None else {"ETag": _tag(query)}
    return facts(body, status, Vary=VARY, **tag)
