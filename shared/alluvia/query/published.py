"""Published queries of a lake: SELECTs with a name and typed parameters, which HTTP callers run by that name.

`_alluvia/queries/<name>/<number>.json` in the lake's folder is written once; the one with the highest number counts. A
query that was withdrawn is a version without a text. A published query runs with the rights of whoever asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from alluvia.errors import Corrupt, Invalid
from alluvia.expressions.parse import parse
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog import Catalog
from alluvia.operations.numbered import Numbered, find_numbered, newest_numbered, write_numbered
from alluvia.query.declared import Declared, declare, sample_of
from alluvia.query.engine import run
from alluvia.query.limits import QueryLimits
from alluvia.query.parameters import check_given
from alluvia.store import Store
from alluvia.table_names import TABLE_NAME

QUERIES = "_alluvia/queries/"
PLANNING_SECONDS = 30


@dataclass(frozen=True, slots=True)
class PublishedQuery:
    """A version of a published query. `query` is a SELECT, empty if the query was withdrawn."""

    name: str
    version: int
    query: str
    parameters: tuple[Declared, ...] = ()


def find_published(store: Store, name: str, version: int | None = None) -> PublishedQuery | None:
    """Return a version of a published query, the newest by default; None if there is none. One LIST and one GET."""
    if not TABLE_NAME.fullmatch(name):
        return None
    folder = f"{QUERIES}{name}/"
    newest = newest_numbered(store, folder)
    if newest is None or not newest.body.get("query"):
        return None
    found = newest if version in (None, newest.number) else find_numbered(store, folder, version or 0)
    return None if found is None or not found.body.get("query") else _published(name, found)


def list_published(store: Store) -> list[PublishedQuery]:
    """Return all published queries, in the order of their names. One LIST, and one LIST and one GET for each."""
    found = [find_published(store, name) for name in store.list_folders(QUERIES)]
    return [each for each in found if each is not None]


def publish(catalog: Catalog, name: str, query: str, parameters: Mapping[str, str]) -> PublishedQuery:
    """Publish a SELECT, as the next version of its name. It is planned first, on the tables as they are now.

    Raises `Invalid`, `TableNotFound`, and `Conflict` where another writer publishes the same name.
    """
    if not isinstance(name, str) or not TABLE_NAME.fullmatch(name):
        raise Invalid(
            f"query name {name!r:.100}: use up to 128 lower-case letters, digits and underscores, with a letter first"
        )
    declared = declare(parameters)
    samples = {each.name: sample_of(each) for each in declared}
    statement = parse(query)
    check_given(statement.root, samples)
    if statement.explain:
        raise Invalid("query: publish a SELECT, not EXPLAIN")
    with run(catalog, f"EXPLAIN {query}", QueryLimits(timeout_seconds=PLANNING_SECONDS), samples) as plan:
        plan.read_all()
    return _write(catalog, name, query, declared)


def unpublish(catalog: Catalog, name: str) -> PublishedQuery:
    """Withdraw a published query with all its versions. Raises `Invalid` if there is none of that name."""
    if find_published(catalog.store, name) is None:
        raise Invalid(f"no query is published as {name!r:.100}: `alluvia published` lists those that are")
    return _write(catalog, name, "", ())


def _write(catalog: Catalog, name: str, query: str, declared: tuple[Declared, ...]) -> PublishedQuery:
    store, folder = catalog.store, f"{QUERIES}{name}/"
    newest = newest_numbered(store, folder)
    made = PublishedQuery(name, 0 if newest is None else newest.number + 1, query, declared)
    body = {"query": query, "parameters": [asdict(each) for each in declared], "createdMs": catalog.clock.now_ms()}
    write_numbered(store, catalog.clock, folder, made.version, body, what=f"published query {name}")
    return made


def _published(name: str, found: Numbered) -> PublishedQuery:
    try:
        parameters = tuple(Declared(**each) for each in found.body["parameters"])
        return PublishedQuery(name, found.number, str(found.body["query"]), parameters)
    except (KeyError, TypeError) as error:
        raise Corrupt(f"{found.key} is not a published query of this library") from error
