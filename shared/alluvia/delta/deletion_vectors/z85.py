"""Z85, the base-85 encoding of deletion vectors. Pure. Source: ZeroMQ RFC 32, "Z85".

The reference implementation pads bytes to a multiple of four with zeros. Others shorten the last word instead, as the
Rust crate z85 does: each missing byte is a `#` in front of the digits of the rest, which no complete word starts with.
"""

from __future__ import annotations

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
