"""Schemas that are created, listed and dropped, with tables and views in them."""

from __future__ import annotations

from pathlib import Path

import pytest

import alluvia
from alluvia.access.rights import Rights
from alluvia.errors import Conflict, Forbidden, Invalid, TableExists, TableNotFound
from alluvia.sql.run import execute
from tests.access import grant
from tests.unit.operations.races import Race
from tests.unit.sql.selected import lake_with_schemas, rows


@pytest.fixture
def lake() -> alluvia.Lake:
    return lake_with_schemas()


def test_views_in_schemas(lake: alluvia.Lake) -> None:
    lake.sql("CREATE VIEW bronze.named AS SELECT bronze.events.id, name FROM bronze.events")
    lake.sql("CREATE VIEW silver.named AS SELECT n.id FROM bronze.named AS n JOIN silver.events ON events.id = n.id")
    assert rows(lake, "SELECT bronze.named.id FROM bronze.named JOIN silver.named USING (id)") == [(1,)]
    assert rows(lake, "SELECT silver.named.id, bronze.named.name FROM bronze.named, silver.named ORDER BY ALL") == [
        (1, "a"),
        (1, "b"),
    ]
    with pytest.raises(TableExists, match=r"there is a view bronze\.named"):
        lake.sql("CREATE TABLE bronze.named (id INT)")
    with pytest.raises(TableNotFound, match="CREATE SCHEMA gold"):
        lake.sql("CREATE VIEW gold.v AS SELECT 1 AS x")


def test_schemas_are_created_and_listed(lake: alluvia.Lake) -> None:
    assert rows(lake, "SHOW SCHEMAS") == [("main",), ("bronze",), ("silver",)]
    assert rows(lake, "SHOW TABLES") == [("events",), ("bronze.events",), ("silver.events",)]
    assert rows(lake, "SHOW TABLES FROM bronze") == rows(lake, "SHOW TABLES IN main") == [("events",)]
    assert rows(lake, "CREATE SCHEMA IF NOT EXISTS bronze") == rows(lake, "CREATE SCHEMA IF NOT EXISTS memory.bronze")
    lake.sql("CREATE SCHEMA IF NOT EXISTS main")
    for text, error, message in (
        ("CREATE SCHEMA bronze", TableExists, "schema 'bronze' already exists"),
        ("CREATE SCHEMA pg_catalog", Invalid, "but not lake, main"),
        (f"CREATE SCHEMA {'s' * 64}", Invalid, "up to 63 lower-case letters"),
        (f"CREATE TABLE {'s' * 65}.t (id INT)", Invalid, "a schema of up to 63 in front"),
        (f"CREATE TABLE bronze.{'t' * 129} (id INT)", Invalid, "up to 128 lower-case letters"),
        ('CREATE SCHEMA "Bad-Name"', Invalid, "schema name 'bad-name'"),
        ("CREATE TABLE gold.t (id INT)", TableNotFound, "there is no schema 'gold'"),
        ("CREATE TABLE gold.t AS SELECT 1 AS x", TableNotFound, "there is no schema 'gold'"),
        ("CREATE TABLE gold.t SHALLOW CLONE bronze.events", TableNotFound, "there is no schema 'gold'"),
        ("INSERT INTO gold.t VALUES (1)", TableNotFound, "there is no schema 'gold'.*to write on a branch, open it"),
        ("SHOW TABLES FROM gold", TableNotFound, "there is no schema 'gold': create it with CREATE SCHEMA gold"),
        ('SHOW TABLES FROM "../x"', TableNotFound, r"^there is no schema '\.\./x' \(SHOW SCHEMAS lists"),
        ("SHOW TABLES FROM information_schema", TableNotFound, r"^there is no schema '\w+' \(SHOW SCHEMAS lists"),
        ("SELECT * FROM fix.bronze.events._rejects", Invalid, "in at most three parts.*open the branch"),
        ("SELECT * FROM memory.bronze.events._rejects", Invalid, "in at most three parts.*Leave the database out"),
        ("SELECT * FROM gold.t", TableNotFound, "there is no schema or branch 'gold'"),
        ("SELECT * FROM bronze.event", TableNotFound, r"did you mean bronze\.events\?"),
        ('SELECT * FROM "bronze.events"', TableNotFound, "without quotes around the dot"),
        ("CREATE STREAM bronze.s ON TABLE events", Invalid, "without a schema"),
        ("DROP SCHEMA main", Invalid, "cannot be dropped"),
        ("DROP SCHEMA gold", TableNotFound, "there is no schema 'gold'"),
    ):
        with pytest.raises(error, match=message):
            lake.sql(text)


