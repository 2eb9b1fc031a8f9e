"""How data files encode their columns: as the values are, and so that they read back as they were."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.delta.data_files.encodings import distinct_share, encodings_of

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


def test_a_merge_encodes_ids_as_they_are_smallest(tmp_path: Path) -> None:
    chance = random.Random(3)
    hexes = [f"{chance.getrandbits(96):024x}" for _ in range(ROWS)]
    rows = pa.table({"random": hexes, "timed": [f"{at:012x}{each[:12]}" for at, each in enumerate(hexes)]})
    table = alluvia.connect(str(tmp_path)).create_table("t", rows.schema)
    for start in (0, ROWS // 2):
        table.append(rows.slice(start, ROWS // 2))
    table.optimize()
    assert encodings(tmp_path / "t") == {"random": {"DELTA_LENGTH_BYTE_ARRAY"}, "timed": {"DELTA_BYTE_ARRAY"}}
    assert table.to_arrow().sort_by("timed").equals(rows)


def test_rows_read_back_as_they_were(folder: Path) -> None:
    read = pa.Table.from_batches(alluvia.open_table(str(folder)).scan())
    assert read.to_pylist() == pa.table(COLUMNS).to_pylist()


def test_sorted_numbers_are_smaller_as_differences_than_as_places_in_a_dictionary() -> None:
    chance = random.Random(1)
    users = [chance.randrange(6000) for _ in range(4000)]
    codes = [chance.randrange(8) * 1000 for _ in range(4000)]
    found = encodings_of(pa.table({"sorted": sorted(users), "unsorted": users, "codes": codes}))
    assert found.others == {"sorted": "DELTA_BINARY_PACKED"}
    assert found.dictionary == ["unsorted", "codes"]


def test_texts_of_which_few_repeat_have_no_dictionary_unless_the_file_has_many_more() -> None:
    chance = random.Random(1)
    texts = [f'{{"page":"/p/{chance.randrange(6000)}"}}' for _ in range(100_000)]
    assert encodings_of(pa.table({"text": texts[:4000]})).dictionary == []
    assert encodings_of(pa.table({"text": texts})).dictionary == ["text"]


@pytest.mark.parametrize("kinds", [50, 3000, 20_000])
def test_the_share_of_distinct_values_is_foretold_from_a_sample(kinds: int) -> None:
    chance = random.Random(2)
    values = [chance.randrange(kinds) for _ in range(40_000)]
    foretold = distinct_share(len(set(values[:4000])), 4000, 10)
    assert foretold == pytest.approx(len(set(values)) / 40_000, rel=0.1)


def test_a_column_named_like_the_path_of_another_is_written(tmp_path: Path) -> None:
    number = pa.array(range(50))
    rows = pa.table({"a.b": [f"text {at}" for at in range(50)], "a": pa.StructArray.from_arrays([number], ["b"])})
    table = alluvia.connect(str(tmp_path)).create_table("t", rows.schema)
    table.append(rows)
    assert table.to_arrow().equals(rows)


def test_the_least_number_between_others_is_written(tmp_path: Path) -> None:
    numbers = [-(2**63), 0, -(2**63)]
    table = alluvia.connect(str(tmp_path)).create_table("t", {"n": "long"})
    table.append(pa.table({"n": numbers}))
    assert table.scan().read_all()["n"].to_pylist() == numbers
