"""What separates the cells of CSV, by its header and its first rows: the same in bodies, files and uploads."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from alluvia.errors import Invalid
from alluvia.events.formats.body_format import SentBody, by_name
from alluvia.events.formats.csv_text import TABS, CsvText
from alluvia.events.ingest.values import UNLIMITED
from alluvia.files import event_files
from alluvia.files.csv_rows import CsvRows
from alluvia.files.event_files import parts
from alluvia.files.limits import Misfit
from alluvia.files.reading_options import DEFAULT, ReadingOptions, reading_options

COMMA = reading_options(decimal_separator=",")


@pytest.mark.parametrize(
    ("header", "media_type", "delimiter"),
    [
        ("a,b", "text/csv", ","),
        ("a", "text/csv", ","),
        ("", "text/csv", ","),
        ("a;b", "text/csv", ";"),
        ('"a";"b,c"', "text/csv", ";"),
        ('"a";"b"\r\n', "text/csv", ";"),
        ("a\tb\n", "text/csv", "\t"),
        ('"a;b"', "text/csv", ","),
        ('a,"b;c', "text/csv", ","),
        ('"a;b;c', "text/csv", ","),
        ("a;b", TABS, "\t"),
        ("a;b,c;d", TABS, "\t"),
    ],
)
def test_a_header_shows_the_delimiter(header: str, media_type: str, delimiter: str) -> None:
    assert CsvText(io.BytesIO(header.encode()), media_type).delimiter == delimiter


def rows_of(body: str, options: ReadingOptions = DEFAULT) -> list[dict[str, object]]:
    """Return the cells as a body of events, a file of events and an upload have them, which agree."""
    data = body.encode()

    given = {"decimal_separator": options.decimal_separator}

    def cells(media_type: str, body: bytes) -> list[dict[str, object]]:
        split = by_name("csv").read(SentBody({"content-type": media_type}, body, 0, options=given), UNLIMITED)
        assert not split.rejects
        return [event.value for event in split.events]

    some = parts(io.BytesIO(data), "a.csv", options=options)
    read = [value for part in some for value in cells(part.media_type, part.data)]
    assert cells("text/csv", data) == read
    uploaded = CsvRows(lambda: io.BytesIO(data), "text/csv", 99, options)
    tables = uploaded.tables(pa.schema([(name, pa.string()) for name in uploaded.names]))
    stored = [{name: cell for name, cell in row.items() if cell is not None} for t in tables for row in t.to_pylist()]
    assert stored == read
    return read


SPREADSHEETS = {
    "comma in a name": "Order ID;Betrag, netto;Datum\n1;12,50;20.11.2026\n2;3;21.11.2026\n",
    "and in all rows": "Order ID;Betrag, netto;Datum\n1;12,50;20.11.2026\n2;1.234,50;21.11.2026\n",
    "in quotes": 'Order ID;"Betrag, netto";Datum\n1;"12,50";x\n2;"3,5";y\n',
    "quotes and texts": 'Order ID;"Name, Vorname";Datum\n1;"Kant, I";x\n2;"Marx, K";y\n',
    "two commas": "Netto, EUR;Brutto, EUR\n12,50;14,88\n3,00;3,57\n",
    "no header": "1;12,50;20.11.2026\n2;13,50;21.11.2026\n",
    "tabs": "Order ID\tBetrag, netto\tDatum\n1\t12,50\tx\n2\t3,5\ty\n",
    "bars": "a|b;c|d\n1|2|3\n4|5|6\n",
    "a ragged row": "id;Name, first;x\n1;Eva;2\n2;Max, Dr;3\n",
}


@pytest.mark.parametrize("body", SPREADSHEETS.values(), ids=SPREADSHEETS)
def test_the_rows_show_the_delimiter_where_names_have_commas(body: str) -> None:
    by = "\t" if "\t" in body else "|" if "|" in body else ";"
    header, *lines = body.splitlines()
    names = [name.strip('"') for name in header.split(by)]
    expected = [dict(zip(names, [cell.strip('"') for cell in line.split(by)], strict=True)) for line in lines]
    assert rows_of(body) == expected
    if by != "|":
        assert rows_of(body, COMMA) == expected


def test_a_comma_separates_where_names_have_other_characters() -> None:
    assert rows_of("id,a;b|c\n1,x\n2,y;z\n") == [{"id": "1", "a;b|c": "x"}, {"id": "2", "a;b|c": "y;z"}]
    assert rows_of('id,"a;b"\n1,"2;3"\n') == [{"id": "1", "a;b": "2;3"}]


def test_with_a_decimal_comma_it_hardly_separates() -> None:
    assert rows_of("Betrag\n12,50\n", COMMA) == [{"Betrag": "12,50"}]
    assert rows_of('id,Betrag\n1,"12,50"\n', COMMA) == [{"id": "1", "Betrag": "12,50"}]
    assert rows_of('"id","Betrag"\n"1","12,50"\n', COMMA) == [{"id": "1", "Betrag": "12,50"}]
    with pytest.raises(Misfit, match="the delimiter may be ',' or ';': say which one it is, with --delimiter"):
        rows_of_upload("Betrag, netto\n12,50\n13,50\n", COMMA)


def rows_of_upload(body: str, options: ReadingOptions) -> None:
    CsvRows(lambda: io.BytesIO(body.encode()), "text/csv", 99, options)


@pytest.mark.parametrize("body", ["a,b;c\n1,x;2\n3,y;4\n", "a;b|c\n1;2|3\n", "id;Name, first\n1;Kant, I\n"])
def test_a_delimiter_that_nothing_tells_is_refused(body: str) -> None:
    named = "the header row cannot be read: the delimiter may be .* or .*: say which one it is, with --delimiter"
    with pytest.raises(Misfit, match=named):
        rows_of_upload(body, DEFAULT)
    split = by_name("csv").read(SentBody({"content-type": "text/csv"}, body.encode(), 0), UNLIMITED)
    assert (split.events, [reject.raw for reject in split.rejects]) == ([], [body.encode()])
    with pytest.raises(Invalid, match=r"a\.csv: the delimiter may be"):
        list(parts(io.BytesIO(body.encode()), "a.csv"))
    assert len(list(parts(io.BytesIO(body.encode()), "a.csv", options=reading_options(";")))) == 1


def test_every_part_of_a_file_has_the_delimiter_of_its_first_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "PART_BYTES", 1)
    body = "id;Name, first;x\n1;Eva;2\n2;Kant, I;3\n"
    assert [value["Name, first"] for value in rows_of(body)] == ["Eva", "Kant, I"]
