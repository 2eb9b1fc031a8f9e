"""Headers of CSV that lack a name, or have one twice."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from alluvia.files.file_rows import rows_of
from alluvia.files.limits import Misfit
from alluvia.files.reading_options import reading_options


def read(text: str, rename: str = "") -> tuple[list[dict[str, object]], list[str]]:
    """Return the rows of a file, and the notes."""
    rows = rows_of(lambda: io.BytesIO(text.encode()), "csv", 1 << 20, 99, reading_options(rename=rename))
    schema = rows.schema({})
    return [row for table in rows.tables(schema) for row in table.to_pylist()], rows.notes


def test_a_column_without_name_and_values_is_left_out_with_a_note() -> None:
    rows, notes = read("id;;n;\n1;;2;\n3; ;4;\n")
    assert rows == [{"id": 1, "n": 2}, {"id": 3, "n": 4}]
    assert notes == [f"column {at} of the file has no name and no values: it is left out" for at in (2, 4)]


def test_a_value_in_a_column_without_name_is_refused_with_the_option_that_names_it() -> None:
    with pytest.raises(Misfit, match=r"row 2: column 3 of the file has no name, but has 'x': .* --rename \"#3=NAME\""):
        read("id;n;\n1;2;\n3;4;x\n")
    assert read("id;n;\n1;2;\n3;4;x\n", rename="#3=note,n=m")[0] == [
        {"id": 1, "m": 2, "note": None},
        {"id": 3, "m": 4, "note": "x"},
    ]


def test_of_two_columns_of_one_name_one_can_be_renamed() -> None:
    with pytest.raises(Misfit, match=r"the file has the column 'ID' twice: give one .* with --rename \"#2=NAME\""):
        read("id,ID\n1,2\n")
    assert read("id,ID\n1,2\n", rename="#2=other")[0] == [{"id": 1, "other": 2}]
    assert read("#2,n\n1,2\n", rename="#2=other")[0] == [{"other": 1, "n": 2}]


def test_a_header_without_any_name_names_the_option_that_skips_lines() -> None:
    with pytest.raises(Misfit, match=r"the first row names no column: .* --skip \(skip\)"):
        read('"";""\nid;a\n1;2\n')


def test_a_column_without_name_is_left_out_of_known_columns_too() -> None:
    rows = rows_of(lambda: io.BytesIO(b"id,\n1,\n"), "csv", 1 << 20, 99)
    (table,) = rows.tables(pa.schema([("id", pa.int32())]))
    assert (table.to_pylist(), len(rows.notes)) == ([{"id": 1}], 1)
