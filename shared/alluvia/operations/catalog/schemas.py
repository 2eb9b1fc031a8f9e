"""Schemas of a lake, which group tables and views: `bronze.events` is the table `events` in the schema `bronze`.

Nothing is stored in a schema: the folder of a table has the whole name. So `_alluvia/schemas/<name>/<number>.json` only
says that a schema was created, or dropped; the highest number counts, as for views. A schema without such an object
exists as long as the log of a table or a view in it does: another writer may have made it.
"""

from __future__ import annotations

from collections.abc import Iterable

from alluvia.clock import Clock
from alluvia.delta.log.paths import LOG_FOLDER, parse_name
from alluvia.delta.refs import BRANCH, find_keeper
from alluvia.errors import Conflict, Corrupt, Invalid, TableExists, TableNotFound
from alluvia.operations.catalog.catalog import Catalog
from alluvia.operations.catalog.versioned_objects import Numbered, newest_numbered, write_numbered
from alluvia.operations.catalog.views import VIEWS, check_no_view, find_view
from alluvia.store import Store, Wrapper
from alluvia.table_names import NO_SCHEMAS, REJECTS, SCHEMA, SCHEMA_NAME, SCHEMA_RULE, TABLE_NAME, schema_of

SCHEMAS = "_alluvia/schemas/"


def has_schema(store: Store, name: str) -> bool:
    """Whether a schema exists: one LIST and one GET for one that was ever created here, else three LISTs.

    Two more for one that another writer has made, and one for each folder that only has the name of a table in it.
    """
    if name == SCHEMA:
        return True
    stored = newest_numbered(store, f"{SCHEMAS}{name}/")
    return _is_implied(store, name) if stored is None else not _is_dropped(stored)


def _was_created(store: Store, name: str) -> bool:
    """Whether a schema was created and not dropped. One LIST, and one GET where it was."""
    stored = newest_numbered(store, f"{SCHEMAS}{name}/")
    return stored is not None and not _is_dropped(stored)


def list_schemas(store: Store, tables: Iterable[str]) -> list[str]:
    """Return the names of all schemas, `main` first; `tables` are those of the lake.

    Two LISTs, and one more with a GET for each view and each schema without a table.
    """
    names = {SCHEMA, *map(schema_of, tables)}
    created = [name for name in store.list_folders(SCHEMAS) if SCHEMA_NAME.fullmatch(name)]
    names |= {name for name in created if name not in names and _was_created(store, name)}
    for view in store.list_folders(VIEWS):
        if schema_of(view) not in names and find_view(store, view) is not None:
            names.add(schema_of(view))
    return [SCHEMA, *sorted(names - {SCHEMA})]


def visible_schemas(catalog: Catalog) -> list[str]:
    """Return the names of the schemas in which a catalog's caller may do something. Costs what `list_schemas` does."""
    names, rights = list_schemas(catalog.store, catalog.tables()), catalog.rights
    return names if rights is None else [name for name in names if rights.reaches(name)]


def check_schema(store: Store, table: str) -> None:
    """Raise `TableNotFound` for the name of a table or view in a missing schema. No request for `main`."""
    schema = schema_of(table)
    if not table.endswith(f"/{REJECTS}") and not has_schema(store, schema):
        raise no_schema(schema, table)


def check_may_be_created(store: Store, table: str) -> None:
    """Raise `TableNotFound` for a table in a missing schema, and `TableExists` for the name of a view."""
    check_schema(store, table)
    check_no_view(store, table)


def create_schema(store: Store, clock: Clock, name: str, *, exist_ok: bool = False) -> bool:
    """Create a schema. Returns whether this call did; False only with `exist_ok`.

    Raises `Invalid` for a name that no schema can have, also for that of a branch, and `TableExists`.
    """
    if name != SCHEMA:
        check_schema_name(name)
    if not has_schema(store, name):
        _check_no_branch(store, name)
        try:
            _write(store, clock, name, dropped=False)
        except Conflict:
            if not has_schema(store, name):  # dropped meanwhile, and not created
                raise
        else:
            return True
    if exist_ok:
        return False
    raise TableExists(f"schema {name!r} already exists: choose another name, or write IF NOT EXISTS")


def missing_schemas(store: Store, tables: Iterable[str]) -> list[str]:
    """Return the names of the schemas that tables need and a lake lacks. Raises `Invalid` for that of a branch."""
    missing = [name for name in sorted({*map(schema_of, tables)}) if not has_schema(store, name)]
    for name in missing:
        _check_no_branch(store, name)
    return missing


def note_dropped(store: Store, clock: Clock, name: str) -> None:
    """Drop a schema; tables and views in it stay as they are."""
    _write(store, clock, name, dropped=True)


def check_schema_name(name: object) -> None:
    """Raise `Invalid` for a name that no new schema can have."""
    if not isinstance(name, str) or not SCHEMA_NAME.fullmatch(name):
        raise Invalid(f"schema name {name!r:.100}: use {SCHEMA_RULE}, but not {', '.join(NO_SCHEMAS)}")


def no_schema(name: str, table: str = "") -> TableNotFound:
    """Return the error for a missing schema, which a table would be in."""
    place = f"{table}: " if table else ""
    hint = f": create it with CREATE SCHEMA {name}" if SCHEMA_NAME.fullmatch(name) else ""
    return TableNotFound(f"{place}there is no schema {name!r:.100}{hint} (SHOW SCHEMAS lists the existing ones)")


def _write(store: Store, clock: Clock, name: str, *, dropped: bool) -> None:
    before = newest_numbered(store, f"{SCHEMAS}{name}/")
    number = 0 if before is None else before.number + 1
    body = {"dropped": dropped, "atMs": clock.now_ms()}
    write_numbered(store, clock, f"{SCHEMAS}{name}/", number, body, what=f"schema {name}")


def _check_no_branch(store: Store, name: str) -> None:
    if find_keeper(_lake_of(store), None, BRANCH, name) is not None:
        raise Invalid(
            f"there is a branch {name!r}, so {name}.t would have two meanings: choose another name for the schema"
        )


def _is_implied(store: Store, name: str) -> bool:
    """Whether a table, also a dropped one, or a view makes a schema. Other folders do not count."""
    starts = (f"{name}.", f"{VIEWS}{name}.")
    if _lake_of(store) is store and not any(store.map(lambda start: next(store.list(start), None), starts)):
        return False  # for a lake of any size

    def has_log(folder: str) -> bool:
        log = f"{folder}/{LOG_FOLDER}"
        return any(parse_name(info.key.removeprefix(log)) is not None for info in store.list(log))

    def within(folder: str) -> list[str]:
        names = store.list_folders(folder)
        return [each for each in names if TABLE_NAME.fullmatch(each) and schema_of(each) == name]

    return any(map(has_log, within(""))) or any(find_view(store, each) is not None for each in within(VIEWS))


def _is_dropped(stored: Numbered) -> bool:
    dropped = stored.body.get("dropped")
    if not isinstance(dropped, bool):
        raise Corrupt(f"{stored.key} is not a schema of this library")
    return dropped


def _lake_of(store: Store) -> Store:
    while isinstance(store, Wrapper) and store.is_branch:
        store = store.inner
    return store
