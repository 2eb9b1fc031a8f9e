"""What commands print: a readable table on a terminal, JSON lines with `--json`."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import click
import orjson


def show(rows: Iterable[Mapping[str, Any]], *, as_json: bool, columns: Sequence[str] | None = None) -> None:
    """Print rows: one JSON object a line, or a table with a line under its head."""
    if as_json:
        for row in rows:
            click.echo(_json(row))
        return
    found = list(rows)
    names = list(columns or dict.fromkeys(name for row in found for name in row))
    if names:
        click.echo(text_table(names, [[row.get(name) for name in names] for row in found]))


def show_one(value: Any, *, as_json: bool) -> None:
    """Print one report: a JSON object, or a line for each of its fields."""
    row = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    if as_json:
        click.echo(_json(row))
        return
    width = max(map(len, row), default=0)
    for name, each in row.items():
        click.echo(f"{name.replace('_', ' '):<{width}}  {cell(each)}")


def text_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as aligned text, numbers to the right."""
    cells = [[cell(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[at]) for row in cells)]) for at, name in enumerate(names)]
    right = [_numeric([row[at] for row in rows]) for at in range(len(names))]
    lines = [
        "  ".join(_pad(name, width, r) for name, width, r in zip(names, widths, right, strict=True)).rstrip(),
        "  ".join("─" * width for width in widths),
    ]
    lines += ["  ".join(map(_pad, row, widths, right)).rstrip() for row in cells]
    return "\n".join(lines)


def cell(value: Any) -> str:
    """Return a value as a table shows it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return _moment(value, " ")
    if isinstance(value, (list, tuple)):
        shown = ", ".join(cell(each) for each in value[:8])
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


def _pad(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _numeric(values: Sequence[Any]) -> bool:
    present = [value for value in values if value is not None]
    return bool(present) and all(isinstance(v, (int, float, Decimal)) and not isinstance(v, bool) for v in present)


def _moment(value: datetime, separator: str) -> str:
    """Return a moment in UTC, with a fraction if there is one."""
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