def test_a_schema_is_dropped_with_what_is_in_it(lake: alluvia.Lake) -> None:
    lake.create_rollup("bronze.a_daily", "SELECT name, count(*) AS n FROM bronze.events GROUP BY name")
    lake.create_rollup("bronze.b_all", "SELECT sum(n) AS n FROM bronze.a_daily")
    lake.sql("CREATE VIEW bronze.v AS SELECT id FROM bronze.events")
    with pytest.raises(Invalid, match=r"is not empty \(bronze\.a_daily, bronze\.b_all, bronze\.events, bronze\.v\)"):
        lake.sql("DROP SCHEMA bronze")
    lake.create_rollup("outside", "SELECT count(*) AS n FROM bronze.events")
    with pytest.raises(Invalid, match="sources of outside"):
        lake.sql("DROP SCHEMA bronze CASCADE")
    lake.drop_table("outside")
    assert rows(lake, "SELECT n FROM bronze.b_all_live") == [(2,)]
    lake.sql("DROP SCHEMA IF EXISTS bronze CASCADE")
    lake.sql("DROP SCHEMA IF EXISTS bronze CASCADE")
    assert lake.schemas() == ["main", "silver"]
    assert lake.tables() == ["events", "silver.events"]
    with pytest.raises(TableNotFound, match="CREATE SCHEMA bronze"):
        lake.undrop("bronze.events")
    lake.create_schema("bronze")
    lake.undrop("bronze.events")
    assert rows(lake, "SELECT count(*) FROM bronze.events") == [(2,)]


def test_a_branch_and_a_schema_cannot_have_one_name(lake: alluvia.Lake) -> None:
    with pytest.raises(Invalid, match="another meaning"):
        lake.branch("bronze")
    lake.branch("fix")
    with pytest.raises(Invalid, match="there is a branch 'fix'"):
        lake.sql("CREATE SCHEMA fix")
    branch = lake.on_branch("fix")
    with pytest.raises(Invalid, match="there is a branch 'fix'"):
        branch.create_schema("fix")
    branch.sql("DELETE FROM bronze.events WHERE bronze.events.id = 1")
    assert rows(lake, "SELECT count(*) FROM fix.bronze.events") == [(1,)]
    assert rows(lake, "SELECT bronze.events.id FROM bronze.events LEFT JOIN fix.bronze.events USING (id) "
                      "WHERE fix.bronze.events.id IS NULL") == [(1,)]  # fmt: skip
    assert rows(lake, "SELECT count(*) FROM fix.events") == rows(lake, "SELECT count(*) FROM fix.main.events") == [(1,)]
    assert rows(lake, "SELECT count(*) AS n FROM history('fix.bronze.events')") == [(3,)]


def test_the_branch_is_read_only_where_no_schema_has_the_table(lake: alluvia.Lake) -> None:
    """Both can be there if two writers make them at the same time."""
    lake.branch("twin")
    lake.on_branch("twin").sql("INSERT INTO events VALUES (8)")
    lake.create_table("x", {"id": "long"})
    for key in list(lake.store.list("_alluvia/schemas/bronze/")):
        lake.store.put(key.key.replace("bronze", "twin"), lake.store.get(key.key))
    assert rows(lake, "SELECT count(*) FROM twin.events") == [(2,)]
    lake.sql("CREATE TABLE twin.events (id INT)")
    assert rows(lake, "SELECT count(*) FROM twin.events") == [(0,)]
    assert rows(lake, "SELECT count(*) FROM twin.main.events") == [(2,)]


def test_tables_of_another_writer_make_a_schema(lake: alluvia.Lake) -> None:
    for each in list(lake.store.list("events/")):
        lake.store.put(each.key.replace("events/", "gold.events/", 1), lake.store.get(each.key))
    assert lake.schemas() == ["main", "bronze", "gold", "silver"]
    lake.sql("CREATE TABLE gold.more (id INT)")
    assert rows(lake, "SELECT * FROM gold.events") == [(2,)]
    with pytest.raises(Invalid, match="another meaning"):
        lake.branch("gold")
    assert lake.on_branch(lake.branch("fix").name).schemas() == ["main", "bronze", "gold", "silver"]
    lake.sql("DROP SCHEMA gold CASCADE")
    assert lake.schemas() == ["main", "bronze", "silver"]
    with pytest.raises(TableNotFound, match="CREATE SCHEMA gold"):
        lake.sql("CREATE TABLE gold.more (id INT)")


