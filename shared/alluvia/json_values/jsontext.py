"""Parse and write JSON without losing a digit or a key.

orjson is fast, but it silently turns integers beyond 64 bits into floats, rounds long fractions, and keeps only the
last of two equal keys. So its result is compared with the input, cheaply for many events at once, and only an event
that differs goes through the standard library's parser with hooks. Numbers keep their value, but not always their
notation: `1.10` may become `1.1`.
"""

from __future__ import annotations

import json
import math
import re
import sys
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import TYPE_CHECKING, NoReturn

import orjson

from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1
_DIGITS_SAFE = 15  # every decimal of up to 15 digits survives a double
_DECODED_AT_ONCE = 64  # texts: where one of them is odd, each of these is looked at by itself
_ENCODED_AT_ONCE = 256
_BETWEEN = orjson.Fragment(b"\n")  # which compact JSON text never holds
_TOKEN = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)  # of valid JSON: digits in it are not a number
_SKELETON = bytes(
    0x30 if chr(c) in "0123456789." else 0x65 if chr(c) in "eE" else 0x2D if chr(c) in "+-" else 0x20
    for c in range(256)
)
_SUSPECTS = (b"0" * (_DIGITS_SAFE + 1), b"0e000", b"0e-000")


class SeveralValues(Invalid):
    """The text is that of several objects or arrays, one after another."""


@dataclass(frozen=True, slots=True)
class ExactNumber:
    """A JSON number that neither a 64-bit integer nor a double gives back; `text` is its digits as sent."""

    text: str


def encode(value: object) -> bytes:
    """Return compact JSON text, key order kept. TypeError for what JSON cannot hold or deeper than 254 levels."""
    return orjson.dumps(value, default=_encode_exact, option=orjson.OPT_PASSTHROUGH_DATACLASS)


def canonical(value: object) -> bytes:
    """Return the JSON text that a value always has, however it was sent: compact, keys in order. TypeError as above."""
    return orjson.dumps(value, default=_encode_exact, option=orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_SORT_KEYS)


def encode_all(values: Sequence[object]) -> Iterator[bytes]:
    """Yield what `encode` gives for each of many values, several times as fast."""
    return _each_text(encode, values)


def canonical_all(values: Sequence[object]) -> Iterator[bytes]:
    """Yield what `canonical` gives for each of many values, several times as fast."""
    return _each_text(canonical, values)


def _each_text(text_of: Callable[[object], bytes], values: Sequence[object]) -> Iterator[bytes]:
    """Yield the text of each value. To make one of them costs about as much as to make one of a hundred values."""
    for start in range(0, len(values), _ENCODED_AT_ONCE):
        some = values[start : start + _ENCODED_AT_ONCE]
        if len(some) == 1:
            yield text_of(some[0])
            return
        mixed: list[object] = [_BETWEEN] * (2 * len(some) - 1)
        mixed[::2] = some
        try:
            yield from text_of(mixed)[1:-1].split(b",\n,")
        except TypeError:  # one is nested as deep as it may be, without a list around it
            yield from map(text_of, some)


def decode(raw: bytes) -> object:
    """Parse one JSON text. Invalid says what is wrong with it; equal keys in one object are wrong."""
    value = decode_all([raw])[0]
    if isinstance(value, Invalid):
        raise value
    return value


def decode_all(raws: Sequence[bytes]) -> list[object]:
    """Parse many JSON texts. In the place of one that `decode` would refuse stands the Invalid that says why."""
    values: list[object] = []
    for start in range(0, len(raws), _DECODED_AT_ONCE):
        values += _decode_some(raws[start : start + _DECODED_AT_ONCE])
    return values


def _decode_some(raws: Sequence[bytes]) -> list[object]:
    values = _parsed(raws)
    trust = _Trust.NONE if values is None else _compare(values, raws)
    if values is None or trust is _Trust.NONE:
        return [_decode_carefully(raw) if (plain := decode_if_plain(raw)) is None else plain[0] for raw in raws]
    if trust is _Trust.FULL:
        return values
    pairs = zip(raws, values, strict=True)
    return [value if _numbers_survive(raw) else _decode_carefully(raw) for raw, value in pairs]


