"""Objects with the same keys, as a column for each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc

Path = tuple[str, ...]
NUMBER = pa.binary()
"""The type of a column of numbers of which some have a fraction: each of them as `orjson` writes it."""


class JsonColumns:
    """Objects with the same keys, as a column for each value that is not an object, by the path of keys to it.

    A column is of the type `string`, `int64`, `bool`, `float64` or `NUMBER`, with nulls. No text needs an escape in
    JSON. A `float64` was sent as `orjson` writes it.
    """

    def __init__(self, columns: Mapping[Path, pa.Array]) -> None:
        self.columns = columns
        self._json: dict[Path, pa.Array] = {}

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def texts(self, paths: Mapping[Path, Path]) -> pa.Array:
        """Return for each object the JSON text of one with other paths in that order.

        paths: where the values of those are in these objects.
        """
        by_path = {path: self.columns[place] for path, place in paths.items()}
        null = frozenset(path for path, column in by_path.items() if column.null_count == len(column))
        plain = frozenset(path for path, each in by_path.items() if each.type == pa.string() and not each.null_count)
        literals = _literals_of(tuple(paths), plain, null)
        columns = [
            by_path[path] if path in plain else self._json_of(place)
            for path, place in paths.items()
            if path not in null
        ]
        if not columns:
            return pa.repeat(literals[0], len(self))
        first, *others = columns
        rest = [each for pair in zip(literals[1:], others, strict=False) for each in pair]
        return pc.binary_join_element_wise(literals[0], first, *rest, literals[-1], "")

    def _json_of(self, path: Path) -> pa.Array:
        if path not in self._json:
            column = self.columns[path]
            column = numbers(column.to_pylist()) if pa.types.is_float64(column.type) else column
            is_text = pa.types.is_string(column.type)
            json = pc.binary_join_element_wise('"', column, '"', "") if is_text else column.cast(pa.string())
            self._json[path] = pc.fill_null(json, "null") if json.null_count else json
        return self._json[path]


def numbers(values: Sequence[float | None]) -> pa.Array:
    """Return some numbers as a column of the type `NUMBER`."""
    texts = orjson.dumps(values)[1:-1].split(b",")
    return pa.array([None if text == b"null" else text for text in texts], NUMBER)


@lru_cache(maxsize=64)  # most blocks are like the one before
def _literals_of(paths: tuple[Path, ...], quoted: frozenset[Path], null: frozenset[Path]) -> Sequence[str]:
    """Return what stands before, between and after the values at some paths, in JSON text of an object.

    A part of them are in quotes. Those that are null stand in what is returned.
    """
    literals = ["{"]
    parents: Path = ()
    for number, path in enumerate(paths):
        pairs = enumerate(zip(parents, path, strict=False))
        shared = next((at for at, (one, other) in pairs if one != other), len(parents))
        literals[-1] += "}" * (len(parents) - shared) + ("," if number else "")
        literals[-1] += "".join(f'"{name}":{{' for name in path[shared:-1])
        literals[-1] += f'"{path[-1]}":'
        parents = path[:-1]
        if path in null:
            literals[-1] += "null"
            continue
        quote = '"' if path in quoted else ""
        literals[-1] += quote
        literals.append(quote)
    literals[-1] += "}" * (len(parents) + 1)
    return literals
