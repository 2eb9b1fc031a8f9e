"""Schemas of a lake are databases to ibis."""

from __future__ import annotations

from typing import Any

import ibis
import pyarrow as pa
import pytest
from ibis import _

import alluvia
from alluvia.errors import Invalid, TableExists, TableNotFound
from tests.ibis.sample import rows_of


@pytest.fixture
def bronze(con: Any) -> str:
    con.create_database("bronze", force=True)
    return "bronze"


def test_tables_of_a_database(con: Any, bronze: str) -> None:
    made = con.create_table("made", [{"n": 1}, {"n": 2}], database=bronze)
    assert made.get_name() == "bronze.made"
    con.insert("made", [{"n": 3}], database=bronze)
    con.insert("made", made.filter(_.n == 3), database=("memory", bronze))
    assert sorted(made.n.to_pyarrow().to_pylist()) == [1, 2, 3, 3]
    assert con.table("made", database="memory.bronze").schema() == made.schema()
    con.insert("made", con.sql("SELECT 7 AS n"), database=bronze, overwrite=True)
    assert rows_of(con.sql("SELECT made.n FROM bronze.made")) == [{"n": 7}]
    con.create_table("copied", made.mutate(m=_.n + 1), database=bronze, overwrite=True)
    con.create_view("seen", con.table("copied", database=bronze), database=bronze, overwrite=True)
    assert rows_of(con.table("seen", database=bronze)) == [{"n": 7, "m": 8}]
    assert {"made", "copied", "seen"} <= set(con.list_tables(database=bronze))
    assert not {"made", "bronze.made", "copied", "seen"} & set(con.list_tables())
    with pytest.raises(TableNotFound):
        con.table("made")
    con.upsert("copied", pa.table({"n": [7, 8], "m": [9, 0]}), on="n", database=bronze)
    assert rows_of(con.table("seen", database=bronze).order_by("n")) == [{"n": 7, "m": 9}, {"n": 8, "m": 0}]
    con.truncate_table("copied", database=bronze)
    assert rows_of(con.table("seen", database=bronze)) == []
    con.drop_view("seen", database=bronze)
    con.drop_table("copied", database=bronze)
    con.drop_table("made", database=bronze)
    con.drop_table("made", database=bronze, force=True)
    assert con.list_tables(database=bronze) == []


def test_tables_of_one_name_in_two_databases_are_joined(con: Any, bronze: str) -> None:
    users = con.create_table("users", [{"name": "ada", "level": 4}], database=bronze)
    both = con.table("users").join(users, "name")
    assert rows_of(both.select("name", "level")) == [{"name": "ada", "level": 4}]
    with pytest.raises(Invalid, match=r"may read bronze\.users"):
        con.insert("users", users, database=bronze, overwrite=True)
    con.drop_table("users", database=bronze)
    assert con.table("users").count().to_pyarrow().as_py() == 3


def test_databases_are_listed_made_and_dropped(con: Any) -> None:
    assert con.current_database == "main"
    con.create_database("silver")
    with pytest.raises((TableExists, Invalid), match="already exists"):
        con.create_database("silver")
    assert con.list_databases(like="^(main|silver)$", catalog="memory") == ["main", "silver"]
    con.create_table("t", schema={"n": "int64"}, database="silver")
    with pytest.raises(Invalid, match="not empty"):
        con.drop_database("silver")
    con.drop_table("t", database="silver")
    con.drop_database("silver")
    con.drop_database("silver", force=True)
    with pytest.raises(TableNotFound):
        con.drop_database("silver")
    assert "silver" not in con.list_databases()


def test_a_lake_tells_of_its_databases(con: Any) -> None:
    tables = con.table("tables", database="information_schema")
    assert tables.filter(_.table_name == "users").table_schema.to_pyarrow().to_pylist() == ["main"]


def test_rejected_events_of_tables_in_databases(tmp_path: Any) -> None:
    lake = alluvia.connect(tmp_path)
    lake.create_schema("bronze")
    for name in ("clicks", "bronze.clicks"):
        lake.table(name).ingest([{"event": "click"}, {"event": 7}])
    con = ibis.alluvia.connect(lake)
    for database in ("clicks", "main.clicks", "bronze.clicks", ("bronze", "clicks")):
        assert con.table("_rejects", database=database).count().to_pyarrow().as_py() == 1
