"""The number of rows in the row groups of a file, chosen by the file's rows. Pure.

A query for some values of a sorted column reads whole row groups, so small groups let it read less. In unsorted rows,
every group holds all values, and smaller groups only lengthen the footer, which every query reads.
"""

from __future__ import annotations

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.properties import ROW_GROUP_ROWS_MAX, Properties

SELECTIVE_ROWS = 30_720
"""A quarter of the maximum. Full scans take no longer with this size; with smaller groups they do."""
ROWS_PER_COLUMN = 480
"""Rows of a group for each column. The footer then has a fiftieth of the bytes of three columns of the group."""


def group_rows(rows: pa.Table, settings: Properties) -> int:
    """Return how many rows each row group has, for rows in the order of the file.

    Rows and `settings` name columns alike. `alluvia.row_group_rows` decides if it is not the default.
    """
    most = settings.row_group_rows
    parts = most // max(SELECTIVE_ROWS, ROWS_PER_COLUMN * rows.num_columns)
    if most != ROW_GROUP_ROWS_MAX or parts < 2:
        return most
    fewer = most // parts
    names = {*settings.cluster_by, *settings.sort_by}.intersection(rows.column_names)
    if len(rows) <= fewer or not names:
        return most
    firsts = pc.take(rows.select(sorted(names)), pa.array(range(0, len(rows), fewer), pa.int64()))
    numbered = (pc.dictionary_encode(column.combine_chunks()).indices.to_pylist() for column in firsts.columns)
    distinct = {*zip(*numbered, strict=True)}  # numbers, because Python cannot represent the year 10000
    return fewer if len(distinct) > -(-len(rows) // most) else most
