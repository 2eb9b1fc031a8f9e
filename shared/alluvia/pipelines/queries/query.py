"""The query of a pipeline's table, parsed: which tables it reads, and which of their columns. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.engine.queries.named_columns import named_columns
from alluvia.engine.queries.parse import Node, Statement, parse_stored
from alluvia.engine.queries.references import At, Reference, References, find_references
from alluvia.engine.queries.rewrite import rewrite
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass

EXAMPLE = "SELECT day, count(*) AS hits FROM events GROUP BY day"


@dataclass(frozen=True, slots=True)
class PipelineQuery:
    """A query over tables of the lake, as they are when it runs."""

    statement: Statement
    references: References

    @property
    def root(self) -> Node:
        """Return the query's tree."""
        return self.statement.root

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the names of the tables that it reads, each once, in the order of the text."""
        return tuple(dict.fromkeys(map(source_name, self.references.tables)))

    def over(self, views: Mapping[str, str]) -> str:
        """Return the query's text with a view in the place of each table, by the table's name."""
        return rewrite(self.statement, {one: views[source_name(one)] for one in self.references.tables}).text

    def columns_named(self, schemas: Mapping[str, pa.Schema]) -> dict[str, tuple[str, ...] | None]:
        """Return for each table the columns that the query names, or may; None where it means all that there are.

        The first one of a table of which it names none.
        """
        named = named_columns(self.root, {one: schemas[source_name(one)] for one in self.references.tables})
        if named is None:
            return dict.fromkeys(schemas)
        return {
            table: tuple(name for name in schema.names if fold(name) in named) or tuple(schema.names[:1])
            for table, schema in schemas.items()
        }


def source_name(reference: Reference) -> str:
    """Return the lake's name of a table that a query of a pipeline names."""
    return reference.table or reference.shown


@lru_cache(maxsize=256)
def read_query(text: str) -> PipelineQuery:
    """Parse a query. Raises `Invalid`, with the reason, for one whose rows do not follow from tables as they are."""
    statement = parse_stored(text, EXAMPLE)
    references = find_references(statement.root)
    for one in references.tables:
        if one.table is None or one.is_function or one.call is not None:
            raise Invalid(f"{one.shown} is not a table: a pipeline's query reads tables of the lake")
        if ":" in one.table:
            raise Invalid(f"{one.shown} is on a branch: name the table alone, and run the pipeline on that branch")
        if one.at != At():
            raise Invalid(f"{one.shown} has a version: a run reads the newest one, so leave the version out")
    if not references.tables:
        raise Invalid(f"the query reads no table: name one in FROM, as in {EXAMPLE}")
    return PipelineQuery(statement, references)
