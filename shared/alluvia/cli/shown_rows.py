"""Rows of a query, a table or the change feed: a readable table, or a form in which HTTP answers, also in a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from alluvia.cli.common import Common
from alluvia.cli.terminal.output import NULL, cell, note, show_table
from alluvia.cli.terminal.terminal import is_terminal, say_json, say_text
from alluvia.cli.whole_file import whole_file
from alluvia.errors import Invalid
from alluvia.json_values.plain import plain_values
from alluvia.lazy_dataclasses import dataclass
from alluvia.progress import report
from alluvia.query.formats import FORMATS, JSON, NDJSON, Format, csv_written, format_named
from alluvia.query.rendering import Overflow, render

ROWS_SHOWN = 1000
TABLE = "table"
_SUFFIXES = {"jsonl": "ndjson", "arrows": "arrow"}
"""Suffixes of files whose form has another name; others are those of forms."""
STANDARD_OUTPUT = ("-", "/dev/stdout")
_WAITING_BYTES = 1 << 16
_ITEMS_MAX = 8
_QUOTED = re.compile(r"[][{}()'\",:=\\]")
"""A character for which DuckDB puts a text within a list in quotes."""
_FAR_YEAR = re.compile(r"([+-])(\d{6})-")
_AS_THEY_ARE = (
    *(pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary),
)


@dataclass(frozen=True, slots=True)
class RowsAsked:
    """How rows are asked for: `--format`, and the file of `--output`, whose suffix decides where there is no format.

    writing: how CSV is written, as keywords of `csv_written`.
    """

    form: str | None = None
    output: Path | None = None
    writing: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_given(self) -> bool:
        """Whether one of them is given."""
        return self.form is not None or self.output is not None or bool(self.writing)

    def format(self, *, as_json: bool) -> Format | None:
        """Return the form of the rows, None for a table to look at. Raises `Invalid`, naming the option."""
        form = self._form(as_json=as_json)
        if form is None and self.writing:
            raise Invalid(f"{', '.join(self.writing)}: give --format csv, too")
        return None if form is None else csv_written(form, **self.writing)

    def _form(self, *, as_json: bool) -> Format | None:
        if self.form == TABLE:
            if self.output is not None:
                raise Invalid("--format table is for terminals: give --output a form that programs read, such as csv")
            return None
        if self.form is not None:
            return format_named(self.form)
        if self.output is not None and str(self.output) not in STANDARD_OUTPUT:
            named = format_of_file(self.output)
            if named is not None or not as_json:
                return named or _refuse_suffix(self.output)
        return NDJSON if as_json else None


def format_of_file(file: Path) -> Format | None:
    """Return the form that a file's suffix names."""
    suffix = file.suffix.removeprefix(".").lower()
    return next((each for each in FORMATS if each.name.lower() == _SUFFIXES.get(suffix, suffix)), None)


def _refuse_suffix(file: Path) -> NoReturn:
    known = ", ".join(f".{each}" for each in (*(each.name.lower() for each in FORMATS), *_SUFFIXES))
    raise Invalid(f"{file}: its suffix names no format: use one of {known}, or --format")


Show = Callable[[pa.Schema, Iterable[pa.RecordBatch]], int]
"""Shows rows, and returns how many they are."""


@contextmanager
def showing(common: Common, asked: RowsAsked | None = None) -> Iterator[Show]:
    """Yield a printer of rows in the requested form.

    A file is opened before the block runs its query, and comes into its place when the block ends without an error.
    """
    asked = asked or RowsAsked()
    form = asked.format(as_json=common.as_json)
    if form is None:
        yield lambda schema, batches: _show_as_table(common, schema, batches)
        return
    if asked.output is not None and str(asked.output) not in STANDARD_OUTPUT:
        with whole_file(asked.output) as file:
            yield lambda schema, batches: _write_file(common, schema, batches, form, file.write)
        return
    if not form.is_text and is_terminal():
        raise Invalid(f"{form.name} is not text: give a file with --output, or redirect standard output")
    say = say_json if form in (JSON, NDJSON) else say_text
    yield lambda schema, batches: _write(schema, batches, form, say)


def show_rows(common: Common, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Print rows: one JSON object a line, or the first of them as a table. Columns may have one name."""
    with showing(common) as show:
        show(schema, batches)


def _write(schema: pa.Schema, batches: Iterable[pa.RecordBatch], form: Format, send: Callable[[bytes], object]) -> int:
    rest = render(schema, batches, form, sys.maxsize, Overflow(_WAITING_BYTES, send))
    send(rest.body)
    return rest.rows


def _write_file(
    common: Common,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    form: Format,
    send: Callable[[bytes], object],
) -> int:
    with common.progress("reading the rows"):
        return _write(schema, _counted(batches), form, send)


def _counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    count = 0
    for batch in batches:
        yield batch
        count += len(batch)
        report("reading the rows", count, 0, "rows")


def _show_as_table(common: Common, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    rows: list[tuple[Any, ...]] = []
    count = 0
    with common.progress("reading the rows"):
        for batch in batches:
            count += len(batch)
            shown = batch.slice(0, ROWS_SHOWN - len(rows))
            rows += zip(*map(shown_values, shown.columns), strict=True)
            report("reading the rows", count, 0, "rows")
    show_table(schema.names, rows, null=NULL)
    if count > len(rows):
        note(f"… {count} rows in all; --format csv and --json print every one")
    return count


def shown_values(array: pa.Array) -> list[Any]:
    """Return an array's values as a table shows them: days and moments as DuckDB writes them, others plain."""
    if any(matches(array.type) for matches in _AS_THEY_ARE):
        return array.to_pylist()
    values = plain_values(array)
    if pa.types.is_timestamp(array.type) or pa.types.is_date32(array.type):
        return [None if value is None else _as_duckdb(value) for value in values]
    if _is_list(array.type):
        return [None if value is None else _listed(value) for value in values]
    return values


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _listed(values: list[Any]) -> str:
    """Return a list as DuckDB writes it, but no more than its first values: texts in quotes where they need some."""
    shown = [_item(value) for value in values[:_ITEMS_MAX]]
    return f"[{', '.join([*shown, *([f'… {len(values)} in all'] if len(values) > _ITEMS_MAX else [])])}]"


def _item(value: Any) -> str:
    if isinstance(value, list):
        return _listed(value)
    if isinstance(value, str) and (_QUOTED.search(value) or value != value.strip() or value.upper() in ("", NULL)):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return cell(value, NULL)


def _as_duckdb(text: str) -> str:
    """Return an ISO 8601 day or moment as DuckDB writes it, but without a zone, which is always UTC."""
    day, _, clock = text.removesuffix("Z").partition("T")
    match = _FAR_YEAR.match(day)
    before_christ = match is not None and match[1] == "-"
    if match is not None:
        year = int(match[2])
        day = f"{year + 1 if before_christ else year:04d}{day[match.end() - 1 :]}"
    elif day.startswith("0000-"):  # the year before 1
        day, before_christ = f"0001{day[4:]}", True
    return " ".join(part for part in (day + (" (BC)" if before_christ else ""), clock) if part)
