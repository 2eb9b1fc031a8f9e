"""CSV and TSV (RFC 4180) with a header row, as tables of a schema, batch by batch. Pure, but for the stream.

An empty cell is null, and so is `""` in a column that is not text; in one of text, `""` is the empty text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import IO

import pyarrow as pa
from pyarrow import csv as arrow_csv

from alluvia.events.formats.csv_text import CsvFault, CsvText, RowTooLong, end_of_whole_rows
from alluvia.files.file_text import PIECE_BYTES, buffered
from alluvia.files.limits import FileNames, Misfit, misfit
from alluvia.files.reading_options import DEFAULT, ReadingOptions
from alluvia.files.text_values import TextType, typed

HEADER_BYTES_MAX = 1 << 20
BLOCK_BYTES = 4 << 20
"""The longest row."""
_NO_ROWS = (
    "the file has a header and no rows, so its types are not known: send rows (curl -d strips line ends, --data-binary "
    "keeps them), or declare a schema"
)
_ROW = re.compile(r"Row #(\d+): ")
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
        self.notes: list[str] = []
        self._start = text.start
        self._delimiter = text.delimiter
        self.names = text.names
        FileNames(names_max).take_columns(self.names)

    def schema(self, known: Mapping[str, pa.DataType]) -> pa.Schema:
        """Return the file's columns: of the types that are known, else of the types that lose nothing.

        Without rows no type shows: of a file that lost its line ends, columns would be made of cells.
        """
        unknown = {name: TextType(options=self._options) for name in self.names if name not in known}
        count = 0
        for _, batch in self._texts() if unknown else ():
            count += len(batch)
            for name, kind in unknown.items():
                kind.see(batch.column(name))
        if unknown and not count:
            raise Misfit(_NO_ROWS)
        notes = {name: kind.note() for name, kind in unknown.items()}
        self.notes = [f"column {name} is text: it seems to have {note}" for name, note in notes.items() if note]
        return pa.schema([(name, known[name] if name in known else unknown[name].kind()) for name in self.names])

    def tables(self, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows in columns of a schema, which has all of the file's."""
        fields = [schema.field(name) for name in self.names]
        for start, batch in self._texts():
            columns = []
            for field, texts in zip(fields, batch.columns, strict=True):
                array, reasons = typed(texts, field, self._options)
                if reasons:
                    at = min(reasons)
                    raise misfit(start + at + 1, field.name, f"{reasons[at]} ({_shown(texts[at].as_py())})")
                columns.append(array)
            yield pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def _texts(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the cells as text, with the number of rows before them."""
        try:
            reader = arrow_csv.open_csv(
                buffered(self._checked()),
                read_options=arrow_csv.ReadOptions(use_threads=False, column_names=self.names, block_size=BLOCK_BYTES),
                parse_options=arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(self.names, pa.string()),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
            start = 0
            for batch in reader:
                yield start, batch
                start += len(batch)
        except pa.ArrowInvalid as error:
            if str(error) == "Empty CSV file":
                return
            raise self._refusal(str(error)) from None

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
        try:
            for number, row in enumerate(text.rows, 1):
                if isinstance(cells := text.cells(row), CsvFault):
                    return Misfit(f"row {number}: {cells.reason}")
        except RowTooLong:
            pass
        return Misfit(f"a row is longer than {BLOCK_BYTES} bytes, or a quote is not closed")

    def _opened(self) -> CsvText:
        try:
            text = CsvText(
                self._open_text(),
                self._media_type,
                self._options.delimiter,
                BLOCK_BYTES,
                decimal_comma=self._options.has_decimal_comma,
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
            name = self.names[int(column[1])]
            return misfit(int(row[1]), name, "not valid UTF-8") if row else Misfit(f"column {name}: not valid UTF-8")
        said = text.removeprefix("CSV parse error: ")
        return Misfit(f"row {row[1]}: {said[said.index(row[0]) + len(row[0]) :]}" if row else said)


def _shown(text: str | None) -> str:
    return "no value" if text is None else f"it has {text!r:.100}"
