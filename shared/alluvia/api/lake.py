"""The public API: a lake of tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from alluvia import notebook
from alluvia.api import api_hints
from alluvia.api.lake_catalog import LakeCatalog
from alluvia.api.lake_creation import OutsideTables
from alluvia.api.lake_queries import LakeQueries
from alluvia.api.lake_schemas import LakeSchemas
from alluvia.api.lake_stream import LakeStreams, LakeTags
from alluvia.api.lake_table import Table
from alluvia.clock import Clock, SystemClock
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import TRANSACTION_AGE_MS_MAX, Commit
from alluvia.commit.warm_table import WarmTable
from alluvia.delta.arguments import check_names, check_place
from alluvia.errors import Invalid
from alluvia.operations.catalog.catalog import WritableCatalog, check_whole_lake, rejects_handle
from alluvia.operations.catalog.views import NamingViews
from alluvia.store import Store, open_reaching_store, open_store, open_wide_store
from alluvia.store.uris import missing_folder, table_place
from alluvia.table_names import REJECTS, folder_name, new_name

if TYPE_CHECKING:
    from datetime import timedelta

    from alluvia.api.lake_branch import Branch, BranchInfo
    from alluvia.api.lake_transaction import LakeTransaction
    from alluvia.operations.backup.backup import BackupReport
    from alluvia.operations.branches.branch_reads import Elsewhere
    from alluvia.operations.reading.relations import Evaluate
    from alluvia.operations.tables import drop
    from alluvia.operations.transactions.lake_restore import LakeRestore
    from alluvia.pipelines.pipeline import Pipeline
    from alluvia.query.limits import QueryLimits
    from alluvia.query.parameters import Parameters


__all__ = ["Lake", "Table", "connect", "open_table"]


def connect(
    uri: str | os.PathLike[str], *, clock: Clock | None = None, outside: Sequence[str] | None = None, **options: str
) -> Lake:
    """Open the lake at a URI: `s3://bucket/prefix`, a path, `file:///path` or `memory://name`. Makes no request.

    A lake begins with its first table: a folder or prefix that does not exist is a lake without tables.

    With the address of a server, `http://…` or `https://…`, it returns a `ServedLake`, the client that
    `connect_server` returns, which is for type checkers: `tables`, `table`, `sql` and `on_branch`, and tables with
    `append`, `ingest` and reads. It takes the options of `connect_server`: `token`, `auth`, `region`, `branch` and
    `timeout_seconds`.

    `outside` are URIs below which tables may be attached from, and read; by default, any. Options for S3, which hold
    there too: `endpoint_url`, `region`, `access_key_id`, `secret_access_key`, `session_token`. Raises `Invalid`.
    """
    check_place("uri", uri)
    check_names("outside", outside or ())
    if str(uri).lower().startswith(("http://", "https://")):
        from alluvia.api.served_lake import connect_server  # loads what sends requests

        if clock is not None or outside is not None:
            raise Invalid(f"{'clock' if outside is None else 'outside'} is an option of lakes that this process opens")
        return cast("Lake", connect_server(str(uri), **options))
    clock = clock or SystemClock()
    return Lake(open_reaching_store(str(uri), clock, outside, **options), clock)


def open_table(uri: str | os.PathLike[str], *, clock: Clock | None = None, **options: str) -> Table:
    """Open any Delta table by its path or URI, in the forms that `connect` accepts. Makes no request.

    Reads files that the log names by absolute path anywhere in the same file system or bucket, as a shallow clone
    needs (a lake reads only what is below its own root). If there is no table, the first use raises `TableNotFound`.
    """
    lake, handle = _opened(uri, clock, options)
    return Table(lake, handle)


def open_handle(uri: str | os.PathLike[str], *, clock: Clock | None = None, **options: str) -> TableHandle:
    """Return the handle of a table that `open_table` would open."""
    return _opened(uri, clock, options)[1]


def _opened(uri: str | os.PathLike[str], clock: Clock | None, options: Mapping[str, str]) -> tuple[Lake, TableHandle]:
    check_place("uri", uri)
    clock = clock or SystemClock()
    parent, name = table_place(str(uri))
    if name == REJECTS and (place := table_place(parent))[1]:  # keepers of rejects are those of the lake, too
        parent, name = place[0], f"{place[1]}/{name}"
    lake = Lake(open_wide_store(parent, clock, **options), clock)
    return lake, WarmTable(lake.store, f"{name}/" if name else "", name or parent, clock)


class Lake(OutsideTables, LakeSchemas, LakeStreams, LakeTags, LakeQueries):
    """The tables below one path or URI. Thread-safe.

    `catalog` finds them. The classes that a lake inherits group methods that work on it: they hold no state, and none
    of their methods is overridden.
    """

    branch_name: str | None = None
    """Of a branch of a lake, its name."""

    def __init__(self, store: Store, clock: Clock | None = None, catalog: LakeCatalog | None = None) -> None:
        if clock is None:
            raise TypeError("lakes come from alluvia.connect(uri)")
        self.store = store
        self.clock = clock
        self._catalog = catalog or LakeCatalog(store, clock, self._branch_tables)
        self._branches: dict[str, Branch] = {}

    @property
    def catalog(self) -> LakeCatalog:
        """Return the lake's tables by name, as operations and queries find them."""
        return self._catalog

    @property
    def uri(self) -> str:
        """Return where the lake is."""
        return self.store.uri

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and folder_name(name) in self.catalog

    def __getitem__(self, name: str) -> Table:
        return self.table(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def __repr__(self) -> str:
        return f"<Lake {self.uri!r}{', which does not exist yet' if missing_folder(self.uri) else ''}>"

    def _repr_html_(self) -> str:
        names = self.tables()
        return notebook.table(f"Lake {self.uri}", f"{len(names):,} tables", ("table",), [(name,) for name in names])

    def _ipython_key_completions_(self) -> list[str]:
        return self.tables()

    if not TYPE_CHECKING:  # else type checkers would take any name for an attribute

        def __getattr__(self, name: str) -> Any:
            raise api_hints.no_attribute("Lake", name, api_hints.LAKE, dir(type(self)))

    def table(self, name: str) -> Table:
        """Return a table by name, without a request. If there is none, the first use raises `TableNotFound`.

        `<name>._rejects` is the table of the rejected events, in the folder `<name>/_rejects`.
        """
        return Table(self, self.catalog.handle(folder_name(name)))

    def tables(self, *, rejects: bool = False, dropped: bool = False) -> list[str]:
        """Return the names of the tables, in order, with those of rejected events and of dropped tables if asked for.

        On S3 this is one LIST per 1,000 tables: a folder with the name of a table counts as one. Only the logs of
        tables that may have been dropped are read and, once an hour, of rejects that this process has not opened. On a
        branch, a process looks up once for each table whether the lake had it when the branch was cut: one LIST.
        """
        return self.catalog.tables(rejects=rejects, dropped=dropped)

    def _branch_tables(self, branch: str) -> Elsewhere:
        """Return the tables of a branch as queries on this lake read them. Raises `TableNotFound`."""
        from alluvia.api.lake_branch import elsewhere

        return elsewhere(self, branch)

    def dropped(self) -> list[drop.Dropped]:
        """Return the dropped tables that `undrop` can bring back."""
        from alluvia.operations.tables import drop

        return [table for name in self.tables(dropped=True) for table in drop.dropped_here(self.catalog.handle(name))]

    def create_rollup(
        self,
        name: str,
        query: str,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        cluster_by: Sequence[str] = (),
        fill: bool = True,
    ) -> Table:
        """Create a table that is kept up to date with a query: `SELECT …, count(*) … FROM source GROUP BY …`.

        It is filled at once, unless `fill` is false, and afterwards by `refresh`. By default, its files are sorted by
        the columns of GROUP BY. Raises `TableExists`, `TableNotFound`, and `Invalid` for a query that cannot be kept,
        or fails on existing rows; no rollup is left then.
        """
        from alluvia.rollups import creating

        name = folder_name(name)
        evaluate = self.evaluation()
        creating.create_rollup(self.catalog, name, query, evaluate, partition_by, sort_by, properties, cluster_by)
        table = self.table(name)
        if fill:
            try:
                table.refresh()
            except Invalid as error:
                self.drop_table(name)
                raise type(error)(f"{error}\nThe rollup was not created.") from error
        return table

    def rollups(self, source: str | None = None, *, nested: bool = False) -> list[str]:
        """Return the names of the rollups, or of those of one source; with `nested`, also of its rollups, and so on.

        Each comes after the rollup that is its source, so that they can be refreshed in this order.
        """
        from alluvia.rollups import creating

        return creating.rollups_of(self.catalog, source and folder_name(source), nested=nested)

    def pipeline(self, path: str | os.PathLike[str] = "pipelines") -> Pipeline:
        """Return the pipeline that a folder, or a file, declares in SQL and Python. Makes no request.

        Python files run in this process. Raises `Invalid`, with the file and the line of the mistake.
        """
        from alluvia.pipelines.pipeline import Pipeline
        from alluvia.pipelines.project import read_project
        from alluvia.pipelines.unit_tests import read_tests
        from alluvia.store import MemoryStore

        def scratch() -> tuple[WritableCatalog, Evaluate]:
            lake = Lake(MemoryStore("tests", self.clock), self.clock)
            return lake.catalog, lake.evaluation()

        tests = read_tests(Path(path))
        return Pipeline(self.catalog, self.evaluation, read_project(path), tests, scratch)

    def evaluation(self, memory_mb: int | None = None, seconds: float = inf) -> Evaluate:
        """Return what computes rollups, within a memory limit in MB and a time, at most that of a transaction.

        DuckDB, in a process of its own, gets two thirds of it: the rest is for what the two processes hold besides.
        """
        from alluvia.query.limits import QueryLimits
        from alluvia.query.process.evaluator import evaluation

        memory_bytes = None if memory_mb is None else memory_mb * 1_000_000 * 2 // 3
        return evaluation(self.store, QueryLimits(min(seconds, TRANSACTION_AGE_MS_MAX / 1000), memory_bytes))

    def drop_table(self, name: str) -> Commit:
        """Drop a table and its rejected events, in one commit each. Deletes no files. Raises `TableNotFound`.

        `undrop` brings it back until vacuum deletes its files. The name is free immediately. A table with rollups is
        refused with `Invalid`.
        """
        from alluvia.operations.tables import drop
        from alluvia.rollups.creating import check_no_rollups

        name = folder_name(name)
        check_no_rollups(self.catalog, name)
        with NamingViews(self.store, name):
            return drop.drop_table(self.catalog.handle(name).own(), rejects_handle(self.catalog, name))

    def clone(
        self,
        source: str,
        name: str,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        tag: str | None = None,
        *,
        deep: bool = False,
    ) -> Table:
        """Make a table of a version of another, by default of the newest, in one commit, and return it.

        It shares the source's files, which are kept for it, or has copies of them if it is `deep`; what is written to
        either of the two later is its own. Raises `TableExists`, `TableNotFound`, `VersionNotFound`, `VersionExpired`.
        """
        from alluvia.operations.tables import clone

        source, name = folder_name(source), new_name(name)
        with NamingViews(self.store, source):
            clone.clone(self.catalog, source, name, version, timestamp, tag, deep=deep)
        return self.table(name)

    def undrop(self, name: str, version: int | None = None) -> drop.UndropReport:
        """Bring back the last dropped table of a name, or the one dropped in a given version, with its rejects.

        Raises `TableExists` if there is a table of that name, `VersionExpired` if vacuum has deleted its files.
        """
        from alluvia.operations.tables import drop

        name = folder_name(name)
        return drop.undrop_table(self.catalog.handle(name).own(), rejects_handle(self.catalog, name), version)

    def restore(
        self,
        timestamp: datetime | str | None = None,
        *,
        offset: str | int | None = None,
        tag: str | None = None,
        dry_run: bool = False,
    ) -> LakeRestore:
        """Make all tables what they were at a moment, how long ago that was, or at a tag of the lake: all or none.

        Tables that were created since are dropped (`undrop` brings them back), those that were dropped since come back,
        streams have their position of then, and rollups are left to a refresh. With `dry_run`, only says so. Raises
        `VersionExpired`, naming a table whose version of then is gone, `Invalid` for one that cannot be restored, and
        `Conflict` where other writers change the tables all the time.
        """
        from alluvia.operations.transactions.lake_restore import restore_as_asked

        return restore_as_asked(self.catalog, timestamp, offset, tag, dry_run=dry_run)

    def backup(self, dest: str | os.PathLike[str], **options: str) -> BackupReport:
        """Copy all tables of one moment to another place. The copy is itself a lake.

        `dest` is a path or URI, and `options` are those of `connect` for it. A later backup to the same place copies
        only new files, and deletes nothing but keys of tokens that the lake has removed. Writers can go on. Takes two
        requests for each new file, and about twenty for each table. Raises `Invalid` for a place that holds something
        else, and `Corrupt` if the check of the copy fails.
        """
        from alluvia.operations.backup.backup import backup_lake

        check_place("dest", dest)
        return backup_lake(self.catalog, Lake(open_store(str(dest), self.clock, **options), self.clock).catalog)

    def transaction(self, tables: Sequence[str] = (), *, isolation: str = "serializable") -> LakeTransaction:
        """Begin a transaction over any number of tables: `with lake.transaction() as tx:` commits all or nothing.

        `tables` names what it will use, which is read as it is now. Without names, all of the lake is read as it is
        when the first table is used, up to 100 tables. One that is not among them has all read as it is when that is
        used; if what was read before has changed since, it is read as it was before that. What only reads never
        conflicts. With the `isolation` `"write_serializable"`, reads count only of tables that it changes; with
        `"snapshot"`, none does.
        """
        from alluvia.api.lake_transaction import LakeTransaction

        return LakeTransaction(self, tables, isolation, whole_lake=not tables)

    def transaction_as_used(self, isolation: str) -> LakeTransaction:
        """Begin a transaction that looks tables up when it first uses them, for work that is run again."""
        from alluvia.api.lake_transaction import LakeTransaction

        return LakeTransaction(self, (), isolation)

    def sql(self, text: str, parameters: Parameters | None = None, *, limits: QueryLimits | None = None) -> pa.Table:
        """Run SQL statements. Several are one transaction: all of it happens, or nothing; the last read is the answer.

        Without a read, the answer is one row that says what the last statement did. `parameters` are a list with the
        values of `?`, or a dict with those of `$name`. `limits` are those of each query. docs/SQL.md lists the
        statements. Raises `TableNotFound`, and `Invalid`, with the place or DuckDB's message.
        """
        from alluvia.sql.run import execute

        return execute(self, text, parameters, limits=limits)

    def branch(self, name: str, at: datetime | str | None = None, *, expires: timedelta | None = None) -> Branch:
        """Cut a branch: a lake of its own that begins with what this one holds, or held at a time. Copies nothing.

        One request, for any number of tables; one that begins in the past, `at` a time or a tag of the lake, checks
        that all tables are left as they were. Vacuum keeps what the branch shows until it is discarded, or `expires`.
        Raises `Invalid` if there is one of that name, and `VersionExpired`.
        """
        from alluvia.api import lake_branch

        check_whole_lake(self.store, "branch")
        return lake_branch.create_branch(self, name, at, expires)

    def on_branch(self, name: str) -> Branch:
        """Return a branch. A GET and a HEAD. Raises `Invalid` if there is none of that name, or it has expired."""
        from alluvia.api import lake_branch

        keeper = lake_branch.live_keeper(self, name)
        return self._branches.setdefault(keeper.id, lake_branch.Branch(self, keeper))

    def drop_branch(self, name: str) -> None:
        """Delete a branch, and all that was written on it and not published. Raises `Invalid` if there is none."""
        from alluvia.api import lake_branch

        lake_branch.drop_branch(self, name)

    def branches(self) -> list[BranchInfo]:
        """Return the branches, in the order of their names. One LIST, and one GET for each."""
        from alluvia.api import lake_branch

        return lake_branch.list_branches(self)
