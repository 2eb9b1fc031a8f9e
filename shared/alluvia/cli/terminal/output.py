"""What commands print: reports and tables for people, JSON lines with `--json`."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson

from alluvia.cli.terminal.layout import CUT, GAP, Grid, fitted, whole
from alluvia.cli.terminal.terminal import columns as terminal_columns
from alluvia.cli.terminal.terminal import escaped, on_one_line, say, say_json

NULL = "NULL"


def show(rows: Iterable[Mapping[str, Any]], *, as_json: bool, columns: Sequence[str] | None = None) -> None:
    """Print rows: one JSON object a line, or a table; of no rows, nothing."""
    if as_json:
        for row in rows:
            say_json(_json(row) + b"\n")
        return
    found = list(rows)
    names = list(columns or dict.fromkeys(name for row in found for name in row))
    if found:
        show_table(names, [[row.get(name) for name in names] for row in found])


def show_one(value: Any, *, as_json: bool) -> None:
    """Print one report: a JSON object, or a line for each of its fields."""
    row = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    if as_json:
        say_json(_json(row) + b"\n")
        return
    width = max(map(len, row), default=0)
    for name, each in row.items():
        say(_fitted(f"{name.replace('_', ' '):<{width}}{GAP}", on_one_line(cell(each))))


def show_table(names: Sequence[str], rows: Sequence[Sequence[Any]], null: str = "") -> None:
    """Print rows with their names above, numbers to the right; on a terminal, so that they fit it, and escaped."""
    columns = terminal_columns()
    cells = [[cell(value, null) for value in row] for row in rows]
    right = [_numeric([row[at] for row in rows]) for at in range(len(names))]
    if columns is None:
        say(whole(Grid(names, cells, right)))
        return
    far = 8 * columns + 1  # characters: more are cut in any case, and a value may have a million
    shown = [[escaped(each[:far]) for each in row] for row in cells]
    text, cut = fitted(Grid(list(map(escaped, names)), shown, right), columns)
    say(text)
    if cut:
        note(f"{CUT} cut to fit; a wider terminal shows more, --json all")


def note(text: str) -> None:
    """Print what a table leaves out."""
    say(_fitted("", text))


def _fitted(start: str, text: str) -> str:
    """Return a text behind a start; on a terminal with the start's width kept free below it, where it needs lines."""
    room = (terminal_columns() or 1 << 30) - len(start)
    if len(text) * 2 <= room or room < 1:  # a character takes two columns at most
        return start + text
    from wcwidth import wrap

    return start + f"\n{' ' * len(start)}".join(wrap(text, room) or [""])


def cell(value: Any, null: str = "") -> str:
    """Return a value as a table shows it."""
    if value is None:
        return null
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return _moment(value, " ")
    if isinstance(value, (list, tuple)):
        shown = ", ".join(cell(each, null) for each in value[:8])
        return f"{shown}, … {len(value)} in all" if len(value) > 8 else shown
    if isinstance(value, (dict, orjson.Fragment)):
        return _json(value).decode()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def size(bytes_: int) -> str:
    """Return a number of bytes as people read it."""
    number = float(bytes_)
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TB"


def _numeric(values: Sequence[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(v, (int, float, Decimal)) and not isinstance(v, bool) for v in present)


def _moment(value: datetime, separator: str) -> str:
    utc = value if value.tzinfo is None else value.astimezone(UTC)
    text = utc.replace(tzinfo=None).isoformat(separator)
    return text.rstrip("0") if utc.microsecond else text


def _json(value: Any) -> bytes:
    return orjson.dumps(value, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return _moment(value, "T") + ("" if value.tzinfo is None else "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)
