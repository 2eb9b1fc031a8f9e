"""The rules of CSV, against Python's reader, and the same in bodies and files of events and in uploads."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from alluvia.errors import Invalid
from alluvia.events.formats.body_format import SentBody, by_name
from alluvia.events.formats.csv_text import CsvFault, CsvText, RowTooLong
from alluvia.events.ingest.values import UNLIMITED
from alluvia.files.csv_rows import CsvRows
from alluvia.files.event_files import parts
from alluvia.files.limits import Misfit
from alluvia.files.reading_options import reading_options

_texts = st.text('ab",;\n\r \t', max_size=4)
_cells = st.one_of(_texts, _texts.map(lambda text: '"' + text.replace('"', '""') + '"'))
_rows = st.lists(_cells, min_size=2, max_size=2).map(",".join)
_bodies = st.lists(st.tuples(st.one_of(_rows, _rows, _rows, _texts), st.sampled_from(["\n", "\r\n"])), max_size=6).map(
    lambda rows: "x,y\n" + "".join(map("".join, rows))
)


def by_python(row: str) -> list[str] | None:
    """Return the cells of a row as Python's reader has them; None if it refuses the row."""
    try:
        (cells,) = csv.reader([row], strict=True)
    except csv.Error:
        return None
    return cells


def in_body(body: bytes) -> tuple[list[dict[str, object]], int]:
    split = by_name("csv").read(SentBody({"content-type": "text/csv"}, body, 0), UNLIMITED)
    return [event.value for event in split.events], len(split.rejects)


def in_file(body: bytes) -> list[dict[str, object]]:
    return [value for part in parts(io.BytesIO(body), "a.csv") for value in in_body(part.data)[0]]


def in_upload(body: bytes) -> list[dict[str, object]]:
    rows = CsvRows(lambda: io.BytesIO(body), "text/csv", 99)
    tables = rows.tables(pa.schema([(name, pa.string()) for name in rows.names]))
    return [row for table in tables for row in table.to_pylist()]


@settings(max_examples=300)
@given(body=_bodies)
@example('x,y\n"a"b,1\n')
@example("x,y\n1,2\r,3\n")
@example('x,y\n1\r,"a\nb"\n2,3\n')
def test_cells_are_those_of_pythons_reader_and_no_byte_is_lost(body: str) -> None:
    text = CsvText(io.BytesIO(body.encode()), "text/csv")
    rows = list(text.rows)
    assert all(row.strip(b"\n,") for row in rows)
    ends = b"\r\n,"  # the commas of rows without text; those of others separate the cells below
    assert b"".join([text.header, *rows]).translate(None, ends) == body.encode().translate(None, ends)
    for row in rows:
        cells, expected = text.cells(row), by_python(row.decode())
        if isinstance(cells, CsvFault):
            assert expected is None, row
        else:
            assert [cell or "" for cell in cells] == expected, row


