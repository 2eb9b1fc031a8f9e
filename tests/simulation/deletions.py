"""Deletion vectors as the Delta protocol describes them, read with no code of the library: small ones, in files."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from typing import Any

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def vector_path(descriptor: Mapping[str, Any]) -> str:
    """Return the path of a vector's file, below the table's root: a UUID in Z85 names it."""
    text = descriptor["pathOrInlineDv"]
    prefix, digits = text[:-20], text[-20:]
    words = [digits[at : at + 5] for at in range(0, 20, 5)]
    numbers = [sum(_Z85.index(digit) * 85 ** (4 - at) for at, digit in enumerate(word)) for word in words]
    name = f"deletion_vector_{uuid.UUID(bytes=struct.pack('>4I', *numbers))}.bin"
    return f"{prefix}/{name}" if prefix else name


def deleted_rows(descriptor: Mapping[str, Any], data: bytes) -> set[int]:
    """Return the positions that a vector deletes, of its file's bytes."""
    at = descriptor.get("offset") or 0
    size, magic, buckets, key, cookie = struct.unpack_from(">I", data, at) + struct.unpack_from("<IQII", data, at + 4)
    assert (size, magic, buckets, key) == (descriptor["sizeInBytes"], 1681511377, 1, 0)
    at += 4 + 20
    has_runs = cookie & 0xFFFF == 12347
    if has_runs:
        count, flags, at = (cookie >> 16) + 1, data[at], at + 1
    else:
        (count,), flags, at = struct.unpack_from("<I", data, at), 0, at + 4
    assert count == 1  # there are no files of 65,536 rows here
    (_, last) = struct.unpack_from("<2H", data, at)
    at += 4
    if not has_runs:  # where the container begins
        at += 4
    if not flags:
        return {*struct.unpack_from(f"<{last + 1}H", data, at)}
    (runs,) = struct.unpack_from("<H", data, at)
    pairs = struct.iter_unpack("<2H", data[at + 2 : at + 2 + 4 * runs])
    return {row for first, more in pairs for row in range(first, first + more + 1)}
