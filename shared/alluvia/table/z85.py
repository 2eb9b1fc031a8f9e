"""Z85, the base-85 text that deletion vectors stand in. Pure. Source: ZeroMQ RFC 32, "Z85"."""

from __future__ import annotations

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_POWERS = (85**4, 85**3, 85**2, 85, 1)


def encode_z85(data: bytes) -> str:
    """Return the text of bytes, which are padded with zeros to a multiple of four."""
    padded = data + bytes(-len(data) % 4)
    words = (int.from_bytes(padded[at : at + 4], "big") for at in range(0, len(padded), 4))
    return "".join(_DIGITS[word // power % 85] for word in words for power in _POWERS)


def decode_z85(text: str) -> bytes:
    """Return the bytes of a text, padding included. Raises `ValueError` for a text that is no Z85."""
    if len(text) % 5:
        msg = f"{len(text)} characters of Z85: expected a multiple of five"
        raise ValueError(msg)
    out = bytearray()
    for at in range(0, len(text), 5):
        word = 0
        for digit in text[at : at + 5]:
            if digit not in _VALUES:
                msg = f"{digit!r} is no digit of Z85"
                raise ValueError(msg)
            word = word * 85 + _VALUES[digit]
        if word >> 32:
            msg = f"{text[at : at + 5]!r} is no word of Z85"
            raise ValueError(msg)
        out += word.to_bytes(4, "big")
    return bytes(out)