def decode_if_plain(raw: bytes) -> tuple[object] | None:
    """Parse one JSON text; None if orjson fails or may have changed something."""
    values = _parsed([raw])
    if values is None:
        return None
    trust = _compare(values, [raw])
    return (values[0],) if trust is _Trust.FULL or (trust is _Trust.KEYS and _numbers_survive(raw)) else None


class _Trust(Enum):
    """The result of a comparison with a value that orjson parsed."""

    FULL = "nothing changed"
    KEYS = "no key was lost, but digits may be"
    NONE = "nothing is known"


def _parsed(raws: Sequence[bytes]) -> list[object] | None:
    try:
        return [orjson.loads(raw) for raw in raws]
    except orjson.JSONDecodeError:
        return None


def _compare(values: list[object], raws: Sequence[bytes]) -> _Trust:
    try:
        text = orjson.dumps(values)
    except TypeError:  # nested too deeply to be written again
        return _Trust.NONE
    sent = b",".join(raws)
    if text[1:-1] == sent or text[1:-1].replace(b" ", b"") == sent.replace(b" ", b""):
        return _Trust.FULL
    # A lost key takes a colon along; an escaped colon would spoil the count.
    if b"\\u003" in sent or text.count(b":") != sent.count(b":"):
        return _Trust.NONE
    return _Trust.KEYS if _has_long_numbers(sent) else _Trust.FULL


def split_array(raw: bytes, pieces_max: int = sys.maxsize) -> list[bytes] | None:
    """Cut the text of a JSON array into the texts of its elements; None if it is not a complete array.

    It stops after `pieces_max` elements, whatever follows.
    Elements may hold what `decode` refuses (NaN, equal keys, broken UTF-8): that is for each of them to answer.
    """
    pieces = _split(raw, ("[", "]"), pieces_max)
    return None if pieces is None else [piece for _, piece in pieces]


def split_object(raw: bytes) -> list[tuple[str, bytes]] | None:
    """Cut the text of a JSON object into its keys and the texts of their values, in the same way."""
    return _split(raw, ("{", "}"), sys.maxsize)


def _split(raw: bytes, brackets: tuple[str, str], pieces_max: int) -> list[tuple[str, bytes]] | None:
    """Return the texts between brackets, each with its key, "" in an array."""
    text = raw.decode("utf-8", "surrogateescape")
    opening, closing = brackets
    pieces: list[tuple[str, bytes]] = []
    at = _skip_space(text, 0)
    if text[at : at + 1] != opening:
        return None
    at = _skip_space(text, at + 1)
    while pieces or text[at : at + 1] != closing:
        try:
            key, at = _key(text, at) if opening == "{" else ("", at)
            _, end = _LENIENT.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        pieces.append((key, text[at:end].encode("utf-8", "surrogateescape")))
        if len(pieces) == pieces_max:
            return pieces
        at = _skip_space(text, end)
        if text[at : at + 1] != ",":
            break
        at = _skip_space(text, at + 1)
    closed = text[at : at + 1] == closing and _skip_space(text, at + 1) == len(text)
    return pieces if closed else None


def _key(text: str, at: int) -> tuple[str, int]:
    """Return a key of an object, and where its value begins. Raises ValueError if there is none."""
    key, end = _LENIENT.raw_decode(text, at)
    end = _skip_space(text, end)
    if text[at] != '"' or text[end : end + 1] != ":":
        raise ValueError(text[at])
    return str(key), _skip_space(text, end + 1)


