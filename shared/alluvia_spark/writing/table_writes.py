"""Writing a DataFrame without Spark's data sources, which no thread but the session's own finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
from pyspark import cloudpickle

from alluvia.commit.transaction import Commit
from alluvia.errors import AlluviaError, Invalid, TableExists, TableNotFound
from alluvia.operations.planning.optimistic_retry import check_txn
from alluvia_spark.frames import mapped_batches, spare_later_tasks
from alluvia_spark.options import PARTITIONS, AlluviaOptions
from alluvia_spark.tables import TablePlace
from alluvia_spark.wording import exists
from alluvia_spark.writing.writing import SESSIONS_OVERWRITES, TableWriter, WrittenFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MODES = ("append", "overwrite", "error", "errorifexists", "ignore")


def write(rows: DataFrame, place: TablePlace, mode: str, given: Mapping[str, str]) -> Commit | None:
    """Write a DataFrame in one commit, with options as `format("alluvia")` has them.

    Returns None where the mode `ignore` finds a table.
    """
    mode = check_mode(mode)
    named = {} if place.table is None else {"table": place.table}
    options = AlluviaOptions.of({"path": place.uri, **named, **place.options, **given})
    alone = mode in ("error", "errorifexists", "ignore")
    if alone and _exists(place):
        _check_ignored(mode, place)
        return None
    overwrite = mode == "overwrite"
    if overwrite and not options.given.keys() & {"replaceWhere", PARTITIONS}:
        options = _as_the_session_says(rows, place, options)
    writer = TableWriter.planned(options, rows.schema, overwrite=overwrite)
    messages = []
    for answer in mapped_batches(rows, partial(_written, writer), "written binary").collect():
        message: Any = cloudpickle.loads(bytes(answer[0]))
        if isinstance(message, AlluviaError):
            raise message
        messages.append(message)
    try:
        return writer.committed(messages, alone=alone)
    except TableExists:
        _check_ignored(mode, place)
        return None


def _check_ignored(mode: str, place: TablePlace) -> None:
    """Raise `TableExists` where that matters."""
    if mode != "ignore":
        raise exists(place.uri, place.table)


def check_mode(mode: str) -> str:
    """Return a mode in lower case. Raises `Invalid` for another."""
    if not isinstance(mode, str) or mode.lower() not in MODES:
        raise Invalid(f"[INVALID_SAVE_MODE] mode {mode!r:.100} is not valid; use {', '.join(map(repr, MODES))}")
    return mode.lower()


def _exists(place: TablePlace) -> bool:
    try:
        place.handle().newest()
    except TableNotFound:
        return False
    return True


def _as_the_session_says(rows: DataFrame, place: TablePlace, options: AlluviaOptions) -> AlluviaOptions:
    """Return options with the session's way to overwrite a partitioned table."""
    asked = rows.sparkSession.conf.get(SESSIONS_OVERWRITES, None) or ""
    if asked.lower() != "dynamic" or not _exists(place) or not place.handle().newest().partition_spec.fields:
        return options
    return AlluviaOptions({**options.given, PARTITIONS: "dynamic"}, options.properties)


def _written(writer: TableWriter, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task, and yield the files, or what went wrong for good."""
    spare_later_tasks()
    try:
        outcome: WrittenFiles | AlluviaError = writer.write_rows(map(_in_utc, batches))
    except Invalid as error:
        outcome = error
    dumped = bytes(cloudpickle.dumps(outcome))  # type: ignore[no-untyped-call]
    yield pa.RecordBatch.from_arrays([pa.array([dumped], pa.binary())], ["written"])


def _in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with moments in UTC: Spark gives them in the session's zone."""
    return pa.RecordBatch.from_arrays(
        [column.cast(_utc(column.type)) for column in batch.columns], names=batch.schema.names
    )


def _utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.tz:
        return pa.timestamp("us", "UTC")
    if pa.types.is_list(kind):
        return pa.list_(_utc(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_utc(kind.key_type), _utc(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_utc(each.type)) for each in kind])
    return kind


def options_of(
    *,
    replace_where: str | None,
    partition_overwrite: str | None,
    merge_schema: bool,
    txn: tuple[str, int] | None,
    partition_by: Sequence[str],
    sort_by: Sequence[str],
    cluster_by: Sequence[str],
    properties: Mapping[str, str] | None,
) -> dict[str, str]:
    """Return arguments of Python as options of `format("alluvia")`."""
    lists = {"partitionBy": partition_by, "sortBy": sort_by, "clusterBy": cluster_by}
    options = {name: orjson.dumps(list(names)).decode() for name, names in lists.items() if names}
    if replace_where is not None:
        options["replaceWhere"] = replace_where
    if partition_overwrite is not None:
        options[PARTITIONS] = partition_overwrite
    if merge_schema:
        options["mergeSchema"] = "true"
    if txn is not None:
        check_txn(txn)
        options |= {"txnAppId": txn[0], "txnVersion": str(txn[1])}
    return {**options, **(properties or {})}
