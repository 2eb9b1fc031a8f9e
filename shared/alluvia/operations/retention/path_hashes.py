"""Hashes of keys as columns, made by Arrow: a text in Python takes three times as long to make and to hash. Pure.

A key is cut into words of 8 bytes. Each is multiplied by an odd number of its place, folded, multiplied again and
folded again; the hash is their sum. All steps but the sum can be undone, so keys that differ in one word have different
hashes. The numbers are random, and hashes are good for this process only, so that an attacker cannot choose keys that
have the same one.
"""

from __future__ import annotations

import secrets
from array import array
from functools import lru_cache

import pyarrow as pa

from alluvia.arrow_compute import pc

HASH = pa.uint64()
NO_HASHES = pa.array([], HASH)
ROWS_MAX = 1 << 13
WORDS_MAX = 1 << 17
"""Words that are worked on at once, 1 MB: many short keys, or few long ones."""
_WORD_BYTES = 8
_FOLD = pa.scalar(32, HASH)
_ZERO = pa.array([0], HASH)
_factors: tuple[list[int], list[int]] = ([], [])


def hashed(keys: pa.Array) -> pa.Array:
    """Return the hashes of keys, an array of texts without null."""
    parts = (_hashed(keys.slice(at, ROWS_MAX)) for at in range(0, len(keys), ROWS_MAX))
    return pa.concat_arrays([NO_HASHES, *parts])


def key_hash(key: str) -> int:
    """Return the hash that `hashed` gives a key."""
    data = key.encode()
    words = array("Q", data.ljust(_words(len(data)) * _WORD_BYTES, b"\0"))
    total = 0
    for word, first, second in zip(words, *_factors_of(len(words)), strict=True):
        product = word * first & _MASK
        product = (product ^ product >> 32) * second & _MASK
        total += product ^ product >> 32
    return total & _MASK


_MASK = (1 << 64) - 1


def _hashed(keys: pa.Array) -> pa.Array:
    words = _words(pc.max(pc.binary_length(keys)).as_py())
    rows = len(keys)
    if rows * words > WORDS_MAX and rows > 1:
        return pa.concat_arrays([_hashed(keys.slice(0, rows // 2)), _hashed(keys.slice(rows // 2))])
    padded = pc.ascii_rpad(keys, words * _WORD_BYTES, "\0")
    first, second, ends = (each.slice(0, rows * words) for each in _tiled(words))
    products = pc.multiply(pa.Array.from_buffers(HASH, rows * words, [None, padded.buffers()[2]]), first)
    products = _folded(pc.multiply(_folded(products), second))
    sums = pc.take(pc.cumulative_sum(products), ends.slice(0, rows))
    return pc.subtract(sums, pa.concat_arrays([_ZERO, sums.slice(0, rows - 1)]))


def _folded(numbers: pa.Array) -> pa.Array:
    return pc.bit_wise_xor(numbers, pc.shift_right(numbers, _FOLD))


def _words(size: int) -> int:
    return max(1, -(-size // _WORD_BYTES))


@lru_cache(maxsize=4)
def _tiled(words: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the factors of as many keys as are hashed at once, and where each key's last word is."""
    rows = max(1, min(ROWS_MAX, WORDS_MAX // words))
    first, second = (_repeated(pa.array(each, HASH), rows) for each in _factors_of(words))
    return first, second, pa.array(range(words - 1, rows * words, words), pa.int32())


def _repeated(values: pa.Array, times: int) -> pa.Array:
    wanted = len(values) * times
    while len(values) < wanted:
        values = pa.concat_arrays([values, values])
    return values.slice(0, wanted)


def _factors_of(words: int) -> tuple[list[int], list[int]]:
    for each in _factors:
        while len(each) < words:
            each.append(secrets.randbits(64) | 1)
    return _factors[0][:words], _factors[1][:words]
