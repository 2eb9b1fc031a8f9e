"""The public API: the schemas of a lake, which group its tables and views."""

from __future__ import annotations

from abc import abstractmethod

from alluvia.api.lake_catalog import OfCatalog
from alluvia.commit.transaction import Commit
from alluvia.errors import Invalid
from alluvia.table_names import REJECTS, SCHEMA, schema_of


class LakeSchemas(OfCatalog):
    """`create_schema`, `drop_schema` and `schemas` of a lake."""

    @abstractmethod
    def drop_table(self, name: str) -> Commit:
        """Drop a table."""

    def schemas(self) -> list[str]:
        """Return the names of the schemas: `main`, and then the others in order. At most three LISTs for most lakes."""
        from alluvia.operations.catalog import schemas

        return schemas.list_schemas(self.catalog.store, self.catalog.tables())

    def create_schema(self, name: str, *, exist_ok: bool = False) -> None:
        """Create a schema, for tables and views such as `bronze.events`.

        Raises `TableExists` unless `exist_ok`, and `Invalid` for a name that no schema can have, or that a branch has.
        """
        from alluvia.operations.catalog import schemas

        schemas.create_schema(self.catalog.store, self.catalog.clock, name, exist_ok=exist_ok)

    def drop_schema(self, name: str, *, cascade: bool = False) -> list[str]:
        """Drop a schema, and return the tables and views that were dropped with it.

        They are dropped one after another, and only with `cascade`; without it, a schema that holds any is refused
        with `Invalid`. `undrop` brings tables back once the schema is created again. A rollup outside of the schema
        over one of its tables is refused with `Invalid`, before anything is dropped. Raises `TableNotFound`.
        """
        from alluvia.operations.catalog import schemas, views
        from alluvia.rollups.creating import rollups_of

        store, clock = self.catalog.store, self.catalog.clock
        if name == SCHEMA:
            raise Invalid(f"schema {SCHEMA} cannot be dropped: it is where tables without a schema are")
        schemas.check_schema_name(name)
        held_views = views.list_views(store, lambda each: schema_of(each) == name)
        tables = [each for each in self.catalog.tables() if schema_of(each) == name]
        held = [*tables, *(view.name for view in held_views)]
        if not held and not schemas.has_schema(store, name):
            raise schemas.no_schema(name)
        if held and not cascade:
            shown = ", ".join(held[:10]) + (", …" if len(held) > 10 else "")
            raise Invalid(f"schema {name} is not empty ({shown}): drop what is in it, or DROP SCHEMA {name} CASCADE")
        rollups = rollups_of(self.catalog)  # each after its source
        sources = [source for table in tables for source in (table, f"{table}/{REJECTS}")]
        outside = [each for source in sources for each in rollups_of(self.catalog, source) if schema_of(each) != name]
        if outside:
            raise Invalid(f"tables of schema {name} are sources of {', '.join(outside)}: drop these rollups first")
        schemas.note_dropped(store, clock, name)  # so that no other writer creates tables in it meanwhile
        for view in held_views:
            views.write_view(store, clock, view.name, "", known=view)
        own = [each for each in reversed(rollups) if each in tables]
        for table in [*own, *(each for each in tables if each not in own)]:
            self.drop_table(table)
        return held
