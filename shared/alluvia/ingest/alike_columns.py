"""Objects with the same keys, as a column for each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.ingest.values import all_but

NUMBER = pa.binary()
"""The type of a column of numbers that may have a fraction: as sent, each of them as `orjson` writes it too."""
_PIECES_MAX = 16


class Separators(NamedTuple):
    """What stands between keys and values, and between the fields of an object."""

    colon: str = ":"
    comma: str = ","


COMPACT = Separators()


class AlikeColumns:
    """Objects with the same keys, as a column for each, with nulls.

    Its type is `string`, `int64`, `bool` or `NUMBER`.
    """

    def __init__(self, columns: Mapping[str, pa.Array], separators: Separators = COMPACT) -> None:
        self.columns = columns
        self._separators = separators  # as sent
        self._json: dict[str, pa.Array] = {}

    def texts(self, names: Sequence[str], end: str = "", separators: Separators = COMPACT) -> pa.Array:
        """Return for each object the JSON text of its fields of those names, in that order, and an end."""
        literals: list[str] = []
        columns: list[pa.Array] = []
        literal = "{"
        for at, name in enumerate(names):
            column = self.columns[name]
            literal += f'{separators.comma if at else ""}"{name}"{separators.colon}'
            if column.null_count == len(column):
                literal += "null"
                continue
            plain = pa.types.is_string(column.type) and not column.null_count
            literals.append(f'{literal}"' if plain else literal)
            columns.append(column if plain else self._json_of(name, column))
            literal = '"' if plain else ""
        literal += f"}}{end}"
        if not columns:
            return pa.repeat(literal, len(self.columns[names[0]]))
        first, *others = columns
        rest = [each for pair in zip(literals[1:], others, strict=True) for each in pair]
        return pc.binary_join_element_wise(literals[0], first, *rest, literal, "")

    def _json_of(self, name: str, column: pa.Array) -> pa.Array:
        if name not in self._json:
            is_text = pa.types.is_string(column.type)
            found = pc.binary_join_element_wise('"', column, '"', "") if is_text else column.cast(pa.string())
            self._json[name] = pc.fill_null(found, "null") if found.null_count else found
        return self._json[name]

    def at(self, places: Sequence[int]) -> AlikeColumns:
        """Return the objects at some places."""
        taken = pa.array(places, pa.int64())
        return AlikeColumns({name: column.take(taken) for name, column in self.columns.items()}, self._separators)

    def without(self, places: Sequence[int]) -> AlikeColumns:
        """Return all objects but those at some places, in order."""
        size = len(next(iter(self.columns.values())))
        if len(places) > _PIECES_MAX:
            return self.at(all_but(places, size))
        starts = [0, *(place + 1 for place in places)]
        pieces = [(start, end - start) for start, end in zip(starts, [*places, size], strict=True)]

        def rest(columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
            return {name: pa.concat_arrays([each.slice(*piece) for piece in pieces]) for name, each in columns.items()}

        found = AlikeColumns(rest(self.columns), self._separators)
        found._json = rest(self._json)
        return found

    def lines(self, end: str = "") -> pa.Array:
        """Return the objects' JSON texts as sent, and an end."""
        return self.texts(list(self.columns), end, self._separators)