@settings(max_examples=200)
@given(body=_bodies)
@example('x,y\n"a"b,1\n')
@example('x,y\n5" pipe,1\n')
@example("x,y\n1,2\r,3\n")
@example('x,y\n,""\n')
def test_bodies_files_and_uploads_have_the_same_cells(body: str) -> None:
    """A file is uploaded as a whole or not at all; of events, each is judged by itself."""
    data = body.encode() + b'end,""\n'
    events, rejected = in_body(data)
    try:
        uploaded = in_upload(data)
    except Misfit:
        assert rejected
        return
    assert not rejected
    assert [{name: cell for name, cell in row.items() if cell is not None} for row in uploaded] == events
    assert in_file(data) == events


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        (b'x,y\n5" pipe,1\n', [{"x": '5" pipe', "y": "1"}]),
        (b'5" x,y\n1,2\n', [{'5" x': "1", "y": "2"}]),
        (b'"a\nb";c\n1;2\n', [{"a\nb": "1", "c": "2"}]),
        (b"x,y\n" + b"z" * 300_000 + b",1\n", [{"x": "z" * 300_000, "y": "1"}]),
        (b"x\ty\n1\t2\n\t\n3\t4\n", [{"x": "1", "y": "2"}, {"x": "3", "y": "4"}]),
        (b"\xef\xbb\xbf \r\n\r\nx,y\r\n\r\n1,2", [{"x": "1", "y": "2"}]),
        (b'x,y\n,,,\n"",\n1,\n,\n', [{"x": ""}, {"x": "1"}]),
        (b" x ,\to\xcc\x88\t\n1,2\n", [{"x": "1", "\xf6": "2"}]),
        (b"\xef\xbb\xbfsep=;\r\nx;y, z\r\n1;2,5\r\n", [{"x": "1", "y, z": "2,5"}]),
        (b";;\n ; \nx;y\n1;2\n", [{"x": "1", "y": "2"}]),
        (b'"sep=^"\n^^\nx^y\n1^2\n', [{"x": "1", "y": "2"}]),
    ],
    ids=[
        *("quote in a cell", "quote in a name", "line end in a name", "long cell", "cells without text", "mark"),
        *("rows without text", "names", "delimiter of Excel", "rows before the names", "another delimiter"),
    ],
)
def test_every_reader_takes_what_one_takes(body: bytes, rows: list[dict[str, object]]) -> None:
    assert in_body(body) == (rows, 0)
    assert in_file(body) == rows
    assert [{name: cell for name, cell in row.items() if cell is not None} for row in in_upload(body)] == rows


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'x,y\n1,2\n"a"b,1\n', "row 2: not valid CSV: ',' expected after '\"'"),
        (b"x,y\n1,2\r,3\n", "row 1: not valid CSV: a carriage return (\\r) stands outside quotes"),
        (b"x\n1\r2\n", "row 1: not valid CSV: a carriage return (\\r) stands outside quotes"),
        (b'x,y\n1,"a\nb"\n"1,2\n3,4\n', "row 2: not valid CSV: a quote is not closed"),
    ],
    ids=["text after a quote", "return in a row", "return between cells of one column", "open quote"],
)
def test_an_upload_makes_no_guess_at_a_broken_row(body: bytes, reason: str) -> None:
    with pytest.raises(Misfit) as error:
        in_upload(body)
    assert str(error.value) == reason


def test_a_row_with_a_stray_carriage_return_ends_where_its_quotes_do() -> None:
    body = b'x,y\n1\r,"a\nb,c"\n2,"d\ne"\rf\n3,4\n'
    split = by_name("csv").read(SentBody({"content-type": "text/csv"}, body, 0), UNLIMITED)
    assert [(event.position, event.value) for event in split.events] == [(2, {"x": "3", "y": "4"})]
    assert [reject.raw for reject in split.rejects] == [b'1\r,"a\nb,c"', b'2,"d\ne"\rf']


@pytest.mark.parametrize("end", [b"\n", b"\r"])
def test_no_more_is_read_of_a_line_than_the_limit(end: bytes) -> None:
    source = io.BytesIO(end.join([b"x,y", b"1,2", b"z" * (9 << 20)]))
    rows = CsvText(source, "text/csv", row_bytes_max=2 << 20).rows
    assert next(rows) == b"1,2" + end
    with pytest.raises(RowTooLong, match="a line is longer than 2 MB"):
        next(rows)
    assert source.tell() <= 4 << 20


def test_a_files_ends_of_lines_are_told_from_all_of_its_first_line() -> None:
    class Pipe(io.RawIOBase):
        """A stream that gives what has been written by then, such as half of a line end."""

        def __init__(self) -> None:
            self._written = [b"x,y\r", b'\n1,"a\rb"\r\n', b"2,3\r", b"\n"]

        def read(self, size: int = -1) -> bytes:
            return self._written.pop(0) if self._written else b""

    found = list(parts(Pipe(), "a.csv"))  # type: ignore[arg-type]
    assert [in_body(part.data)[0] for part in found] == [[{"x": "1", "y": "a\rb"}, {"x": "2", "y": "3"}]]


def test_lines_before_the_header_are_skipped() -> None:
    body = b"Report; of May\n\nx;y\n1;2\n"
    rows = CsvRows(lambda: io.BytesIO(body), "text/csv", 99, reading_options(skip=2))
    (table,) = rows.tables(pa.schema([("x", pa.string()), ("y", pa.int64())]))
    assert table.to_pylist() == [{"x": "1", "y": 2}]
    (part,) = parts(io.BytesIO(body), "a.csv", options=reading_options(skip=1))
    assert in_body(part.data) == ([{"x": "1", "y": "2"}], 0)
    with pytest.raises(Misfit, match="the file is empty: its first row must name the columns"):
        CsvRows(lambda: io.BytesIO(body), "text/csv", 99, reading_options(skip=9))
    with pytest.raises(Invalid, match="skip: use a number of lines from 0 to 1000"):
        reading_options(skip=-1)
    with pytest.raises(Invalid, match="skip: leave it out, because the file is ndjson: it is for csv and tsv"):
        reading_options(skip=1).check("ndjson")
