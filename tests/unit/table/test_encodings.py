"""How data files encode their columns: as the values are, and so that they read back as they were."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia

ROWS = 5000
"""More than a sample has."""
UTC = pa.timestamp("us", tz="UTC")
COLUMNS = {
    "number": pa.array(range(ROWS)),
    "at": pa.array([1_700_000_000_000_000 + 977 * at for at in range(ROWS)], UTC),
    "id": pa.array([f"{at * 7919:036x}" for at in range(ROWS)]),
    "text": pa.array([f"text {at}" for at in range(ROWS)]),
    "ratio": pa.array([at / 7 for at in range(ROWS)]),
    "kind": pa.array([f"kind {at % 9}" for at in range(ROWS)]),
    "sorted": pa.array([f"user {at // 50}" for at in range(ROWS)]),
    "often_null": pa.array([at if at % 3 else None for at in range(ROWS)]),
    "null": pa.nulls(ROWS, pa.string()),
    "inner": pa.array([{"id": at, "kind": at % 3} for at in range(ROWS)]),
    "list": pa.array([[f"{at}", f"{at}-{at}"] for at in range(ROWS)]),
    "map": pa.array([[("key", at)] for at in range(ROWS)], pa.map_(pa.string(), pa.int64())),
}
DISTINCT = {
    "number": "DELTA_BINARY_PACKED",
    "at": "DELTA_BINARY_PACKED",
    "id": "DELTA_BYTE_ARRAY",
    "text": "PLAIN",
    "ratio": "PLAIN",
    "often_null": "DELTA_BINARY_PACKED",
    "inner.id": "DELTA_BINARY_PACKED",
    "list.list.element": "PLAIN",
    "map.key_value.value": "DELTA_BINARY_PACKED",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = pa.table(COLUMNS)
    table = alluvia.connect(str(tmp_path)).create_table("t", rows.schema, properties={"alluvia.row_group_rows": "3000"})
    table.append(rows)
    return tmp_path / "t"


def encodings(folder: Path) -> dict[str, set[str]]:
    [file] = alluvia.open_table(str(folder)).snapshot().files
    metadata = pq.read_metadata(folder / file.path)
    found: dict[str, set[str]] = {}
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            found.setdefault(column.path_in_schema, set()).update(set(column.encodings) - {"RLE"})
    return found


def test_only_columns_that_repeat_values_have_a_dictionary(folder: Path) -> None:
    with_dictionary = {path for path, found in encodings(folder).items() if "RLE_DICTIONARY" in found}
    assert with_dictionary == {"kind", "sorted", "null", "inner.kind", "map.key_value.key"}


def test_distinct_values_are_encoded_by_their_differences(folder: Path) -> None:
    assert {path: found for path, found in encodings(folder).items() if path in DISTINCT} == {
        path: {encoding} for path, encoding in DISTINCT.items()
    }


def test_a_rewritten_file_is_encoded_as_an_appended_one(folder: Path) -> None:
    before = encodings(folder)
    alluvia.open_table(str(folder)).delete("number = 4321")
    assert encodings(folder) == before


def test_rows_read_back_as_they_were(folder: Path) -> None:
    read = pa.Table.from_batches(alluvia.open_table(str(folder)).scan())
    assert read.to_pylist() == pa.table(COLUMNS).to_pylist()
