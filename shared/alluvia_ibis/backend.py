"""The backend: what ibis calls, in terms of a lake."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import ParseResult

import ibis
import ibis.common.exceptions as exc
import ibis.expr.operations as ops
import ibis.expr.schema as sch
import pyarrow as pa
from ibis.backends import CanCreateDatabase, HasCurrentDatabase, NoExampleLoader
from ibis.backends.sql import SQLBackend

from alluvia.engine.duck.literals import quote_name, quote_table
from alluvia.errors import Forbidden, Invalid, TableNotFound
from alluvia.extras import needing
from alluvia.operations.merge_query.folding import FINAL
from alluvia.rollups.asking import FRESHNESS, LIVE
from alluvia.table_names import SCHEMA, in_schema, name_in_schema, schema_of
from alluvia_ibis.access import LakeAccess
from alluvia_ibis.ibis_rows import AlluviaCompiler, columns_for, fitted, for_columns, in_memory, is_in_memory
from alluvia_ibis.names import check_catalog, lake_name, schema_called
from alluvia_ibis.opening import opened

if TYPE_CHECKING:
    from alluvia.api.lake import Lake

BATCH_ROWS = 1_000_000
MADE_OF_TABLES = (FINAL, LIVE, FRESHNESS)
"""So end names, besides those of views, of what reads tables."""


class NoSuchTable(TableNotFound, exc.TableNotFound):  # type: ignore[misc]  # ibis has no types
    """The lake has no table of that name: an error of this library, and of ibis."""


class Backend(SQLBackend, CanCreateDatabase, HasCurrentDatabase, NoExampleLoader):  # type: ignore[misc]  # no types
    """A lake, to ibis, for which the schemas of a lake are databases."""

    name = "alluvia"
    compiler = AlluviaCompiler()
    supports_temporary_tables = False
    supports_python_udfs = False

    def do_connect(
        self,
        lake: str | os.PathLike[str] | Lake,
        /,
        *,
        token: str | None = None,
        auth: str | None = None,
        branch: str | None = None,
        timeout_seconds: float | str | None = None,
        **options: str,
    ) -> None:
        """Connect to a lake, or to a server.

        Parameters
        ----------
        lake
            A path, `s3://bucket/prefix` or a lake that is open, which this process reads and writes by itself; or the
            address of a server, `http://localhost:8080` or `https://…`: `alluvia serve`, or the functions on AWS.
        token
            A server's caller proves its rights by it.
        auth
            `iam` signs requests to a server with AWS credentials, for `region` if the address does not name it.
        branch
            A branch of the lake, to read and write instead of the lake.
        timeout_seconds
            How long to wait for a server; 60 by default.
        options
            As for `alluvia.connect`: `endpoint_url`, `region` and so on.
        """
        with needing("ibis", "the backend of ibis"):
            import pyarrow_hotfix  # noqa: F401 - which ibis loads when rows come as Arrow

        self.con: LakeAccess = opened(lake, token, auth, branch, timeout_seconds, options)

    @classmethod
    def from_connection(cls, con: Lake, /) -> Backend:
        """Return a backend for a lake that is open."""
        connected: Backend = cls().connect(con)
        return connected

    def _from_url(self, url: ParseResult, **options: Any) -> Backend:
        place = url.netloc + url.path
        if not place:
            raise Invalid("alluvia://: name a lake, such as alluvia://lake or alluvia://http://localhost:8080")
        connected: Backend = self.connect(place, **options)
        return connected

    def disconnect(self) -> None:
        self.con.close()

    @property
    def version(self) -> str:
        return self.con.version

    def list_tables(self, *, like: str | None = None, database: Any = None) -> list[str]:
        schema = schema_called(database) or SCHEMA
        every = (*self.con.tables(), *self.con.views())
        held = [name_in_schema(name) for name in every if schema_of(name) == schema]
        if not held and schema not in self.con.schemas():
            raise Invalid(f"database: there is no schema {schema!r:.100}: create it with create_database")
        names: list[str] = self._filter_with_like(held, like)
        return names

    @property
    def current_database(self) -> str:
        """Return the schema of tables that are named without one."""
        return SCHEMA

    def list_databases(self, *, like: str | None = None, catalog: str | None = None) -> list[str]:
        check_catalog(catalog)
        names: list[str] = self._filter_with_like(list(self.con.schemas()), like)
        return names

    def create_database(self, name: str, /, *, catalog: str | None = None, force: bool = False) -> None:
        check_catalog(catalog)
        self.raw_sql(f"CREATE SCHEMA {'IF NOT EXISTS ' if force else ''}{quote_name(name)}")

    def drop_database(self, name: str, /, *, catalog: str | None = None, force: bool = False) -> None:
        """Drop a schema that holds no table and no view. `force` ignores one that does not exist."""
        check_catalog(catalog)
        self.raw_sql(f"DROP SCHEMA {'IF EXISTS ' if force else ''}{quote_name(name)}")

    def get_schema(self, name: str, *, catalog: str | None = None, database: str | None = None) -> Any:
        return sch.Schema.from_pyarrow(self._columns_of(lake_name(name, (catalog, database))))

    def _columns_of(self, table: str) -> pa.Schema:
        try:
            return self.con.schema_of(table)
        except TableNotFound as error:
            raise NoSuchTable(str(error)) from error

    def _get_schema_using_query(self, query: str) -> Any:
        return sch.Schema.from_pyarrow(self.con.columns(query))

    def raw_sql(self, query: Any) -> pa.Table:
        """Run statements, as one transaction. Returns the rows of the last read, or what the last write did."""
        text = query if isinstance(query, str) else query.sql(dialect=self.dialect)
        self._log(text)
        return self.con.execute(text)

    @contextmanager
    def _safe_raw_sql(self, query: Any) -> Iterator[pa.Table]:
        yield self.raw_sql(query)

    def to_pyarrow_batches(
        self,
        expr: Any,
        /,
        *,
        params: Mapping[Any, Any] | None = None,
        limit: int | str | None = None,
        chunk_size: int = BATCH_ROWS,
        **_: Any,
    ) -> pa.RecordBatchReader:
        self._run_pre_execute_hooks(expr)
        table = expr.as_table()
        wanted = table.schema().to_pyarrow()
        columns, batches = self.con.read(self.compile(table, limit=limit, params=params))
        return pa.RecordBatchReader.from_batches(wanted, fitted(columns, batches, wanted, chunk_size))

    def execute(
        self,
        expr: Any,
        /,
        *,
        params: Mapping[Any, Any] | None = None,
        limit: int | str | None = None,
        **options: Any,
    ) -> Any:
        rows = self.to_pyarrow(expr.as_table(), params=params, limit=limit, **options)
        return expr.__pandas_result__(rows.to_pandas())

    def create_table(
        self,
        name: str,
        /,
        obj: Any = None,
        *,
        schema: Any = None,
        database: Any = None,
        temp: bool = False,
        overwrite: bool = False,
    ) -> Any:
        table = lake_name(name, database)
        if temp:
            raise Invalid("a lake has no temporary tables, so nothing is cached: use create_table, or ibis.memtable")
        if obj is None and schema is None:
            raise Invalid("create_table: give rows, an expression or a schema")
        schema = None if schema is None else ibis.schema(schema)
        if obj is None:
            self.con.create(table, columns_for(schema.to_pyarrow()), None, replace=overwrite)
        elif is_in_memory(obj) and (self.con.in_transactions or not overwrite):
            rows = in_memory(obj, schema)
            columns = columns_for(rows.schema)
            self.con.create(table, columns, for_columns(rows, columns), replace=overwrite)
        else:
            replacing = "OR REPLACE " if overwrite else ""
            self.raw_sql(f"CREATE {replacing}TABLE {quote_table(table)} AS {self._query(_expression(obj, schema))}")
        return self.table(name, database=database)

    def create_view(self, name: str, /, obj: Any, *, database: Any = None, overwrite: bool = False) -> Any:
        replacing = "OR REPLACE " if overwrite else ""
        self.raw_sql(f"CREATE {replacing}VIEW {quote_table(lake_name(name, database))} AS {self._query(obj)}")
        return self.table(name, database=database)

    def insert(self, name: str, /, obj: Any, *, database: Any = None, overwrite: bool = False) -> None:
        table = lake_name(name, database)
        if is_in_memory(obj) and not overwrite:
            rows = in_memory(obj)
            with suppress(Forbidden):  # who may append alone is to know the columns
                rows = for_columns(rows, self._columns_of(table))
            self.con.append(table, rows)
            return
        columns = self._columns_of(table)
        if is_in_memory(obj) and self.con.in_transactions:
            self.con.append(table, for_columns(in_memory(obj), columns), replace=True)
            return
        source = _expression(obj)
        names = source.columns if set(source.columns) <= set(columns.names) else columns.names
        if overwrite:
            self._check_apart(table, source)
        emptied = f"TRUNCATE {quote_table(table)};\n" if overwrite else ""
        target = f"{quote_table(table)} ({', '.join(map(quote_name, names))})"
        self.raw_sql(f"{emptied}INSERT INTO {target} {self._query(source)}")

    def drop_table(self, name: str, /, *, database: Any = None, force: bool = False) -> None:
        self._drop("TABLE", name, database, force=force)

    def drop_view(self, name: str, /, *, database: Any = None, force: bool = False) -> None:
        self._drop("VIEW", name, database, force=force)

    def _drop(self, kind: str, name: str, database: Any, *, force: bool) -> None:
        self.raw_sql(f"DROP {kind} {'IF EXISTS ' if force else ''}{quote_table(lake_name(name, database))}")

    def rename_table(self, old_name: str, new_name: str) -> NoReturn:
        raise Invalid(
            f"a table cannot be renamed: create_table({new_name!r}, con.table({old_name!r})), then drop_table"
        )

    def _query(self, expr: Any) -> str:
        self._run_pre_execute_hooks(expr)
        return str(self.compile(expr))

    def _register_udfs(self, expr: Any) -> None:
        for each in expr.op().find(ops.ScalarUDF):
            if each.__input_type__.name.lower() != "builtin":
                raise exc.UnsupportedOperationError(
                    f"{type(each).__name__}: functions in Python do not run in a lake: apply it to the rows "
                    "(to_pyarrow, to_pandas)"
                )

    def _check_apart(self, table: str, source: Any) -> None:
        """Raise `Invalid` where an expression may read the table whose rows it is to replace: they are gone by then."""
        read = {
            in_schema(each.namespace.database or "", each.name).lower() for each in source.op().find(ops.DatabaseTable)
        }
        texts = [each.query for each in source.op().find((ops.SQLQueryResult, ops.SQLStringView))]
        words = {word.lower() for text in texts for word in re.findall(r"\w+", text)}
        views = map(name_in_schema, self.con.views())
        made_of_tables = {word for word in words if word.endswith(MADE_OF_TABLES)} | words.intersection(views)
        named = table.lower() in read or name_in_schema(table).lower() in words
        if named or made_of_tables or not read.issubset(self.con.tables()):
            raise Invalid(
                f"insert: the expression may read {table}, whose rows are gone before it runs: store it with "
                "create_table first, and insert that table"
            )

    def _register_in_memory_table(self, op: Any) -> None:
        """Do nothing: its rows are in the text of each query."""

    def _make_memtable_finalizer(self, name: str) -> None:
        """Return nothing to do."""


def _expression(obj: Any, schema: Any = None) -> Any:
    """Return rows, or an expression, as an expression with the columns of a schema."""
    if is_in_memory(obj):
        rows = in_memory(obj, schema)
        return ibis.memtable(rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows)
    return obj if schema is None else obj.cast(schema)
