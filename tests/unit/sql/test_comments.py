"""Comments of tables, views and columns: as they are written, shown and kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.access.rights import Rights
from alluvia.delta.schema.comments import CHARS_MAX
from alluvia.errors import Conflict, Forbidden, Invalid, TableNotFound
from alluvia.sql.run import execute
from tests.access import grant
from tests.judges import open_deltalake

COLUMNS = 'SELECT column_name AS c, "COLUMN_COMMENT" AS said FROM information_schema.columns'


@pytest.fixture
def lake(tmp_path: Path) -> alluvia.Lake:
    """A lake with a table `s.t` and a view `s.v` with comments."""
    lake = alluvia.connect(tmp_path)
    lake.sql(
        """
        CREATE SCHEMA s;
        CREATE TABLE s.t (a INT NOT NULL COMMENT 'it''s a', "B c" STRING) COMMENT 'the table';
        CREATE VIEW s.v COMMENT 'the view' AS SELECT a, "B c" FROM s.t;
        COMMENT ON COLUMN memory.s.v.A IS 'of the view'
        """
    )
    return lake


def said(lake: alluvia.Lake, text: str) -> dict[str, Any]:
    return {row["c"]: row["said"] for row in lake.sql(text).to_pylist()}


def test_comments_are_shown_wherever_tables_are(lake: alluvia.Lake) -> None:
    lake.sql("COMMENT ON COLUMN s.t.\"b C\" IS '-- /* \"b\" */'; INSERT INTO s.t VALUES (1, 'x')")
    of_columns = {"a": "it's a", "B c": '-- /* "b" */'}
    assert lake["s.t"].column_comments == of_columns
    assert lake["s.t"].comment == "the table"
    assert said(lake, "SELECT column_name AS c, extra AS said FROM (DESCRIBE s.t)") == {"a": None, "B c": None}
    assert lake.sql("DESCRIBE s.t")["extra"].to_pylist() == list(of_columns.values())
    assert lake.sql("DESCRIBE DETAIL s.t")["comment"].to_pylist() == ["the table"]
    assert said(lake, "SELECT name AS c, comment AS said FROM columns('s.t')") == of_columns
    assert said(lake, "SELECT name AS c, comment AS said FROM tables()") == {"s.t": "the table"}
    assert said(lake, 'SELECT table_name AS c, "TABLE_COMMENT" AS said FROM information_schema.tables') == {
        "t": "the table",
        "v": "the view",
    }
    assert said(lake, f"{COLUMNS} WHERE table_name = 't'") == of_columns
    assert said(lake, f"{COLUMNS} WHERE table_name = 'v'") == {"a": "of the view", "B c": None}
    assert lake.sql("SHOW VIEWS")["comment"].to_pylist() == ["the view"]
    assert lake.sql("DESCRIBE s.v")["extra"].to_pylist() == ["of the view", None]
    assert lake.sql('DESCRIBE SELECT "B c" AS a FROM s.v')["extra"].to_pylist() == [None]
    delta = open_deltalake(lake["s.t"])
    assert delta.metadata().description == "the table"
    assert {field.name: field.metadata["comment"] for field in delta.schema().fields} == of_columns


def test_what_show_create_gives_makes_the_same_comments(lake: alluvia.Lake) -> None:
    copy = alluvia.connect("memory://copied comments")
    copy.create_schema("s")
    for name in ("t", "v"):
        (text,) = lake.sql(f"SHOW CREATE TABLE s.{name}")["create_statement"].to_pylist()
        copy.sql(text)
        assert copy.sql(f"SHOW CREATE TABLE s.{name}")["create_statement"].to_pylist() == [text]
    assert copy["s.t"].comment == "the table"
    assert said(copy, COLUMNS) == {"a": "of the view", "B c": None}  # of the view, which is last


def test_comments_change_and_go(lake: alluvia.Lake) -> None:
    table = lake["s.t"]
    lake.sql("ALTER TABLE s.t ALTER COLUMN a COMMENT 'as in Spark'")
    lake.sql("ALTER TABLE s.t ADD COLUMN d INT COMMENT 'new'")
    lake.sql("ALTER TABLE s.t RENAME COLUMN a TO e FORCE")
    assert table.column_comments == {"e": "as in Spark", "d": "new"}
    before = table.version
    assert lake.sql("COMMENT ON TABLE s.t IS 'the table'")["version"].to_pylist() == [before]  # as it is already
    lake.sql("COMMENT ON TABLE s.t IS NULL; COMMENT ON COLUMN s.t.e IS ''; COMMENT ON COLUMN s.t.d IS NULL")
    assert (table.version, table.comment, table.column_comments) == (before + 1, None, {})
    assert not [each for each in open_deltalake(table).schema().fields if each.metadata.get("comment")]
    lake.sql(f"RESTORE TABLE s.t TO VERSION AS OF {before}")
    assert (table.comment, table.column_comments) == ("the table", {"e": "as in Spark", "d": "new"})
    lake.sql("CREATE TABLE s.copy SHALLOW CLONE s.t")
    assert lake["s.copy"].comment == "the table"
    lake.sql("CREATE OR REPLACE TABLE s.t AS SELECT 1 AS e")
    assert (table.comment, table.column_comments) == (None, {})


def test_a_view_keeps_its_comments_until_it_is_replaced(lake: alluvia.Lake) -> None:
    lake.sql("COMMENT ON VIEW s.v IS 'other'")
    assert said(lake, f"{COLUMNS} WHERE table_name = 'v'")["a"] == "of the view"
    assert lake.sql("FROM s.v").num_rows == 0
    lake.sql("COMMENT ON COLUMN s.v.a IS NULL")
    lake.sql('ALTER TABLE s.t RENAME COLUMN "B c" TO b FORCE')
    assert lake.sql("SHOW VIEWS")["comment"].to_pylist() == ["other"]
    lake.sql("CREATE OR REPLACE VIEW s.v AS SELECT b FROM s.t")
    assert lake.sql("SHOW VIEWS")["comment"].to_pylist() == [None]


def test_a_text_of_comments_may_be_about_views_and_tables(lake: alluvia.Lake) -> None:
    lake.sql(
        """
        COMMENT ON COLUMN s.v.a IS 'x'; COMMENT ON COLUMN s.v."B c" IS 'y'; COMMENT ON COLUMN s.t.a IS 'z'
        """
    )
    assert said(lake, f"{COLUMNS} WHERE table_name = 'v'") == {"a": "x", "B c": "y"}
    assert lake["s.t"].column_comments == {"a": "z"}
    with pytest.raises(Invalid, match=r"statement 2 of 2 \(COMMENT\).*those before it are committed"):
        lake.sql("COMMENT ON COLUMN s.v.a IS 'w'; COMMENT ON COLUMN s.v.z IS 'y'")


def test_rows_written_meanwhile_are_not_written_again(lake: alluvia.Lake) -> None:
    with lake.transaction() as late:
        late.table("s.t").append([{"a": 1}])
        lake.sql("COMMENT ON TABLE s.t IS 'changed meanwhile'; COMMENT ON COLUMN s.t.a IS 'so is this'")
    with lake.transaction() as late:
        late.sql("COMMENT ON COLUMN s.t.a IS 'in a transaction'")
        lake["s.t"].append([{"a": 2}])
    assert lake["s.t"].count() == 2
    assert (lake["s.t"].comment, lake["s.t"].column_comments["a"]) == ("changed meanwhile", "in a transaction")
    late = lake.transaction()
    late.sql("COMMENT ON COLUMN s.t.\"B c\" IS 'lost'")
    lake.sql('ALTER TABLE s.t DROP COLUMN "B c" FORCE')
    with pytest.raises(Conflict):
        late.commit()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("COMMENT ON TABLE s.v IS 'x'", "s.v is a view: write COMMENT ON VIEW s.v"),
        ("COMMENT ON VIEW s.t IS 'x'", "s.t is a table: write COMMENT ON TABLE s.t"),
        ("COMMENT ON VIEW s.n IS 'x'", "the lake has no view 's.n'"),
        ("COMMENT ON TABLE s.n IS 'x'", "there is no table 's.n'"),
        ("COMMENT ON COLUMN n.t.a IS 'x'", "there is no schema 'n'"),
        ("COMMENT ON COLUMN s.t.z IS 'x'", "comment: 'z' is not a column of the table, whose columns are a, B c"),
        ("COMMENT ON COLUMN s.v.z IS 'x'", "comment: 'z' is not a column of the view s.v, whose columns are a, B c"),
        ("COMMENT ON COLUMN n.o.p.x IS 'x'", "n.o.p.x: name a whole column, as in t.id or bronze.t.id"),
        ("COMMENT ON COLUMN s.n.a IS 'x'", "there is no table 's.n'"),
        ("COMMENT ON", "expected TABLE, VIEW or COLUMN, but the statement ends"),
        ("COMMENT ON COLUMN a IS 'x'", "the name of a column behind that of its table, as in t.id"),
        ("COMMENT ON SCHEMA s IS 'x'", "COMMENT ON SCHEMA is not supported: only TABLE, VIEW and COLUMN have comments"),
        ("COMMENT ON TABLE s.t IS 3", "expected the comment as text in single quotes, got 3"),
        (f"COMMENT ON TABLE s.t IS '{'x' * (CHARS_MAX + 1)}'", "expected text of at most 32,768 characters"),
        (
            "BEGIN; DELETE FROM s.t; COMMENT ON COLUMN s.v.a IS 'x'; COMMIT",
            "s.v is a view, and COMMENT on one cannot be part of a",
        ),
        ("BEGIN; COMMENT ON VIEW s.v IS 'x'; COMMIT", "COMMENT cannot be part of a transaction"),
    ],
)
def test_what_is_refused(lake: alluvia.Lake, text: str, message: str) -> None:
    with pytest.raises((Invalid, TableNotFound)) as raised:
        lake.sql(text)
    assert message in str(raised.value)
    assert lake["s.t"].version == 0


def test_a_field_in_a_column_is_not_taken_for_a_table_in_a_schema(lake: alluvia.Lake) -> None:
    lake.sql("CREATE TABLE n (o STRUCT<p: INT>); CREATE VIEW v AS SELECT o FROM n")
    for table, kind in (("n", "table"), ("v", "view")):
        with pytest.raises(Invalid, match=f"{table}.o.p: {table} is a {kind}: name a whole column of it, and no field"):
            lake.sql(f"COMMENT ON COLUMN {table}.o.p IS 'x'")


@pytest.mark.parametrize(("comment", "message"), [("\0", "NUL"), ("\ud800", "half of a character"), (3, "got 3")])
def test_what_no_log_can_hold(lake: alluvia.Lake, comment: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        lake["s.t"].set_comment(comment)
    with pytest.raises(Invalid, match=f"comment of column a: .*{message}"):
        lake["s.t"].set_comment(comment, column="a")
    with pytest.raises(Invalid, match="comment of column a: expected UTF-8"):
        lake.create_table("u", pa.schema([pa.field("a", pa.int32(), metadata={b"comment": b"\xff"})]))


def test_comments_need_what_alter_table_needs(lake: alluvia.Lake) -> None:
    admin, writer = Rights((grant("admin:s.t read:s.t"),)), Rights((grant("write:s.t read:s.*"),))
    execute(lake, "COMMENT ON COLUMN s.t.a IS 'x'", rights=admin)
    for text in ("COMMENT ON TABLE s.t IS 'y'", "COMMENT ON COLUMN s.v.a IS 'y'", "COMMENT ON VIEW s.v IS 'y'"):
        with pytest.raises(Forbidden):
            execute(lake, text, rights=writer)
    seen = execute(lake, 'SELECT "TABLE_COMMENT" AS c FROM information_schema.tables', rights=writer)
    assert seen["c"].to_pylist() == ["the table", "the view"]
    part = Rights((grant("read:s.t", where="a > 1"),))
    for text in (
        'SELECT "TABLE_COMMENT" AS c FROM information_schema.tables',
        f"SELECT DISTINCT said AS c FROM ({COLUMNS})",
        "SELECT DISTINCT comment AS c FROM columns('s.t')",
        "SELECT comment AS c FROM tables()",
    ):
        assert execute(lake, text, rights=part)["c"].to_pylist() == [None]  # they may be about rows that are hidden
    assert execute(lake, "DESCRIBE s.t", rights=part)["extra"].to_pylist() == [None, None]
    all_in_part = Rights((grant("read:s.*", where="a > 1"),))
    for text, column in (("DESCRIBE s.v", "extra"), ("SHOW VIEWS", "comment"), (COLUMNS, "said")):
        assert set(execute(lake, text, rights=all_in_part)[column].to_pylist()) == {None}