def test_a_folder_that_is_no_table_makes_no_schema(lake: alluvia.Lake) -> None:
    lake.store.put("old.backup/notes.txt", b"")
    lake.store.put("older.backup.zip", b"")
    for name in ("old", "older"):
        with pytest.raises(TableNotFound, match=f"CREATE SCHEMA {name}"):
            lake.sql(f"CREATE TABLE {name}.t (id INT)")
        lake.branch(name)


def test_the_longest_names_fit_into_a_directory(tmp_path: Path) -> None:
    lake, name = alluvia.connect(tmp_path), f"{'s' * 63}.{'t' * 128}"
    lake.create_schema("s" * 63)
    lake.sql(f"CREATE TABLE {name} (id INT); INSERT INTO {name} VALUES (1)")
    fix = lake.branch("fix")
    fix.sql(f"INSERT INTO {name} VALUES (2)")
    fix.publish()
    assert rows(lake, f"SELECT count(*) FROM {name}") == [(2,)]


def test_a_transaction_holds_tables_of_several_schemas(lake: alluvia.Lake) -> None:
    with lake.transaction() as transaction:
        transaction.sql("INSERT INTO silver.events SELECT id, name FROM bronze.events WHERE bronze.events.id = 2")
        transaction.sql("DELETE FROM bronze.events WHERE bronze.events.id = 2")
        transaction.create_table("silver.made", {"id": "long"}).append([{"id": 1}])
        assert transaction.sql("SELECT count(*) AS n FROM silver.events")["n"].to_pylist() == [3]
    assert sorted(transaction.versions) == ["bronze.events", "silver.events", "silver.made"]
    assert rows(lake, "SELECT id FROM silver.events ORDER BY id") == [(1,), (2,), (3,)]
    with pytest.raises(TableNotFound, match="no schema 'gold'"), lake.transaction() as transaction:
        transaction.create_table("gold.t", {"id": "long"})


def test_of_two_that_create_a_schema_at_once_one_does_and_the_other_finds_it() -> None:
    race = Race(alluvia.connect("memory://race for a schema"))
    race.store.winners = [lambda: race.theirs.sql("CREATE SCHEMA gold")]
    race.ours.sql("CREATE SCHEMA IF NOT EXISTS gold; CREATE TABLE gold.t (id INT)")
    race.store.winners = [lambda: race.theirs.sql("CREATE SCHEMA silver")]
    with pytest.raises(TableExists, match="schema 'silver' already exists"):
        race.ours.sql("CREATE SCHEMA silver")
    race.store.winners = [lambda: race.theirs.sql("CREATE SCHEMA lead; DROP SCHEMA lead")]
    with pytest.raises(Conflict):
        race.ours.sql("CREATE SCHEMA IF NOT EXISTS lead")
    assert race.theirs.schemas() == ["main", "gold", "silver"]


def test_a_text_of_definitions_runs_one_by_one(lake: alluvia.Lake) -> None:
    setup = (
        "CREATE SCHEMA IF NOT EXISTS gold; CREATE TABLE IF NOT EXISTS gold.t (id INT); "
        "CREATE OR REPLACE VIEW gold.v AS "
    )
    for _ in range(2):
        lake.sql(setup + "FROM gold.t")
    with pytest.raises(TableNotFound, match=r"statement 3 of 3 \(CREATE VIEW\): .*those before it are comm"):
        lake.sql(setup.replace("gold", "later") + "FROM later.none")
    assert lake["later.t"].count() == 0
    for text in (
        "CREATE SCHEMA x; PUBLISH BRANCH fix",
        "CREATE SCHEMA x; OPTIMIZE gold.t",
        "CREATE SCHEMA x; CREATE OR REPLACE TABLE gold.t AS SELECT 1 AS id",
        "CREATE SCHEMA x; INSERT INTO gold.t VALUES (1)",
        "CREATE SCHEMA x; SELECT 1",
        "BEGIN; CREATE SCHEMA x; CREATE TABLE x.t (id INT); COMMIT",
    ):
        with pytest.raises(Invalid, match="cannot be part of a transaction"):
            lake.sql(text)
    admin = Rights((grant("admin:gold.*"),))
    with pytest.raises(Forbidden):
        execute(lake, "CREATE SCHEMA IF NOT EXISTS gold; DROP TABLE gold.t; DROP TABLE later.t", rights=admin)
    assert lake["gold.t"].count() == 0  # nothing has run
