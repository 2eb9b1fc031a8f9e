"""Texts that are not UTF-8: named by an option of files, and by the charset of a body."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from alluvia.errors import Invalid
from alluvia.events.formats.body_format import SentBody, by_name
from alluvia.events.formats.charset import charset_of, codec_named
from alluvia.events.ingest.values import UNLIMITED
from alluvia.files.file_rows import rows_of
from alluvia.files.limits import Misfit
from alluvia.files.reading_options import as_json, reading_options
from alluvia.files.sent import SentFile

TEXT = "Größe;€\n1;Müller\n"


def read(data: bytes, encoding: str) -> list[dict[str, object]]:
    rows = rows_of(lambda: io.BytesIO(data), "csv", 1 << 20, 99, reading_options(encoding=encoding))
    schema = pa.schema([("Größe", pa.int64()), ("€", pa.string())])
    return [row for table in rows.tables(schema) for row in table.to_pylist()]


@pytest.mark.parametrize("encoding", ["windows-1252", "CP1252", "iso-8859-15", "utf-16-le", "mac-roman", "utf8", ""])
def test_a_file_is_read_in_the_encoding_that_is_named(encoding: str) -> None:
    data = TEXT.encode(encoding or "utf-8")
    assert read(data, encoding) == [{"Größe": 1, "€": "Müller"}]
    (part,) = SentFile(data, "csv", options=reading_options(encoding=encoding, skip=0)).parts("a.csv")
    assert (part.data, part.options.encoding) == (TEXT.encode(), "")


def test_a_mark_of_the_byte_order_says_more_than_an_option() -> None:
    assert read(TEXT.encode("utf-8-sig"), "windows-1252") == [{"Größe": 1, "€": "Müller"}]
    assert read(TEXT.encode("utf-16"), "windows-1252") == [{"Größe": 1, "€": "Müller"}]


def test_what_is_not_in_its_encoding_is_refused() -> None:
    with pytest.raises(Misfit, match=r"not valid UTF-8: .* --encoding windows-1252 \(encoding\)"):
        read(TEXT.encode("windows-1252"), "")
    with pytest.raises(Misfit, match="the text is not valid CP1252"):
        read(b"a;b\n\x81;1\n", "windows-1252")
    for name in ("zlib", "base64", "idna", "unicode_escape", "undefined", "no such", "a\0b", "x" * 1000):
        with pytest.raises(Invalid, match=r"encoding: '.* is not known: use utf-8, windows-1252"):
            codec_named(name)
    with pytest.raises(Invalid, match="encoding: leave it out, because the file is parquet"):
        reading_options(encoding="windows-1252").check("parquet")
    assert reading_options(**as_json(reading_options(encoding="latin1"))) == reading_options(encoding="iso-8859-1")


@pytest.mark.parametrize(
    ("content_type", "charset"),
    [
        ("text/csv; charset=windows-1252", "windows-1252"),
        ('text/csv;header=present;Charset="ISO-8859-1"', "ISO-8859-1"),
        ("text/csv", ""),
        (None, ""),
    ],
)
def test_the_charset_of_a_content_type(content_type: str | None, charset: str) -> None:
    assert charset_of(content_type) == charset


def test_bodies_of_events_have_the_charset_of_their_type() -> None:
    def taken(charset: str, body: bytes) -> tuple[list[object], list[str]]:
        sent = SentBody({"content-type": f"text/csv; charset={charset}"}, body, 0)
        split = by_name("csv").read(sent, UNLIMITED)
        assert by_name("csv").key(sent, split)
        return [event.value for event in split.events], [reject.reason for reject in split.rejects]

    assert taken("windows-1252", TEXT.encode("windows-1252")) == ([{"Größe": "1", "€": "Müller"}], [])
    assert taken("utf-8", TEXT.encode()) == ([{"Größe": "1", "€": "Müller"}], [])
    assert taken("windows-1252", b"a;b\n\x81;1\n") == ([], ["not valid windows-1252, the charset in Content-Type"])
    assert taken("x", b"a;b\n1;1\n")[1][0].startswith("encoding: 'x' is not known")


def test_a_workbook_is_refused_with_the_way_to_save_it() -> None:
    for data in (b"PK\x03\x04" + b"x" * 99, b"\xd0\xcf\x11\xe0" + b"x" * 99):
        with pytest.raises(Misfit, match="save the sheet as CSV UTF-8"):
            read(data, "")
