"""Data files in SQL and Python: URLs, statistics, row groups and deletion vectors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.api.lake import Lake
from alluvia.errors import Invalid
from alluvia.query.engine import run
from tests.unit.query.inspected import ask, filled


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return filled(alluvia.connect(tmp_path_factory.mktemp("lake")))


def test_files_have_urls_sizes_partition_values_and_typed_statistics(lake: Lake) -> None:
    files = ask(lake, "FROM files('orders')")
    for each in files:
        assert Path(str(each["url"])).stat().st_size == each["bytes"]
        assert str(each["url"]).endswith(f"/orders/{each['path']}")
    by_day = {dict(each["partition_values"])["day(ts)"]: each for each in files}  # type: ignore[call-overload]
    assert {day: (each["rows"], each["deleted_rows"]) for day, each in by_day.items()} == {
        "2024-01-01": (4, None),
        "2024-01-02": (3, 1),
        "2024-01-03": (4, None),
    }
    third = by_day["2024-01-03"]
    assert dict(third["partition_values"]) == {"land": "fr", "day(ts)": "2024-01-03"}  # type: ignore[call-overload]
    assert third["statistics"] == {
        "id": {"min": 30, "max": 33, "null_count": 0},
        "ts": {"min": datetime(2024, 1, 3, tzinfo=UTC), "max": datetime(2024, 1, 3, 3, tzinfo=UTC), "null_count": 0},
        "kind": {"min": "kind-3", "max": "kind-3", "null_count": 0},
        "land": {"min": "fr", "max": "fr", "null_count": 0},
        "ok": {"null_count": 4},
        "place": {
            "zip": {"min": 3, "max": 3, "null_count": 0},
            "city": {"min": None, "max": None, "null_count": 4},
        },
    }


@pytest.mark.parametrize(
    ("where", "days"),
    [
        ("ts >= '2024-01-02'", ["02", "03"]),
        ("land = 'fr' OR id = 11", ["01", "03"]),
        ("place.zip = 2", ["02"]),
        ("date_trunc('day', ts) = '2024-01-03'", ["03"]),
        ("kind = 'none'", []),
        ("ts < now()", ["01", "02", "03"]),
    ],
)
def test_a_condition_prunes_files_as_a_query_does(lake: Lake, where: str, days: Sequence[str]) -> None:
    quoted = where.replace("'", "''")
    found = ask(lake, f"SELECT path FROM files('orders', '{quoted}') ORDER BY statistics.id.min")
    assert [str(each["path"]).partition("ts_day=2024-01-")[2][:2] for each in found] == days
    with run(lake.catalog, f"SELECT id FROM orders WHERE {where}") as result:
        result.read_all()
        assert {file.path for file in result.scans[0].files} == {each["path"] for each in found}


def test_row_groups_are_those_of_the_footers(lake: Lake) -> None:
    found = ask(lake, "SELECT path, row_group, rows, statistics.id.min AS low FROM row_groups('orders', 'id > 30')")
    [file] = ask(lake, "SELECT path, url FROM files('orders', 'id > 30')")
    footer = pq.read_metadata(str(file["url"]))
    assert found == [{"path": file["path"], "row_group": 0, "rows": footer.num_rows, "low": 30}]


def test_row_groups_of_many_files_need_a_condition(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alluvia.inspection.row_groups.FILES_MAX", 2)
    with pytest.raises(Invalid, match=r"of at most 2, and orders has 3 that match: give a condition"):
        ask(lake, "FROM row_groups('orders')")
    assert len(ask(lake, "FROM row_groups('orders', 'land = ''de''')")) == 2


def test_files_in_python_are_what_other_engines_need(lake: Lake) -> None:
    table = lake["orders"]
    assert len(table.files) == 3
    assert {file.path for file in table.files} == {file.path for file in table.snapshot().files}
    [vectored] = table.files(where="ts >= '2024-01-02' AND ts < '2024-01-03'")
    found = pq.read_table(vectored.url)
    assert (len(found), vectored.rows, vectored.size) == (4, 3, Path(vectored.url).stat().st_size)
    assert vectored.partition_values == {"land": "de", "day(ts)": "2024-01-02"}
    assert vectored.deletion_vector is not None
    assert vectored.deletion_vector["cardinality"] == 1
    [plain] = table.files(where="land = 'fr'")
    assert plain.deletion_vector is None
    assert len(table.files(version=1)) == 1
    assert len(table.files(where="id < 0", timestamp=datetime(2999, 1, 1, tzinfo=UTC))) == 0
    with pytest.raises(Invalid, match="nope"):
        table.files(where="nope = 1")


def test_a_deletion_vector_in_a_file_has_an_absolute_path(tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path)
    table = lake.create_table("t", {"n": "long"}, properties={"delta.enableDeletionVectors": "true"})
    table.append(pa.table({"n": pa.array(range(50_000))}))
    table.delete("n % 7 = 1")
    [file] = table.files()
    vector = file.deletion_vector
    assert vector is not None
    assert vector["storageType"] == "p"
    assert Path(vector["pathOrInlineDv"]).stat().st_size >= vector["offset"] + vector["sizeInBytes"]
    assert file.rows == 50_000 - vector["cardinality"] == table.count()


def test_statistics_are_found_by_the_names_that_columns_have_now(own_lake: Lake) -> None:
    schema = pa.schema(
        [("n", pa.int64()), ("place", pa.struct([("zip", pa.int32())])), ("price", pa.decimal128(38, 2))]
    )
    table = own_lake.create_table("t", schema, properties={"delta.checkpoint.writeStatsAsJson": "false"})
    price = Decimal("12345678901234567890.12")
    table.append([{"n": 3, "place": {"zip": 7}, "price": price}] * 2)
    table.evolve(rename={"n": "number"}, add={"late": "string"})
    table.checkpoint()
    fresh = alluvia.connect(own_lake.uri)
    expected = {
        "number": {"min": 3, "max": 3, "null_count": 0},
        "place": {"zip": {"min": 7, "max": 7, "null_count": 0}},
        "price": {"min": price, "max": price, "null_count": 0},
        "late": {"min": None, "max": None, "null_count": None},
    }
    assert ask(fresh, "SELECT statistics FROM files('t', 'number = 3')") == [{"statistics": expected}]
    assert ask(fresh, "SELECT min FROM table_columns('t') WHERE name = 'number'") == [{"min": "3"}]
    [row] = ask(fresh, "SELECT statistics.number AS n FROM row_groups('t')")
    assert row["n"] == {"min": 3, "max": 3, "null_count": 0}


def test_a_file_of_one_row_has_statistics_in_the_log_alone(own_lake: Lake) -> None:
    own_lake.create_table("t", {"n": "long"}).append([{"n": 3}])
    assert ask(own_lake, "SELECT statistics.n.max AS n FROM files('t')") == [{"n": 3}]
    assert ask(own_lake, "SELECT rows, statistics.n.max AS n FROM row_groups('t')") == [{"rows": 1, "n": None}]
    own_lake.create_table("u", {"n": "long"}, properties={"delta.dataSkippingNumIndexedCols": "0"}).append([{"n": 3}])
    assert ask(own_lake, "SELECT statistics.n.max AS n FROM row_groups('u')") == [{"n": 3}]


def test_a_last_row_group_of_one_row_has_statistics(own_lake: Lake) -> None:
    table = own_lake.create_table("t", {"n": "long"}, properties={"alluvia.row_group_rows": "3"})
    for n in range(4):
        table.append([{"n": n}])
    table.optimize()
    found = ask(own_lake, "SELECT rows, statistics.n.max AS n FROM row_groups('t') ORDER BY ALL")
    assert [row["rows"] for row in found] == [1, 3]
    assert None not in [row["n"] for row in found]
