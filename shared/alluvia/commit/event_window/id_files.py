"""Event ids of a commit that adds too many events to list them in its log entry: files of sorted pages. Pure.

Fingerprints are evenly distributed, so each 64-bit head tells where its id is: `ranges` objects divide the ids evenly,
and each has as many pages. An object begins with a header, which a process keeps: where each page begins, as 4-byte
numbers of ids, and a Bloom filter of each page. The ids follow, 16 bytes each: head, tail, content, little-endian, in
the order of the heads. So an id that the filter does not exclude is found by a read of one page.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from itertools import accumulate
from typing import Any, TypeVar

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.event_window.id_runs import CONTENT_BYTES, FINGERPRINT, FINGERPRINT_BYTES, HEAD_BYTES
from alluvia.delta.log.commit import EVENT_FILES, CommitActions
from alluvia.errors import Corrupt
from alluvia.lazy_dataclasses import dataclass

ID_FOLDER = "_alluvia/window/ids/"
RANGE_IDS = 1 << 20
PAGE_IDS = 256
ID_BYTES = FINGERPRINT_BYTES + CONTENT_BYTES
IDS_IN_COMMIT_MAX = 1 << 17
"""More ids than this, 2.8 MB of text, would make a commit too long: then it names objects that have them."""
FILTER_BITS_AN_ID = 16
"""With three probes one new id in 200 is not excluded."""
FILTER_BYTES_MAX = 64 << 20
"""All filters of a commit together take no more memory: beyond 33 million ids there are fewer bits for each."""
RANGES_MAX, HEADER_BYTES_MAX = 1 << 16, 16 << 20
"""What is more was not written by a backfill: 68 billion ids, and a header for eight million."""
ArrayT = TypeVar("ArrayT", pa.Array, pa.ChunkedArray)
_PROBES = 3
_OFFSET_BYTES = 4
_LOW = (1 << 32) - 1
_FOLDER = re.compile(rf"{ID_FOLDER}[0-9A-Za-z-]+/")


@dataclass(frozen=True, slots=True)
class IdFiles:
    """Where the ids of a commit are, as its commitInfo says it.

    There are `ids` of them in `folder`, a path below the table's root, in `ranges` objects of `pages` pages each.
    `filter_bytes` is the size of the filter of each page.
    """

    folder: str
    ids: int
    ranges: int
    pages: int
    filter_bytes: int

    @property
    def header_bytes(self) -> int:
        """Return the size of each object's header."""
        return _OFFSET_BYTES * (self.pages + 1) + self.pages * self.filter_bytes

    def name(self, number: int) -> str:
        """Return the path of the object of one range below the table's root."""
        return f"{self.folder}{number}"

    def page(self, head: int) -> tuple[int, int]:
        """Return the range of a fingerprint's head, and the page in it."""
        return divmod((head >> 32) * self.ranges * self.pages >> 32, self.pages)


@dataclass(slots=True)
class CommitFiles:
    """The id files of a commit, its version and time in ms, and the headers that this process has read, by range."""

    version: int
    timestamp_ms: int
    files: IdFiles
    headers: dict[int, IdHeader] = field(default_factory=dict, compare=False)


