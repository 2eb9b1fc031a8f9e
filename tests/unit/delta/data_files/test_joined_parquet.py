"""Row groups that were encoded apart, and joined into one file."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.delta.data_files.joined_parquet import JoinedParquet
from alluvia.delta.log.files.thrift import Field, Items, read_struct, written_struct
from alluvia.delta.statistics.footer import footer_size

PARTS, ROWS = 20, 1000


def _rows(part: int) -> pa.Table:
    numbers = range(part * ROWS, (part + 1) * ROWS)
    columns: dict[str, list[Any]] = {
        "id": [f"{number:08d}" for number in numbers],
        "n": [*numbers],
        "country": [("de", "fr", None)[number % 3] for number in numbers],
        "list": [[number, None] for number in numbers],
        "struct": [{"flag": number % 2 == 0, "share": number / 7} for number in numbers],
        **{f"c{at}": [*numbers] for at in range(20)},
    }
    return pa.table(columns)


def _encoded(rows: pa.Table, *, page_indexes: bool = False) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        write_page_index=page_indexes,
        write_page_checksum=True,
        bloom_filter_options={"id": {"ndv": ROWS}},
        use_dictionary=["country"],
        column_encoding={"id": "DELTA_BYTE_ARRAY"},
    )
    return bytes(sink.getvalue())


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("joined") / "joined.parquet"
    with path.open("wb") as sink:
        file = JoinedParquet(sink)
        for part in range(PARTS):
            file.add(_encoded(_rows(part)))
        file.close()
    assert path.stat().st_size == file.size
    return path


def test_it_has_the_rows_of_all_parts_in_order(joined: Path) -> None:
    rows = pa.concat_tables([_rows(part) for part in range(PARTS)])
    assert pq.ParquetFile(joined, page_checksum_verification=True).read() == rows
    metadata = pq.read_metadata(joined)
    assert (metadata.num_rows, metadata.num_row_groups) == (PARTS * ROWS, PARTS)


def test_each_row_group_is_found_alone(joined: Path) -> None:
    file = pq.ParquetFile(joined)
    assert all(file.read_row_group(part) == _rows(part) for part in range(PARTS))


def test_duckdb_finds_rows_by_statistics_and_bloom_filters(joined: Path) -> None:
    with duckdb.connect() as connection:
        groups = connection.execute(
            "SELECT row_group_id, row_group_num_rows FROM parquet_metadata($1) WHERE path_in_schema = 'n'",
            [str(joined)],
        ).fetchall()
        assert groups == [(part, ROWS) for part in range(PARTS)]
        found = connection.execute("SELECT n, struct.flag FROM read_parquet($1) WHERE id = '00005555'", [str(joined)])
        assert found.fetchall() == [(5555, False)]
        left_out = connection.execute(
            "SELECT count(bloom_filter_excludes) FILTER (bloom_filter_excludes)"
            " FROM parquet_bloom_probe($1, 'id', '00005555')",
            [str(joined)],
        )
        [(excluded,)] = left_out.fetchall()
        assert PARTS - 3 <= excluded <= PARTS - 1


def test_a_file_without_parts_is_empty() -> None:
    sink = BytesIO()
    JoinedParquet(sink).close()
    assert sink.getvalue() == b""


def test_a_part_with_page_indexes_is_refused() -> None:
    with pytest.raises(ValueError, match="page indexes"):
        JoinedParquet(BytesIO()).add(_encoded(_rows(0), page_indexes=True))


def test_a_footer_is_written_as_it_was_read() -> None:
    data = _encoded(_rows(0))
    footer = data[-footer_size(data) : -8]
    assert written_struct(read_struct(footer)) == footer


def test_all_types_are_written_as_they_were_read() -> None:
    struct = {
        1: Field(1, value=True),
        2: Field(2, value=False),
        40: Field(3, 255),
        41: Field(6, -(2**63)),
        3000: Field(7, b"8 bytes."),
        3001: Field(9, Items(1, [1, 2] * 10)),
        3002: Field(10, Items(8, [b"", b"x" * 300])),
        3003: Field(12, {5: Field(5, 2**31 - 1)}),
    }
    assert read_struct(written_struct(struct)) == struct


def test_a_type_that_parquet_does_not_use_is_refused() -> None:
    with pytest.raises(ValueError, match="type 11 of Thrift is not one that Parquet uses"):
        read_struct(b"\x1b\x00\x00")
