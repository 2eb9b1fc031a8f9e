"""Which readers read `properties` that files hold as a variant. docs/READERS.md says the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import alluvia
from alluvia.api.lake import Table
from tests import judges
from tests.reach.delta_spark import DeltaSpark, named

ODD: list[dict[str, Any]] = [
    {"event_id": "odd-1", "user_id": 7, "amount": "many", "nested": {"b": [1, None, {"z": "ü"}], "a": 1.5}},
    {"event_id": "odd-2", "user_id": None, "flag": False, "exact": 0.1, "large": 2**63, "small": 1e-7, "x.y": 1, "": 2},
    {"event_id": "odd-3"},
]
SHREDDED: list[dict[str, Any]] = [
    {"event_id": f"e{n}", "user_id": f"u{n % 50}", "amount": n / 4, "n": n, "flag": n % 2 == 0, "tags": ["a", n]}
    for n in range(1500)
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Return a table with a file of typed columns, and one without."""
    lake = alluvia.connect(str(tmp_path_factory.mktemp("lake")))
    lake.sql(
        "CREATE TABLE hits (event_id STRING NOT NULL, ts TIMESTAMP, properties STRING) "
        "TBLPROPERTIES ('alluvia.properties' = 'variant')"
    )
    hits = lake.table("hits")
    hits.ingest([*SHREDDED, *ODD])
    hits.ingest([{**each, "event_id": f"small-{each['event_id']}"} for each in ODD])
    return hits


def _sent(event: dict[str, object]) -> object:
    fields = {name: value for name, value in event.items() if name != "event_id"}
    return fields or None


EXPECTED = {str(each["event_id"]): _sent(each) for each in [*SHREDDED, *ODD]} | {
    f"small-{each['event_id']}": _sent(each) for each in ODD
}


def test_alluvia_reads_them(table: Table) -> None:
    for rows in (table.scan().read_all(), table.lake.sql("SELECT * FROM hits")):
        assert _by_id(rows.to_pylist()) == EXPECTED


@pytest.mark.slow
@pytest.mark.xdist_group("delta-spark")
def test_delta_spark_reads_them(table: Table, delta_spark: DeltaSpark) -> None:
    rows = delta_spark.query(f"SELECT event_id, to_json(properties) AS properties FROM {named(table)}")
    assert _by_id(rows.to_pylist()) == EXPECTED
    found = delta_spark.query(
        f"SELECT count(DISTINCT properties:user_id::string) AS users, count_if(properties:n::long < 10) AS few, "
        f"sum(properties:amount::double) AS total FROM {named(table)} WHERE event_id LIKE 'e%'"
    )
    assert found.to_pylist() == [{"users": 50, "few": 10, "total": sum(n / 4 for n in range(1500))}]


@pytest.mark.slow
@pytest.mark.xdist_group("delta-spark")
def test_delta_spark_writes_an_open_table_and_we_go_on(
    tmp_path_factory: pytest.TempPathFactory, delta_spark: DeltaSpark
) -> None:
    lake = alluvia.connect(str(tmp_path_factory.mktemp("open")))
    lake.sql(
        "CREATE TABLE hits (event_id STRING NOT NULL, ts TIMESTAMP, properties STRING) "
        "TBLPROPERTIES ('alluvia.properties' = 'variant', 'alluvia.writers' = 'any')"
    )
    hits = lake.table("hits")
    hits.ingest([*SHREDDED, *ODD])
    more = {"event_id": "spark", "user_id": "u7", "day": "2026-01-02", "amount": 1.5}
    delta_spark.run(
        f"INSERT INTO {named(hits)} SELECT 'spark' AS event_id, now() AS ts, parse_json('{json.dumps(_sent(more))}')",
        f"UPDATE {named(hits)} SET properties = parse_json('[1]') WHERE event_id = 'odd-3'",
        f"DELETE FROM {named(hits)} WHERE event_id = 'odd-2'",
    )
    expected = {str(each["event_id"]): _sent(each) for each in [*SHREDDED, ODD[0], more]} | {"odd-3": [1]}
    for _ in range(2):
        for rows in (hits.scan().read_all(), lake.sql("SELECT * FROM hits")):
            assert _by_id(rows.to_pylist()) == expected
        found = lake.sql("SELECT count(*) AS n FROM hits WHERE properties->>'user_id' = 'u7'").to_pylist()
        assert found == [{"n": 31}]
        hits.optimize(full=True)
    rows = delta_spark.query(f"SELECT event_id, to_json(properties) AS properties FROM {named(hits)}")
    assert _by_id(rows.to_pylist()) == expected


@pytest.mark.parametrize("read", [judges.deltalake_table, judges.deltalake_sql_table, judges.duckdb_table])
def test_deltalake_and_duckdb_refuse_them_by_name(table: Table, read: Callable[[Table], pa.Table]) -> None:
    with pytest.raises(Exception, match=r"[vV]ariantShredding"):
        read(table)


def test_duckdb_sees_the_parts_of_variants_in_files(table: Table) -> None:
    urls = [file.url for file in table.files() if file.rows == len(SHREDDED) + len(ODD)]
    query = "SELECT count(DISTINCT properties.typed_value.user_id.typed_value) FROM read_parquet($1)"
    assert duckdb.execute(query, [urls]).fetchall() == [(50,)]


def _by_id(rows: list[dict[str, str | None]]) -> dict[str | None, object]:
    return {each["event_id"]: None if each["properties"] is None else json.loads(each["properties"]) for each in rows}
