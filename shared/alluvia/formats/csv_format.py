"""CSV (RFC 4180) with a header row: each row is an event, each cell the text of a field. Pure.

Empty cells are fields that are missing. Typed columns read the text of their cells (`Given.text`). The delimiter is
what the source declares, else a tab for text/tab-separated-values, else a comma.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from alluvia.formats.events import Events, text_given
from alluvia.formats.values import BodyFormat, SentBody
from alluvia.ingest.envelope import refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alluvia.ingest.values import Limits, Split

_BOM = "\ufeff"


def read(sent: SentBody, limits: Limits) -> Split:
    """Take the rows of a body. A row that does not fit the header becomes a reject with its text."""
    delimiter = sent.options.get("delimiter") or ("\t" if sent.media_type == "text/tab-separated-values" else ",")
    rows = _Rows(sent.body, delimiter)
    header: list[str] | None = None
    events = Events(sent, limits)
    for row, raw in rows:
        if header is None:
            fault = row if isinstance(row, str) else _fault_of_header(row)
            if fault:
                return refused(sent.body, fault)
            header = list(row)
        elif isinstance(row, str):
            events.reject(row, raw)
        elif len(row) != len(header):
            events.reject(f"the row has {len(row)} fields, its header {len(header)}", raw)
        else:
            value: dict[str, object] = {name: cell for name, cell in zip(header, row, strict=True) if cell}
            events.add(value, text_given(value))
        if len(events) > limits.events:
            break
    return events.split()


def _fault_of_header(header: list[str]) -> str:
    if not all(header):
        return "the header row has an empty name"
    twice = [name for name in header if header.count(name) > 1] if len(set(header)) < len(header) else []
    return f"the header row has {twice[0]!r:.100} twice" if twice else ""


class _Rows:
    """The rows of a text, each with its bytes; a row that cannot be read is the reason why."""

    def __init__(self, body: bytes, delimiter: str) -> None:
        text = body.decode("utf-8", "surrogateescape").removeprefix(_BOM)
        self._lines = _lines(text)
        self._taken: list[str] = []
        self._reader = csv.reader(self._recorded(), delimiter=delimiter, strict=True)

    def __iter__(self) -> Iterator[tuple[list[str] | str, bytes]]:
        while True:
            self._taken.clear()
            row: list[str] | str
            try:
                row = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                row = f"not valid CSV: {error}"
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
    """Cut at line feeds only: Python's own `splitlines` also cuts at characters that a cell may hold."""
    at = 0
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        yield text[at:end]
        at = end


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


FORMAT = BodyFormat(read)
