"""SQL that a lake keeps and that names a column of a table: views, rollups, merge queries, published queries, tokens.

Before a commit that adds, renames or drops columns, `check_change` looks for those that would not survive it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from alluvia.access.registry import issued
from alluvia.access.rights import Rights
from alluvia.commit.handle import TableHandle
from alluvia.delta.arguments import schema_of
from alluvia.delta.promoted_fields import PROPERTIES
from alluvia.delta.properties import MERGE_QUERY
from alluvia.delta.schema.names import fold
from alluvia.delta.schema.nesting import not_readable
from alluvia.delta.schema.serialization import schema_fields
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.condition import condition
from alluvia.engine.queries.changed_names import changed_names
from alluvia.engine.queries.parse import Node, analyse, parse, walk
from alluvia.engine.queries.references import Reference, find_references
from alluvia.errors import AlluviaError, ColumnUsed, Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog, WritableCatalog
from alluvia.operations.catalog.views import list_views
from alluvia.operations.merge_query.folding import FINAL
from alluvia.operations.tables.evolve import plan_evolve
from alluvia.query.engine import columns
from alluvia.query.limits import QueryLimits
from alluvia.query.parameters import sample_of
from alluvia.query.permitted import NotedCatalog, permitted
from alluvia.query.published import PLANNING_SECONDS, list_published
from alluvia.query.resolving import newest_snapshots, resolve
from alluvia.query.views import expand
from alluvia.rollups.creating import rollups_of
from alluvia.rollups.definition import definition_of

_COMBINES = re.compile(r"\b(?:union|intersect|except|natural)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Text:
    """A SELECT that the lake keeps: its name, such as `view v`, samples of its parameters, and its publisher."""

    name: str
    query: str
    samples: Mapping[str, Any] | None = None
    definer: Rights | None = None


def stored_texts(catalog: WritableCatalog, table: str) -> list[_Text]:
    """Return the stored SQL that reads a table, also through views, except its merge query.

    A LIST of the views, the published queries and the rollups, and for each of them a LIST and a GET.
    """
    views, names = list_views(catalog.store), {table}
    grew = True
    while grew:
        of_table = _words(names, "(?:_live|_final)?")
        more = {view.name for view in views if of_table.search(view.query)} - names
        names |= more
        grew = bool(more)
    texts = [_Text(f"view {view.name}", view.query) for view in views if view.name in names]
    texts += [
        _Text(f"rollup {name}", definition_of(catalog.handle(name).newest()).query)
        for name in rollups_of(catalog, table)
    ]
    for each in list_published(catalog.store)[0]:
        if names.intersection(each.tables):
            samples = {one.name: sample_of(one) for one in each.parameters}
            texts.append(_Text(f"published query {each.name}", each.query, samples or None, each.definer))
    return texts


def check_change(
    catalog: WritableCatalog,
    handle: TableHandle,
    add: pa.Schema | Mapping[str, str] | None,
    properties: Mapping[str, str | None] | None,
    rename: Mapping[str, str] | None,
    drop: Sequence[str],
) -> None:
    """Raise `ColumnUsed` where SQL of the lake would not survive a change of columns, and what the change raises."""
    before = handle.newest()
    if not_readable(schema_fields(before.state.metadata.schema_string)) is not None:
        return  # no query reads the table before its unreadable columns are dropped
    new, seed = schema_of(add) if add else None, handle.clock.new_id()
    metadata = plan_evolve(before.state.metadata, new, properties, seed=seed, rename=rename, drop=drop)
    after = Snapshot(replace(before.state, metadata=metadata), before.root, before.name, handle.store)
    after.origin = before.origin
    check_uses(catalog, stored_texts(catalog, handle.name), before, after)


def field_uses(catalog: WritableCatalog, table: str, fields: Collection[str]) -> list[str]:
    """Return what reads a table and names one of some fields as a word, also where it means something else."""
    field = _words(fields)
    texts = stored_texts(catalog, table)
    if query := catalog.handle(table).newest().properties.get(MERGE_QUERY):
        texts.append(_Text(f"merge query of {table}", query))
    return [each.name for each in texts if field.search(each.query)]


def check_uses(catalog: WritableCatalog, texts: Iterable[_Text], before: Snapshot, after: Snapshot) -> None:
    """Raise `ColumnUsed` where a text, or a row filter of a token, would fail with other columns, or mean others.

    Texts that name no such column are not looked at. Each other one is planned, which takes about a tenth of a second.
    """
    was, now = ({fold(name): name for name in each.schema.names} for each in (before, after))
    come, gone = [now[name] for name in now if name not in was], [was[name] for name in was if name not in now]
    if not come and not gone:
        return
    left = {each.key for each in after.promoted}
    keys = {each.key for each in before.promoted} - left
    named = _words({*come, *gone, *keys})
    uses = []
    for text in texts:
        if named.search(text.query) or _COMBINES.search(text.query):
            reason = _reason(catalog, text, before, after, keys, only_added=not gone)
            uses += [(text.name, reason)] if reason and not _fault(catalog, text) else []
    if gone:
        uses += _token_uses(catalog, before, after, keys)
    if uses:
        verb = "adding" if not gone else "renaming or dropping" if come else "dropping"
        change = f"{verb} {', '.join(gone or come)}"
        raise ColumnUsed(change, uses)


def _reason(
    catalog: WritableCatalog, text: _Text, before: Snapshot, after: Snapshot, keys: set[str], *, only_added: bool
) -> str:
    """Return why a text does not mean the same with other columns of a table; empty if it does."""
    if text.name.startswith("rollup ") and only_added:  # which sees only the columns of its source that it names
        return ""
    names, reads = _changes(catalog, text, before, after, keys)
    if names:
        listed = ", ".join(sorted(names))
        return (
            f"{listed} means an alias or another table's column there, and would mean the new column"
            if only_added
            else f"{listed} would mean another column"
        )
    if reads:
        return f"it reads {', '.join(sorted(reads))} in {PROPERTIES}, which would lose the values"
    return _fault(_Changed(catalog, after), text)


def _changes(
    catalog: WritableCatalog, text: _Text, before: Snapshot, after: Snapshot, keys: set[str]
) -> tuple[set[str], set[str]]:
    """Return the names in a text that would mean something else, and the keys that it reads in `properties`."""
    with suppress(Invalid):  # of a text that is wrong already
        given = text.samples is not None
        statement = parse(text.query)
        references = find_references(statement.root, parameters=given)
        references, newest = resolve(catalog, references)
        expanded = expand(catalog, statement, references, newest, analyse, parameters=given)
        root, references = expanded.statement.root, expanded.references
        newest = newest_snapshots(catalog, references)
        was = {one: snapshot.schema for one in references.tables if (snapshot := _named(one, newest)) is not None}
        now = {one: after.schema if _is_of(one, before.name) else schema for one, schema in was.items()}
        return changed_names(root, references, was, now), _keys_read(root, keys)
    return set(), set()


def _named(reference: Reference, newest: Mapping[str, Snapshot]) -> Snapshot | None:
    name = reference.table or ""
    return newest.get(name) or newest.get(name.removesuffix(FINAL))


def _is_of(reference: Reference, table: str) -> bool:
    return (reference.table or "").removesuffix(FINAL) == table


def _keys_read(root: Node, keys: set[str]) -> set[str]:
    """Return the keys that calls and operators of a query have as a text or as part of a path."""
    texts = [
        str(child["value"]["value"])
        for node in walk(root)
        if node.get("class") == "FUNCTION"
        for child in node["children"]
        if child.get("class") == "CONSTANT" and isinstance(child["value"].get("value"), str)
    ]
    return {key for key in keys if any(_words([key]).search(text) for text in texts)}


def _fault(catalog: Catalog, text: _Text) -> str:
    """Return why a text cannot be planned; empty if it can."""
    try:
        columns(
            permitted(catalog, text.definer), text.query, QueryLimits(timeout_seconds=PLANNING_SECONDS), text.samples
        )
    except AlluviaError as error:
        return str(error).strip().partition("\n")[0]
    return ""


def _token_uses(
    catalog: WritableCatalog, before: Snapshot, after: Snapshot, keys: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield the tokens in force whose row filters would fail, or read other values. Two LISTs, and a GET for each."""
    now_s = catalog.clock.now_ms() // 1000
    for token in issued(catalog.store, catalog.clock):
        if token.revoked or token.claims.expires_s < now_s:
            continue
        name = f"token {token.claims.name or token.claims.id}"
        for grant in token.claims.rights.grants:
            if grant.where is None or not grant.covers(before.name):
                continue
            if keys and _words(keys).search(grant.where):
                yield name, f"its row filter reads {', '.join(sorted(keys))}"
            elif _fits(grant.where, before) and not _fits(grant.where, after):
                yield name, "its row filter reads the column"


def _fits(where: str, snapshot: Snapshot) -> bool:
    try:
        condition(where, snapshot.schema)
    except Invalid:
        return False
    return True


class _Changed(NotedCatalog):
    """A catalog in which one table has other columns."""

    def __init__(self, catalog: Catalog, table: Snapshot) -> None:
        super().__init__(catalog)
        self._table = table

    def readable(self, names: Iterable[str]) -> dict[str, Snapshot]:
        there = super().readable(names)
        return {name: self._table if name == self._table.name else one for name, one in there.items()}


def _words(names: Collection[str], end: str = "") -> re.Pattern[str]:
    return re.compile("|".join(rf"(?<!\w){re.escape(name)}{end}(?!\w)" for name in names), re.IGNORECASE)
