"""Rows of a file as masks (an Arrow boolean array, one value a row) and as positions (int64, ascending). Pure."""

from __future__ import annotations

import pyarrow as pa

from alluvia.arrow_compute import pc


def count(mask: pa.BooleanArray) -> int:
    """Return the number of rows that a mask holds."""
    return mask.true_count


def definite(mask: pa.BooleanArray) -> pa.BooleanArray:
    """Return a mask with false in place of null."""
    return pc.fill_null(mask, pa.scalar(False, pa.bool_())) if mask.null_count else mask


def numbers(length: int) -> pa.Int64Array:
    """Return 0, 1, … up to a length."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), length)), 1)


def positions_of(mask: pa.BooleanArray) -> pa.Int64Array:
    """Return the positions of a mask's rows."""
    return pc.indices_nonzero(mask).cast(pa.int64())


def mask_of(positions: pa.Int64Array, rows: int) -> pa.BooleanArray:
    """Return the mask of some positions, each below `rows`, in a file with so many rows."""
    if not len(positions):
        return pa.repeat(pa.scalar(False, pa.bool_()), rows)
    return pc.inverse_permutation(positions, max_index=rows - 1).is_valid()


def interleaved(rows: pa.Table, replaced: pa.BooleanArray, new: pa.Table) -> pa.Table:
    """Return rows with those of a mask replaced in place by new ones, in order, in the columns that `new` has."""
    places: pa.Array | None = None
    columns, given = rows.columns, dict(zip(new.column_names, new.columns, strict=True))
    for at, field in enumerate(rows.schema):
        if field.name not in given:
            continue
        old, values = columns[at], given[field.name].cast(field.type)
        if pa.types.is_nested(field.type):  # for which Arrow has no replace_with_mask
            if places is None:
                rank = pc.cumulative_sum(replaced.cast(pa.int64()))
                places = pc.if_else(replaced, pc.add(rank, len(rows) - 1), numbers(len(rows)))
            columns[at] = pa.chunked_array([*old.chunks, *values.chunks], field.type).take(places)
        else:
            columns[at] = pc.replace_with_mask(old, replaced, values.combine_chunks())
    return pa.Table.from_arrays(columns, schema=rows.schema)


def whole(number: int) -> pa.Int64Scalar:
    """Return a number for Arrow, which would load other packages to find its type."""
    return pa.scalar(number, pa.int64())
