"""What `alluvia_spark` offers to a Spark user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from alluvia.api.lake import Lake
    from alluvia.commit.transaction import Commit
    from alluvia.operations.rows.edits import RowChanges


def register(spark: SparkSession) -> None:
    """Give a session `format("alluvia")`, to read and write tables, and `USING alluvia` in SQL.

    Options of a read: `version`, `timestamp`, `tag`, `branch`, and `where`, a condition in this library's SQL, which
    prunes files.
    Of a write, with the modes `append` and `overwrite`: `replaceWhere`, `mergeSchema`, `txnAppId` and `txnVersion`; and
    `partitionBy`, `sortBy`, `clusterBy` and properties for a table that the write creates. Of both: `table`, where the
    path is that of a lake, and the options of `alluvia.connect`.

    The session's `sql` says which function to call where Spark refuses UPDATE, DELETE and MERGE on such a table.
    Relative paths begin in the folder in which this is called. For a server of Spark Connect on another machine they
    mean nothing, and are refused.
    """
    from alluvia_spark.data_source import source_at
    from alluvia_spark.session import advise
    from alluvia_spark.tables import folder_of

    spark.dataSource.register(source_at(folder_of(spark)))
    advise(spark)


def read_table(
    spark: SparkSession,
    place: str | Lake,
    table: str | None = None,
    *,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    tag: str | None = None,
    branch: str | None = None,
    where: str | None = None,
    **options: str,
) -> DataFrame:
    """Return the rows of a table as a DataFrame, read by Spark's own Parquet reader.

    `place` is a table's path or URI; or that of its lake, or a lake, and `table` its name, on a `branch` of the lake if
    one is named. The version is the newest, the one with a number, the newest at a time, or that with a `tag` of the
    table or the lake, and stays what it is when others write. Tags and branches need the lake. `where` is a condition
    in this library's SQL, as `Table.scan` takes it: only files that can hold such rows are read. Filters of the
    DataFrame itself skip row groups, but not files. All columns are nullable. `options` are those of
    `alluvia.connect`; Spark reads S3 with its own credentials, under `s3a://` unless the session has a file system for
    `s3://`.

    Raises `TableNotFound`, `VersionNotFound`, `VersionExpired`, and `Invalid` for a wrong argument.
    """
    from alluvia_spark.reading import reading

    return reading.read_table(
        spark,
        place,
        table,
        version=version,
        timestamp=timestamp,
        tag=tag,
        branch=branch,
        where=where,
        options=options,
    )


def write_table(
    rows: DataFrame,
    place: str | Lake,
    table: str | None = None,
    *,
    mode: str = "append",
    replace_where: str | None = None,
    partition_overwrite: str | None = None,
    merge_schema: bool = False,
    txn: tuple[str, int] | None = None,
    partition_by: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    **options: str,
) -> Commit | None:
    """Write a DataFrame to a table in one commit, from any thread; by `format("alluvia")` only the session's own can.

    `place`, `table` and `options` are those of `update`. `mode` is `append`, `overwrite`, `error` (also
    `errorifexists`: there must be no table) or `ignore`, which writes nothing where there is a table and then returns
    None. `replace_where` says which rows an overwrite replaces; `partition_overwrite="dynamic"` has it replace the
    partitions that the DataFrame has rows of, `"static"` all rows; by default the session's
    `spark.sql.sources.partitionOverwriteMode` says it. `merge_schema` adds columns that only the DataFrame has. With
    `txn`, an application and its number, the write happens once. The other arguments are for a table that does not
    exist yet, as `Lake.create_table` takes them.

    Raises `Invalid`, `TableExists`, `Conflict` and the like; nothing was committed then.
    """
    from alluvia_spark.tables import TablePlace
    from alluvia_spark.writing import table_writes

    given = table_writes.options_of(
        replace_where=replace_where,
        partition_overwrite=partition_overwrite,
        merge_schema=merge_schema,
        txn=txn,
        partition_by=partition_by,
        sort_by=sort_by,
        cluster_by=cluster_by,
        properties=properties,
    )
    return table_writes.write(rows, TablePlace.of(place, table, options), mode, given)


def update(
    spark: SparkSession,
    place: str | Lake,
    values: Mapping[str, str],
    where: str | None = None,
    *,
    table: str | None = None,
    txn: tuple[str, int] | None = None,
    **options: str,
) -> RowChanges:
    """Set columns to expressions in this library's SQL, in the rows that match, as `Table.update`; tasks do the work.

    `place`, `table` and `options` are those of `read_table`, but a lake on S3 is given by its URI, and no branch can be
    changed. The commit is one, with the conflict rules of the library. With `txn`, an application and its number, it
    happens once: a number that the table has already, or a lower one, changes nothing.
    """
    from alluvia_spark.tables import TablePlace
    from alluvia_spark.writing import row_changes

    return row_changes.update(spark, TablePlace.of(place, table, options), values, where, txn)


def delete(
    spark: SparkSession,
    place: str | Lake,
    where: str,
    *,
    table: str | None = None,
    txn: tuple[str, int] | None = None,
    **options: str,
) -> RowChanges:
    """Delete the rows that match a condition in this library's SQL, as `Table.delete`; see `update`."""
    from alluvia_spark.tables import TablePlace
    from alluvia_spark.writing import row_changes

    return row_changes.delete(spark, TablePlace.of(place, table, options), where, txn)


def upsert(
    place: str | Lake,
    rows: DataFrame,
    on: Sequence[str],
    *,
    table: str | None = None,
    matched: str = "update",
    columns: Sequence[str] | None = None,
    when: str | None = None,
    delete_when: str | None = None,
    unmatched: str | None = None,
    insert_when: str | None = None,
    txn: tuple[str, int] | None = None,
    options: Mapping[str, str] | None = None,
) -> RowChanges:
    """Insert or update the rows of a DataFrame by the key columns `on`, as `Table.upsert`; see `update`.

    Table and rows may have any size: Spark joins them. The rows are computed once, and kept by Spark meanwhile. Columns
    are those of the table whose names differ by case alone.
    """
    from alluvia.operations.rows.upsert import Rules
    from alluvia_spark.tables import TablePlace
    from alluvia_spark.writing import joined_upsert

    rules = Rules(matched, columns, when, delete_when, unmatched, insert_when)
    return joined_upsert.upsert(TablePlace.of(place, table, options or {}), rows, on, rules, txn)


def batch_txn(rows: DataFrame, batch_id: int, part: str = "") -> tuple[str, int]:
    """Return the `txn` with which a write in `foreachBatch` happens once: the id of the query, and the batch's number.

    `rows` and `batch_id` are what Spark gives the function. The query's id is that of its checkpoint, so a stream with
    a new checkpoint writes its rows, though its batches count from 0 again. A function that writes to one table several
    times gives each write a `part` of its own.

    Raises `Invalid` outside of `foreachBatch`, and `Unsupported` on Spark Connect, where a batch does not know its
    query.
    """
    from alluvia_spark.streaming import batches

    return batches.batch_txn(rows, batch_id, part)
