"""CSV and TSV (RFC 4180) with a header row, as tables of a schema, batch by batch. Pure, but for the stream.

An empty cell is null, and so is `""` in a column that is not text; in one of text, `""` is the empty text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO

import pyarrow as pa
from pyarrow import csv as arrow_csv

from alluvia.arrow_compute import pc
from alluvia.delta.schema.names import fold
from alluvia.events.formats.charset import NOT_UTF8
from alluvia.events.formats.csv_text import CsvFault, CsvText, RowTooLong, end_of_whole_rows
from alluvia.files.column_notes import GROUPED, PointedNumbers, may_be
from alluvia.files.file_text import PIECE_BYTES, buffered
from alluvia.files.limits import FileNames, Misfit, misfit
from alluvia.files.reading_options import DEFAULT, ReadingOptions, is_number
from alluvia.files.text_values import TextType, typed

HEADER_BYTES_MAX = 1 << 20
BLOCK_BYTES = 4 << 20
"""The longest row."""
_NO_ROWS = (
    "the file has a header and no rows, so its types are not known: send rows (curl -d strips line ends, --data-binary "
    "keeps them), or declare a schema"
)
_ROW = re.compile(r"Row #(\d+): ")
_COMMA_BETWEEN_DIGITS = re.compile(r"[0-9],[0-9]", re.ASCII)
_COUNTS = re.compile(r"Expected (\d+) columns, got (\d+): ")
_COLUMN = re.compile(r"In CSV column #(\d+): ")


class CsvRows:
    """The rows of a file, which `open_text` opens anew for each pass. Raises `Misfit`."""

    def __init__(
        self,
        open_text: Callable[[], IO[bytes]],
        media_type: str,
        names_max: int,
        options: ReadingOptions = DEFAULT,
    ) -> None:
        self._open_text = open_text
        self._options = options
        self._media_type = media_type
        text = self._opened()
        self._start = text.start
        self._delimiter = text.delimiter
        names = FileNames(names_max)
        names.check_count(len(text.names))
        self._columns = _columns(text.names, options.rename)
        self._unnamed = [at for at, name in enumerate(self._columns) if not name]
        self.names = [name for name in self._columns if name]
        names.take_columns(self.names)
        self._left_out = [
            f"column {at + 1} of the file has no name and no values: it is left out" for at in self._unnamed
        ]
        self.notes = [*self._left_out]

    def schema(self, known: Mapping[str, pa.DataType]) -> pa.Schema:
        """Return the file's columns: of the types that are known, else of the types that lose nothing.

        Without rows no type shows: of a file that lost its line ends, columns would be made of cells.
        """
        doubtful = self._points_may_group(pa.float64())
        unknown = {
            name: TextType(options=self._options, points_may_group=doubtful) for name in self.names if name not in known
        }
        count = 0
        for start, batch in self._texts() if unknown else ():
            count += len(batch)
            for name, kind in unknown.items():
                kind.see(batch.column(name), start)
        if unknown and not count:
            raise Misfit(_NO_ROWS)
        notes = {name: kind.note() for name, kind in unknown.items()}
        self.notes = [*self._left_out, *(f"column {name} {note}" for name, note in notes.items() if note)]
        return pa.schema([(name, known[name] if name in known else unknown[name].kind()) for name in self.names])

    def tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows in columns of a schema, which has all of the file's."""
        fields = [schema.field(name) for name in self.names]
        pointed = {field.name for field in fields if self._points_may_group(field.type)}
        for start, batch in self._texts():
            columns = []
            for field, texts in zip(fields, batch.columns, strict=True):
                if field.name in pointed and _has_groups(texts):
                    self._check_points(field.name)
                    pointed.remove(field.name)
                array, reasons = typed(texts, field, self._options)
                if reasons:
                    at = min(reasons)
                    raise misfit(start + at + 1, field.name, f"{reasons[at]} ({_shown(texts[at].as_py())})")
                columns.append(array)
            yield pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def _points_may_group(self, kind: pa.DataType) -> bool:
        """Whether points in numbers may group digits: another character separates cells where a comma is decimal."""
        said = self._options.decimal_separator or self._options.thousands_separator
        return not said and self._delimiter != "," and is_number(kind)

    def _check_points(self, name: str) -> None:
        """Raise `Misfit` if nothing in a column shows whether its points group digits. Reads all of the file."""
        points = PointedNumbers()
        for start, batch in self._texts():
            points.see(pc.utf8_trim_whitespace(batch.column(name)), None, start)
        if points.are_doubtful and points.first is not None:
            row, text = points.first
            raise misfit(row, name, may_be(text))

    def _texts(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the cells as text, with the number of rows before them. Rows without any text are left out."""
        names = [name or f"\0{at}" for at, name in enumerate(self._columns)]
        try:
            reader = arrow_csv.open_csv(
                buffered(self._checked()),
                read_options=arrow_csv.ReadOptions(use_threads=False, column_names=names, block_size=BLOCK_BYTES),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=self._judge
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
            start = 0
            for batch in map(_without_empty_rows, reader):
                yield start, self._with_nulls(self._named(batch, start))
                start += len(batch)
        except pa.ArrowInvalid as error:
            if str(error) == "Empty CSV file":
                return
            raise self._refusal(str(error)) from None

    def _named(self, batch: pa.RecordBatch, start: int) -> pa.RecordBatch:
        """Return the columns that have names. Raises `Misfit` for a value in another one."""
        if not self._unnamed:
            return batch
        for at in self._unnamed:
            texts = pc.utf8_trim_whitespace(batch.column(at))
            found = pc.indices_nonzero(pc.fill_null(pc.not_equal(texts, ""), False))
            if len(found):
                row = found[0].as_py()
                raise Misfit(
                    f"row {start + row + 1}: column {at + 1} of the file has no name, but has "
                    f"{texts[row].as_py()!r:.50}: name it in the header, or with {_by_place(at)}"
                )
        return batch.select([at for at, name in enumerate(self._columns) if name])

    def _with_nulls(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows whose texts without a value, as the options say, are null."""
        if not self._options.null:
            return batch
        nulls = pa.array(self._options.null, pa.string())
        columns = [
            pc.if_else(pc.is_in(pc.utf8_trim_whitespace(texts), value_set=nulls), pa.scalar(None, pa.string()), texts)
            for texts in batch.columns
        ]
        return pa.RecordBatch.from_arrays(columns, names=self.names)

    def _judge(self, row: arrow_csv.InvalidRow) -> str:
        """Skip a row with another number of cells, none of which has text."""
        return "error" if row.text.strip(self._delimiter) else "skip"

    def _checked(self) -> Iterator[bytes]:
        """Yield the rows as text, for Arrow: it takes the end of a file for the end of a quote, and much else."""
        stream = self._open_text()
        stream.read(self._start)
        held = b""
        while piece := stream.read(PIECE_BYTES):
            held += piece
            if end := end_of_whole_rows(held, self._delimiter):
                yield held[:end]
            held = held[end:]
            if len(held) > BLOCK_BYTES:
                raise self._fault()
        if end_of_whole_rows(held + b"\n", self._delimiter) <= len(held):
            raise self._fault()
        yield held

    def _fault(self) -> Misfit:
        """Return the error of the first row that cannot be read, or is too long."""
        text = self._opened()
        with suppress(RowTooLong):  # reported by the last line
            for number, row in enumerate(text.rows, 1):
                if isinstance(cells := text.cells(row), CsvFault):
                    return Misfit(f"row {number}: {cells.reason}")
        return Misfit(f"a row is longer than {BLOCK_BYTES} bytes, or a quote is not closed")

    def _opened(self) -> CsvText:
        try:
            text = CsvText(
                self._open_text(),
                self._media_type,
                self._options.delimiter,
                BLOCK_BYTES,
                decimal_comma=self._options.has_decimal_comma,
                skip=self._options.skip,
            )
            too_long = len(text.header) > HEADER_BYTES_MAX
        except RowTooLong:
            too_long = True
        if too_long:
            raise Misfit(f"the header row is longer than {HEADER_BYTES_MAX} bytes")
        if text.ends_in_returns:
            raise Misfit("rows end in carriage returns (\\r) alone: end them with line feeds")
        if text.fault:
            raise Misfit(f"the header row cannot be read: {text.fault}")
        if not text.header:
            raise Misfit("the file is empty: its first row must name the columns")
        return text

    def _refusal(self, text: str) -> Misfit:
        row, column = _ROW.search(text), _COLUMN.search(text)
        if "straddling" in text:
            return Misfit(f"a row is longer than {BLOCK_BYTES} bytes, or a quote is not closed")
        if column is not None:
            name = self._columns[int(column[1])]
            return misfit(int(row[1]), name, NOT_UTF8) if row else Misfit(f"column {name}: {NOT_UTF8}")
        said = text.removeprefix("CSV parse error: ")
        counts = _COUNTS.search(said)
        has_more = counts is not None and int(counts[2]) > int(counts[1])
        if has_more and self._delimiter == "," and not self._options.delimiter and _COMMA_BETWEEN_DIGITS.search(said):
            said += "; if commas are decimal ones, give --decimal-separator , (decimal_separator)"
        return Misfit(f"row {row[1]}: {said[said.index(row[0]) + len(row[0]) :]}" if row else said)


def _columns(names: Sequence[str], rename: Mapping[str, str]) -> list[str]:
    """Return the names of a file's columns: `#3` for one that is renamed by its place, "" for one without a name.

    Raises `Misfit` for a name that comes twice.
    """
    columns: list[str] = []
    known: set[str] = set()
    for at, name in enumerate(names):
        place = f"#{at + 1}"
        columns.append(place if place in rename and place not in names else name.strip() and name)
        if columns[-1] and fold(columns[-1]) in known:
            raise Misfit(f"the file has the column {name!r:.100} twice: give one another name with {_by_place(at)}")
        known.add(fold(columns[-1]))
    if names and not any(columns):
        raise Misfit("the first row names no column: leave out the lines before the header with --skip (skip)")
    return columns


def _by_place(at: int) -> str:
    return f'--rename "#{at + 1}=NAME" (rename)'


def _without_empty_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    if not all(column.null_count for column in batch.columns):
        return batch
    has_text = pc.is_valid(batch.column(0))
    for column in batch.columns[1:]:
        has_text = pc.or_(has_text, pc.is_valid(column))
    return batch.filter(has_text)


def _has_groups(texts: pa.Array) -> bool:
    """Whether a text is a number whose point may group digits."""
    if not pc.any(pc.match_substring(texts, ".")).as_py():
        return False
    return bool(pc.any(pc.match_substring_regex(pc.utf8_trim_whitespace(texts), GROUPED)).as_py())


def _shown(text: str | None) -> str:
    return "no value" if text is None else f"it has {text!r:.100}"
