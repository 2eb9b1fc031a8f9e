"""Reads just enough of an ELF file to tell what machine it is for and which libraries it asks the loader for."""

from __future__ import annotations

import struct
from pathlib import Path

AARCH64 = 183
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB = 0, 1, 5


def machine(path: Path) -> int:
    """The machine of a 64-bit, little-endian ELF file (183 is AArch64)."""
    header = path.read_bytes()[:20]
    assert header[:6] == b"\x7fELF\x02\x01", f"{path} is no 64-bit ELF file"
    (found,) = struct.unpack_from("<H", header, 18)
    return int(found)


def needed(path: Path) -> set[str]:
    """The names (DT_NEEDED) of the libraries that a shared object is linked to."""
    data = path.read_bytes()
    (offset,) = struct.unpack_from("<Q", data, 32)
    entry_bytes, count = struct.unpack_from("<HH", data, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", data, offset + i * entry_bytes) for i in range(count)]
    loaded = [(address, size, start) for kind, _, start, address, _, size, *_ in segments if kind == _PT_LOAD]
    (dynamic,) = ((start, size) for kind, _, start, _, _, size, *_ in segments if kind == _PT_DYNAMIC)
    names, table = [], 0
    for position in range(dynamic[0], dynamic[0] + dynamic[1], 16):
        tag, value = struct.unpack_from("<qQ", data, position)
        if tag == _DT_NULL:
            break
        if tag == _DT_NEEDED:
            names.append(value)
        if tag == _DT_STRTAB:
            table = next(start + value - at for at, size, start in loaded if at <= value < at + size)
    return {data[table + name : data.index(b"\0", table + name)].decode() for name in names}
