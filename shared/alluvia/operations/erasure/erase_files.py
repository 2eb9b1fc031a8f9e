"""Judge the rows of a data file, and search objects of other forms for words."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterator, Mapping
from io import BytesIO
from typing import Any

import pyarrow as pa

from alluvia.arrow_parquet import pq
from alluvia.delta.schema.names import fold
from alluvia.delta.statistics.typed import parse_statistics
from alluvia.delta.statistics.written import TEXT_LENGTH_MAX
from alluvia.operations.erasure.erase_judging import Judged
from alluvia.operations.erasure.erase_matching import Matching
from alluvia.operations.erasure.erase_places import PROPERTIES, FieldPlaces
from alluvia.operations.reading.datafile import BATCH_ROWS, DataFile
from alluvia.operations.results.results import read_result

_BOUNDS = ("minValues", "maxValues")


class TextBounds:
    """Finds values of a condition in bounds of `properties` and of columns that a table has lost, as texts.

    Bounds of a text that was cut show a value if they end with its beginning.
    """

    def __init__(self, places: FieldPlaces, words: Collection[str]) -> None:
        self._places = places
        self._words = words
        self._names = frozenset(name for field in places.fields for name in field.names)
        names = "|".join(sorted(map(re.escape, self._names)))
        self._ends = re.compile(rf'(?i)"(?:{names})"\s*:\s*"?(?P<start>[^"]+)$') if names else None

    def in_bounds(self, stats: str | None) -> bool:
        """Whether a file's statistics show a value."""
        if stats is None or not self._words:
            return False
        parsed = parse_statistics(stats, exact=False)
        return any(self._shows(path, value) for bound in _BOUNDS for path, value in _leaves(parsed.get(bound)))

    def in_values(self, values: Mapping[str, str | None]) -> bool:
        """Whether a file's partition values show a value, of a column that the table has no more."""
        named = (value for name, value in values.items() if name not in self._places.stored and self._means(name))
        return any(value in self._words for value in named)

    def _means(self, name: str) -> bool:
        return not self._names.isdisjoint({fold(name), *self._places.lost.get(name, ())})

    def _shows(self, path: tuple[str, ...], value: Any) -> bool:
        if value is None or isinstance(value, bool):
            return False
        text = str(value)
        if path[0] not in self._places.stored and self._means(path[0]):
            return text in self._words or any(word[: len(text)] == text for word in self._words if _is_cut(text))
        if fold(path[0]) != PROPERTIES and PROPERTIES not in self._places.lost.get(path[0], ()):
            return False
        if any(word in text for word in self._words if not word.isdecimal() or f'"{word}"' in text):
            return True
        cut = self._ends.search(text.rstrip("\U0010ffff\ufffd")) if self._ends is not None else None
        return cut is not None and any(_begins(word, cut["start"]) for word in self._words)


def _begins(word: str, start: str) -> bool:
    """Whether a text that was cut may be a word: the last character of an upper bound is another one."""
    return word.startswith(start) or (len(start) > 1 and word.startswith(start[:-1]))


def _is_cut(text: str) -> bool:
    return len(text) >= TEXT_LENGTH_MAX


def _leaves(bounds: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(bounds, dict):
        for name, value in bounds.items():
            yield from _leaves(value, (*path, name))
    elif path:
        yield path, bounds


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
    widened = batch
    for name, value in constants.items():
        if name not in batch.schema.names:
            widened = widened.append_column(name, pa.repeat(pa.scalar(value, pa.string()), len(batch)))
    return widened


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
