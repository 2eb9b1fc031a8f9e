"""CSV as text (RFC 4180): where its rows end, the delimiter, and the text of each cell. Pure.

Bodies of events, files of events, and uploads follow these rules, and each decides about the rows
around a broken one.

- Rows end in line feeds, with or without a carriage return before; or in carriage returns alone, where the first one
  does. Lines without any character are skipped, and so are rows whose cells are all empty, which spreadsheets write.
- The first row names the columns, without the spaces around a name. Before it, `sep=;` on a line is the delimiter.
- A quote that begins a cell opens it, and `""` within it is a quote. Elsewhere a quote is a character like any other.
- An empty cell has no text; `""` has the empty text. A cell has any length.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from functools import cache, partial
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, NamedTuple

from alluvia.errors import Invalid
from alluvia.events.formats.charset import NOT_UTF8
from alluvia.events.ingest.envelope import BOM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

TABS = "text/tab-separated-values"
_DELIMITERS = ",;\t|"
_LINES_SHOWN = 20
"""So many lines after a header that several characters may separate show which of them does."""
_DECIMAL = re.compile(r"[-+]?[0-9]+(?:\.[0-9]{3})*,[0-9]+", re.ASCII)
_SAID_DELIMITER = re.compile(rb'"?sep=([^"\r\n])"?[\r\n]*')
"""A line that Excel reads and writes before the header."""
_HEADER_BYTES_MAX = 1 << 20
_CHUNK_BYTES = 1 << 20
_QUOTED = r'"[^"]*+(?:""[^"]*+)*+"'
_TO_CLOSING_QUOTE = re.compile(rb'(?:[^"]++|"")*+"')
_STRAY_RETURN = "not valid CSV: a carriage return (\\r) stands outside quotes"
_UNCLOSED = "not valid CSV: a quote is not closed"


class RowTooLong(Invalid):
    """A line or a quote does not end within the limit."""


class CsvFault(NamedTuple):
    """Why a row cannot be read. `end_is_unknown`: a quote stands where none may, so more may belong to it."""

    reason: str
    end_is_unknown: bool = False


class CsvText:
    """The rows of a text, and how they are written.

    header: the bytes of the first row, b"" without one. names: the text of its cells. fault: why it cannot be read; ""
    if it can. rows: the bytes of each of the others, with its line end. mark: the mark of the byte order, b"" without
    one. start: the number of bytes before the rows. Both the constructor and `rows` raise `RowTooLong` for a line of
    more than `row_bytes_max` bytes, or a quote that is not closed within them. `decimal_comma`: the sender says that
    numbers have one, so it hardly separates cells. `skip`: the number of lines before the header, or a line such as
    `sep=;`.
    """

    def __init__(
        self,
        source: IO[bytes],
        media_type: str,
        delimiter: str = "",
        row_bytes_max: int = sys.maxsize,
        *,
        decimal_comma: bool = False,
        skip: int = 0,
    ) -> None:
        start = source.readline(_HEADER_BYTES_MAX)
        self.mark = BOM if start.startswith(BOM) else b""
        start = start.removeprefix(BOM)
        self.ends_in_returns = _ends_in_returns(start)
        self._lines = (_lines_of_returns if self.ends_in_returns else _lines_of_feeds)(start, source, row_bytes_max)
        skipped_bytes = sum(map(len, islice(self._lines, skip)))
        head, blank_bytes = _head(self._lines, delimiter)
        if head and (said := _SAID_DELIMITER.fullmatch(head[0])) is not None:
            delimiter = delimiter or _decoded(said[1])
            skipped_bytes += blank_bytes + len(head[0])
            head, blank_bytes = _head(self._lines, delimiter)
        text = b"".join(head)
        shown = _decoded(head[0] if text.count(b'"') % 2 else text)
        found = delimiters_of(shown, media_type, decimal_comma=decimal_comma)
        if len(found) > 1 and not delimiter:
            following = list(islice(self._lines, _LINES_SHOWN))
            found = _fitting(found, shown, following)
            head += following
        self.delimiter = delimiter or found[0]
        self._header_is_clear = delimiters_of(shown, media_type, decimal_comma=decimal_comma) == [self.delimiter]
        self._lines = chain(head, self._lines)
        self.rows = _rows(self._lines, self.delimiter, row_bytes_max)
        self.header = next(self.rows, b"")
        self.start = len(self.mark) + skipped_bytes + blank_bytes + len(self.header)
        cells = self.cells(self.header)
        self.names = [] if isinstance(cells, CsvFault) or not self.header else [_name(cell or "") for cell in cells]
        self.fault = cells.reason if isinstance(cells, CsvFault) else ""
        if len(found) > 1 and not delimiter:
            self.names, self.fault = [], _unclear(found)

    def cells(self, row: bytes) -> list[str | None] | CsvFault:
        """Return the text of each cell of a row, None for those that are empty; or why they cannot be read."""
        row = row.rstrip(b"\r\n")
        try:
            return cells_of(row.decode(), self.delimiter)
        except UnicodeDecodeError:
            cells = cells_of(_decoded(row), self.delimiter)
        return cells if isinstance(cells, CsvFault) else CsvFault(NOT_UTF8)

    def has_several_lines(self, row: bytes) -> bool:
        """Whether a row goes on after its first line."""
        row = row.rstrip(b"\r\n")
        return b"\n" in row or (self.ends_in_returns and b"\r" in row)

    def start_of_parts(self) -> bytes:
        """Return what comes in front of rows wherever they are read apart: the mark and the header, with a line end.

        If the header does not show the delimiter by itself, a line before it does.
        """
        end = self.header[len(self.header.rstrip(b"\r\n")) :] or b"\n"
        said = b"" if self._header_is_clear else b"sep=" + self.delimiter.encode() + end
        return self.mark + said + self.header.rstrip(b"\r\n") + end

    def header_fault(self) -> str:
        """Return why the header cannot name fields of events; "" if it can, or there is none."""
        if not all(self.names):
            return "the header row has an empty name"
        twice = name_of_two(self.names)
        return self.fault if twice is None else f"the header row has {twice!r:.100} twice"

    def rest(self) -> bytes:
        """Return the text after the last row that was read, which is then read, too."""
        return b"".join(self._lines)


def cells_of(text: str, delimiter: str) -> list[str | None] | CsvFault:
    """Return the cells of a row without its line end, as `CsvText.cells` does."""
    if '"' not in text:
        return CsvFault(_STRAY_RETURN) if "\r" in text else [cell or None for cell in text.split(delimiter)]
    text = delimiter + text
    cells = _cell(delimiter).findall(text)
    if len(delimiter) + len(delimiter.join(cells)) != len(text):
        return _fault(text, delimiter)
    return [(cell[1:-1].replace('""', '"') if cell[0] == '"' else cell) if cell else None for cell in cells]


@cache
def _cell(delimiter: str) -> re.Pattern[str]:
    """Return the pattern of a cell with the delimiter before it."""
    by = re.escape(delimiter)
    return re.compile(rf'{by}({_QUOTED}|(?!")[^{by}\r\n]*+)')


@cache
def _whole_rows(delimiter: str) -> re.Pattern[bytes]:
    """Return a pattern for the readable rows at the start of a text, which end in line feeds."""
    by = re.escape(delimiter)
    cell = rf'(?:{_QUOTED}|(?!")[^{by}\r\n]*+)'
    return re.compile(rf"(?:{cell}(?:{by}{cell})*+\r*+\n)*+".encode())


def end_of_whole_rows(text: bytes, delimiter: str) -> int:
    """Return the number of bytes of the readable rows at the start of a text, which end in line feeds."""
    if b'"' not in text and text.count(b"\r") == text.count(b"\r\n"):  # each line is a row: no need of the pattern
        return text.rfind(b"\n") + 1
    match = _whole_rows(delimiter).match(text)
    return 0 if match is None else match.end()


def _fault(text: str, delimiter: str) -> CsvFault:
    """Return the first fault of a row (`text`, after a delimiter), and whether any of its quotes is at fault."""
    first, at = "", 0
    while 0 <= at < len(text):
        match = _cell(delimiter).match(text, at)
        if match is not None:
            at = match.end()
        elif text.startswith(delimiter, at):
            return CsvFault(first or _UNCLOSED, end_is_unknown=True)
        elif text[at] != "\r":
            return CsvFault(first or f"not valid CSV: '{delimiter}' expected after '\"'", end_is_unknown=True)
        else:
            first, at = _STRAY_RETURN, text.find(delimiter, at)
    return CsvFault(first)


def delimiters_of(header: str, media_type: str, *, decimal_comma: bool = False) -> list[str]:
    """Return what may separate the cells of a file with some header row, and of a media type: one or several.

    It is a tab for text/tab-separated-values, else each of comma, semicolon, tab and bar by which the header has
    several names; and a comma if it has one name in any case. With a decimal comma, a comma only separates where
    nothing else does; and unless the header has quotes, it may as well be within its only name.
    """
    if media_type == TABS:
        return ["\t"]
    header = header.rstrip("\r\n")
    if header.count('"') % 2:  # its last cell goes on in the next line
        return [","]
    found = [by for by in _DELIMITERS if _count(header, by) > 1]
    if not decimal_comma:
        return found or [","]
    others = [by for by in found if by != ","]
    return others or ([",", ";"] if found and '"' not in header else found or [";"])


def _fitting(candidates: list[str], header: str, lines: Sequence[bytes]) -> list[str]:
    """Return the delimiters that fit a header and the lines after it best; several if nothing tells which one it is.

    Most rows have as many cells as the header has names. Quotes stand around whole cells. And commas are no delimiter
    where they all are decimal commas by another one.
    """
    rows = {by: [_decoded(row).rstrip("\r\n") for row in _rows(lines, by, sys.maxsize)] for by in candidates}
    names = {by: _count(header.rstrip("\r\n"), by) for by in candidates}
    shares = {by: sum(_count(row, by) == names[by] for row in some) / max(len(some), 1) for by, some in rows.items()}
    best = [by for by in candidates if shares[by] == max(shares.values())]
    clean = [by for by in best if not any(_has_quote_within_cell(row, by) for row in [header, *rows[by]])]
    best = clean or best
    others = [by for by in best if by != ","]
    if len(others) == 1 and names[others[0]] > 1 and _has_decimal_commas_alone(rows[others[0]], others[0]):
        return others
    return best


def _has_quote_within_cell(row: str, delimiter: str) -> bool:
    return any('"' in cell and cell[0] != '"' for cell in _cell(delimiter).findall(delimiter + row.rstrip("\r\n")))


def _has_decimal_commas_alone(rows: Sequence[str], delimiter: str) -> bool:
    """Whether all cells with commas are numbers with decimal commas, and there are such cells."""
    with_commas = [cell.strip('"') for row in rows for cell in row.split(delimiter) if "," in cell]
    return bool(with_commas) and all(map(_DECIMAL.fullmatch, with_commas))


def _unclear(candidates: Sequence[str]) -> str:
    may = " or ".join("a tab" if by == "\t" else f"{by!r}" for by in candidates)
    return f"the delimiter may be {may}: say which one it is, with --delimiter (delimiter)"


def _name(cell: str) -> str:
    """Return the name of a column that a cell of the header has: the same text is the same name, in NFC."""
    name = cell.strip()
    if name.isascii():
        return name
    from unicodedata import normalize

    return normalize("NFC", name)


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _count(row: str, delimiter: str) -> int:
    cells = cells_of(row, delimiter)
    return 0 if isinstance(cells, CsvFault) else len(cells)


def name_of_two(names: Sequence[str]) -> str | None:
    """Return the first name of two columns; None if all names differ."""
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _ends_in_returns(line: bytes) -> bool:
    """Whether the first line of a text has a row that ends in a carriage return alone."""
    at = line.find(b"\r")
    return at >= 0 and line[at + 1 : at + 2] not in (b"\n", b"") and line.count(b'"', 0, at) % 2 == 0


def _lines_of_feeds(start: bytes, source: IO[bytes], bytes_max: int) -> Iterator[bytes]:
    if start and not start.endswith(b"\n"):
        start += source.readline(bytes_max)
    for line in chain([start], iter(partial(source.readline, bytes_max), b"")):
        if len(line) >= bytes_max and not line.endswith(b"\n"):
            raise _too_long(bytes_max)
        yield line


def _lines_of_returns(start: bytes, source: IO[bytes], bytes_max: int) -> Iterator[bytes]:
    held = b""
    for piece in chain([start], iter(partial(source.read, _CHUNK_BYTES), b"")):
        *lines, held = (held + piece).splitlines(keepends=True)  # held: it may go on
        yield from lines
        if len(held) > bytes_max:
            raise _too_long(bytes_max)
    yield held


def _too_long(bytes_max: int) -> RowTooLong:
    return RowTooLong(f"a line is longer than {bytes_max >> 20} MB")


def _head(lines: Iterator[bytes], delimiter: str) -> tuple[list[bytes], int]:
    """Return the first lines, as many as the header may have, and the number of bytes of blank ones before."""
    blank = (_DELIMITERS + delimiter).encode() + b" \r\n"
    head: list[bytes] = []
    blank_bytes = size = quotes = 0
    for line in lines:
        if not head and not line.strip(blank):
            blank_bytes += len(line)
            continue
        head.append(line)
        size += len(line)
        quotes += line.count(b'"')
        if quotes % 2 == 0 or size > _HEADER_BYTES_MAX:
            break
    return head, blank_bytes


def _rows(lines: Iterable[bytes], delimiter: str, bytes_max: int) -> Iterator[bytes]:
    """Yield the rows, which may go over several lines within quotes."""
    is_whole, by = _whole_rows(delimiter).fullmatch, delimiter.encode()
    empty = by + b"\r\n"
    row: list[bytes] = []
    size = number = 0
    quoted = False
    for line in lines:
        if b'"' in line and (quoted or not is_whole(line)):
            quoted = _ends_quoted(line, by, quoted)
        if row or quoted:
            row.append(line)
            size += len(line)
            if size > bytes_max and quoted:
                raise RowTooLong(f"a quote in row {number} is not closed within {bytes_max >> 20} MB")
            if quoted:
                continue
            line, row, size = b"".join(row), [], 0  # noqa: PLW2901 - the row's only one
        if line.strip(empty) or b"\r" in line.rstrip(b"\r\n"):
            yield line
            number += 1
    if row:
        yield b"".join(row)


def _ends_quoted(line: bytes, by: bytes, quoted: bool) -> bool:
    """Whether a line ends within quotes; no more so once a quote stands where none may."""
    text = line if quoted else by + line  # so that its first cell begins as the others do
    opening, at = by + b'"', 0
    while True:
        if not quoted:
            place = text.find(opening, at)
            if place < 0:
                return False
            at = place + len(opening)
        closing = _TO_CLOSING_QUOTE.match(text, at)
        if closing is None:
            return True
        at, quoted = closing.end(), False
        if at < len(text) and not text.startswith((by, b"\r", b"\n"), at):
            return False
