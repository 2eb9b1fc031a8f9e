"""Names of tables in schemas, and of their columns, in queries and statements."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest

import alluvia
from alluvia.errors import Invalid, TableExists, TableNotFound
from alluvia.query.engine import run
from tests.same_in_duckdb import in_both
from tests.unit.sql.selected import WITH_SCHEMAS, lake_with_schemas, rows
from tests.unit.sql.test_schema_main import STATEMENTS


@pytest.fixture
def lake() -> alluvia.Lake:
    return lake_with_schemas()


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
    ours, judge = in_both("schemas", *WITH_SCHEMAS)
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


@pytest.mark.parametrize("name", [".events", "events.", "memory..events", "bronze..events", "..events", "."])
def test_a_name_with_an_empty_part_is_no_table(lake: alluvia.Lake, name: str) -> None:
    assert name not in lake
    with pytest.raises(Invalid):
        lake.table(name)
    for text in (f"SELECT * FROM history('{name}')", f"SELECT * FROM files('{name}')"):
        with pytest.raises(Invalid):
            lake.sql(text)


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