def split_stream(raw: bytes, pieces_max: int) -> list[bytes]:
    """Cut JSON texts that follow one another into each of them, with or without space between.

    The last piece is what is left where no text can be read, or once there are so many.
    """
    text = raw.decode("utf-8", "surrogateescape")
    pieces: list[bytes] = []
    at = _skip_space(text, 0)
    while at < len(text):
        end = len(text)
        if len(pieces) < pieces_max - 1:
            with suppress(ValueError, RecursionError):
                _, end = _LENIENT.raw_decode(text, at)
        pieces.append(text[at:end].encode("utf-8", "surrogateescape"))
        at = _skip_space(text, end)
    return pieces


def exact_number(text: str) -> int | float | ExactNumber:
    """Return the number as an int or float if that loses nothing, else as its digits."""
    if text.lstrip("-").isdigit():
        if len(text) > 20:  # longer than any 64-bit integer; also int() is quadratic
            return ExactNumber(text)
        number = int(text)
        return number if _INT64_MIN <= number <= _UINT64_MAX else ExactNumber(text)
    return float(text) if survives_double(text) else ExactNumber(text)


def survives_double(text: str) -> bool:
    """Whether a double gives back the digits of the number `text`."""
    value = float(text)
    try:
        return math.isfinite(value) and Decimal(text) == Decimal(repr(value))
    except InvalidOperation:  # an exponent beyond what Decimal knows
        return False


def describe(value: object) -> str:
    """Name the kind of a JSON value, for a message."""
    kinds = {bool: "true or false", str: "a string", dict: "an object", list: "an array", type(None): "null"}
    return kinds.get(type(value), "a number")


def _has_long_numbers(valid: bytes) -> bool:
    return _has_long_digits(valid) and _has_long_digits(_TEXT.sub(b"", valid))


def _has_long_digits(sent: bytes) -> bool:
    skeleton = sent.translate(_SKELETON)
    return any(suspect in skeleton for suspect in _SUSPECTS)


def _numbers_survive(valid: bytes) -> bool:
    if not _has_long_numbers(valid):
        return True
    numbers = _TOKEN.findall(_TEXT.sub(b"", valid))
    tokens = (token for token in numbers if len(token) > _DIGITS_SAFE or b"e" in token.lower())
    return not any(isinstance(exact_number(token.decode()), ExactNumber) for token in tokens)


def _decode_carefully(raw: bytes) -> object:
    """Parse one JSON text; the Invalid that says what is wrong with it is returned, not raised."""
    try:
        value = _CAREFUL.decode(raw.decode("utf-8"))
        encode([value])
    except UnicodeDecodeError as error:
        return Invalid(f"not valid UTF-8: byte {error.start} of the JSON text")
    except json.JSONDecodeError as error:
        return _fault(error)
    except (RecursionError, TypeError) as error:
        if isinstance(error, RecursionError) or "Recursion" in str(error):
            return Invalid("nested too deeply: more than 250 levels")
        return Invalid("a string contains an unpaired surrogate (\\ud800 to \\udfff)")
    except Invalid as error:  # of a hook
        return error
    return value


def _fault(error: json.JSONDecodeError) -> Invalid:
    if error.msg != "Extra data":
        what = error.msg.rstrip(": ").removesuffix(" at")  # "… starting at", "Invalid \\escape: "
        return Invalid(f"not valid JSON: {what} at character {error.pos}")
    if error.doc[error.pos] in "{[":
        return SeveralValues(f"not valid JSON: another value begins at character {error.pos}")
    return Invalid(f"not valid JSON: more follows the value at character {error.pos}")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise Invalid(f"the key {twice!r} occurs twice in one object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise Invalid(f"not valid JSON: {name} is not a JSON number")


def _encode_exact(value: object) -> orjson.Fragment:
    if isinstance(value, ExactNumber):
        return orjson.Fragment(value.text)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


_LENIENT = json.JSONDecoder(strict=False, parse_int=str, parse_float=str)
"""Finds where a text ends. It takes more than JSON; the reader of the text refuses the rest."""
_CAREFUL = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=exact_number, parse_float=exact_number, parse_constant=_refuse_constant
)
