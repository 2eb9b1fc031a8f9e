"""Sets of row numbers as 64-bit Roaring bitmaps: bytes from sorted positions, and back. Pure.

Source: RoaringFormatSpec, with its extension for 64-bit implementations (the portable format).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import pairwise

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.lazy_dataclasses import dataclass

_PLAIN_COOKIE = 12346
_RUN_COOKIE = 12347
_OFFSETS_FROM = 4
"""With runs, the offsets are left out below this number of containers."""
_ARRAY_MAX = 4096
_BITMAP_BYTES = 8192
_CONTAINER = 1 << 16
_BUCKETS_MAX = 1 << 31
"""Delta demands that the top bit of a bucket's key is 0."""


@dataclass(slots=True)
class _Reader:
    data: memoryview
    left: int
    """How many positions may still follow: a few bytes of runs must not grow beyond the declared number."""
    at: int = 0

    def take(self, size: int) -> memoryview:
        if self.at + size > len(self.data):
            raise ValueError(f"the bitmap is truncated at {len(self.data)} bytes")
        part = self.data[self.at : self.at + size]
        self.at += size
        return part

    def number(self, code: str) -> int:
        (value,) = struct.unpack(code, self.take(struct.calcsize(code)))
        return int(value)


def decode_roaring(data: bytes, cardinality: int) -> pa.Int64Array:
    """Return the positions of a bitmap, ascending. Raises `ValueError` if the bytes do not hold that many."""
    reader = _Reader(memoryview(data), left=cardinality)
    parts: list[pa.Int64Array] = []
    for _ in range(reader.number("<Q")):
        key = reader.number("<I")
        if key >= _BUCKETS_MAX:
            raise ValueError(f"the bitmap has a bucket with the key {key}")
        parts += _read_bucket(reader, key << 32)
    return _joined(parts, reader, cardinality)


def decode_native(data: bytes, cardinality: int, order: str) -> pa.Int64Array:
    """Return the positions of a bitmap in Delta's first format: bitmaps of 32 bits, each after its size in bytes.

    `order` is the byte order of the numbers around the bitmaps, `<` or `>`. Raises `ValueError`.
    """
    reader = _Reader(memoryview(data), left=cardinality)
    parts: list[pa.Int64Array] = []
    for key in range(min(reader.number(f"{order}I"), _BUCKETS_MAX)):
        end = reader.number(f"{order}I") + reader.at
        parts += _read_bucket(reader, key << 32)
        if reader.at != end:
            raise ValueError(f"a bitmap ends at byte {reader.at} instead of {end}")
    return _joined(parts, reader, cardinality)


def _joined(parts: list[pa.Int64Array], reader: _Reader, cardinality: int) -> pa.Int64Array:
    if reader.left:
        raise ValueError(f"the bitmap holds {cardinality - reader.left} positions instead of {cardinality}")
    positions = pa.concat_arrays(parts) if parts else pa.array([], pa.int64())
    gaps = pc.pairwise_diff(positions)
    if pc.min(gaps).as_py() is not None and pc.min(gaps).as_py() <= 0:
        raise ValueError("the positions of the bitmap are not in ascending order")
    return positions


