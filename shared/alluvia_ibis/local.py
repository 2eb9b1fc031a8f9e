"""A lake in this process."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import pyarrow as pa

from alluvia.api.lake import Lake
from alluvia.engine.duck.literals import quote_table
from alluvia.errors import Invalid, TableNotFound
from alluvia.query.engine import Result, columns, run
from alluvia.version import __version__
from alluvia_ibis.access import LakeAccess, Rows


class OpenLake(LakeAccess):
    """A lake that `alluvia.connect` has opened."""

    in_transactions = True

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    @property
    def version(self) -> str:
        return __version__

    def tables(self) -> Sequence[str]:
        return self._lake.tables()

    def schema_of(self, table: str) -> pa.Schema:
        try:
            return self._lake.table(table).schema
        except (TableNotFound, Invalid):  # a view, what is made of tables, such as <table>_final, or in capitals
            return self.columns(f"SELECT * FROM {quote_table(table)}")  # noqa: S608

    def columns(self, query: str) -> pa.Schema:
        return columns(self._lake.catalog, query)

    def read(self, query: str) -> tuple[pa.Schema, Generator[pa.RecordBatch]]:
        result = run(self._lake.catalog, query)
        return result.schema, _batches(result)

    def execute(self, text: str) -> pa.Table:
        return self._lake.sql(text)

    def create(self, name: str, schema: pa.Schema, rows: Rows | None, *, replace: bool) -> None:
        with self._lake.transaction() as tx:
            table = tx.create_table(name, schema, replace=replace)
            if rows is not None:
                table.append(rows)

    def append(self, name: str, rows: Rows, *, replace: bool = False) -> None:
        if not replace:
            self._lake.table(name).append(rows)
            return
        with self._lake.transaction([name]) as tx:
            table = tx.table(name)
            table.delete("true")
            table.append(rows)

    def close(self) -> None:
        """Do nothing: a lake has no connection of its own."""


def _batches(result: Result) -> Generator[pa.RecordBatch]:
    with result:
        yield from result
