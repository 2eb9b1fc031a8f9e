"""Lay out rows as a table: in full, or to fit a width, where a row that does not fit becomes a block. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from alluvia.lazy_dataclasses import dataclass

GAP = "  "
TEXT_WIDTH_MIN = 16
NAME_WIDTH_MIN = 6
CUT = "…"


@dataclass(frozen=True, slots=True)
class Grid:
    """Names and cells of columns, as text; `right` says which stand to the right, as numbers do."""

    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[bool]


def whole(grid: Grid) -> str:
    """Return a table of all that the cells hold; a cell of several lines takes several."""
    rows = [[cell.split("\n") for cell in row] for row in grid.rows]
    widths = [
        max([width_of(name), *(width_of(line) for row in rows for line in row[at])])
        for at, name in enumerate(grid.names)
    ]
    lines = [line for row in rows for line in zip_longest(*row, fillvalue="")]
    return _table(grid, widths, lines)


def fitted(grid: Grid, columns: int) -> tuple[str, bool]:
    """Return a table of cells without line ends that is at most `width` columns wide, and whether it cuts any value.

    Columns of text are cut, the widest first; numbers never are. Where that would leave too little, each row becomes a
    block with a line for each value.
    """
    most = [max((_bounded(row[at], columns) for row in grid.rows), default=0) for at in range(len(grid.names))]
    names = [_bounded(name, columns) for name in grid.names]
    natural = list(map(max, names, most))
    least = [
        max(cells, min(name, NAME_WIDTH_MIN)) if right else min(max(cells, name), TEXT_WIDTH_MIN)
        for name, cells, right in zip(names, most, grid.right, strict=True)
    ]
    room = columns - len(GAP) * (len(natural) - 1)
    if sum(least) > room:
        return _blocks(grid, columns)
    widths = _shrunk(natural, least, room)
    cut = any(cells > width for cells, width in zip(most, widths, strict=True))
    shown = Grid(
        list(map(cut_to, grid.names, widths)), [list(map(cut_to, row, widths)) for row in grid.rows], grid.right
    )
    return _table(shown, widths, shown.rows), cut


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from wcwidth import width

    return width(text)


def _table(grid: Grid, widths: Sequence[int], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return GAP.join(map(_pad, cells, widths, grid.right)).rstrip(" ")

    return "\n".join([line(grid.names), GAP.join("─" * width for width in widths), *map(line, rows)])


def _blocks(grid: Grid, columns: int) -> tuple[str, bool]:
    name_width = min(max(map(width_of, grid.names)), max(1, columns // 2 - len(GAP)))
    value_width = max(1, columns - name_width - len(GAP))
    names = [_pad(cut_to(name, name_width), name_width, False) for name in grid.names]
    lines, cut = [], False
    for number, row in enumerate(grid.rows, 1):
        lines.append(f"── row {number} {'─' * columns}"[:columns])
        for name, cell in zip(names, row, strict=True):
            lines.append(f"{name}{GAP}{cut_to(cell, value_width)}".rstrip(" "))
            cut = cut or _bounded(cell, columns) > value_width
    return "\n".join(lines or [cut_to(GAP.join(grid.names), columns)]), cut


def _shrunk(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return widths that fit, by making the widest column narrower as long as it takes. `least` fits."""
    widths = list(natural)
    while sum(widths) > room:
        widest = max((width, at) for at, width in enumerate(widths) if width > least[at])[1]
        widths[widest] -= 1
    return widths


def _bounded(text: str, columns: int) -> int:
    """Return a text's width; of one that is far too long for the terminal, only that it is wider."""
    return width_of(text) if len(text) <= 8 * columns else columns + 1


def cut_to(text: str, width: int) -> str:
    """Return a text that takes at most so many columns, with a sign at its end where some of it is missing."""
    if _bounded(text, width) <= width:
        return text
    head = text[: 8 * width]
    if head.isascii():
        return head[: width - 1] + CUT
    from wcwidth import clip

    return clip(head, 0, width - 1) + CUT


def _pad(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - width_of(text))
    return blanks + text if right else text + blanks
