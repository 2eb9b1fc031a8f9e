"""How many rows the row groups of a file have, by the rows that it holds. Pure.

A query that looks for some values of a sorted column reads whole row groups: the fewer rows these have, the less it
reads. Where rows are in no order, all groups hold all values, and smaller ones only make the footer longer, which every
query reads, whatever it looks for.
"""

from __future__ import annotations

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.properties import ROW_GROUP_ROWS_MAX, Properties

SELECTIVE_ROWS = 30_720
"""A quarter of the most: queries of all rows take as long, and with smaller groups they take longer."""
ROWS_PER_COLUMN = 480
"""So many rows for each column: their footer is then a fiftieth of three columns of a group."""


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
    distinct = {*zip(*numbered, strict=True)}  # values as such would not do: Python has no year 10000
    return fewer if len(distinct) > -(-len(rows) // most) else most
