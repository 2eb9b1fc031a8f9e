"""What commands print: reports and tables for people, JSON lines with `--json`."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import zip_longest
from typing import Any

import orjson

from alluvia.cli.terminal.terminal import escaped, is_terminal, say, say_json

NULL = "NULL"


def show(answer: Any, *, as_json: bool, columns: Sequence[str] | None = None) -> None:
    """Print what a command returns: a line for each field of a mapping or record, a table of several, nothing of None.

    With `as_json`, each is one JSON object on a line. `columns` are those of the table; all by default.
    """
    alone = isinstance(answer, dict) or dataclasses.is_dataclass(answer)
    rows = map(_row, [answer] if alone else answer or ())
    if as_json:
        for row in rows:
            say_json(_json(row) + b"\n")
    elif alone:
        _show_fields(*rows)
    elif answers := list(rows):
        names = list(columns or dict.fromkeys(name for row in answers for name in row))
        show_table(names, [[row.get(name) for name in names] for row in answers])


def show_table(names: Sequence[str], rows: Sequence[Sequence[Any]], null: str = "") -> None:
    """Print rows with their names above, numbers to the right; on a terminal, so that they fit it, and escaped."""
    cells = [[cell(value, null) for value in row] for row in rows]
    right = [_numeric([row[at] for row in rows]) for at in range(len(names))]
    if not is_terminal():
        say(_aligned(names, cells, right))
        return
    from alluvia.cli.terminal.layout import print_table

    print_table(list(map(escaped, names)), [list(map(escaped, row)) for row in cells], right)


def note(text: str) -> None:
    """Print what a table leaves out."""
    if not is_terminal():
        say(text)
        return
    from alluvia.cli.terminal.layout import print_text

    print_text(escaped(text))


def _show_fields(row: dict[str, Any]) -> None:
    row = {_TIMES.get(name, name): _time_of(name, value) for name, value in row.items()}
    names = [name.replace("_", " ") for name in row]
    if is_terminal():
        from alluvia.cli.terminal.layout import print_fields

        print_fields(map(escaped, names), map(_on_terminal, row.values()))
    elif names:
        cells, width = map(cell, row.values()), max(map(len, names))
        say("\n".join(f"{name:<{width}}  {each}" for name, each in zip(names, cells, strict=True)))


_TIMES = {"timestamp_ms": "timestamp"}
"""Fields with ms since 1970, and the names under which people read the times."""


def _time_of(name: str, value: Any) -> Any:
    if name not in _TIMES or not isinstance(value, int):
        return value
    return datetime.fromtimestamp(value / 1000, UTC)


def _on_terminal(value: Any) -> str:
    """Return a field's value, escaped, with a line for each entry of a mapping."""
    if not isinstance(value, dict):
        return escaped(cell(value))
    entries = {
        name: ", ".join(map(cell, each)) if isinstance(each, list) else cell(each) for name, each in value.items()
    }
    return "\n".join(escaped(f"{name}={each}") for name, each in entries.items())


def _aligned(names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Return a table of all that the cells hold; a cell of several lines takes several."""
    lines = [line for row in rows for line in zip_longest(*(cell.split("\n") for cell in row), fillvalue="")]
    widths = [max(map(_width, column)) for column in zip(names, *lines, strict=True)]

    def line(cells: Sequence[str]) -> str:
        blanks = [" " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)]
        padded = [blank + cell if of else cell + blank for cell, blank, of in zip(cells, blanks, right, strict=True)]
        return "  ".join(padded).rstrip(" ")

    return "\n".join([line(names), "  ".join("─" * width for width in widths), *map(line, lines)])


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


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
        return _text_of(value)
    return str(value)


def _text_of(value: bytes) -> str:
    """Return bytes as the text that they are, such as rejected events, and others in hexadecimal."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    return text if all(character.isprintable() or character in "\t\r\n" for character in text) else value.hex()


def size(bytes_: int) -> str:
    """Return a number of bytes as people read it."""
    number = float(bytes_)
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TB"


def _row(answer: Any) -> dict[str, Any]:
    return answer if isinstance(answer, dict) else dataclasses.asdict(answer)


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
