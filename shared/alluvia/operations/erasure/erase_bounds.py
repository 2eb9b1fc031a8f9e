"""What statistics and partition values in a log show of fields without a column of the table. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from alluvia.delta.schema.names import fold
from alluvia.delta.statistics.typed import parse_statistics
from alluvia.delta.statistics.written import TEXT_LENGTH_MAX
from alluvia.operations.erasure.erase_places import PROPERTIES, FieldPlaces

_BOUNDS = ("minValues", "maxValues")


class TextBounds:
    """Finds values of a condition in bounds of `properties` and of columns that a table has lost, as texts.

    Bounds of a text that was cut show a value if they end with its beginning.
    """

    def __init__(self, places: FieldPlaces, words: Collection[str]) -> None:
        self._places = places
        self._words = words
        self._names = frozenset(name for field in places.fields for name in field.names)
        names = "|".join(sorted(map(re.escape, self._names)))
        self._ends = re.compile(rf'(?i)"(?:{names})"\s*:\s*"?(?P<start>[^"]+)$') if names else None

    def in_bounds(self, stats: str | None) -> bool:
        """Whether a file's statistics show a value."""
        if stats is None or not self._words:
            return False
        parsed = parse_statistics(stats, exact=False)
        return any(self._shows(path, value) for bound in _BOUNDS for path, value in _leaves(parsed.get(bound)))

    def in_values(self, values: Mapping[str, str | None]) -> bool:
        """Whether a file's partition values show a value, of a column that the table has no more."""
        named = (value for name, value in values.items() if name not in self._places.stored and self._means(name))
        return any(value in self._words for value in named)

    def _means(self, name: str) -> bool:
        return not self._names.isdisjoint({fold(name), *self._places.lost.get(name, ())})

    def _shows(self, path: tuple[str, ...], value: Any) -> bool:
        if value is None or isinstance(value, bool):
            return False
        text = str(value)
        if path[0] not in self._places.stored and self._means(path[0]):
            return text in self._words or any(word[: len(text)] == text for word in self._words if _is_cut(text))
        if fold(path[0]) != PROPERTIES and PROPERTIES not in self._places.lost.get(path[0], ()):
            return False
        if any(word in text for word in self._words if not word.isdecimal() or f'"{word}"' in text):
            return True
        cut = self._ends.search(text.rstrip("\U0010ffff\ufffd")) if self._ends is not None else None
        return cut is not None and any(_begins(word, cut["start"]) for word in self._words)


def _begins(word: str, start: str) -> bool:
    """Whether a text that was cut may be a word: the last character of an upper bound is another one."""
    return word.startswith(start) or (len(start) > 1 and word.startswith(start[:-1]))


def _is_cut(text: str) -> bool:
    return len(text) >= TEXT_LENGTH_MAX


def _leaves(bounds: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(bounds, dict):
        for name, value in bounds.items():
            yield from _leaves(value, (*path, name))
    elif path:
        yield path, bounds