def plan_files(folder: str, ids_max: int) -> IdFiles:
    """Return the division of at most that many ids."""
    ranges = max(1, -(-ids_max // RANGE_IDS))
    a_range = max(1, -(-ids_max // ranges))
    pages = -(-a_range // PAGE_IDS)
    size = min(PAGE_IDS * FILTER_BITS_AN_ID // 8, FILTER_BYTES_MAX // (ranges * pages))
    return IdFiles(folder, ids_max, ranges, pages, max(1, size))


def files_info(files: Iterable[IdFiles]) -> dict[str, Any]:
    """Return id files as commitInfo has them."""
    return {EVENT_FILES: [asdict(each) for each in files]}


def files_of(commit: CommitActions) -> list[IdFiles]:
    """Return the id files that a commit names. Raises `Corrupt` if they cannot be read."""
    try:
        return [_files(body) for body in commit.info.get(EVENT_FILES, ())]
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"version {commit.version}: its event id files cannot be read: {error}") from error


def encode_entries(entries: Iterable[CommitFiles]) -> list[dict[str, Any]]:
    """Return the id files of commits as JSON."""
    return [{"version": at.version, "timestamp_ms": at.timestamp_ms, "files": asdict(at.files)} for at in entries]


def decode_entries(bodies: Sequence[Mapping[str, Any]]) -> list[CommitFiles]:
    """Read what `encode_entries` has made. Raises `ValueError`, `KeyError` or `TypeError`."""
    return [CommitFiles(int(each["version"]), int(each["timestamp_ms"]), _files(each["files"])) for each in bodies]


def _files(body: Mapping[str, Any]) -> IdFiles:
    files = IdFiles(str(body["folder"]), *(int(body[name]) for name in ("ids", "ranges", "pages", "filter_bytes")))
    numbers = (files.ids, files.ranges, files.pages, files.filter_bytes)
    possible = min(numbers) > 0 and files.ranges <= RANGES_MAX and files.header_bytes <= HEADER_BYTES_MAX
    if not _FOLDER.fullmatch(files.folder) or not possible:
        raise ValueError(f"{files} is not a folder of event ids")
    return files


class IdHeader:
    """The header of one range: which ids it may hold, and where they are."""

    def __init__(self, files: IdFiles, data: bytes, name: str) -> None:
        """Read a header. Raises `Corrupt`, naming the object."""
        end = _OFFSET_BYTES * (files.pages + 1)
        if len(data) != files.header_bytes:
            raise Corrupt(f"{name} cannot be read: its header has {len(data)} bytes, not {files.header_bytes}")
        self._starts = array("I", data[:end])
        self._filters = memoryview(data)[end:]
        self._filter_bits = files.filter_bytes * 8
        if self._starts[0] or list(self._starts) != sorted(self._starts):
            raise Corrupt(f"{name} cannot be read: its pages are not in order")
        self._first = files.header_bytes

    def may_hold(self, page: int, head: int, tail: int) -> bool:
        """Whether the filter of a page does not exclude an id."""
        bits = self._filter_bits
        places = (page * bits + (((head + probe * tail) & _LOW) * bits >> 32) for probe in range(_PROBES))
        return all(self._filters[at >> 3] >> (at & 7) & 1 for at in places)

    def bounds(self, page: int) -> tuple[int, int]:
        """Return where a page begins in the object, and where it ends, in bytes."""
        start, end = self._starts[page : page + 2]
        return self._first + start * ID_BYTES, self._first + end * ID_BYTES


def contents_in(page: bytes, fingerprint: bytes) -> Iterator[bytes]:
    """Yield the content of each id of a page that has a fingerprint."""
    at = page.find(fingerprint)
    while at >= 0:
        if at % ID_BYTES == 0:
            yield page[at + FINGERPRINT_BYTES : at + ID_BYTES]
        at = page.find(fingerprint, at + 1)


def encode_range(files: IdFiles, number: int, ids: pa.Table) -> bytes:
    """Return the object of one range of ids: columns of head, tail and content, sorted by head."""
    heads, tails, contents = (_chunk(column) for column in ids.columns)
    pages = pc.subtract(parts_of(heads, files.ranges * files.pages), _number(number * files.pages))
    counts = array("I", bytes(_OFFSET_BYTES * files.pages))
    for page, count in zip(*(pc.value_counts(pages).field(at).to_pylist() for at in (0, 1)), strict=True):
        counts[page] = count
    widths = zip((heads, tails, contents), (HEAD_BYTES, FINGERPRINT_BYTES - HEAD_BYTES, CONTENT_BYTES), strict=True)
    columns = [column.view(pa.binary(width)).cast(pa.binary()) for column, width in widths]
    joined = pc.binary_join_element_wise(*columns, b"")
    data = joined.buffers()[2].to_pybytes()[: len(ids) * ID_BYTES] if len(ids) else b""
    starts = array("I", accumulate(counts, initial=0))
    return starts.tobytes() + _filters(files, pages, heads, tails) + data


def range_prints(files: IdFiles, data: bytes) -> pa.Array:
    """Return the fingerprints of the object of a range, as an array of 12 bytes each."""
    return pc.binary_slice(_ids(files, data), 0, FINGERPRINT_BYTES)


def range_contents(files: IdFiles, data: bytes) -> pa.Array:
    """Return the contents of the object of a range, in the order of its fingerprints."""
    return pc.binary_slice(_ids(files, data), FINGERPRINT_BYTES, ID_BYTES)


def range_columns(files: IdFiles, data: bytes) -> pa.Table:
    """Return the ids of the object of a range, sorted by head, as `encode_range` takes them."""
    return sorted_columns(range_prints(files, data), range_contents(files, data))


def sorted_columns(prints: pa.Array, contents: pa.Array) -> pa.Table:
    """Return fingerprints and their contents, sorted by head, as `encode_range` takes them."""
    heads = heads_of(prints)
    tails = pc.binary_slice(prints, HEAD_BYTES, FINGERPRINT_BYTES).view(pa.uint32())
    return pa.table([heads, tails, contents.view(pa.uint32())], ["head", "tail", "content"]).sort_by("head")


def range_pairs(files: IdFiles, data: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the fingerprints and contents of the object of a range."""
    return range_prints(files, data).to_pylist(), range_contents(files, data).to_pylist()


def parts_of(heads: ArrayT, count: int) -> ArrayT:
    """Return which of `count` equal parts of all heads each one is in."""
    high = pc.shift_right(heads, _number(32))
    return pc.shift_right(pc.multiply(high, _number(count)), _number(32))


def prints_of(joined: bytes) -> pa.Array:
    """Return joined fingerprints as an array."""
    return _parts(joined, FINGERPRINT_BYTES)


def contents_of(joined: bytes) -> pa.Array:
    """Return joined contents as an array."""
    return _parts(joined, CONTENT_BYTES)


def _parts(joined: bytes, size: int) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(size), len(joined) // size, [None, pa.py_buffer(joined)])


def heads_of(prints: pa.Array) -> pa.Array:
    """Return the heads of an array of fingerprints."""
    return pc.binary_slice(prints, 0, HEAD_BYTES).view(pa.uint64())


def split_print(fingerprint: bytes) -> tuple[int, int]:
    """Return a fingerprint's head and tail."""
    head, tail = FINGERPRINT.unpack(fingerprint)
    return head, tail


def _ids(files: IdFiles, data: bytes) -> pa.Array:
    count, rest = divmod(len(data) - files.header_bytes, ID_BYTES)
    if rest or count < 0:
        raise Corrupt(f"an object of {files.folder} cannot be read: it has {len(data)} bytes")
    return pa.Array.from_buffers(pa.binary(ID_BYTES), count, [None, pa.py_buffer(data[files.header_bytes :])])


def _filters(files: IdFiles, pages: pa.Array, heads: pa.Array, tails: pa.Array) -> bytes:
    """Return the filters of all pages: a bit for each probe, the first in the lowest bit of the first byte."""
    bits = files.filter_bytes * 8
    flags = bytearray(files.pages * bits)
    starts, wide = pc.multiply(pages, _number(bits)), tails.cast(pa.uint64())
    for probe in range(_PROBES):
        hashed = pc.bit_wise_and(pc.add(heads, pc.multiply(wide, _number(probe))), _number(_LOW))
        for at in _values(pc.add(starts, pc.shift_right(pc.multiply(hashed, _number(bits)), _number(32)))):
            flags[at] = 1
    packed = pa.Array.from_buffers(pa.uint8(), len(flags), [None, pa.py_buffer(flags)]).cast(pa.bool_())
    return packed.buffers()[1].to_pybytes()[: len(flags) // 8]


def _values(numbers: pa.Array) -> memoryview[int]:
    start = numbers.offset * 8
    return memoryview(numbers.buffers()[1])[start : start + len(numbers) * 8].cast("Q")


def _chunk(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else whole.chunk(0)


def _number(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint64())
