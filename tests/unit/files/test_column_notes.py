"""What a sender is told of columns that are text, and of points in numbers that may group digits."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from alluvia.files.csv_rows import CsvRows
from alluvia.files.limits import Misfit
from alluvia.files.reading_options import DEFAULT, ReadingOptions, reading_options
from alluvia.files.text_values import as_declared

COMMA = reading_options(decimal_separator=",")
POINT = reading_options(decimal_separator=".")


def rows_of(text: str, options: ReadingOptions = DEFAULT, media_type: str = "text/csv") -> CsvRows:
    return CsvRows(lambda: io.BytesIO(text.encode()), media_type, 99, options)


def inferred(text: str, options: ReadingOptions = DEFAULT) -> tuple[pa.DataType, list[str]]:
    """Return the type of the last column, and the notes."""
    rows = rows_of(text, options)
    return rows.schema({}).types[-1], rows.notes


def fitted(
    text: str, kind: pa.DataType, options: ReadingOptions = DEFAULT, media_type: str = "text/csv"
) -> list[object]:
    """Return the values of the last column, of a type."""
    rows = rows_of(text, options, media_type)
    schema = pa.schema([(name, pa.string()) for name in rows.names[:-1]] + [(rows.names[-1], kind)])
    return [value for table in rows.tables(schema) for value in table.column(rows.names[-1]).to_pylist()]


BY_NULL = "; --null reads such a text as null (null)"
NUMBERS = (pa.int64(), pa.int32(), pa.float64(), pa.float32(), pa.decimal128(12, 3))


@pytest.mark.parametrize("by", [";", "\t", "|"])
@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_a_point_that_may_group_digits_is_refused_where_no_comma_separates(kind: pa.DataType, by: str) -> None:
    text = "id;sales\n1;7\n2; 1.000 \n3;2.500\n".replace(";", by)
    assert inferred(text)[0] == pa.string()
    refused = "row 2, column sales: '1.000' may be 1000 or 1: --decimal-separator says which it is, with , or ."
    with pytest.raises(Misfit, match=refused.replace(".", r"\.")):
        fitted(text, kind)
    assert fitted(text, kind, COMMA) == [7, 1000, 2500]
    if not pa.types.is_integer(kind):
        assert [float(str(each)) for each in fitted(text, kind, POINT)] == [7, 1, 2.5]
    with pytest.raises(Misfit, match=r"'1\.234\.567' may be 1234567: --decimal-separator"):
        fitted("id;sales\n1;1.234.567\n", kind)


def test_one_number_with_another_point_shows_that_points_are_decimal() -> None:
    for shown in ("12.5", "0.125", "1234.567", "7.1234"):
        text = "id;weight\n" + "1;1.000\n" * 300 + f"2;{shown}\n"
        assert fitted(text, pa.float64())[-2:] == [1.0, float(shown)]
        assert inferred(text) == (pa.float64(), [])
    assert fitted("id;weight\n1;-0.500\n2;1.000\n", pa.float64()) == [-0.5, 1.0]


def test_where_a_comma_separates_a_point_is_decimal() -> None:
    assert fitted("id,n\n1,1.000\n", pa.float64()) == [1.0]
    assert fitted("id,n\n1,1.000\n", pa.int64()) == [1]


def test_a_new_column_of_doubtful_points_is_text_and_noted() -> None:
    kind, notes = inferred("id;price;sales\n1;12,50;7\n2;3;1.000\n3;4;2.500\n")
    assert kind == pa.string()
    price, sales = notes
    assert price == (
        "column price is text: it seems to have numbers with a decimal comma, which --decimal-separator , reads "
        "(decimal_separator)"
    )
    assert sales == (
        "column sales is text: in row 2, '1.000' may be 1000 or 1: --decimal-separator says which it is, with , or . "
        "(decimal_separator)"
    )
    assert inferred("id;sales\n1;1.000\n2;2.500\n", COMMA) == (pa.int64(), [])
    assert inferred("id;sales\n1;1.000\n2;2.500\n", POINT) == (pa.float64(), [])


@pytest.mark.parametrize(
    ("cells", "options", "note"),
    [
        (("3", "k.A.", "5"), DEFAULT, "is text because of row 2: 'k.A.' is not a number"),
        (("", "1", "2", "3", "Total"), DEFAULT, "is text because of row 5: 'Total' is not a number"),
        (("2026-01-02", "-", "2026-01-03"), DEFAULT, "is text because of row 2: '-' is not a date"),
        (("12,50", "#NV", "7"), COMMA, "is text because of row 2: '#NV' is not a number with a decimal comma"),
        (("2026-01-02", "2026-02-30", "2026-01-03"), DEFAULT, "is text because of row 2: '2026-02-30' is not a date"),
        (("true", "false", "no"), DEFAULT, "is text because of row 3: 'no' is not true or false"),
        (
            ("3", "k.A.", "5", "#NV", "7", "k.A."),
            DEFAULT,
            f"is text because of row 2: 'k.A.' is not a number, like '#NV' in later rows{BY_NULL}",
        ),
        (
            ("3", "-", "5", "a", "7", "b", "9", "c"),
            DEFAULT,
            f"is text because of row 2: '-' is not a number, like 'a', 'b' and others in later rows{BY_NULL}",
        ),
        (("20.11.26", "21.11.26"), DEFAULT, "which --date-format reads, such as '%d.%m.%y' (date_format)"),
        (("11/20/2026",), DEFAULT, "which --date-format reads, such as '%m/%d/%Y' (date_format)"),
        (("1/2/2026",), DEFAULT, "such as '%d/%m/%Y' or '%m/%d/%Y' (date_format)"),
        (("20.11.2026 14:05",), DEFAULT, "reads, such as '%d.%m.%Y %H:%M' (timestamp_format)"),
        (("20.11.26",), reading_options(date_format="%d.%m.%Y"), "'%d.%m.%Y' does not read: use '%d.%m.%y'"),
        (
            ("20.11.2026", "31.02.2026", "1.1.2026"),
            reading_options(date_format="%d.%m.%Y"),
            "is text because of row 2: '31.02.2026' is not a date that is written as '%d.%m.%Y' says",
        ),
        (("12,50 €", "3,00 €"), COMMA, "it has values such as '12,50 €', which has a sign, a currency or spaces"),
        (("+5,00", "1 234,50"), COMMA, "it has values such as '+5,00', which has a sign, a currency or spaces"),
        (("ja", "Nein", "ja"), DEFAULT, "is text: it has 'ja', but booleans are written true and false"),
        (("WAHR", "FALSCH"), DEFAULT, "is text: it has 'WAHR', but booleans are written true and false"),
        (("ja", "vielleicht"), DEFAULT, ""),
        (("ja", "ja"), DEFAULT, ""),
        (("1", "007", "2"), DEFAULT, ""),
        (("1E5", "2E7"), DEFAULT, ""),
        (("red", "1", "blue", "green"), DEFAULT, ""),
        (("192.168.0.1",), DEFAULT, ""),
    ],
)
def test_a_column_is_noted_that_is_text_because_of_a_few_values(
    cells: tuple[str, ...], options: ReadingOptions, note: str
) -> None:
    kind, notes = inferred("id;x\n" + "".join(f"{at};{cell}\n" for at, cell in enumerate(cells)), options)
    assert kind == pa.string()
    assert [each.startswith("column x is text") for each in notes] == ([True] if note else [])
    assert note in "".join(notes)


def test_the_row_of_a_note_counts_from_the_start_of_a_large_file() -> None:
    kind, notes = inferred("id;x\n" + "".join(f"{at};7\n" for at in range(700_000)) + "1;Total\n")
    assert (kind, notes) == (pa.string(), [f"column x is text because of row 700001: 'Total' is not a number{BY_NULL}"])


def test_a_format_that_no_column_needs_is_noted() -> None:
    options = reading_options(date_format="%d.%m.%Y", timestamp_format="%d.%m.%Y %H:%M")
    assert options.unused([pa.date32(), pa.timestamp("us")]) == []
    assert options.unused([pa.string()]) == [
        "date_format '%d.%m.%Y': no column has dates that are written so",
        "timestamp_format '%d.%m.%Y %H:%M': no column has times that are written so",
    ]


def test_spaces_around_numbers_and_dates_say_nothing() -> None:
    text = "name;n;d\n a ; 4.25 ; 2026-01-02\nb;  ;2026-01-03 \n"
    rows = rows_of(text)
    schema = rows.schema({})
    assert schema.types == [pa.string(), pa.float64(), pa.date32()]
    (table,) = rows.tables(schema)
    assert table.column("name").to_pylist() == [" a ", "b"]
    assert table.column("n").to_pylist() == [4.25, None]
    assert table.column("d").null_count == 0
    assert fitted("id;n\n1; 1.234,50 \n", pa.decimal128(9, 2), COMMA) == [
        pa.scalar("1234.50").cast(pa.decimal128(9, 2)).as_py()
    ]


def test_the_reason_says_what_a_whole_number_lacks() -> None:
    with pytest.raises(Misfit, match=r"1000\.5 has a fraction, which a long cannot hold \(it has '1\.000,50'\)"):
        fitted("id;n\n1;1.000,50\n", pa.int64(), COMMA)


def test_codes_with_an_e_are_no_numbers() -> None:
    assert inferred("id;x\n1;1e-05\n2;1.5E7\n3;1e+16\n") == (pa.float64(), [])
    assert inferred("id;x\n1;1E5\n")[0] == pa.string()


def test_decimal_commas_that_separate_cells_name_the_option() -> None:
    hint = r"row 1: Expected 1 columns, got 2: 12,50; if commas are decimal ones, give --decimal-separator ,"
    with pytest.raises(Misfit, match=hint):
        fitted("amount\n12,50\n", pa.float64())
    assert fitted("amount\n12,50\n", pa.float64(), COMMA) == [12.5]


CODES = {"01067": 1067, "+4930": 4930, "1E5": 100000, "0012": 12, "-007": -7, " 007 ": 7}


@pytest.mark.parametrize(
    ("kind", "code"),
    [(kind, code) for kind in NUMBERS for code in CODES if not (code == "+4930" and pa.types.is_decimal(kind))],
    ids=str,
)
def test_what_makes_a_new_column_text_does_not_become_a_number_of_a_column(kind: pa.DataType, code: str) -> None:
    text = f"id,zip\n1,80331\n2,{code}\n"
    assert inferred(text)[0] == pa.string()
    refused = f"row 2, column zip: it may be a code, which a .* would store as {CODES[code]}"
    with pytest.raises(Misfit, match=refused):
        fitted(text, kind)
    schema = pa.schema([("id", pa.int64()), ("zip", kind)])
    (table,) = rows_of(text).tables(as_declared(schema, schema))
    assert [float(each) for each in table.column("zip").to_pylist()] == [80331, CODES[code]]


def test_codes_are_found_under_a_decimal_comma() -> None:
    with pytest.raises(Misfit, match=r'declare the column: --schema "x:double" \(schema\) \(it has \'007,5\'\)'):
        fitted("id;x\n1;12,5\n2;007,5\n", pa.float64(), COMMA)


def test_numbers_as_programs_write_them_are_no_codes() -> None:
    cells = ["0", "-0.5", "0.10", "1e-05", "1e+16", "1.5E7", "-0.0", ".5", "5.", "10.00"]
    text = "id,x\n" + "".join(f"1,{cell}\n" for cell in cells)
    assert fitted(text, pa.float64()) == [float(cell) for cell in cells]
    assert fitted("id,x\n1,0\n1,-0\n1,10.0\n1,-12\n", pa.int64()) == [0, 0, 10, -12]
