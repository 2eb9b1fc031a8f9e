"""Damage to the files of a table: of bytes, of lines, and of values in JSON. Everything follows from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import orjson

Files = dict[str, bytes]
ODD = [None, 0, -1, 1.5, True, "", "x", [], {}, [1], {"a": 1}, "1e400", 2**63 - 1, "%zz", "a\u0000b"]


def damaged(files: Files, chance: random.Random) -> tuple[Files, str]:
    """Return a table's files with one of its log's files damaged, and what was done."""
    name = chance.choice(sorted(name for name in files if name.startswith("_delta_log/")))
    if chance.random() < 0.05:
        return {key: data for key, data in files.items() if key != name}, f"{name} is gone"
    is_json = name.endswith((".json", "_last_checkpoint"))
    kinds = [_value, _value, _inner_value, _cut, _line_gone, _line_twice, _byte] if is_json else [_byte, _bytes, _cut]
    kind = chance.choice(kinds)
    return {**files, name: kind(files[name], chance)}, f"{name}: {kind.__name__}"


def flipped(data: bytes, chance: random.Random) -> bytes:
    """Return some bytes with one of them changed."""
    return _byte(data, chance)


def _byte(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ chance.randrange(1, 256)]) + data[at + 1 :]


def _bytes(data: bytes, chance: random.Random) -> bytes:
    for _ in range(20):
        data = _byte(data, chance)
    return data


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def _line_gone(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def _line_twice(data: bytes, chance: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    return b"".join([*lines, b"\n", chance.choice(lines)])


def _value(data: bytes, chance: random.Random) -> bytes:
    return _line_changed(data, chance, lambda line: _changed(line, chance))


def _inner_value(data: bytes, chance: random.Random) -> bytes:
    """Change a value in the JSON that stands as text in an action: statistics and schemas."""

    def change(line: Any) -> None:
        texts = [(owner, key) for owner, key in _places(line) if key in ("stats", "schemaString")]
        if not texts:
            _changed(line, chance)
            return
        owner, key = chance.choice(texts)
        try:
            inner = orjson.loads(owner[key])
        except ValueError:
            return
        _changed(inner, chance)
        owner[key] = orjson.dumps(inner).decode()

    return _line_changed(data, chance, change)


def _line_changed(data: bytes, chance: random.Random, change: Callable[[Any], None]) -> bytes:
    lines = [line for line in data.splitlines() if line.strip()]
    at = chance.randrange(len(lines))
    whole = orjson.loads(lines[at])
    change(whole)
    lines[at] = orjson.dumps(whole)
    return b"\n".join(lines) + b"\n"


def _changed(whole: Any, chance: random.Random) -> None:
    places = _places(whole)
    if not places:
        return
    owner, key = chance.choice(places)
    if chance.random() < 0.25:
        del owner[key]
    else:
        owner[key] = chance.choice(ODD)


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        keys: list[Any] = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    else:
        return found
    for key in keys:
        found += [(value, key), *_places(value[key])]
    return found
