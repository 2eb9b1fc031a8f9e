"""Numbers of CSV whose points may group digits: `1.000` is 1000 in files of spreadsheets with decimal commas. Pure.

Other delimiters than the comma separate cells where commas are decimal. Another number of the same column and body,
such as `12.5`, shows that its points are decimal. Without one, a column of numbers takes no such cell, as in uploads
(decision 0066).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from alluvia.events.ingest.values import Given, Split

_GROUPED = re.compile(r"[-+]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+", re.ASCII)
_POINTED = re.compile(r"[-+]?[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?", re.ASCII)


class PointedCells:
    """Finds the doubtful numbers in the cells of a body with a delimiter other than the comma."""

    def __init__(self) -> None:
        self._grouped: set[str] = set()
        self._decimal: set[str] = set()

    def see(self, cells: Mapping[str, object]) -> None:
        """Take the cells of an event into account, by the names of their fields."""
        for name, cell in cells.items():
            if isinstance(cell, str) and "." in cell and name not in self._decimal:
                text = cell.strip()
                if _GROUPED.fullmatch(text):
                    self._grouped.add(name)
                elif _POINTED.fullmatch(text):
                    self._decimal.add(name)

    def noted(self, split: Split) -> Split:
        """Return the events with the names of their doubtful fields (`Given.pointed`)."""
        names = self._grouped - self._decimal
        if not names:
            return split
        events = []
        for event in split.events:
            found = sorted(name for name in names if _is_grouped(event.value.get(name)))
            given = replace(event.given or Given(), pointed=tuple(found)) if found else event.given
            events.append(event._replace(given=given))
        return replace(split, events=events)


def doubt_of(kind: pa.DataType, name: str, given: Given, value: object) -> str:
    """Return why a column of a type does not take the text of an event's field; "" if its points are not in doubt."""
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if name not in given.pointed or not isinstance(value, str) or not is_number:
        return ""
    return (
        f"{name}: points may be decimal or group digits, so that 1.000 is 1 or 1000: `alluvia ingest "
        "--decimal-separator` says which, and `alluvia rejects replay --set` repairs rejects"
    )


def _is_grouped(value: object) -> bool:
    return isinstance(value, str) and _GROUPED.fullmatch(value.strip()) is not None
