"""Views of a lake: named SELECTs, one small object for each version of each.

`_alluvia/views/<name>/<number>.json` in the lake's folder is written once, with put-if-absent; the one with the highest
number counts. A view that was dropped is a version without a query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType, TracebackType

from alluvia.clock import Clock
from alluvia.delta.log.fields import optional_text, text_map
from alluvia.errors import Corrupt, Invalid, TableExists, TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.versioned_objects import newest_numbered, write_numbered
from alluvia.store import Store
from alluvia.table_names import TABLE_NAME, TABLE_RULE

VIEWS = "_alluvia/views/"
RESERVED = ("_live", "_final", "_freshness")
"""So end the names that queries use for what they make of tables."""


@dataclass(frozen=True, slots=True)
class View:
    """A version of a view. `query` is a SELECT, empty if the view was dropped. `column_comments` are by name."""

    name: str
    version: int
    query: str
    created_ms: int
    comment: str | None = None
    column_comments: Mapping[str, str] = field(default_factory=dict)


def may_be_view(name: str) -> bool:
    """Whether a name can be a view's."""
    return bool(TABLE_NAME.fullmatch(name)) and not name.endswith(RESERVED)


def find_view(store: Store, name: str) -> View | None:
    """Return a view; None if there is none of that name. One LIST, and one GET where there is or was one."""
    view = _newest(store, name) if may_be_view(name) else None
    return view if view is not None and view.query else None


def check_no_view(store: Store, name: str) -> None:
    """Raise `TableExists` for the name of a view, which no table may take: queries would read the table. One LIST."""
    if find_view(store, name) is not None:
        raise TableExists(f"there is a view {name}: DROP VIEW {name} first, or choose another name")


def list_views(store: Store, may: Callable[[str], bool] = lambda _: True) -> list[View]:
    """Return the views whose names `may` allows, ordered by name. One LIST, and one LIST and one GET for each."""
    views = [find_view(store, name) for name in store.list_folders(VIEWS) if may(name)]
    return [view for view in views if view is not None]


class IsView(TableNotFound):
    """A table is needed where the name is that of a view."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no table {name!r}, but a view: DESCRIBE {name} shows it, DROP VIEW {name} drops it")


class NamingViews:
    """Has the error for a table that does not exist say that there is a view of its name. One LIST, after errors."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is TableNotFound and find_view(self._store, self._name) is not None:
            raise IsView(self._name) from error


def write_view(
    store: Store,
    clock: Clock,
    name: str,
    query: str,
    *,
    known: View | None,
    comment: str | None = None,
    column_comments: Mapping[str, str] = MappingProxyType({}),
) -> View:
    """Write the version of a view that comes after the one that is known; without a `query` it drops the view.

    Raises `Conflict` where another writer has changed the view since.
    """
    if not may_be_view(name):
        raise Invalid(f"view name {name!r:.100}: use {TABLE_RULE}. The name cannot end with {', '.join(RESERVED)}")
    before = known or _newest(store, name)  # a dropped view's numbers go on
    version = 0 if before is None else before.version + 1
    view = View(name, version, query, clock.now_ms(), comment, column_comments)
    body: dict[str, object] = {"query": query, "createdMs": view.created_ms}
    if comment is not None:
        body["comment"] = comment
    if column_comments:
        body["columnComments"] = dict(column_comments)
    write_numbered(store, clock, f"{VIEWS}{name}/", version, body, what=f"view {name}")
    return view


def _newest(store: Store, name: str) -> View | None:
    stored = newest_numbered(store, f"{VIEWS}{name}/")
    if stored is None:
        return None
    body = dict(stored.body)
    try:
        comment, comments = optional_text(body, "comment"), text_map(body, "columnComments")
        return View(name, stored.number, str(body["query"]), int(body["createdMs"]), comment, comments)
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{stored.key} is not a view of this library") from error
