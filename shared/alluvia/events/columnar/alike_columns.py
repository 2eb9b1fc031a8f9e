"""Objects with the same keys, as a column for each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import add
from typing import NamedTuple

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.events.ingest.values import all_but

Path = tuple[str, ...]
NUMBER = pa.binary()
"""The type of a column of numbers that may have a fraction: as sent, each of them as `orjson` writes it too."""


class Separators(NamedTuple):
    """What stands between keys and values, and between the fields of an object."""

    colon: str = ":"
    comma: str = ","


COMPACT = Separators()
_FEW = 16  # objects, which are written or left out one by one


def _text_of(value: str | float | bytes | None) -> str:
    """Return the JSON text of a value in a column."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, bytes):
        return value.decode()
    return "null" if value is None else str(value).lower()


@lru_cache(maxsize=64)  # most blocks are like the one before
def literals_of(
    paths: tuple[Path, ...], quoted: frozenset[Path], null: frozenset[Path], separators: Separators = COMPACT
) -> Sequence[str]:
    """Return what stands before, between and after the values at some paths, in JSON text of an object.

    A part of them are in quotes. Those that are null stand in what is returned.
    """
    found = ["{"]
    parents: Path = ()
    for number, path in enumerate(paths):
        pairs = enumerate(zip(parents, path, strict=False))
        shared = next((at for at, (one, other) in pairs if one != other), len(parents))
        found[-1] += "}" * (len(parents) - shared) + (separators.comma if number else "")
        found[-1] += "".join(f'"{name}"{separators.colon}{{' for name in path[shared:-1])
        found[-1] += f'"{path[-1]}"{separators.colon}'
        parents = path[:-1]
        if path in null:
            found[-1] += "null"
            continue
        quote = '"' if path in quoted else ""
        found[-1] += quote
        found.append(quote)
    found[-1] += "}" * (len(parents) + 1)
    return found


class AlikeColumns:
    """Objects with the same keys, as a column for each value that is not an object, by the path of keys to it.

    A column is of the type `string`, `int64`, `bool` or `NUMBER`, with nulls.
    """

    def __init__(self, columns: Mapping[Path, pa.Array], separators: Separators = COMPACT) -> None:
        self.columns = columns
        self._separators = separators  # as sent
        self._json: dict[Path, pa.Array] = {}

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def texts(self, paths: Mapping[Path, Path], end: str = "", separators: Separators = COMPACT) -> pa.Array:
        """Return for each object the JSON text of one with other paths in that order, and an end.

        paths: where the values of those are in these objects.
        """
        found = {path: self.columns[place] for path, place in paths.items()}
        null = frozenset(path for path, column in found.items() if column.null_count == len(column))
        plain = frozenset(path for path, each in found.items() if each.type == pa.string() and not each.null_count)
        literals = [*literals_of(tuple(paths), plain, null, separators)]
        literals[-1] += end
        columns = [
            found[path] if path in plain else self._json_of(place) for path, place in paths.items() if path not in null
        ]
        if not columns:
            return pa.repeat(literals[0], len(self))
        first, *others = columns
        rest = [each for pair in zip(literals[1:], others, strict=False) for each in pair]
        return pc.binary_join_element_wise(literals[0], first, *rest, literals[-1], "")

    def _json_of(self, path: Path) -> pa.Array:
        if path not in self._json:
            column = self.columns[path]
            is_text = pa.types.is_string(column.type)
            found = pc.binary_join_element_wise('"', column, '"', "") if is_text else column.cast(pa.string())
            self._json[path] = pc.fill_null(found, "null") if found.null_count else found
        return self._json[path]

    def at(self, places: Sequence[int]) -> AlikeColumns:
        """Return the objects at some places."""
        taken = pa.array(places, pa.int64())
        return AlikeColumns({name: column.take(taken) for name, column in self.columns.items()}, self._separators)

    def without(self, places: Sequence[int]) -> AlikeColumns:
        """Return all objects but those at some places, in order."""
        if len(places) > _FEW:
            return self.at(all_but(places, len(self)))
        starts = [0, *(place + 1 for place in places)]
        pieces = [(start, end - start) for start, end in zip(starts, [*places, len(self)], strict=True)]

        def rest(columns: Mapping[Path, pa.Array]) -> dict[Path, pa.Array]:
            return {name: pa.concat_arrays([each.slice(*piece) for piece in pieces]) for name, each in columns.items()}

        found = AlikeColumns(rest(self.columns), self._separators)
        found._json = rest(self._json)
        return found

    def lines_at(self, places: Sequence[int]) -> list[bytes]:
        """Return the JSON texts of some objects as sent."""
        if len(places) <= _FEW:
            return [self._line(place) for place in places]
        return self.at(places).lines().cast(pa.binary()).to_pylist()

    def _line(self, place: int) -> bytes:
        none: frozenset[Path] = frozenset()
        before, *after = literals_of(tuple(self.columns), none, none, self._separators)
        values = (_text_of(column[place].as_py()) for column in self.columns.values())
        return (before + "".join(map(add, values, after))).encode()

    def lines(self, end: str = "") -> pa.Array:
        """Return the objects' JSON texts as sent, and an end."""
        return self.texts({path: path for path in self.columns}, end, self._separators)
