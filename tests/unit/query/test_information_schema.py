"""The information schema: tables, views and columns as a caller may see them."""

from __future__ import annotations

import pytest

import alluvia
from alluvia.access.rights import Grant, Rights
from alluvia.api.lake import Lake
from alluvia.query.engine import run
from alluvia.query.permitted import permitted
from tests.unit.query.inspected import READ, ask, counted, filled


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return filled(alluvia.connect(tmp_path_factory.mktemp("lake")))


def names(lake: Lake, sql: str, rights: Rights | None = None) -> list[object]:
    return run(permitted(lake.catalog, rights), sql).read_all().column(0).to_pylist()


def test_information_schema_has_tables_and_views(lake: Lake) -> None:
    found = ask(lake, "SELECT table_name, table_type FROM information_schema.tables WHERE table_name <> 'sizes'")
    assert [tuple(each.values()) for each in found] == [
        ("german", "VIEW"),
        ("orders", "BASE TABLE"),
        ("users", "BASE TABLE"),
    ]
    [view] = ask(lake, "SELECT view_definition FROM information_schema.views WHERE table_name = 'german'")
    assert view == {"view_definition": "CREATE VIEW german AS SELECT * FROM orders WHERE land = 'de'"}
    assert names(lake, "SELECT schema_name FROM information_schema.schemata") == ["main", "information_schema"]
    assert not names(lake, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
    text = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() AND table_catalog = "
    assert "orders" in names(lake, f"{text} current_database()")


def test_a_name_put_together_from_information_schema_means_the_table(lake: Lake) -> None:
    [row] = ask(lake, "SELECT * FROM information_schema.tables WHERE table_name = 'orders'")
    for place in ("{table_schema}.{table_name}", '"{table_catalog}"."{table_schema}"."{table_name}"'):
        assert ask(lake, f"SELECT count(*) AS n FROM {place.format(**row)}") == [{"n": 11}]


def test_information_schema_has_columns_of_tables_and_views_with_sql_types(lake: Lake) -> None:
    told = "column_name, data_type, is_nullable, numeric_precision"
    text = f"SELECT {told} FROM information_schema.columns WHERE table_name ="
    expected = [
        ("id", "BIGINT", "NO", 64),
        ("ts", "TIMESTAMP WITH TIME ZONE", "YES", None),
        ("kind", "VARCHAR", "YES", None),
        ("land", "VARCHAR", "YES", None),
        ("ok", "BOOLEAN", "YES", None),
        ("place", 'STRUCT("zip" INTEGER, "city" VARCHAR)', "YES", None),
    ]
    assert [tuple(each.values()) for each in ask(lake, f"{text} 'orders' ORDER BY ordinal_position")] == expected
    found = ask(lake, f"{text} 'german' ORDER BY ordinal_position")
    assert [tuple(each.values())[:2] for each in found] == [each[:2] for each in expected]


def test_a_view_of_information_schema_does_not_look_for_itself(own_lake: Lake) -> None:
    own_lake.create_table("one", {"n": "long"})
    own_lake.sql("CREATE VIEW all_columns AS SELECT table_name, column_name FROM information_schema.columns")
    found = names(own_lake, "SELECT column_name FROM all_columns ORDER BY column_name")
    assert found == ["column_name", "n", "table_name"]
    own_lake.sql("CREATE VIEW broken AS SELECT * FROM one")
    own_lake.drop_table("one")
    assert names(own_lake, "SELECT DISTINCT table_name FROM information_schema.columns") == ["all_columns"]


def test_information_schema_opens_only_the_tables_that_are_named() -> None:
    lake, store = counted()
    lake.sql("SELECT table_schema, table_name, table_type FROM information_schema.tables")
    assert not [key for kind, key in store.keys if kind == "get" and key.startswith(("orders/", "users/"))]
    store.reset()
    lake.sql("FROM information_schema.columns WHERE table_name IN ('users', 'nope')")
    assert {key.partition("/")[0] for kind, key in store.keys if kind == "get"} == {"users"}


def test_information_schema_shows_what_may_be_read(lake: Lake) -> None:
    rights = Rights((Grant(READ, ("orders",), None, frozenset({"kind", "place"})),))
    assert names(lake, "SELECT table_name FROM information_schema.tables", rights) == ["orders"]
    assert names(lake, "SELECT column_name FROM information_schema.columns", rights) == ["id", "ts", "land", "ok"]
    assert names(lake, "SELECT table_name FROM information_schema.views", rights) == []
