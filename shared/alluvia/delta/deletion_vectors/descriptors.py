"""Deletion vectors: which rows of a data file are deleted, as descriptors, files and positions. Pure.

Source: Delta protocol, "Deletion Vectors" and "Deletion Vector Format". A position is the number of a row in its data
file, from 0. Positions are an Arrow int64 array, ascending.

Descriptors contain bytes as Z85 text. The reference implementation pads the bytes to a multiple of four with zeros.
Others shorten the last word instead, as the Rust crate z85 does: each missing byte is a `#` in front of the digits of
the rest, which no complete word starts with.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from uuid import UUID

import pyarrow as pa

from alluvia.delta.deletion_vectors.roaring import decode_native, decode_roaring, encode_roaring
from alluvia.delta.log.fields import Json
from alluvia.delta.log.paths import decode_path
from alluvia.errors import Corrupt, Unsupported
from alluvia.lazy_dataclasses import dataclass

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_POWERS = (85**4, 85**3, 85**2, 85, 1)
_PADDING = "#"


def encode_z85(data: bytes) -> str:
    """Return the text of bytes, which are padded with zeros to a multiple of four."""
    padded = data + bytes(-len(data) % 4)
    words = (int.from_bytes(padded[at : at + 4], "big") for at in range(0, len(padded), 4))
    return "".join(_DIGITS[word // power % 85] for word in words for power in _POWERS)


def decode_z85(text: str) -> bytes:
    """Return the bytes of a text, zeros that pad them included. Raises `ValueError` for a text that is not Z85."""
    if len(text) % 5:
        raise ValueError(f"{len(text)} characters of Z85: expected a multiple of five")
    words = [text[at : at + 5] for at in range(0, len(text), 5)]
    if words:
        words[-1] = words[-1].lstrip(_PADDING)
    return b"".join(map(_decode_word, words))


def _decode_word(digits: str) -> bytes:
    word, size = 0, len(digits) - 1
    for digit in digits:
        if digit not in _VALUES:
            raise ValueError(f"{digit!r} is not a digit of Z85")
        word = word * 85 + _VALUES[digit]
    if size < 1 or word >> 8 * size:
        raise ValueError(f"{digits!r} is not a word of Z85")
    return word.to_bytes(size, "big")


_MAGIC = 1681511377
_NATIVE_MAGIC = 1681511376
"""Of the format before this one, in which the protocol's own example of an inline vector stands."""
_FILE_VERSION = b"\x01"
_UUID_LENGTH = 20
_FRAME_BYTES = 8
"""In a file, four bytes of size stand before a vector and four of checksum behind it."""
POSITIONS_MAX = 1 << 26
"""How many positions are held at once: 512 MiB of them, which a few thousand bytes of runs can stand for."""


@dataclass(frozen=True, slots=True)
class StoredVector:
    """Where a vector lies: in the file at `path` (decoded, relative to the table or absolute), bytes [start, end)."""

    path: str
    start: int
    end: int


def stored_vector(descriptor: Json) -> StoredVector | None:
    """Return where a descriptor's vector is stored; None if it is inline. Raises `Corrupt` or `Unsupported`."""
    kind, text = descriptor.get("storageType"), descriptor.get("pathOrInlineDv")
    if not isinstance(text, str):
        raise _corrupt(descriptor, "has no pathOrInlineDv")
    if kind == "i":
        return None
    start = _number(descriptor, "offset", 0)
    end = start + _number(descriptor, "sizeInBytes") + _FRAME_BYTES
    if kind == "p":
        return StoredVector(decode_path(text), start, end)
    if kind == "u":
        return StoredVector(_relative_path(descriptor, text), start, end)
    raise Unsupported(f"a deletion vector has the storage type {kind!r}, which this library does not know")


def renamed_vector(descriptor: Json, identity: str) -> Json:
    """Return the descriptor of a stored vector whose file was copied to the table's root, named by a UUID's text."""
    return {**descriptor, "storageType": "u", "pathOrInlineDv": encode_z85(UUID(identity).bytes)}


def cardinality_of(descriptor: Json) -> int:
    """Return the number of rows that a vector deletes. Raises `Corrupt` where the descriptor does not say."""
    return _number(descriptor, "cardinality")


