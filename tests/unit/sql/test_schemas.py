"""Schemas in SQL: CREATE and DROP, tables and views in them, and the names of their columns."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import alluvia
from alluvia.access.rights import Rights
from alluvia.errors import Conflict, Forbidden, Invalid, TableExists, TableNotFound
from alluvia.query.engine import run
from alluvia.sql.run import execute
from tests.access import grant
from tests.same_in_duckdb import in_both
from tests.unit.operations.races import Race
from tests.unit.sql.test_schema_main import STATEMENTS

TABLES = (
    "CREATE SCHEMA bronze",
    "CREATE SCHEMA silver",
    "CREATE TABLE bronze.events (id BIGINT, name STRING, s STRUCT(a INT))",
    "CREATE TABLE silver.events (id BIGINT, name STRING)",
    "CREATE TABLE events (id BIGINT)",
    "INSERT INTO bronze.events VALUES (1, 'a', {'a': 5}), (2, 'b', {'a': 6})",
    "INSERT INTO silver.events VALUES (1, 'x'), (3, 'z')",
    "INSERT INTO events VALUES (2)",
)
_NUMBERS = count()


@pytest.fixture
def lake() -> alluvia.Lake:
    """A lake with a table `events` in each of three schemas."""
    lake = alluvia.connect(f"memory://schemas {next(_NUMBERS)}")
    for text in TABLES:
        lake.sql(text)
    return lake


def rows(lake: alluvia.Lake, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(text).to_pylist()]


@pytest.mark.parametrize("form", ["bronze.{}", 'bronze."{}"', "memory.bronze.{}", "BRONZE.{}"])
def test_a_table_in_a_schema_does_what_one_without_does(form: str) -> None:
    plain, within = alluvia.connect(f"memory://plain {form}"), alluvia.connect(f"memory://within {form}")
    within.create_schema("bronze")
    varies = {"timestamp", "created_at", "modified_at", "path", "url", "location", "transaction"}
    for statement in STATEMENTS.splitlines():
        answers = []
        for lake, shown in ((plain, "{}"), (within, form)):
            text = re.sub(r"@(\w)", shown.format(r"\1"), re.sub("@s", "s", statement))  # a stream is in no schema
            answer = lake.sql(text)
            kept = answer.drop_columns([name for name in answer.column_names if name in varies]).to_pylist()
            answers.append(str(kept).replace("bronze.", "").replace("BRONZE.", ""))
        if not statement.startswith(("SHOW CREATE VIEW", "DESCRIBE HISTORY")):
            assert answers[0] == answers[1], statement
    assert [f"bronze.{name}" for name in plain.tables()] == within.tables()


def test_columns_are_named_as_in_duckdb() -> None:
    ours, judge = in_both("schemas", *TABLES)
    for text in (
        "SELECT bronze.events.id, silver.events.name FROM bronze.events JOIN silver.events USING (id)",
        "SELECT * FROM bronze.events JOIN silver.events ON bronze.events.id = silver.events.id",
        "SELECT events.id FROM bronze.events WHERE events.id > 1",
        "SELECT bronze.events.s.a FROM bronze.events WHERE memory.bronze.events.id = 1",
        "SELECT events.id FROM bronze.events UNION ALL SELECT events.id FROM silver.events ORDER BY ALL",
        (
            "SELECT bronze.events.id, (SELECT count(*) FROM silver.events WHERE silver.events.id = bronze.events.id) "
            "AS n FROM bronze.events ORDER BY ALL"
        ),
        "SELECT b.id FROM bronze.events AS b JOIN bronze.events AS c ON b.id < c.id",
        'SELECT "bronze"."events"."id" FROM "bronze"."events", main.events WHERE main.events.id = "bronze"."events".id',
        "SELECT events.id FROM bronze.events WHERE EXISTS (SELECT 1 FROM silver.events AS events WHERE events.id = 3)",
        "SELECT max(bronze.events.id) OVER (ORDER BY bronze.events.id) AS m FROM bronze.events ORDER BY ALL",
        "SELECT bronze.a.b FROM (SELECT {'b': 1} AS a) AS bronze",
    ):
        assert ours.sql(text).to_pydict() == judge.execute(text).to_arrow_table().to_pydict(), text


def test_stars_of_tables_in_schemas(lake: alluvia.Lake) -> None:
    """Which DuckDB's grammar lacks, and PostgreSQL's has."""
    assert rows(lake, "SELECT bronze.events.* FROM bronze.events WHERE id = 1") == [(1, "a", {"a": 5})]
    both = "FROM bronze.events JOIN silver.events ON bronze.events.id = silver.events.id"
    assert rows(lake, f"SELECT silver.events.*, bronze.events.name AS b {both}") == [(1, "x", "a")]
    assert rows(lake, f"SELECT 'bronze.events.*' AS s, count(silver.events.id) {both}") == [("bronze.events.*", 1)]


def test_conditions_on_columns_with_a_schema_prune(lake: alluvia.Lake) -> None:
    lake.sql("INSERT INTO bronze.events VALUES (100, 'z', NULL)")
    text = "SELECT * FROM bronze.events JOIN silver.events USING (id) WHERE bronze.events.id = 100"
    plan = run(lake.catalog, text, dry_run=True).read_all().to_pylist()
    assert (plan[0]["table"], plan[0]["files_read"], plan[0]["files_total"]) == ("bronze.events", 1, 2)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            (
                "MERGE INTO silver.events USING bronze.events ON silver.events.id = bronze.events.id WHEN MATCHED THEN "
                "UPDATE SET name = bronze.events.name || silver.events.name WHEN NOT MATCHED THEN INSERT (id, name) "
                "VALUES (bronze.events.id, bronze.events.name)"
            ),
            [(1, "ax"), (2, "b"), (3, "z")],
        ),
        (
            (
                "MERGE INTO silver.events USING bronze.events ON silver.events.id < bronze.events.id WHEN MATCHED THEN "
                "UPDATE SET name = bronze.events.name"
            ),
            [(1, "b"), (3, "z")],
        ),
        ("UPDATE silver.events SET name = silver.events.name || '!' WHERE silver.events.id = 3", [(1, "x"), (3, "z!")]),
        (
            (
                "UPDATE silver.events SET name = (SELECT max(bronze.events.name) FROM bronze.events WHERE bronze.events"
                ".id = silver.events.id) WHERE silver.events.id = 1"
            ),
            [(1, "a"), (3, "z")],
        ),
        ("DELETE FROM silver.events WHERE id IN (SELECT bronze.events.id FROM bronze.events)", [(3, "z")]),
        ("DELETE FROM silver.events WHERE id = (SELECT min(silver.events.id) FROM silver.events)", [(3, "z")]),
        ("DELETE FROM memory.silver.events AS e WHERE e.id = 1", [(3, "z")]),
    ],
)
def test_statements_that_change_rows_name_columns_with_schemas(
    lake: alluvia.Lake, text: str, left: list[tuple[int, str]]
) -> None:
    lake.sql(text)
    assert rows(lake, "SELECT id, name FROM silver.events ORDER BY id") == left


def test_a_name_of_two_tables_in_one_statement_needs_an_alias(lake: alluvia.Lake) -> None:
    text = (
        "MERGE INTO silver.events USING bronze.events ON silver.events.id = bronze.events.id AND bronze.events.id IN "
        "(SELECT bronze.events.id FROM bronze.events) WHEN MATCHED THEN DELETE"
    )
    with pytest.raises(Invalid, match=r"write AS and a name behind bronze\.events"):
        lake.sql(text)


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
        ("CREATE SCHEMA pg_catalog", Invalid, "none of lake, main"),
        (f"CREATE SCHEMA {'s' * 64}", Invalid, "up to 63 lower-case letters"),
        (f"CREATE TABLE {'s' * 65}.t (id INT)", Invalid, "a schema of up to 63 in front"),
        (f"CREATE TABLE bronze.{'t' * 129} (id INT)", Invalid, "up to 128 lower-case letters"),
        ('CREATE SCHEMA "Bad-Name"', Invalid, "schema name 'bad-name'"),
        ("CREATE TABLE gold.t (id INT)", TableNotFound, "there is no schema 'gold'"),
        ("CREATE TABLE gold.t AS SELECT 1 AS x", TableNotFound, "there is no schema 'gold'"),
        ("CREATE TABLE gold.t SHALLOW CLONE bronze.events", TableNotFound, "there is no schema 'gold'"),
        ("INSERT INTO gold.t VALUES (1)", TableNotFound, "there is no schema 'gold'.*to write on a branch, open it"),
        ("SHOW TABLES FROM gold", TableNotFound, "there is no schema 'gold'"),
        ("SELECT * FROM fix.bronze.events._rejects", Invalid, "in at most three parts.*open the branch"),
        ("SELECT * FROM memory.bronze.events._rejects", Invalid, "in at most three parts.*Leave the database out"),
        ("SELECT * FROM gold.t", TableNotFound, "there is no schema or branch 'gold'"),
        ("SELECT * FROM bronze.event", TableNotFound, r"did you mean bronze\.events\?"),
        ('SELECT * FROM "bronze.events"', TableNotFound, "without quotes around the dot"),
        ("CREATE STREAM bronze.s ON TABLE events", Invalid, "no schema"),
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


@pytest.mark.parametrize("name", [".events", "events.", "memory..events", "bronze..events", "..events", "."])
def test_a_name_with_an_empty_part_is_no_table(lake: alluvia.Lake, name: str) -> None:
    assert name not in lake
    with pytest.raises(Invalid):
        lake.table(name)
    for text in (f"SELECT * FROM history('{name}')", f"SELECT * FROM files('{name}')"):
        with pytest.raises(Invalid):
            lake.sql(text)


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
    race = Race(alluvia.connect(f"memory://schemas {next(_NUMBERS)}"))
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


HOSTILE = [
    "", " ", "_x", "1x", "x-y", "x y", "x'y", 'x"y', "é", "x/y", "../x", "x;y", "x\n", "a" * 129, "a" * 64 + ".x", "--",
    "_alluvia", "bronze.", ".x", "bronze..x", "bronze.x.y.z", "bronze/x", "bronze._x", "bronze.x/_rejects/y", "$x",
]  # fmt: skip


def test_a_name_that_no_table_can_have_is_refused_everywhere_alike(lake: alluvia.Lake) -> None:
    before = sorted(info.key for info in lake.store.list(""))
    for name in HOSTILE:
        calls: tuple[Callable[[], object], ...] = (
            partial(lake.create_table, name, {"n": "long"}),
            partial(lake.create_events, name),
            partial(lake.table, name),
        )
        for call in calls:
            with pytest.raises(Invalid, match=f"^table name {re.escape(repr(name)[:100])}"):
                call()
        quoted = ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))
        with pytest.raises(Invalid, match=r"table name|in quotes is empty|only queries name tables of a branch"):
            lake.sql(f"CREATE TABLE {quoted} (n BIGINT)")
        with pytest.raises((Invalid, TableNotFound), match=r"no table|zero-length|at most three parts"):
            lake.sql(f"FROM {quoted}")
    assert sorted(info.key for info in lake.store.list("")) == before


@pytest.mark.parametrize("name", ["main.plain", "memory.main.plain", "bronze.other", "memory.bronze.other"])
def test_a_name_in_the_form_of_sql_works_everywhere_alike(lake: alluvia.Lake, name: str) -> None:
    lake.create_table(name, {"n": "long"})
    lake.table(name).append([{"n": 1}])
    lake.sql(f"CREATE TABLE IF NOT EXISTS {name} (n BIGINT)")
    assert rows(lake, f"FROM {name}") == [(1,)]
    with pytest.raises(TableExists):
        lake.create_events(name)
    lake.create_rollup(f"{name}_sums", f"SELECT n, count(*) AS c FROM {name} GROUP BY n")
    assert lake.rollups(name) == [lake.table(f"{name}_sums").name]
    lake.drop_table(f"{name}_sums")
    assert rows(lake.clone(name, f"{name}_copy").lake, f"FROM {name}_copy") == [(1,)]
    with lake.transaction() as tx:
        tx.drop_table(f"{name}_copy")
    lake.undrop(f"{name}_copy")
    assert f"{name}_copy" in lake
