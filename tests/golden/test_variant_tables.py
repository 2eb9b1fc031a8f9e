"""Tables with variants that delta-spark wrote, as bytes and shredded: the same JSON that Spark makes of them."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.errors import Unsupported
from tests.golden.reading import folders
from tests.golden.variant_tables import CASES

Json = dict[str, Any]


def expected_rows(folder: Path) -> list[Json]:
    return parsed(pq.read_table(folder / "expected" / "rows.parquet"))


def parsed(table: pa.Table) -> list[Json]:
    """Return rows by number, in which texts are what their JSON says, numbers with all their digits."""
    return sorted((_parsed(row) for row in table.to_pylist(maps_as_pydicts="strict")), key=lambda row: row["n"])


def _parsed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _parsed(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_parsed(part) for part in value]
    return json.loads(value, parse_float=Decimal) if isinstance(value, str) else value


def test_every_case_is_here(variant_tables: Path) -> None:
    assert sorted(CASES) == folders(variant_tables)


@pytest.mark.parametrize("case", CASES)
def test_variants_are_the_json_that_spark_makes_of_them(variant_tables: Path, case: str) -> None:
    table = alluvia.open_table(str(variant_tables / case / "delta"))
    wanted = expected_rows(variant_tables / case)
    found = table.scan().read_all()
    assert parsed(found) == wanted
    assert parsed(table.lake.sql("SELECT * FROM delta")) == wanted
    assert table.lake.sql("SELECT count(*) AS n FROM delta").to_pylist() == [{"n": len(wanted)}]
    assert table.verify(full=True).findings == ()


def test_a_variant_is_a_text_column_to_queries(variant_tables: Path) -> None:
    for case in ("plain", "preview", "shredded object"):
        lake = alluvia.open_table(str(variant_tables / case / "delta")).lake
        found = lake.sql("SELECT n, v ->> '$.a' AS a FROM delta WHERE v ->> '$.b' = 'y' OR v = '[]' ORDER BY n")
        assert found.to_pylist() == [{"n": 2, "a": None}, {"n": 5, "a": "text"}]
        assert lake.sql("SELECT n FROM delta WHERE v IS NULL").to_pylist() == [{"n": 0}]
        assert lake.sql("SELECT n FROM delta WHERE v = 'null'").to_pylist() == [{"n": 1}]
        table = lake.table("delta")
        assert table.scan(["n"], where="v = 'true'").read_all() == lake.sql("SELECT n FROM delta WHERE v = 'true'")


@pytest.mark.parametrize("case", ["plain", "preview", "shredded object"])
def test_a_table_with_variants_is_not_written(variant_tables: Path, case: str) -> None:
    table = alluvia.open_table(str(variant_tables / case / "delta"))
    with pytest.raises(Unsupported, match="the table needs the writer feature variant"):
        table.append(table.scan().read_all())
