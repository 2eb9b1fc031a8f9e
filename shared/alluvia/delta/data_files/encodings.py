"""Choose how Parquet encodes each column of a file, from some of its rows. Pure.

A dictionary pays only where values repeat: for others it is written, found to be too big, and given up. Sorted numbers
are smaller as differences, even where they repeat, and texts that seldom repeat as they are. For ids, a merge tries
what is smaller. Every reader in docs/READERS.md reads the encodings chosen here.
Source: Parquet format, "Encodings".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from math import expm1, log2, sqrt

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.arrow_parquet import pq
from alluvia.lazy_dataclasses import dataclass

SAMPLE_ROWS = 4096
SAMPLE_RUNS = 16
DISTINCT_SHARE_MIN = 0.9
"""A column in whose sample this share of the values is distinct gets no dictionary."""
TEXT_SHARE_MIN = 0.6
"""A column of texts gets none from this share in a row group on: the codec packs texts better than their numbers."""


FOR_IDS = ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")
"""Without the common prefixes of neighbours or their differences of length: the one is small for ids that are sorted or
begin with a time, the other for random ones."""


@dataclass(slots=True)
class Encodings:
    """The Parquet paths of the columns that get a dictionary, and the encoding, by path, of others that are not plain.

    pyarrow's `ParquetWriter` takes the two as `use_dictionary` and `column_encoding`.
    """

    dictionary: list[str] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)


def encodings_of(rows: pa.Table, *, tried: bool = False) -> Encodings:
    """Choose the encodings for a file that begins with some rows. One row repeats nothing.

    `tried` says to write a sample of ids in each of theirs, which takes some milliseconds.
    """
    encodings = Encodings()
    if len(rows) == 1:
        return encodings
    sample = _sample(rows)
    leaves = list(_leaves(sample))
    counts = Counter(path for path, _ in leaves)
    for path, values in leaves:
        if counts[path] > 1:  # as of a column "a.b" and a field b of a column a, which pyarrow cannot tell apart
            continue
        if _dictionary_pays(values, len(rows) / max(1, len(sample))):
            encodings.dictionary.append(path)
        elif (encoding := _for_distinct(values)) is not None:
            encodings.others[path] = _smallest(values) if tried and encoding in FOR_IDS else encoding
    return encodings


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


def _dictionary_pays(values: pa.Array, times: float) -> bool:
    """Whether a column `times` as long as a sample is smaller with a dictionary."""
    present = len(values) - values.null_count
    distinct = pc.count_distinct(values, mode="only_valid").as_py()
    if distinct >= present * DISTINCT_SHARE_MIN:
        return not present
    if _is_number(values.type):
        return _difference_bits(values) >= log2(distinct)
    if _is_text(values.type):
        return distinct < present * TEXT_SHARE_MIN or distinct_share(distinct, present, times) < TEXT_SHARE_MIN
    return True


def distinct_share(distinct: int, sampled: int, times: float) -> float:
    """Return the share of distinct values in a column `times` as long as a sample, if all are equally frequent."""

    def expected(kinds: float, values: float) -> float:
        return -kinds * expm1(-values / kinds)

    low, high = float(distinct), float(sampled) ** 2
    while high > low * 1.01:
        middle = sqrt(low * high)
        low, high = (low, middle) if expected(middle, sampled) > distinct else (middle, high)
    return expected(low, sampled * times) / (sampled * times)


def _difference_bits(values: pa.Array) -> float:
    """Return about how many bits the difference of a value and the one before takes: all but a few fit into them."""
    numbers = pc.filter(values, pc.is_valid(values))
    numbers = pc.cast(numbers, pa.int32()) if pa.types.is_date32(values.type) else numbers
    differences = pc.pairwise_diff(pc.cast(numbers, pa.int64(), safe=False)).slice(1)
    low, high = pc.quantile(differences, [0.03, 0.97]).to_pylist() if len(differences) else (0, 0)
    return log2(1 + (high - low))  # in this order: 1 is lost on a float of 2^63


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _for_distinct(values: pa.Array) -> str | None:
    kind = values.type
    if _is_number(kind):
        return "DELTA_BINARY_PACKED"
    if _is_text(kind):
        lengths = pc.min_max(pc.binary_length(values))
        if lengths["min"] == lengths["max"]:  # ids: the differences of their lengths take no space, nor common prefixes
            return FOR_IDS[0]
    return None


def _smallest(ids: pa.Array) -> str:
    """Return the encoding in which ids are smallest."""

    def size(encoding: str) -> int:
        sink = pa.BufferOutputStream()
        rows = pa.table({"id": ids})
        pq.write_table(rows, sink, compression="zstd", use_dictionary=False, column_encoding={"id": encoding})
        return int(sink.tell())

    return min(FOR_IDS, key=size)
