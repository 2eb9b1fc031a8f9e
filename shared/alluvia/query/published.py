"""Published queries of a lake: SELECTs with a name and typed parameters, which HTTP callers run by that name.

`_alluvia/queries/<name>/<number>.json` in the lake's folder is written once; the one with the highest number counts. A
query that was withdrawn is a version without a text, and what was before it is not found again. Each version keeps what
its publisher might read, which it lends to callers with the scope for it: see `access.claims`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import islice
from typing import Any

from alluvia.access.claims import plain_definer, read_definer
from alluvia.access.rights import Rights
from alluvia.engine.queries.parse import parse
from alluvia.engine.queries.references import shows_tables
from alluvia.errors import Conflict, Corrupt, Invalid, PreconditionFailed
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog
from alluvia.operations.catalog.versioned_objects import Numbered, find_numbered, newest_numbered, write_numbered
from alluvia.query.describe import describes
from alluvia.query.engine import run
from alluvia.query.limits import QueryLimits
from alluvia.query.parameters import Declared, check_given, declare, sample_of
from alluvia.query.permitted import NotedCatalog
from alluvia.store import Store
from alluvia.table_names import NAME_RULE, PLAIN_NAME

QUERIES = "_alluvia/queries/"
PATH = "/v1/queries/"
ADDRESS = "ALLUVIA_URL"
"""The setting with the address of the lake's server, such as https://lake.example.com."""
PLANNING_SECONDS = 30


@dataclass(frozen=True, slots=True)
class PublishedQuery:
    """A version of a published query. `query` is a SELECT, empty if the query was withdrawn.

    `tables` are those and the views that it reads; `definer` is what its publisher might read (None: all). It was
    published at `published_ms`, in ms since the Unix epoch; `current` says whether it is the newest version.
    """

    name: str
    version: int
    query: str
    parameters: tuple[Declared, ...] = ()
    tables: tuple[str, ...] = ()
    definer: Rights | None = None
    published_ms: int = 0
    current: bool = True

    @property
    def publisher(self) -> str | None:
        """Return the name of the token that published it, or its id; None for someone with access to all."""
        return None if self.definer is None else self.definer.subject or self.definer.key

    @property
    def path(self) -> str:
        """Return the path of its rows as JSON. Other forms have other suffixes; parameters go into the query string."""
        return f"{PATH}{self.name}.json"

    @property
    def url(self) -> str:
        """Return the URL of its rows, with the address in `$ALLUVIA_URL`; only the path if that is not set."""
        return f"{address_in(os.environ) or ''}{self.path}"


def address_in(environment: Mapping[str, str]) -> str | None:
    """Return the address of the lake's server that the settings name, without a final slash. Raises `Invalid`."""
    address = environment.get(ADDRESS, "").rstrip("/")
    if address and not address.startswith(("http://", "https://")):
        raise Invalid(f"{ADDRESS} is {address!r:.200}: write it as https://lake.example.com")
    return address or None


Condition = Callable[[PublishedQuery | None], bool]
"""Whether what is published under a name (None: nothing) may be replaced."""


def find_published(store: Store, name: str, version: int | None = None) -> PublishedQuery | None:
    """Return a version of a published query, the newest by default; None if there is none. One LIST and one GET."""
    if not PLAIN_NAME.fullmatch(name):
        return None
    folder = f"{QUERIES}{name}/"
    newest = newest_numbered(store, folder)
    if newest is None or not newest.body.get("query"):
        return None
    if version in (None, newest.number):
        return _published(name, newest)
    stored = find_numbered(store, folder, version or 0) if _first(newest) <= (version or 0) else None
    return None if stored is None else _published(name, stored, current=False)


def published_query(store: Store, name: str) -> PublishedQuery:
    """Return the newest version of a published query. Raises `Invalid` if there is none of that name."""
    query = find_published(store, name)
    if query is None:
        raise Invalid(f"no query is published as {name!r:.100}: `alluvia published` lists those that are")
    return query


def list_published(store: Store, after: str = "", limit: int | None = None) -> tuple[list[PublishedQuery], str | None]:
    """Return the published queries whose names come after a name, in their order, and after which the next ones come.

    At most `limit` names are looked at, also of queries that were withdrawn; the second value is None if there are no
    more. One LIST for 1,000 names, and one LIST and one GET for each that is looked at.
    """
    rest = (name for name in store.list_folders(QUERIES) if name > after)
    names = list(rest if limit is None else islice(rest, limit + 1))
    more = limit is not None and len(names) > limit
    shown = names[:limit]
    queries = store.map(lambda name: find_published(store, name), shown)
    return [each for each in queries if each is not None], shown[-1] if more else None


