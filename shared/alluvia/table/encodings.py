"""Choose how Parquet encodes each column of a file, from some of its rows. Pure.

A dictionary pays only where values repeat: for others it is written, found to be too big, and given up. Every reader in
docs/READERS.md reads the encodings chosen here.
Source: Parquet format, "Encodings".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

SAMPLE_ROWS = 4096
SAMPLE_RUNS = 16
DISTINCT_SHARE_MIN = 0.9
"""A column in whose sample this share of the values is distinct gets no dictionary."""


@dataclass(slots=True)
class Encodings:
    """The Parquet paths of the columns that get a dictionary, and the encoding, by path, of others that are not plain.

    pyarrow's `ParquetWriter` takes the two as `use_dictionary` and `column_encoding`.
    """

    dictionary: list[str] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)


def encodings_of(rows: pa.Table) -> Encodings:
    """Choose the encodings for a file that begins with some rows."""
    found = Encodings()
    for path, values in _leaves(_sample(rows)):
        present = len(values) - values.null_count
        if pc.count_distinct(values).as_py() < present * DISTINCT_SHARE_MIN or not present:
            found.dictionary.append(path)
        elif (encoding := _for_distinct(values)) is not None:
            found.others[path] = encoding
    return found


def _sample(rows: pa.Table) -> pa.Table:
    """Return runs of rows, spread evenly: a file's first rows may be unlike the others."""
    if len(rows) <= SAMPLE_ROWS:
        return rows
    step = len(rows) // SAMPLE_RUNS
    return pa.concat_tables([rows.slice(at * step, SAMPLE_ROWS // SAMPLE_RUNS) for at in range(SAMPLE_RUNS)])


def _leaves(rows: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Yield the leaf columns with their paths in Parquet: those of lists and maps without regard to rows."""
    pending = [(name, rows[name].combine_chunks()) for name in rows.column_names]
    for path, values in pending:  # which grows
        kind = values.type
        if isinstance(values, pa.StructArray):
            names = [kind.field(at).name for at in range(kind.num_fields)]
            pending += [(f"{path}.{name}", pc.struct_field(values, name)) for name in names]
        elif isinstance(values, pa.MapArray):
            pending += [(f"{path}.key_value.key", values.keys), (f"{path}.key_value.value", values.items)]
        elif pa.types.is_nested(kind):
            pending.append((f"{path}.list.element", pc.list_flatten(values)))
        else:
            yield path, values


def _for_distinct(values: pa.Array) -> str | None:
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return "DELTA_BINARY_PACKED"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        lengths = pc.min_max(pc.binary_length(values))
        if lengths["min"] == lengths["max"]:  # ids: the differences of their lengths take no space, nor common prefixes
            return "DELTA_BYTE_ARRAY"
    return None
