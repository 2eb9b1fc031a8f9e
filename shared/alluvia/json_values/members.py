"""Members of JSON objects that are text: the value of one, and the text without it. Pure.

Of equal keys the first counts, like in DuckDB. A text that is not valid JSON has no members.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from alluvia.errors import Invalid
from alluvia.json_values.jsontext import decode, decode_all, encode_all, exact_number

_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_KEY = re.compile(rf"[ \t\r\n]*({_STRING})[ \t\r\n]*:[ \t\r\n]*", re.DOTALL)
_NESTING = re.compile(rf"{_STRING}|[\[\]{{}}]", re.DOTALL)
_SCALAR = re.compile(rf'{_STRING}|[^,}}\]\[{{" \t\r\n]+', re.DOTALL)
_NEXT = re.compile(r"[ \t\r\n]*([,}])", re.DOTALL)
_OPENING = re.compile(r"[ \t\r\n]*\{", re.DOTALL)
_EMPTY = re.compile(r"[ \t\r\n]*\}", re.DOTALL)


def values_of(texts: Sequence[str], key: str) -> list[Any]:
    """Return the value of each text under a key; None for an object without it, and for anything else."""
    values = decode_all([text.encode("utf-8", "surrogatepass") for text in texts])
    return [
        _value_of(text, key) if isinstance(value, Invalid) else value.get(key) if isinstance(value, dict) else None
        for text, value in zip(texts, values, strict=True)
    ]


def _value_of(text: str, key: str) -> Any:
    """Return the value under a key of a text that ingestion refuses: keys are repeated, or it is nested too deeply."""
    if not is_valid(text):
        return None
    for name, _, start, end in _members(text):
        if name == key:
            try:
                return decode(text[start:end].encode("utf-8", "surrogatepass"))
            except Invalid:  # no column takes it
                return None
    return None


def is_valid(text: str) -> bool:
    """Whether a text is JSON, apart from repeated keys and NaN, however deep it is nested."""
    try:
        orjson.dumps(_FORGIVING.decode(text), default=str)
    except RecursionError:
        return True
    except TypeError as error:
        return "ecursion" in str(error)
    except ValueError:
        return False
    return True


def without_member(texts: Sequence[str], key: str) -> list[str]:
    """Return the texts of objects without a key, their other members as they are; other texts as they are."""
    values = decode_all([text.encode("utf-8", "surrogatepass") for text in texts])
    again = encode_all([value if isinstance(value, dict) else None for value in values])
    rest = [
        {name: each for name, each in value.items() if name != key} if isinstance(value, dict) else None
        for value in values
    ]
    return [
        (left.decode() if key in value else text)
        if isinstance(value, dict) and same.decode() == text
        else _without(text, value, key)
        for text, value, same, left in zip(texts, values, again, encode_all(rest), strict=True)
    ]


def _without(text: str, value: Any, key: str) -> str:
    """Return what `without_member` does for a text that is spelled in another way than this library writes."""
    if not isinstance(value, dict) and (not isinstance(value, Invalid) or not is_valid(text)):
        return text
    members = list(_members(text))
    kept = [text[start:end] for name, start, _, end in members if name != key]
    return text if len(kept) == len(members) else "{" + ",".join(kept) + "}"


def with_member_aside(text: str, key: str) -> str:
    """Return the text of an object that has a key with that member in an object of its own, under `_properties`.

    There are more underscores in front as long as that name is taken.
    """
    members = list(_members(text))
    names = {name for name, *_ in members}
    aside = "_properties"
    while aside in names:
        aside = f"_{aside}"
    found = next((text[start:end] for name, start, _, end in members if name == key), None)
    kept = [text[start:end] for name, start, _, end in members if name != key]
    return text if found is None else "{" + ",".join([*kept, f'"{aside}":{{{found}}}']) + "}"


def _members(text: str) -> Iterator[tuple[str, int, int, int]]:
    """Yield the members of an object's valid text: the key, and where it, its value and the end of that are."""
    opening = _OPENING.match(text)
    if opening is None or _EMPTY.match(text, opening.end()):
        return
    at = opening.end()
    while True:
        key = _KEY.match(text, at)
        if key is None:
            return
        end = _end_of_value(text, key.end())
        following = _NEXT.match(text, end)
        yield json.loads(key[1]), key.start(1), key.end(), end
        if following is None or following[1] == "}":
            return
        at = following.end()


def _end_of_value(text: str, start: int) -> int:
    if text[start : start + 1] not in ("{", "["):
        scalar = _SCALAR.match(text, start)
        return start if scalar is None else scalar.end()
    depth = 0
    for token in _NESTING.finditer(text, start):
        if token[0] in ("{", "["):
            depth += 1
        elif token[0] in ("}", "]"):
            depth -= 1
            if not depth:
                return token.end()
    return len(text)


_FORGIVING = json.JSONDecoder(parse_int=exact_number, parse_float=exact_number)
