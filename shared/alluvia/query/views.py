"""Views in a query: each is replaced by a subquery, and the result is planned as any other query.

So a view gives nothing that its reader could not read, and conditions on it prune the files of its tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from alluvia.delta.schema.names import fold
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.queries.parse import QUERY_LIMIT_BYTES, Analyse, Statement, parse, read, walk
from alluvia.engine.queries.references import At, Reference, References, find_references
from alluvia.engine.queries.rewrite import put_subqueries
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog
from alluvia.operations.catalog.views import View
from alluvia.query.resolving import settled

DEPTH_MAX = 16
"""Views of views of views."""


@dataclass(frozen=True, slots=True)
class Expanded:
    """A query without views, what it names, and the way back from its byte offsets to the user's text.

    `views` are the names of those that it had.
    """

    statement: Statement
    references: References
    views: frozenset[str] = frozenset()
    position: Callable[[int], int] = lambda offset: offset


def expand(
    catalog: Catalog,
    statement: Statement,
    references: References,
    tables: Mapping[str, Snapshot],
    analyse: Analyse,
    *,
    parameters: bool,
) -> Expanded:
    """Put views in the place of the names in a query that no table has. `tables` are known to be there.

    Raises `Invalid` for views that are nested too deeply, or in a circle, and for a version of a view.
    """
    expanded = Expanded(statement, references)
    known: dict[str, View | None] = dict.fromkeys(tables)
    for depth in range(DEPTH_MAX):
        if depth:
            expanded = replace(expanded, references=settled(catalog, expanded.references, known))
        views = _views_in(catalog, expanded.references, known, first=depth == 0)
        if not views:
            return expanded
        expanded = _expanded(expanded, views, analyse, parameters=parameters)
    raise Invalid(f"views are nested more than {DEPTH_MAX} deep, or in a circle: {', '.join(sorted(expanded.views))}")


def _views_in(
    catalog: Catalog, references: References, known: dict[str, View | None], *, first: bool
) -> dict[Reference, View]:
    """Return the views that a query names; `known` gets what is looked up. At `first`, all tables are known already."""
    named = [each for each in references.tables if each.table is not None and is_current(each)]
    new = {each.table for each in named if each.table is not None and each.table not in known}
    tables = {} if first else catalog.readable(new)
    known |= {name: None if name in tables else catalog.find_view(name) for name in new}
    views = {each: known[each.table] for each in named if each.table is not None}
    return {reference: view for reference, view in views.items() if view is not None}


def is_current(reference: Reference) -> bool:
    """Whether a name is meant without a version, as a view's must be."""
    return reference.at == At() and not reference.is_function


def _expanded(expanded: Expanded, views: Mapping[Reference, View], analyse: Analyse, *, parameters: bool) -> Expanded:
    ctes = {fold(entry["key"]) for node in walk(expanded.statement.root) for entry in _entries(node)}
    for view in {view.name: view for view in views.values()}.values():
        for reference in find_references(parse(view.query, analyse).root).tables:
            if fold(reference.shown) in ctes:
                raise Invalid(
                    f"the common table expression {reference.shown} has the name of a table that the view {view.name} "
                    "reads: give it another name"
                )
    spliced = put_subqueries(expanded.statement, {reference: view.query for reference, view in views.items()})
    if len(spliced.text) > QUERY_LIMIT_BYTES:
        raise Invalid(f"with its views, the query has more than {QUERY_LIMIT_BYTES} bytes: use fewer views")
    statement = read(spliced.text, analyse)
    before = expanded.position
    return Expanded(
        statement,
        find_references(statement.root, parameters=parameters),
        expanded.views | {view.name for view in views.values()},
        lambda offset: before(spliced.position(offset)),
    )


def _entries(node: Mapping[str, object]) -> list[dict[str, str]]:
    map_of = node.get("cte_map")
    return map_of["map"] if isinstance(map_of, dict) else []


def reads_view(catalog: Catalog, query: str, name: str) -> bool:
    """Whether a query reads a view, also by way of other views."""
    seen: set[str] = set()
    pending = [query]
    while pending:
        for reference in find_references(parse(pending.pop()).root).tables:
            if reference.table == name:
                return True
            if reference.table is not None and reference.table not in seen:
                seen.add(reference.table)
                view = catalog.find_view(reference.table)
                if view is not None:
                    pending.append(view.query)
    return False