def decode_inline(descriptor: Json) -> pa.Int64Array:
    """Return the positions of an inline vector. Raises `Corrupt`."""
    try:
        data = decode_z85(descriptor["pathOrInlineDv"])
    except ValueError as error:
        raise _corrupt(descriptor, str(error)) from error
    size = _number(descriptor, "sizeInBytes")
    if not size <= len(data) < size + 4:
        raise _corrupt(descriptor, f"holds {len(data)} bytes instead of {size}")
    return _decode(descriptor, data[:size])


def decode_stored(descriptor: Json, framed: bytes) -> pa.Int64Array:
    """Return the positions of a vector from its bytes in a file (see `stored_vector`). Raises `Corrupt`."""
    size = _number(descriptor, "sizeInBytes")
    if len(framed) != size + _FRAME_BYTES:
        raise _corrupt(descriptor, f"is truncated after {len(framed)} bytes of {size + _FRAME_BYTES}")
    (said,) = struct.unpack(">i", framed[:4])
    (checksum,) = struct.unpack(">I", framed[-4:])
    data = framed[4:-4]
    if said != size:
        raise _corrupt(descriptor, f"has {said} bytes, not the {size} that the log promises")
    if zlib.crc32(data) != checksum:
        raise _corrupt(descriptor, "does not match its checksum")
    return _decode(descriptor, data)


def encode_file(vectors: Sequence[pa.Int64Array], identity: str) -> tuple[str, bytes, list[Json]]:
    """Return a vector file's path below the table, its bytes, and a descriptor for each vector.

    `identity` is the text of a UUID that no other file has; positions are ordered by `roaring.sorted_positions`.
    """
    uuid = UUID(identity)
    descriptors: list[Json] = []
    body = [_FILE_VERSION]
    offset = len(_FILE_VERSION)
    for positions in vectors:
        data = _encode(positions)
        body += [struct.pack(">i", len(data)), data, struct.pack(">I", zlib.crc32(data))]
        descriptors.append(
            {
                "storageType": "u",
                "pathOrInlineDv": encode_z85(uuid.bytes),
                "offset": offset,
                "sizeInBytes": len(data),
                "cardinality": len(positions),
            }
        )
        offset += len(data) + _FRAME_BYTES
    return f"deletion_vector_{uuid}.bin", b"".join(body), descriptors


def _encode(positions: pa.Int64Array) -> bytes:
    return struct.pack("<I", _MAGIC) + encode_roaring(positions)


def _decode(descriptor: Json, data: bytes) -> pa.Int64Array:
    cardinality = cardinality_of(descriptor)
    if cardinality > POSITIONS_MAX:
        shown = str(descriptor.get("pathOrInlineDv"))[:40]
        raise Unsupported(
            f"the deletion vector {descriptor.get('storageType')}{shown} deletes {cardinality} rows, more than this "
            f"library reads of one file ({POSITIONS_MAX}): rewrite the file without its deleted rows (REORG, or PURGE)"
        )
    try:
        if data[:4] == struct.pack("<I", _MAGIC):
            return decode_roaring(data[4:], cardinality)
        for order in "<>":
            if data[:4] == struct.pack(f"{order}I", _NATIVE_MAGIC):
                return decode_native(data[4:], cardinality, order)
        raise _corrupt(descriptor, "does not start with a known format number")
    except ValueError as error:
        raise _corrupt(descriptor, str(error)) from error


def _relative_path(descriptor: Json, text: str) -> str:
    prefix, encoded = text[:-_UUID_LENGTH], text[-_UUID_LENGTH:]
    try:
        uuid = UUID(bytes=decode_z85(encoded))
    except ValueError as error:
        raise _corrupt(descriptor, f"has no readable file name: {error}") from error
    return f"{prefix}/deletion_vector_{uuid}.bin" if prefix else f"deletion_vector_{uuid}.bin"


def _number(descriptor: Json, name: str, default: int | None = None) -> int:
    value = descriptor.get(name)
    if value is None:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _corrupt(descriptor, f"has the {name} {value!r}")
    return value


def _corrupt(descriptor: Json, reason: str) -> Corrupt:
    shown = str(descriptor.get("pathOrInlineDv"))[:40]
    return Corrupt(f"the deletion vector {descriptor.get('storageType')}{shown} {reason}")
