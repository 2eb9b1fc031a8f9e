"""The order in which the tables of a pipeline are made: each after the tables that its query reads. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

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
    above = {each.target: [made_by[name].target for name in _sources(each) if name in made_by] for each in declarations}
    declared = {each.target: each for each in declarations}
    return [declared[name] for name in _visited(above, declared)]


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
    below: dict[str, set[str]] = {name: set() for name in names}
    for one, sources in above.items():
        for name in sources:
            below[name].add(one)
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


def _visited(above: Mapping[str, Sequence[str]], declared: Mapping[str, Declaration]) -> Iterable[str]:
    """Give names, each after those above it, in linear time. Chains may be long, so it does not recurse."""
    begun, done = dict[str, None](), set[str]()
    pending = list(above)[::-1]
    while pending:
        name = pending[-1]
        if name in begun:
            pending.pop()
            if name not in done:
                done.add(name)
                yield name
            continue
        begun[name] = None
        for one in reversed(above[name]):
            if one in begun and one not in done:
                path = [each for each in begun if each not in done]
                cycle = [*path[path.index(one) :], one]
                shown = " reads ".join(map(_shown, cycle))
                raise declared[one].wrong(f"tables cannot be made of each other: {shown}")
            pending.append(one)


def _sources(declaration: Declaration) -> tuple[str, ...]:
    try:
        return read_query(declaration.query).sources
    except Invalid as error:
        raise declaration.wrong(str(error)) from error


def _reached(name: str, edges: Mapping[str, AbstractSet[str]]) -> set[str]:
    found: set[str] = set()
    pending = [name]
    while pending:
        for each in edges[pending.pop()] - found:
            found.add(each)
            pending.append(each)
    return found


def _shown(name: str) -> str:
    return name.replace("/", ".")
