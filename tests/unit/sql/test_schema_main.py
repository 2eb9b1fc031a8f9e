"""`main.t` is `t`, wherever SQL names a table, a view, a stream or a column."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

import alluvia
from alluvia.access.rights import Rights
from alluvia.cli.command_line import cli
from alluvia.engine.queries.schema_names import without_schema
from alluvia.errors import Forbidden, Invalid
from alluvia.query.engine import run
from alluvia.sql.grammar.statements import parse
from alluvia.sql.run import execute
from alluvia.table_names import lake_names
from tests.access import grant
from tests.same_in_duckdb import in_both

STATEMENTS = """\
CREATE TABLE @t (id BIGINT, name STRING)
CREATE TABLE IF NOT EXISTS @u AS SELECT 1::BIGINT AS id, 'u' AS name
INSERT INTO @t VALUES (1, 'a'), (2, 'b'), (3, 'c')
INSERT INTO @t (id) SELECT @u.id + 9 FROM @u
UPDATE @t SET name = 'x' WHERE @t.id = 2
UPDATE @t SET name = (SELECT max(@u.name) FROM @u WHERE @u.id = @t.id) WHERE @t.id = 1
DELETE FROM @t WHERE @t.id = 3
DELETE FROM @t AS e WHERE e.id IN (SELECT @u.id + 9 FROM @u)
MERGE INTO @t USING @u ON @t.id = @u.id WHEN MATCHED THEN UPDATE SET name = @u.name WHEN NOT MATCHED THEN INSERT *
MERGE INTO @t AS a USING (SELECT * FROM @u) AS b ON a.id < b.id WHEN MATCHED THEN DELETE
ALTER TABLE @t ADD COLUMN n INT
ALTER TABLE @t ADD CONSTRAINT positive CHECK (id > 0)
CREATE VIEW @v AS SELECT @t.id, @t.name FROM @t
CREATE STREAM @s ON TABLE @t AT (VERSION => 0)
CREATE TAG one ON TABLE @t VERSION AS OF 1
CREATE TABLE @c SHALLOW CLONE @t
INSERT INTO @u SELECT id, name FROM @s WHERE _change_type = 'insert'
OPTIMIZE @t FULL
VACUUM @t DRY RUN
SELECT * FROM @t ORDER BY ALL
SELECT @t.id, @v.* FROM @t JOIN @v ON @t.id = @v.id ORDER BY @t.id
SELECT count(*) AS n, max(@t.name) AS name FROM @t WHERE @t.id >= 2
SELECT * FROM @t AT (VERSION => 1) ORDER BY id
SELECT * FROM @t VERSION AS OF 1 ORDER BY id
SELECT * FROM @t(version => 1) ORDER BY id
SELECT * FROM @t AT (TAG => 'one') ORDER BY id
SELECT (SELECT count(*) FROM @u WHERE @u.id = @t.id) AS n FROM @t ORDER BY @t.id
WITH x AS (SELECT @t.* FROM @t) SELECT x.id FROM x JOIN @c USING (id) ORDER BY id
DESCRIBE @t
SHOW CREATE TABLE @t
SHOW CREATE VIEW @v
DESCRIBE HISTORY @t LIMIT 1
SELECT version, operation FROM history('@t')
SELECT name, type FROM columns('@t')
SELECT rows FROM files('@t', where => 'id = 2')
SELECT id FROM changes('@t', 2) ORDER BY ALL
RESTORE TABLE @t TO VERSION AS OF 1
TRUNCATE TABLE @c
DROP STREAM @s
DROP VIEW @v
DROP TABLE @c
UNDROP TABLE @c
DROP TABLE IF EXISTS @u
"""


@pytest.fixture
def lake(request: pytest.FixtureRequest) -> alluvia.Lake:
    """A lake with a table `t` of three rows."""
    lake = alluvia.connect(f"memory://{request.node.name}")
    lake.sql("CREATE TABLE t (id BIGINT, name STRING); INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    return lake


@pytest.mark.parametrize("form", ["main.{}", 'main."{}"', '"main".{}', "memory.main.{}", "MAIN.{}"])
def test_a_name_with_its_schema_does_what_the_name_does(form: str) -> None:
    plain, qualified = alluvia.connect(f"memory://plain {form}"), alluvia.connect(f"memory://qualified {form}")
    varies = {"timestamp", "created_at", "modified_at", "path", "url", "location", "transaction"}
    for statement in STATEMENTS.splitlines():
        answers = []
        for lake, shown in ((plain, "{}"), (qualified, form)):
            text = re.sub(r"@(\w)", shown.format(r"\1"), statement)
            answer = lake.sql(text)
            answers.append(answer.drop_columns([name for name in answer.column_names if name in varies]).to_pylist())
        if not statement.startswith(("SHOW CREATE VIEW", "DESCRIBE HISTORY")):
            assert answers[0] == answers[1], statement
    assert plain.tables() == qualified.tables()


def test_rejects_and_branches_have_the_schema_too(lake: alluvia.Lake) -> None:
    lake.branch("fix")
    lake.on_branch("fix").sql("DELETE FROM main.t WHERE main.t.id = 1")
    for name in ("fix.t", "fix.main.t", '"fix"."main"."t"'):
        assert lake.sql(f"SELECT count(*) AS n FROM {name}")["n"].to_pylist() == [2]
    assert lake_names(["main", "t", "_rejects"]) == lake_names(["t", "_rejects"]) == ("t/_rejects",)
    assert lake_names(["memory", "main", "t"]) == lake_names(["memory", "t"]) == ("t",)
    assert (lake_names(["main", "_rejects"]), lake_names(["main", "main"])) == (("main/_rejects",), ("main",))
    assert lake_names(["fix", "main", "t"]) == ("fix:t",)
    assert lake_names(["a", "b", "t"]) == ("a:b.t",)
    assert lake_names(["a", "b", "t"], dotted=True) == ("a.b:t", "a:b.t")


def test_conditions_on_columns_with_the_schema_prune(lake: alluvia.Lake) -> None:
    lake.sql("INSERT INTO t VALUES (100, 'z')")
    plan = run(lake.catalog, "SELECT * FROM main.t WHERE main.t.id = 100", dry_run=True).read_all()
    assert plan["files_read"].to_pylist() == [1, 1]


def test_a_token_for_a_table_is_for_its_name_with_the_schema(lake: alluvia.Lake) -> None:
    lake.sql("CREATE TABLE other (id BIGINT)")
    rights = Rights((grant("read:t", hide="name"), grant("append:t")))
    assert execute(lake, "SELECT main.t.* FROM main.t WHERE main.t.id = 1", rights=rights).to_pylist() == [{"id": 1}]
    for text in ("SELECT * FROM main.other", "INSERT INTO main.other VALUES (1)", "DELETE FROM main.t"):
        with pytest.raises((Forbidden, Invalid, alluvia.errors.TableNotFound)):
            execute(lake, text, rights=rights)
    execute(lake, "INSERT INTO main.t VALUES (4, 'd')", rights=rights)


def test_rollups_and_transactions_take_it(lake: alluvia.Lake) -> None:
    lake.create_rollup("daily", "SELECT name, count(*) AS n FROM main.t GROUP BY name")
    lake["daily"].refresh()
    assert lake.sql("SELECT sum(main.daily.n)::INT AS n FROM main.daily")["n"].to_pylist() == [3]
    with lake.transaction() as transaction:
        transaction.sql("DELETE FROM main.t WHERE main.t.id = 3")
        assert transaction.sql("SELECT count(*) AS n FROM main.t")["n"].to_pylist() == [2]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT main.a.b FROM t AS main",
        "WITH main AS (SELECT {'b': 1} AS a) SELECT main.a.b FROM main",
        "SELECT 'main.t.id', \"main.t.id\" FROM t -- main.t.id",
        "SELECT fix.main.id FROM fix.main",
        "SELECT x.main.t FROM x",
    ],
)
def test_what_else_is_called_main_stays(text: str) -> None:
    assert without_schema(text) == text


def test_positions_stay() -> None:
    text = 'SELECT "main" . t.id, /* é */ memory.main."t".*, main.t FROM memory.main.t'
    blanked = without_schema(text)
    assert blanked == "       ".join(["SELECT ", ""]) + '  t.id, /* é */             "t".*, main.t FROM memory.main.t'
    assert len(blanked) == len(text)


def test_duckdb_means_the_same_by_a_column_with_its_schema() -> None:
    ours, judge = in_both("judge", "CREATE TABLE t (id BIGINT, s STRUCT(a INT))", "INSERT INTO t VALUES (1, {'a': 5})")
    for text in (
        "SELECT main.t.id FROM main.t",
        "SELECT memory.main.t.id FROM t",
        "SELECT main.t.s.a FROM main.t",
        'SELECT "main"."t"."id" AS "id" FROM "main"."t" WHERE "main"."t"."id" > 0 GROUP BY "main"."t"."id"',
    ):
        assert ours.sql(text).to_pydict() == judge.execute(text).to_arrow_table().to_pydict(), text


def test_a_branch_is_refused_where_rows_are_written() -> None:
    with pytest.raises(Invalid, match="only queries name tables of a branch"):
        parse("INSERT INTO fix.main.t VALUES (1)")


def test_commands_take_it(tmp_path: object) -> None:
    lake = alluvia.connect(str(tmp_path))
    lake.create_table("t", {"id": "long"}).append([{"id": 1}])
    shown = [CliRunner().invoke(cli, ["describe", "--lake", str(tmp_path), name, "--json"]) for name in ("t", "main.t")]
    assert (shown[0].exit_code, shown[0].stdout) == (0, shown[1].stdout)
