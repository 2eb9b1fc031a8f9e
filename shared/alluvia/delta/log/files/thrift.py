"""Read and write structs in Thrift's compact protocol without knowing what their fields mean. Pure.

Parquet's footers are such structs. A library would need the definition of every field, and lose what it does not know.
Source: Thrift, "Thrift compact protocol encoding".
"""

from __future__ import annotations

from typing import Any, NamedTuple

_TRUE, _FALSE, _I8, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _, _STRUCT = range(1, 13)
BINARY, I32, I64, LIST, STRUCT = _BINARY, _I32, _I64, _LIST, _STRUCT
_NUMBERS = (_I16, _I32, _I64)
_LONG = 15
"""A list of this many items or more has their number behind its first byte."""
_BITS_MAX = 63
"""Before the last byte of a number, which has 64 bits."""


class Field(NamedTuple):
    """A field of a struct or a list: its type, as the protocol numbers them, and its value.

    Numbers are `int`, binaries and texts `bytes`, structs `Struct`, lists and sets `Items`.
    """

    kind: int
    value: Any


Struct = dict[int, Field]
"""Fields by their ids."""


class Items(NamedTuple):
    """What a list or a set holds: the type of its items, and their values."""

    kind: int
    values: list[Any]


def read_struct(data: bytes) -> Struct:
    """Read the struct with which some bytes begin. Raises `IndexError` and `ValueError` for other bytes."""
    return _Reader(data, 0).struct()


def read_struct_at(data: bytes, at: int) -> tuple[Struct, int]:
    """Read the struct that begins at a place in some bytes, and return where it ends, too. Raises as `read_struct`."""
    reader = _Reader(data, at)
    return reader.struct(), reader.at


def written_struct(struct: Struct) -> bytes:
    """Return the bytes of a struct."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self.at = at

    def struct(self) -> Struct:
        fields: Struct = {}
        last = 0
        while header := self._byte():
            last = last + (header >> 4) if header >> 4 else self._zigzag()
            kind = header & 15
            if last in fields:
                raise ValueError(f"field {last} stands twice in a struct")
            fields[last] = Field(kind, kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind))
        return fields

    def _value(self, kind: int) -> Any:
        if kind in _NUMBERS:
            return self._zigzag()
        if kind == _STRUCT:
            return self.struct()
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind in (_LIST, _SET):
            header = self._byte()
            count = header >> 4 if header >> 4 < _LONG else self._varint()
            return Items(header & 15, [self._value(header & 15) for _ in range(count)])
        if kind in (_TRUE, _FALSE, _I8):  # a truth in a list takes a byte
            return self._byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        raise ValueError(f"type {kind} of Thrift is not one that Parquet uses")

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _bytes(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self._data):
            raise IndexError(f"a value of {count} bytes ends after all of them")
        return self._data[self.at - count : self.at]

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > _BITS_MAX:
                raise ValueError("a number of Thrift has more than 64 bits")
        return number | byte << shift

    def _zigzag(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)


def _write_struct(out: bytearray, struct: Struct) -> None:
    last = 0
    for at, (kind, value) in sorted(struct.items()):
        step = at - last
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _write_zigzag(out, at)
        if kind not in (_TRUE, _FALSE):
            _write(out, kind, value)
        last = at
    out.append(0)


def _write(out: bytearray, kind: int, value: Any) -> None:
    if kind in _NUMBERS:
        _write_zigzag(out, value)
    elif kind == _STRUCT:
        _write_struct(out, value)
    elif kind == _BINARY:
        _write_varint(out, len(value))
        out += value
    elif kind in (_LIST, _SET):
        count = len(value.values)
        out.append(min(count, _LONG) << 4 | value.kind)
        if count >= _LONG:
            _write_varint(out, count)
        for each in value.values:
            _write(out, value.kind, each)
    elif kind == _DOUBLE:
        out += value
    else:
        out.append(value)


def _write_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _write_zigzag(out: bytearray, number: int) -> None:
    _write_varint(out, number << 1 if number >= 0 else (-number << 1) - 1)
