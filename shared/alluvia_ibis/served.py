"""A lake behind a server, by the library's client."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress

import pyarrow as pa

from alluvia.api.served_lake import ServedLake
from alluvia.client.uploading import upload
from alluvia.engine.duck.literals import quote_name, quote_table
from alluvia.errors import Unsupported
from alluvia.sql.showing import sql_type
from alluvia.table_names import sql_name
from alluvia_ibis.access import LakeAccess, Rows


class ServedAccess(LakeAccess):
    """A lake that a server answers for, with the rights of a token."""

    def __init__(self, lake: ServedLake) -> None:
        self._lake = lake

    @property
    def version(self) -> str:
        return self._lake.server_version

    def tables(self) -> Sequence[str]:
        return self._lake.tables()

    def schema_of(self, table: str) -> pa.Schema:
        return self.columns(f"SELECT * FROM {quote_table(table)}")  # noqa: S608

    def columns(self, query: str) -> pa.Schema:
        return self._lake.columns(query)

    def read(self, query: str) -> tuple[pa.Schema, Generator[pa.RecordBatch]]:
        return self._lake.read(query)

    def execute(self, text: str) -> pa.Table:
        return self._lake.sql(text)

    def create(self, name: str, schema: pa.Schema, rows: Rows | None, *, replace: bool) -> None:
        columns = [
            f"{quote_name(field.name)} {sql_type(field.type)}{'' if field.nullable else ' NOT NULL'}"
            for field in schema
        ]
        replacing = "OR REPLACE " if replace else ""
        self.execute(f"CREATE {replacing}TABLE {quote_table(name)} ({', '.join(columns)})")
        if rows is not None:
            try:
                self.append(name, rows)
            except BaseException:
                with suppress(Exception):  # what went wrong first is what to tell
                    self.execute(f"DROP TABLE {quote_table(name)}")
                raise

    def append(self, name: str, rows: Rows, *, replace: bool = False) -> None:
        if replace:
            raise Unsupported("a server stores rows of this process outside transactions: insert an expression instead")
        upload(self._lake.server, sql_name(name), rows)

    def close(self) -> None:
        self._lake.close()