def _read_bucket(reader: _Reader, base: int) -> list[pa.Int64Array]:
    cookie = reader.number("<I")
    has_runs = cookie & 0xFFFF == _RUN_COOKIE
    if has_runs:
        count = (cookie >> 16) + 1
        flags = bytes(reader.take((count + 7) // 8))
    elif cookie == _PLAIN_COOKIE:
        count, flags = reader.number("<I"), b""
    else:
        raise ValueError(f"the bitmap has the cookie {cookie}")
    if count > _CONTAINER:
        raise ValueError(f"the bitmap has {count} containers in one bucket")
    heads = struct.unpack(f"<{2 * count}H", reader.take(4 * count))
    if not has_runs or count >= _OFFSETS_FROM:
        reader.take(4 * count)
    parts = []
    for at in range(count):
        key, cardinality = heads[2 * at], heads[2 * at + 1] + 1
        reader.left -= cardinality
        if reader.left < 0:
            raise ValueError("the bitmap holds more positions than it should")
        is_run = has_runs and flags[at // 8] >> at % 8 & 1
        lows = _read_runs(reader) if is_run else _read_container(reader, cardinality)
        if len(lows) != cardinality:
            raise ValueError(f"a container of the bitmap holds {len(lows)} positions, but says {cardinality}")
        parts.append(pc.add(lows.cast(pa.int64()), pa.scalar(base + (key << 16), pa.int64())))
    return parts


def _read_container(reader: _Reader, cardinality: int) -> pa.Array:
    if cardinality <= _ARRAY_MAX:
        buffer = pa.py_buffer(bytes(reader.take(2 * cardinality)))
        return pa.Array.from_buffers(pa.uint16(), cardinality, [None, buffer])
    buffer = pa.py_buffer(bytes(reader.take(_BITMAP_BYTES)))
    return pc.indices_nonzero(pa.Array.from_buffers(pa.bool_(), _CONTAINER, [None, buffer]))


def _read_runs(reader: _Reader) -> pa.Array:
    count = reader.number("<H")
    runs = struct.unpack(f"<{2 * count}H", reader.take(4 * count))
    held, free = bytearray(_CONTAINER), 0
    for start, length in zip(runs[::2], runs[1::2], strict=True):
        end = start + length + 1
        if end > _CONTAINER:
            raise ValueError("a run of the bitmap exceeds its container")
        if start < free:
            raise ValueError("the positions of the bitmap are not in ascending order")
        held[start:end], free = b"\1" * (length + 1), end
    return pc.indices_nonzero(pa.Array.from_buffers(pa.uint8(), _CONTAINER, [None, pa.py_buffer(held)]))


def sorted_positions(positions: Iterable[int] | pa.Array | pa.ChunkedArray) -> pa.Int64Array:
    """Return positions ascending and each once. Raises `ValueError` for one that is negative or null."""
    numbers = positions if isinstance(positions, (pa.Array, pa.ChunkedArray)) else pa.array(positions, pa.int64())
    unique = pc.unique(numbers).cast(pa.int64())
    ordered = unique.take(pc.sort_indices(unique))
    if ordered.null_count or (len(ordered) and ordered[0].as_py() < 0):
        raise ValueError("a row's position must be 0 or more")
    return ordered


def encode_roaring(positions: pa.Int64Array) -> bytes:
    """Return the bitmap of positions that ascend and of which there is each one once (see `sorted_positions`)."""
    if not len(positions):
        return struct.pack("<Q", 0)
    highs = pc.run_end_encode(pc.shift_right(positions, 16))
    keys, ends = highs.values.to_pylist(), highs.run_ends.to_pylist()
    lows = pc.bit_wise_and(positions, _CONTAINER - 1).cast(pa.uint16())
    buckets: dict[int, list[tuple[int, pa.Array]]] = {}
    for key, start, end in zip(keys, [0, *ends[:-1]], ends, strict=True):
        buckets.setdefault(key >> 16, []).append((key & 0xFFFF, lows.slice(start, end - start)))
    out = [struct.pack("<Q", len(buckets))]
    for bucket, containers in buckets.items():
        out += [struct.pack("<I", bucket), _encode_bucket(containers)]
    return b"".join(out)


def _encode_bucket(containers: list[tuple[int, pa.Array]]) -> bytes:
    encoded = [_encode_container(lows) for _, lows in containers]
    count = len(containers)
    has_runs = any(is_run for is_run, _ in encoded)
    if has_runs:
        flags = bytearray((count + 7) // 8)
        for at, (is_run, _) in enumerate(encoded):
            flags[at // 8] |= is_run << at % 8
        head = struct.pack("<I", _RUN_COOKIE | (count - 1) << 16) + bytes(flags)
    else:
        head = struct.pack("<II", _PLAIN_COOKIE, count)
    head += b"".join(struct.pack("<HH", key, len(lows) - 1) for key, lows in containers)
    if not has_runs or count >= _OFFSETS_FROM:
        offset = len(head) + 4 * count
        for _, data in encoded:
            head += struct.pack("<I", offset)
            offset += len(data)
    return head + b"".join(data for _, data in encoded)


def _encode_container(lows: pa.Array) -> tuple[bool, bytes]:
    """Return whether a container is one of runs, and its bytes: the shortest of the three kinds."""
    count = len(lows)
    wide = lows.cast(pa.int32())
    starts = pc.indices_nonzero(pc.not_equal(pc.fill_null(pc.pairwise_diff(wide), 0), 1))
    plain_bytes = 2 * count if count <= _ARRAY_MAX else _BITMAP_BYTES
    if 2 + 4 * len(starts) < plain_bytes:
        begins = starts.to_pylist()
        lengths = [end - begin for begin, end in pairwise([*begins, count])]
        pairs = [(first, length - 1) for first, length in zip(wide.take(starts).to_pylist(), lengths, strict=True)]
        runs = [number for pair in pairs for number in pair]
        return True, struct.pack(f"<H{len(runs)}H", len(starts), *runs)
    if count <= _ARRAY_MAX:
        start = 2 * lows.offset
        return False, bytes(memoryview(lows.buffers()[1])[start : start + 2 * count])
    held = pc.inverse_permutation(wide, max_index=_CONTAINER - 1)  # null where a number is absent, so its mask is it
    return False, bytes(held.buffers()[0])[:_BITMAP_BYTES]
