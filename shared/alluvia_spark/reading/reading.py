"""A table as a DataFrame: Spark's own Parquet reader on the files that pruning leaves.

One scan reads them all wherever that is possible: Spark does not compile what comes after a union into its scans, which
costs as much as reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as every user of Spark knows it
from pyspark.sql.types import StructField, VariantType

from alluvia.api.lake import Lake
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.deletion_vectors.storage import read_deletions
from alluvia.delta.log.actions import AddFile
from alluvia.delta.partitioning.values import is_hidden
from alluvia.delta.schema.column_mapping import ColumnMapping
from alluvia.errors import Invalid, Unsupported
from alluvia.store import Store
from alluvia_spark.reading.file_scan import FileScan, ScannedTable
from alluvia_spark.reading.filters import RowFilter, is_plain, quoted
from alluvia_spark.reading.promoted import alike, shown_rows
from alluvia_spark.schemas import all_nullable, nullable, shown_schema, stored_schema, with_texts
from alluvia_spark.tables import handle_of, tagged, uris_of
from alluvia_spark.wording import finding, read_version, resolving

_BY_ID = "spark.sql.parquet.fieldId.read.enabled"


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
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of a version of a table, the newest by default, as `alluvia_spark.read_table` says."""
    handle = handle_of(place, table, options or {}, branch)
    with finding(place.uri if isinstance(place, Lake) else str(place), table):
        if tag is None:
            snapshot = read_version(handle.readable, handle.name, version, timestamp)
        else:
            snapshot = tagged(handle, tag, table, version, timestamp)
    with resolving("where", where, snapshot.schema):
        kept = None if where is None else RowFilter.of(where, snapshot.schema)
    files = Scan(snapshot).files if kept is None else Scan(snapshot, kept.parsed.predicate).files
    rows = _rows(ScannedTable(spark, snapshot, uris_of(spark, place, handle)), handle.store, files)
    return rows if kept is None else kept.apply(rows)


def _rows(source: ScannedTable, store: Store, files: Sequence[AddFile]) -> DataFrame:
    """Return the rows of some files of a snapshot: the table's columns, in its order.

    Raises `Unsupported` for a table that Spark's reader would read wrongly.
    """
    snapshot = source.snapshot
    if not files:
        return source.spark.createDataFrame([], all_nullable(with_texts(shown_schema(snapshot))))
    _check(source, files)
    parts = alike(files, snapshot.promoted)
    return reduce(DataFrame.union, [shown_rows(_stored_rows(source, store, part), snapshot, part[0]) for part in parts])


def _stored_rows(source: ScannedTable, store: Store, files: Sequence[AddFile]) -> DataFrame:
    """Return rows in their stored form, without looking for promoted fields in texts."""
    snapshot, shown = source.snapshot, shown_schema(source.snapshot)
    with_vector = [file for file in files if file.deletion_vector is not None]
    deleted = {file.key: read_deletions(store, file, snapshot.locate) for file in with_vector}
    scans = [FileScan(source, files, deleted)]
    if scans[0].joins_deleted:
        live = [file for file in files if file.deletion_vector is None]
        scans = [FileScan(source, part, deleted) for part in (live, with_vector) if part]
    pairs = list(zip(shown, stored_schema(snapshot), strict=True))
    return reduce(DataFrame.union, [_selected(scan.rows, [_column(scan, *pair) for pair in pairs]) for scan in scans])


def _check(source: ScannedTable, files: Sequence[AddFile]) -> None:
    snapshot = source.snapshot
    if snapshot.mapping is ColumnMapping.ID and source.spark.conf.get(_BY_ID, "false") != "true":
        msg = f"table {snapshot.name} maps its columns by id: spark.conf.set({_BY_ID!r}, 'true') first"
        raise Invalid(msg)
    for file in files:
        if is_hidden(file.path.rpartition("/")[2]):
            msg = f"Spark skips files with a name such as {file.path}: read the table with format('alluvia')"
            raise Unsupported(msg)


def _column(scan: FileScan, ours: StructField, theirs: StructField) -> str | Column:
    """Return a column as users see it, from what it is in files; as SQL where that says it."""
    stored = scan.column(theirs.name)
    if isinstance(ours.dataType, VariantType):
        return F.to_json(F.expr(stored)).alias(ours.name)
    if "variant" in ours.dataType.simpleString():
        raise Unsupported(f"column {ours.name} holds variants inside: read the table with format('alluvia')")
    wanted = nullable(ours.dataType)
    if wanted != nullable(theirs.dataType):
        return F.expr(stored).cast(wanted).alias(ours.name)
    return f"{stored} AS {quoted(ours.name)}" if is_plain(ours.name) else F.expr(stored).alias(ours.name)


def _selected(rows: DataFrame, columns: Sequence[str | Column]) -> DataFrame:
    texts = [each for each in columns if isinstance(each, str)]
    if len(texts) == len(columns):
        return rows.selectExpr(*texts)
    return rows.select([F.expr(each) if isinstance(each, str) else each for each in columns])
