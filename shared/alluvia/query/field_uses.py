"""Views, rollups, merge queries and published queries of a lake whose SQL names a field of a table."""

from __future__ import annotations

import re
from collections.abc import Collection

from alluvia.delta.properties import MERGE_QUERY
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.catalog.views import list_views
from alluvia.query.published import list_published
from alluvia.rollups.creating import rollups_of
from alluvia.rollups.definition import definition_of


def field_uses(catalog: WritableCatalog, table: str, fields: Collection[str]) -> list[str]:
    """Return what reads a table and names one of some of its fields, such as `rollup visits` or `view v`.

    A LIST of the views, the published queries and the rollups, and for each of them a LIST and a GET. A name is found
    wherever it stands in the text as a word, also where it means something else.
    """
    field = _words(fields)
    of_table = re.compile(rf"\b(?:{_words([table]).pattern}(?:_live|_final)?)\b", re.IGNORECASE)
    uses = [
        f"view {view.name}"
        for view in list_views(catalog.store)
        if field.search(view.query) and of_table.search(view.query)
    ]
    uses += [
        f"rollup {name}"
        for name in rollups_of(catalog, table)
        if field.search(definition_of(catalog.handle(name).newest()).query)
    ]
    if field.search(catalog.handle(table).newest().properties.get(MERGE_QUERY, "")):
        uses.append(f"merge query of {table}")
    published, _ = list_published(catalog.store)
    uses += [f"published query {each.name}" for each in published if table in each.tables and field.search(each.query)]
    return uses


def _words(names: Collection[str]) -> re.Pattern[str]:
    return re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in names), re.IGNORECASE)
