"""The tables that a caller may see, and the columns, versions and sizes of one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from alluvia.access.rights import READ, table_pattern
from alluvia.clock import datetime_of
from alluvia.commit.versions import oldest_version
from alluvia.delta.odd_times import KINDS, odd_times_in
from alluvia.delta.schema.types import type_name
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import TableNotFound
from alluvia.nearest_name import hint
from alluvia.operations.catalog.catalog import Catalog, shows_comments
from alluvia.operations.catalog.views import IsView, list_views
from alluvia.query.permitted import permitted, visible
from alluvia.serverless.http import Response
from alluvia.table_names import REJECTS

from .answering import Caller, facts

_ODD_TIMES = tuple(f"{kind}_times" for kind in KINDS)
_LAYOUT = ("partition_by", "sort_by", "cluster_by")
_OF_ALL_ROWS = ("comment", *_LAYOUT, "files", "bytes", "rows", "rejects", *_ODD_TIMES)
"""Facts that depend on rows which may be hidden from a caller, and a comment, which may mention them."""


def list_tables(caller: Caller) -> Response:
    """Answer the names of the tables and of the views that the caller may read."""
    rights = caller.rights
    views = list_views(caller.lake.store, lambda name: rights is None or rights.may(READ, name))
    tables = permitted(caller.lake.catalog, rights).tables()
    return facts({"tables": [{"name": each} for each in tables], "views": [{"name": each.name} for each in views]})


def show_table(caller: Caller, name: str) -> Response:
    """Describe a table.

    Where rows or columns are hidden from the caller, nothing is told that depends on them: sizes are null.
    """
    catalog = permitted(caller.lake.catalog, caller.rights)
    handle = catalog.handle(table_pattern(name))
    try:
        snapshot = handle.readable()
    except TableNotFound as error:
        if catalog.find_view(name) is not None:
            raise IsView(name) from error
        near = hint(name, catalog.tables())  # those that the caller may see
        raise type(error)(f"{error}{near}") from error
    seen = visible(catalog, snapshot, caller.lake.clock.now_ms() * 1000)
    shown = snapshot.schema.names if seen is None else seen.shown.columns
    comments = snapshot.column_comments if shows_comments(catalog, snapshot.name) else {}
    known: dict[str, Any] = {
        "name": name,
        "version": snapshot.version,
        "versions": {"oldest": oldest_version(handle), "newest": snapshot.version},
        "committed": datetime_of(snapshot.timestamp_ms).isoformat(),
        "columns": [
            {"name": each.name, "type": type_name(each.type), "nullable": each.nullable}
            | ({"comment": comments[each.name]} if each.name in comments else {})
            for each in map(snapshot.schema.field, shown)
        ],
    }
    hidden = dict.fromkeys(_OF_ALL_ROWS)
    return facts(known | (hidden if seen is not None else _sizes(snapshot, catalog)))


def _sizes(snapshot: Snapshot, catalog: Catalog) -> dict[str, Any]:
    from alluvia.operations.reading.scan import count  # queries do without

    files, size = snapshot.totals
    return {
        "comment": snapshot.comment,
        "partition_by": [str(each) for each in snapshot.partition_spec.fields],
        "sort_by": list(snapshot.settings.sort_by),
        "cluster_by": list(snapshot.settings.cluster_by),
        "files": files,
        "bytes": size,
        "rows": count(snapshot, catalog.store),
        "rejects": _rejects(snapshot.name, catalog),
        **{f"{kind}_times": number for kind, number in odd_times_in(snapshot.files).items()},
    }


def _rejects(table: str, catalog: Catalog) -> int | None:
    """Return how many events of a table were rejected; None if the caller may not see all of them."""
    from alluvia.operations.reading.scan import count

    rejects, rights = f"{table}/{REJECTS}", catalog.rights
    if rights is not None and (not rights.may(READ, rejects) or rights.restriction(rejects)):
        return None
    if not table.endswith(f"/{REJECTS}"):
        with suppress(TableNotFound):
            return count(catalog.handle(rejects).readable(), catalog.store)
    return 0
