"""Lay out tables, reports and progress with rich. Loaded only for a terminal. All texts are escaped before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from shutil import get_terminal_size

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

TEXT_WIDTH_MIN = 16
NAME_WIDTH_MIN = 6
CUT = "…"
BAR_WIDTH_MIN, BAR_WIDTH_MAX = 8, 20
_BLANKS = 2
"""Between columns."""


def cell_width(text: str) -> int:
    """Return the number of a terminal's columns that a text takes."""
    return cell_len(text)


def print_text(text: str) -> None:
    """Print a text, wrapped at its blanks."""
    _console().print(Text(text))


def print_fields(names: Iterable[str], values: Iterable[str]) -> None:
    """Print a line for each name and its value, which takes more lines if it is too wide."""
    table = Table.grid(padding=(0, _BLANKS, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in zip(names, values, strict=True):
        table.add_row(Text(name), Text(value))
    _console().print(table)


def print_table(names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    """Print a table at most as wide as the terminal; `right` says which columns stand to the right, as numbers do.

    Columns of text are cut, the widest first; numbers never are. If that is not enough, names above numbers are cut, no
    more than it takes. Where that would leave too little, each row becomes a block with a line for each value.
    """
    console = _console()
    # A value may have a million characters; more than these are cut in any case.
    far = 8 * console.width + 1
    rows = [[cell[:far] for cell in row] for row in rows]
    names = [name[:far] for name in names]
    widths = [max((cell_len(row[at]) for row in rows), default=0) for at in range(len(names))]
    heads = list(map(cell_len, names))
    room = console.width - _BLANKS * (len(names) - 1)
    for name_width in range(max(console.width, NAME_WIDTH_MIN), NAME_WIDTH_MIN - 1, -1):
        least = [
            max(width, min(head, name_width)) if is_right else min(max(width, head), TEXT_WIDTH_MIN)
            for width, head, is_right in zip(widths, heads, right, strict=True)
        ]
        if sum(least) <= room:
            fixed = [width if is_right else None for width, is_right in zip(least, right, strict=True)]
            console.print(_table(names, rows, fixed))
            is_cut = sum(map(max, widths, heads)) > room
            break
    else:
        is_cut = _print_blocks(console, names, rows)
    if is_cut:
        print_text(f"{CUT} cut to fit; a wider terminal shows more, --json all")


def _console() -> Console:
    return Console(width=get_terminal_size().columns, markup=False, highlight=False, emoji=False)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int | None]) -> Table:
    """Return a table whose columns have fixed widths, and numbers, or share the rest.

    It has one row of many lines, which rich lays out four times as fast as many rows.
    """
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _BLANKS - 1, 0, 0), border_style="dim")
    for name, width in zip(names, widths, strict=True):
        table.add_column(_lines([name]), justify="left" if width is None else "right", width=width)
    if rows:
        table.add_row(*(_lines(cells) for cells in zip(*rows, strict=True)))
    return table


def _lines(texts: Iterable[str]) -> Text:
    return Text("\n".join(texts), no_wrap=True, overflow="ellipsis")


def _print_blocks(console: Console, names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Print a block for each row, and return whether a value is cut."""
    columns = console.width
    name_width = min(max(map(cell_len, names)), max(1, columns // 2 - 2))
    value_width = max(1, columns - name_width - 2)
    heads = [_cut(name, name_width, pad=True) for name in names]
    lines = [] if rows else [_cut("  ".join(names), columns)]
    for number, row in enumerate(rows, 1):
        lines.append(f"── row {number} {'─' * columns}"[:columns])
        lines += [f"{head}  {_cut(cell, value_width)}".rstrip(" ") for head, cell in zip(heads, row, strict=True)]
    console.print(Text("\n".join(lines)))
    return any(cell_len(cell) > value_width for row in rows for cell in row)


def _cut(text: str, width: int, *, pad: bool = False) -> str:
    line = Text(text)
    line.truncate(width, overflow="ellipsis", pad=pad)
    return line.plain


class _StandardError(Console):
    def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002
        """Leave the cursor as it is: a process that is killed could not show it again."""
        return False


def live_line(state: Callable[[], tuple[str, int, int]]) -> Live:
    """Return a line on standard error: a text and, of a known total, a bar. A thread draws it, and it is wiped out."""
    console = _StandardError(stderr=True, markup=False, highlight=False, emoji=False)

    def drawn() -> Table:
        text, done, total = state()
        cells: list[Text | ProgressBar] = [_lines([text])]
        room = console.width - cell_len(text) - 1
        if total and room >= BAR_WIDTH_MIN:
            cells.append(ProgressBar(total, done, width=min(room, BAR_WIDTH_MAX)))
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_row(*cells)
        return line

    return Live(get_renderable=drawn, console=console, refresh_per_second=5, transient=True, redirect_stdout=False)
