"""Judge the rows of a data file, and search objects of other forms for words."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.operations.erasure.erase_judging import Judged
from alluvia.operations.erasure.erase_matching import Matching
from alluvia.operations.reading.datafile import BATCH_ROWS, DataFile
from alluvia.operations.results.results import read_result

_PARQUET = b"PAR1"
_ARROW_FILE = b"ARROW1"
_ARROW_STREAM = b"\xff\xff\xff\xff"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UNREADABLE = (pa.ArrowException, OSError, zlib.error, EOFError, ValueError)
_LAYERS_MAX = 3
BYTES_MAX = 512 << 20
"""A bigger object, or what is in a compressed one, is not searched."""


def judged_batches(
    data: DataFile,
    matching: Matching,
    *,
    strict: bool = False,
    rows: int = BATCH_ROWS,
    constants: Mapping[str, str | None] | None = None,
) -> Iterator[Judged]:
    """Yield what is judged of all rows of a file, deleted ones included, in order.

    `constants` are values that all its rows have of columns that are neither in the file nor the table's. Raises
    `Corrupt` where the file cannot be read and, if it is to be `strict`, `Invalid` where the condition fails.
    """
    others = matching.looked_for(data.names)
    known = {name: value for name, value in (constants or {}).items() if value is not None}
    for batch in data.batches(matching.columns, others, rows=rows):
        yield matching.judge(_with(batch, known), strict)


def _with(batch: pa.RecordBatch, constants: Mapping[str, str]) -> pa.RecordBatch:
    found = batch
    for name, value in constants.items():
        if name not in batch.schema.names:
            found = found.append_column(name, pa.repeat(pa.scalar(value, pa.string()), len(batch)))
    return found


def mentions(data: bytes, words: re.Pattern[str], *, ours: bool = True, layers: int = 0) -> bool | None:
    """Whether an object contains one of some words, whatever form it has; None where that cannot be told.

    Files of rows are opened only if they are `ours`: one that a stranger sent may be made to end the process.
    """
    if not data:
        return False
    try:
        if (text := _as_text(data)) is not None:
            return words.search(text) is not None
        return _inside(data, words, ours=ours, layers=layers)
    except _UNREADABLE:
        return None


def _inside(data: bytes, words: re.Pattern[str], *, ours: bool, layers: int) -> bool | None:
    if data.startswith((_GZIP, _ZSTD)) and layers < _LAYERS_MAX:
        with pa.CompressedInputStream(BytesIO(data), "gzip" if data.startswith(_GZIP) else "zstd") as stream:
            whole = stream.read(BYTES_MAX + 1)
        return None if len(whole) > BYTES_MAX else mentions(whole, words, ours=ours, layers=layers + 1)
    if not ours:
        return None
    if data.startswith(_PARQUET) and data.endswith(_PARQUET):
        file = pq.ParquetFile(pa.BufferReader(data))
        return any(_in_batch(batch, words) for batch in file.iter_batches(use_threads=False))
    if data.startswith(_ARROW_FILE):
        with pa.ipc.open_file(pa.BufferReader(data)) as reader:
            return any(_in_batch(reader.get_batch(at), words) for at in range(reader.num_record_batches))
    if data.startswith(_ARROW_STREAM):
        with pa.ipc.open_stream(pa.BufferReader(data)) as stream:
            return any(_in_batch(batch, words) for batch in stream)
    result = read_result(data)
    return None if result is None else mentions(result.body, words, layers=layers + 1)


def _as_text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _in_batch(batch: pa.RecordBatch, words: re.Pattern[str]) -> bool:
    return any(
        words.search(_text(value)) for column in batch.columns for value in column.to_pylist() if value is not None
    )


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