def publish(
    catalog: Catalog, name: str, query: str, parameters: Mapping[str, str], condition: Condition | None = None
) -> PublishedQuery:
    """Publish a SELECT with the rights of the catalog, as the next version of its name.

    It is planned first, on the tables as they are now. If it is what is published already, nothing is written. Raises
    `Invalid`, `TableNotFound`, `PreconditionFailed` where a condition does not hold, and `Conflict` where another
    writer publishes the same name.
    """
    if not isinstance(name, str) or not PLAIN_NAME.fullmatch(name):
        raise Invalid(f"query name {name!r:.100}: use {NAME_RULE}")
    declared = declare(parameters)
    samples = {each.name: sample_of(each) for each in declared}
    statement = parse(query)
    check_given(statement.root, samples)
    if statement.explain or describes(statement.root) or shows_tables(statement.root):
        raise Invalid("query: publish a SELECT, not EXPLAIN, DESCRIBE, SUMMARIZE or SHOW TABLES")
    noted = NotedCatalog(catalog)
    with run(noted, f"DESCRIBE {query}", QueryLimits(timeout_seconds=PLANNING_SECONDS), samples) as plan:
        plan.read_all()
    body = {
        "query": query,
        "parameters": [asdict(each) for each in declared],
        "tables": sorted(noted.opened),
        "definer": plain_definer(catalog.rights),
    }
    newest, known = _newest(catalog.store, name, condition)
    if known is not None and newest is not None and all(newest.body.get(key) == value for key, value in body.items()):
        return known
    first = 0 if newest is None else _first(newest) if known is not None else newest.number + 1
    return _write(catalog, name, newest, body | {"first": first}, condition)


def unpublish(catalog: Catalog, name: str, condition: Condition | None = None) -> PublishedQuery:
    """Withdraw a published query with all its versions. Raises `Invalid` if there is none of that name.

    Raises `PreconditionFailed` and `Conflict` as `publish` does.
    """
    newest, known = _newest(catalog.store, name, condition) if PLAIN_NAME.fullmatch(name) else (None, None)
    if known is None:
        raise Invalid(f"no query is published as {name!r:.100}: `alluvia published` lists those that are")
    return _write(catalog, name, newest, {"query": "", "definer": plain_definer(catalog.rights)}, condition)


def _newest(store: Store, name: str, condition: Condition | None) -> tuple[Numbered | None, PublishedQuery | None]:
    """Return the newest version of a name, and what is published as it. Raises `PreconditionFailed`."""
    newest = newest_numbered(store, f"{QUERIES}{name}/")
    known = None if newest is None or not newest.body.get("query") else _published(name, newest)
    if condition is not None and not condition(known):
        is_now = "nothing is published" if known is None else f"version {known.version} is published"
        raise PreconditionFailed(f"{is_now} as {name}, which is not what this request expects: nothing was changed")
    return newest, known


def _write(
    catalog: Catalog, name: str, newest: Numbered | None, body: Mapping[str, Any], condition: Condition | None
) -> PublishedQuery:
    number, now_ms = 0 if newest is None else newest.number + 1, catalog.clock.now_ms()
    made = Numbered(f"{QUERIES}{name}/{number:020}.json", number, {**body, "createdMs": now_ms})
    try:
        folder, what = f"{QUERIES}{name}/", f"published query {name}"
        write_numbered(catalog.store, catalog.clock, folder, number, made.body, what=what)
    except Conflict as error:
        if condition is None:
            raise
        raise PreconditionFailed(str(error)) from error
    return _published(name, made)


def _first(newest: Numbered) -> int:
    """Return the first version since the query was last withdrawn."""
    return int(newest.body.get("first", 0))


def _published(name: str, stored: Numbered, *, current: bool = True) -> PublishedQuery:
    body = stored.body
    try:
        return PublishedQuery(
            name,
            stored.number,
            str(body["query"]),
            tuple(Declared(**each) for each in body.get("parameters", ())),
            tuple(map(str, body.get("tables", ()))),
            read_definer(body["definer"]),
            int(body["createdMs"]),
            current,
        )
    except (KeyError, TypeError, Invalid) as error:
        raise Corrupt(f"{stored.key} is not a published query of this library: publish it again") from error
