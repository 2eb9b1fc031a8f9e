"""Events whose fields are text: CSV and forms. Pure.

CSV (RFC 4180) has a header row: each row is an event, each cell the text of a field.

Empty cells are fields that are missing; `""` is the empty text, as in `files.csv_rows`. Typed columns read the text of
their cells (`Given.text`), for which the empty text is null. The delimiter is what the source declares, else what the
header shows (`delimiter_of`). Rows end in line feeds, with or without a carriage return before; or in carriage returns
alone, where the first one does.

A form (application/x-www-form-urlencoded) is one event; a repeated field is a list. `curl -d` sends JSON under this
type, too: a body that begins as JSON does, or has no `=`, is read as JSON.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from alluvia.events.formats import json_format
from alluvia.events.formats.body_format import BodyFormat, SentBody
from alluvia.events.formats.events import Events, text_given
from alluvia.events.ingest.envelope import BOM, refused
from alluvia.events.ingest.values import Split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from alluvia.events.ingest.values import Limits

_LINE_FEED, _ANY_END = re.compile("\n"), re.compile("\r\n?|\n")
TABS = "text/tab-separated-values"
_OTHER_DELIMITERS = ";\t|"
_NO_HEADER = re.compile(r";\s*header\s*=\s*\"?absent\b", re.IGNORECASE)
_NO_ROWS = "the CSV has a header and no rows: send a row per line (curl -d strips line ends, --data-binary keeps them)"
_STRAY_RETURN = "a carriage return (\\r) stands outside quotes"


def read(sent: SentBody, limits: Limits) -> Split:
    """Take the rows of a body. A row that does not fit the header becomes a reject with its text.

    A header without rows is a reject, because what `curl -d` makes of a file looks so: one line of all its rows.
    """
    if not sent.body.removeprefix(BOM).strip():
        return Split([], [])
    if _NO_HEADER.search(sent.headers.get("content-type") or ""):
        return refused(sent.body, "the first row must name the fields: header=absent is not supported")
    body_rows = _Rows(sent)
    rows = iter(body_rows)
    header, _ = next(rows, ([], b""))
    fault = _fault_of_header(header)
    if isinstance(header, str) or fault:
        return refused(sent.body, fault)
    events = Events(sent, limits)
    for row, raw in rows:
        if isinstance(row, str):
            events.reject(row, raw)
        elif len(row) != len(header):
            events.reject(f"the row has {len(row)} fields, its header {len(header)}", raw)
        else:
            value: dict[str, object] = {name: cell for name, cell in zip(header, row, strict=True) if cell}
            if b'""' in raw and len(value) < len(row):
                value = body_rows.with_quoted(header, row, raw)
            events.add(value, text_given(value))
        if events.full:
            break
    return events.split() if len(events) else refused(sent.body, _NO_ROWS)


def header_fault(sent: SentBody) -> str:
    """Return why the first row of a body cannot be a header; "" if it can, or there is none."""
    row, _ = next(iter(_Rows(sent)), ("", b""))
    return _fault_of_header(row)


def delimiter_of(header: str, media_type: str) -> str:
    """Return what separates the cells of a file with some header row, and of a media type.

    It is a tab for text/tab-separated-values, else a comma; but a semicolon, a tab or a bar if the header is one name
    with commas, and several with that: spreadsheets write semicolons where the comma is in numbers.
    """
    if media_type == TABS:
        return "\t"
    if _cells(header, ",") > 1 or header.count('"') % 2:  # its last cell goes on in the next line
        return ","
    best = max(_OTHER_DELIMITERS, key=partial(_cells, header))
    return best if _cells(header, best) > 1 else ","


def _cells(header: str, delimiter: str) -> int:
    try:
        return len(next(csv.reader([header], delimiter=delimiter, strict=True), ()))
    except csv.Error:
        return 0


def ends_in_returns(text: str) -> bool:
    """Whether the first row of a text ends in a carriage return alone."""
    at = text.find("\r")
    alone = at >= 0 and text[at + 1 : at + 2] != "\n" and text.find("\n", 0, at) < 0
    return alone and text.count('"', 0, at) % 2 == 0


def _fault_of_header(header: list[str] | str) -> str:
    if isinstance(header, str):
        return header
    if not all(header):
        return "the header row has an empty name"
    twice = name_of_two(header)
    return "" if twice is None else f"the header row has {twice!r:.100} twice"


def name_of_two(names: Sequence[str]) -> str | None:
    """Return the first name that stands for two columns; None if each stands for one."""
    return next((name for name, times in Counter(names).items() if times > 1), None)


class _Rows:
    """The rows of a text, each with its bytes; a row that cannot be read is the reason why."""

    def __init__(self, sent: SentBody) -> None:
        text = sent.body.removeprefix(BOM).decode("utf-8", "surrogateescape")
        header = next(filter(str.strip, _lines(text)), "")
        delimiter = sent.options.get("delimiter") or delimiter_of(header, sent.media_type)
        self._lines = _lines(text)
        self._taken: list[str] = []
        self._reader = csv.reader(self._recorded(), delimiter=delimiter, strict=True)
        by = re.escape(delimiter)
        self._cell = re.compile(rf'(?:^|{by})("(?:[^"]|"")*+"|[^{by}]*)')
        self._by = delimiter.encode()

    def with_quoted(self, header: list[str], row: list[str], raw: bytes) -> dict[str, object]:
        """Return the fields of a row, with those that are empty within quotes."""
        by = self._by
        if by + by not in raw and not raw.startswith(by) and not raw.endswith(by):
            return dict(zip(header, row, strict=True))  # no cell is without any character
        sent = self._cell.findall(raw.decode())
        return {name: cell for name, cell, text in zip(header, row, sent, strict=True) if text}

    def __iter__(self) -> Iterator[tuple[list[str] | str, bytes]]:
        while True:
            self._taken.clear()
            row: list[str] | str
            try:
                row = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                row = f"not valid CSV: {_STRAY_RETURN if 'new-line' in str(error) else error}"
                if len(self._taken) > 1:  # within quotes: where the next row begins is unknown
                    self._taken += self._lines
            raw = "".join(self._taken).encode("utf-8", "surrogateescape").rstrip(b"\r\n")
            if isinstance(row, list) and not raw.isascii() and not _is_utf8(raw):
                row = "not valid UTF-8"
            if row:
                yield row, raw

    def _recorded(self) -> Iterator[str]:
        for line in self._lines:
            self._taken.append(line)
            yield line


def _lines(text: str) -> Iterator[str]:
    """Cut at the ends of lines only: Python's own `splitlines` also cuts at characters that a cell may hold."""
    ends = _ANY_END if ends_in_returns(text) else _LINE_FEED
    at = 0
    while at < len(text):
        match = ends.search(text, at)
        end = match.end() if match else len(text)
        yield text[at:end]
        at = end


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


FORMAT = BodyFormat(read)


_FIELDS_MAX = 10_000


def read_form(sent: SentBody, limits: Limits) -> Split:
    """Take the form of a body."""
    if sent.body.lstrip()[:1] in (b"{", b"[") or b"=" not in sent.body:
        return json_format.read(sent, limits)
    try:
        pairs = parse_qsl(
            sent.body.strip().decode(), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX
        )
    except UnicodeDecodeError:
        return refused(sent.body, "the form is not valid UTF-8")
    except ValueError:
        return refused(sent.body, f"the form has more than {_FIELDS_MAX} fields")
    values: defaultdict[str, list[str]] = defaultdict(list)
    for name, text in pairs:
        values[name].append(text)
    event: dict[str, object] = {name: texts[0] if len(texts) == 1 else texts for name, texts in values.items()}
    events = Events(sent, limits)
    events.add(event, text_given(event))
    return events.split()


FORM = BodyFormat(read_form)
