"""The lake's names of the tables that ibis names: a schema is a `database` to ibis. Pure."""

from __future__ import annotations

from typing import Any

from alluvia.errors import Invalid
from alluvia.table_names import DATABASE, NAME_RULE, REJECTS, in_schema


def lake_name(name: str, database: Any = None) -> str:
    """Return the lake's name of a table or view: `bronze.events` for `events` in the database `bronze`.

    `database` is a schema, also as `memory.bronze` or `("memory", "bronze")`; none is `main`. That of `_rejects` is a
    table, `events` or `bronze.events`. Raises `Invalid` for a catalog, and for a name that holds its schema.
    """
    parts = parts_of(database)
    if any("/" in part for part in (name, *parts)):
        raise Invalid(f"name {name!r:.200}: use {NAME_RULE}")
    if name == REJECTS and parts:
        return f"{'.'.join(parts)}/{REJECTS}"
    if "." in name:
        schema, _, table = name.rpartition(".")
        raise Invalid(f"name {name!r:.200}: give {table!r:.100} alone, and database={schema!r:.100}")
    return in_schema(schema_called(database), name)


def schema_called(database: Any) -> str:
    """Return the schema that ibis names as a database; empty for none. Raises `Invalid` for another catalog."""
    parts = parts_of(database)
    if len(parts) > 1:
        raise Invalid(f"database: the one catalog is {DATABASE}, but got {'.'.join(parts):.200}: name a schema alone")
    return "".join(parts)


def check_catalog(catalog: str | None) -> None:
    """Raise `Invalid` for a catalog that a lake does not have."""
    if catalog not in (None, DATABASE):
        raise Invalid(f"catalog: a lake has {DATABASE} alone, but got {catalog!r:.100}: leave it out")


def parts_of(database: Any) -> list[str]:
    """Return the parts of a database's name, without the one catalog in front."""
    given = database.split(".") if isinstance(database, str) else [] if database is None else list(database)
    parts = [str(part) for part in given if part is not None]
    return parts[1:] if parts[:1] == [DATABASE] else parts
