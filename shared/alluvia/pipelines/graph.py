"""The order in which the tables of a pipeline are made: each after the tables that its query reads. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from alluvia.errors import Invalid
from alluvia.nearest_name import hint
from alluvia.pipelines.declarations.declaration import Declaration
from alluvia.pipelines.queries.query import read_query


def in_order(declarations: Sequence[Declaration]) -> list[Declaration]:
    """Return declarations, each after those whose tables it reads; else in the order given.

    Raises `Invalid` for a table that two declare, and for a cycle, which it names.
    """
    made_by: dict[str, Declaration] = {}
    for each in declarations:
        for name in tables_of(each):
            if name in made_by:
                other = made_by[name].place
                raise each.wrong(f"another declaration makes {_shown(name)}{f', in {other}' if other else ''}")
            made_by[name] = each
    ordered: list[Declaration] = []
    for each in declarations:
        _visit(each, made_by, ordered, [])
    return ordered


def tables_of(declaration: Declaration) -> list[str]:
    """Return the tables that a declaration makes: its own, and that of rows that failed its expectations."""
    return [name for name in (declaration.target, declaration.quarantine) if name is not None]


def upstream_of(declarations: Sequence[Declaration]) -> dict[str, frozenset[str]]:
    """Return for each declared table the declared tables that its query reads."""
    made_by = {name: each.target for each in declarations for name in tables_of(each)}
    return {
        each.target: frozenset(made_by[name] for name in _sources(each) if name in made_by) for each in declarations
    }


def selected(declarations: Sequence[Declaration], wanted: Iterable[str]) -> list[Declaration]:
    """Return those declarations, in their order, that names select; all for no name.

    `t` selects a table, `t+` it and all that is made of it, `+t` it and all that it is made of. Raises `Invalid` for a
    name that none declares.
    """
    names = [each.target for each in declarations]
    above = upstream_of(declarations)
    below = {name: frozenset(one for one in names if name in above[one]) for name in names}
    chosen: set[str] = set()
    for text in wanted:
        name = text.strip("+").lower()
        if name not in above:
            raise Invalid(f"the pipeline declares no table {name!r}{hint(name, names)}")
        chosen.add(name)
        if text.endswith("+"):
            chosen |= _reached(name, below)
        if text.startswith("+"):
            chosen |= _reached(name, above)
    return [each for each in declarations if not chosen or each.target in chosen]


def _visit(
    declaration: Declaration, made_by: Mapping[str, Declaration], ordered: list[Declaration], path: list[Declaration]
) -> None:
    if declaration in ordered:
        return
    if declaration in path:
        cycle = [*path[path.index(declaration) :], declaration]
        shown = " reads ".join(_shown(each.target) for each in cycle)
        raise declaration.wrong(f"tables cannot be made of each other: {shown}")
    for source in _sources(declaration):
        if (above := made_by.get(source)) is not None:
            _visit(above, made_by, ordered, [*path, declaration])
    ordered.append(declaration)


def _sources(declaration: Declaration) -> tuple[str, ...]:
    try:
        return read_query(declaration.query).sources
    except Invalid as error:
        raise declaration.wrong(str(error)) from error


def _reached(name: str, edges: Mapping[str, frozenset[str]]) -> set[str]:
    found: set[str] = set()
    pending = [name]
    while pending:
        for each in edges[pending.pop()] - found:
            found.add(each)
            pending.append(each)
    return found


def _shown(name: str) -> str:
    return name.replace("/", ".")
