"""Vacuum on Spark: tasks list ranges of keys and delete, and the library decides on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from alluvia.arrow_compute import pc
from alluvia.operations.retention.table_objects import borders, delete_all
from alluvia.operations.retention.vacuum import vacuum
from alluvia.operations.retention.vacuum_report import VacuumReport
from alluvia.store import ListedPage
from alluvia_spark.chunks import decode, encode
from alluvia_spark.tables import TablePlace
from alluvia_spark.upkeep.work import in_order, jobs_at_once, results

RANGE_FILES = 50_000
"""A task lists about this many objects, in 50 requests."""
RANGES_MAX = 10_000
DELETED_KEYS = 10_000
"""A task deletes this many objects, in 10 requests."""
COLUMNS = ListedPage._fields


class KeyRange(NamedTuple):
    """Keys greater than `after` up to `last`; None where there is no limit."""

    after: str | None
    last: str | None


@dataclass(frozen=True)
class RangeListing:
    """Lists the objects of a table in a range of keys."""

    place: TablePlace

    def __call__(self, keys: KeyRange) -> bytes:
        """Return the columns of the objects, as Arrow IPC."""
        handle = self.place.handle()
        listed = [pa.table(ListedPage.of(()), COLUMNS)]
        for page in handle.store.list_pages(handle.root, keys.after):
            if keys.last is None or not len(page.keys) or page.keys[-1].as_py() <= keys.last:
                listed.append(pa.table(page, COLUMNS))
            else:
                within = pc.less_equal(page.keys, pa.scalar(keys.last, pa.string()))
                listed.append(pa.table(page, COLUMNS).filter(within))
                break
        return encode(pa.concat_tables(listed))


@dataclass(frozen=True)
class Deletion:
    """Deletes objects by their keys below a table's root."""

    place: TablePlace

    def __call__(self, keys: Sequence[str]) -> list[str]:
        """Return the keys that the store refused to delete."""
        return delete_all(self.place.handle(), keys)


class TaskObjects:
    """The objects of a table, which tasks list and delete."""

    def __init__(self, spark: SparkSession, place: TablePlace) -> None:
        self._spark = spark
        self._place = place
        snapshot = place.handle().newest(dropped=True)
        at_once = jobs_at_once(spark)
        ranges = min(RANGES_MAX, max(snapshot.files.expected_len // RANGE_FILES, at_once))
        self._root, self._borders = snapshot.root, borders(snapshot, ranges)

    def pages(self, after: str | None) -> Iterator[ListedPage]:
        """Yield the objects after a key, in order. Tasks list later ranges meanwhile."""
        start = None if after is None else self._root + after
        ends = [each for each in self._borders if start is None or each > start]
        ranges = [KeyRange(*pair) for pair in zip([start, *ends], [*ends, None], strict=True)]
        for listed in in_order(self._spark, RangeListing(self._place), ranges):
            table = decode(listed).combine_chunks()
            if len(table):
                yield ListedPage(*(table[name].combine_chunks() for name in COLUMNS))

    def delete(self, keys: Sequence[str]) -> list[str]:
        """Delete objects by their keys below the root; few of them in this process."""
        if len(keys) <= DELETED_KEYS:
            return delete_all(self._place.handle(), keys)
        parts = [list(keys[at : at + DELETED_KEYS]) for at in range(0, len(keys), DELETED_KEYS)]
        return [key for _, left in results(self._spark, Deletion(self._place), parts) for key in left]


def run(
    spark: SparkSession, place: TablePlace, retention: timedelta | None, names_max: int | None, *, dry_run: bool
) -> VacuumReport:
    """Vacuum a table, as `Table.vacuum` does."""
    objects = TaskObjects(spark, place)
    return vacuum(place.handle(), retention, dry_run=dry_run, names_max=names_max, objects=objects)
