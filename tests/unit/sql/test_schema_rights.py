"""Schemas that a token reaches, and how information_schema shows them."""

from __future__ import annotations

import pytest

import alluvia
from alluvia.access.rights import Rights
from alluvia.errors import Forbidden, TableNotFound
from alluvia.sql.run import execute
from tests.access import grant
from tests.unit.sql.selected import lake_with_schemas, rows


@pytest.fixture
def lake() -> alluvia.Lake:
    return lake_with_schemas()


def test_what_a_token_may_do_in_schemas(lake: alluvia.Lake) -> None:
    bronze = Rights((grant("read:bronze.*"), grant("append:bronze.events"), grant("admin:gold.*")))
    assert execute(lake, "SELECT count(*) AS n FROM bronze.events", rights=bronze)["n"].to_pylist() == [2]
    assert execute(lake, "SHOW SCHEMAS", rights=bronze)["name"].to_pylist() == ["bronze"]
    assert execute(lake, "SHOW TABLES", rights=bronze)["name"].to_pylist() == ["bronze.events"]
    execute(lake, "INSERT INTO bronze.events (id) VALUES (7)", rights=bronze)
    execute(lake, "CREATE SCHEMA gold", rights=bronze)
    execute(lake, "CREATE TABLE gold.t (id INT)", rights=bronze)
    execute(lake, "DROP SCHEMA gold CASCADE", rights=bronze)
    for text, scope in (
        ("SELECT * FROM silver.events", "read:silver.events"),
        ("SELECT * FROM events", "read:events"),
        ("SELECT * FROM silver.nothing", "read:silver.nothing"),
        ("SELECT * FROM nothing.events", "read:nothing.events"),
        ("CREATE SCHEMA silver", r"admin:silver\.\*"),
        ("DROP SCHEMA bronze CASCADE", r"admin:bronze\.\*"),
        ("INSERT INTO silver.events (id) VALUES (7)", "append:silver.events"),
    ):
        with pytest.raises(Forbidden, match=scope):
            execute(lake, text, rights=bronze)
    plain = Rights((grant("read:ev*"),))
    assert execute(lake, "SHOW TABLES", rights=plain)["name"].to_pylist() == ["events"]
    with pytest.raises(Forbidden):
        execute(lake, "SELECT * FROM bronze.events", rights=plain)
    everywhere = Rights((grant("read:*.events", hide="name"),))
    assert execute(lake, "SELECT * FROM silver.events", rights=everywhere).column_names == ["id"]
    assert execute(lake, "SELECT * FROM events", rights=everywhere).column_names == ["id"]
    whole = Rights((grant("read:*"),))
    assert execute(lake, "SHOW SCHEMAS", rights=whole)["name"].to_pylist() == ["main", "bronze", "silver"]
    assert execute(lake, "SELECT count(*) AS n FROM silver.events", rights=whole)["n"].to_pylist() == [2]


def test_information_schema_says_which_schema_a_table_is_in(lake: alluvia.Lake) -> None:
    lake.sql("CREATE SCHEMA gold")
    lake.sql("CREATE VIEW silver.names AS SELECT name FROM silver.events")
    text = "SELECT table_schema, table_name, table_type FROM information_schema.tables"
    assert rows(lake, text) == [
        ("main", "events", "BASE TABLE"),
        ("bronze", "events", "BASE TABLE"),
        ("silver", "events", "BASE TABLE"),
        ("silver", "names", "VIEW"),
    ]
    assert rows(lake, f"{text} WHERE table_schema = 'silver' AND table_name = 'events'") == [
        ("silver", "events", "BASE TABLE")
    ]
    text = "SELECT table_schema, column_name FROM information_schema.columns WHERE table_name = 'names'"
    assert rows(lake, text) == [("silver", "name")]
    found = rows(lake, "SELECT schema_name FROM information_schema.schemata")
    assert [name for (name,) in found] == ["main", "bronze", "gold", "silver", "information_schema"]
    for schema, table in rows(lake, "SELECT table_schema, table_name FROM information_schema.tables"):
        assert rows(lake, f'SELECT count(*) > 0 FROM "{schema}"."{table}"') == [(True,)]


def test_information_schema_hides_schemas_in_which_a_token_may_do_nothing(lake: alluvia.Lake) -> None:
    bronze = Rights((grant("read:bronze.*"),))
    told = execute(lake, "SELECT table_schema, table_name FROM information_schema.tables", rights=bronze)
    assert told.to_pylist() == [{"table_schema": "bronze", "table_name": "events"}]
    told = execute(lake, "SELECT schema_name FROM information_schema.schemata", rights=bronze)
    assert told["schema_name"].to_pylist() == ["bronze", "information_schema"]


def test_a_token_is_not_told_of_tables_that_it_may_not_read(lake: alluvia.Lake) -> None:
    gold = Rights((grant("read:gold.*"),))
    with pytest.raises(TableNotFound, match="it holds no tables that this caller may read"):
        execute(lake, "FROM gold.t", rights=gold)
