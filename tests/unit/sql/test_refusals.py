"""What SQL cannot do here says so by name, and what to do instead."""

from __future__ import annotations

import pytest

import alluvia
from alluvia.engine.duck.arrow_values import since_2
from alluvia.errors import Invalid, TableExists
from alluvia.sql.grammar.statements import parse


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE INDEX i ON t (a)", "CREATE INDEX is not supported: SORT BY or CLUSTER BY"),
        ("CREATE UNIQUE INDEX i ON t (a)", "CREATE UNIQUE is not supported: nothing enforces uniqueness"),
        ("CREATE DATABASE d", "CREATE SCHEMA groups tables within a lake"),
        ("CREATE OR REPLACE SCHEMA s", "DROP SCHEMA IF EXISTS, and create it again"),
        ("CREATE SCHEMA s AUTHORIZATION ada", "a schema has a name alone"),
        ("USE bronze", "name tables with their schema, as in bronze.orders"),
        ("CREATE TEMP TABLE t (a int)", "CREATE TEMP is not supported: use a common table expression"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "call lake.create_rollup"),
        ("CREATE TABLE t (a int PRIMARY KEY)", "column a: PRIMARY is not supported: nothing enforces uniqueness"),
        ("CREATE TABLE t (a int, PRIMARY KEY (a))", "PRIMARY is not supported"),
        ("CREATE TABLE t (a int DEFAULT 1)", "column a: DEFAULT is not supported: columns are null by default"),
        ("CREATE TABLE t (a uuid)", "Delta has no type UUID: use STRING"),
        ("CREATE TABLE t (a wrong)", "unknown type 'wrong'"),
        ("CREATE TABLE t (a int) AS SELECT 1", "takes the types from the SELECT: CAST them there, and list"),
        ("CREATE TABLE t (a, b)", "CREATE TABLE t: column a has no type; only CREATE TABLE … AS SELECT needs none"),
        ("CREATE TABLE t (a int, b)", "expected the type of the column"),
        ("CREATE TABLE t (a int) ENGINE = MergeTree", "CREATE TABLE … ENGINE is not supported: leave it out"),
        ("CREATE TABLE t (a int) TTL a + INTERVAL 1 DAY", "set TBLPROPERTIES ('alluvia.ttl' = '30 days'"),
        ("CREATE TABLE t (a int) PRIMARY KEY (a)", "CREATE TABLE … PRIMARY is not supported: nothing enforces"),
        ("CREATE TABLE t (a int) STORED AS PARQUET", "CREATE TABLE … STORED is not supported: leave it out"),
        ("CREATE TABLE t (a int) WITH (format = 'PARQUET')", "WITH (format = …) is not an option of tables"),
        ("CREATE TABLE t (a int) WITH (partitioning = ARRAY['a'])", "WITH (partitioning = …) is not an option"),
        ("CREATE TABLE t (a int CHECK (a > ?))", "CHECK cannot have the parameter ?, because its text is kept"),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK (a > $n)", "CHECK cannot have the parameter $n"),
        ("CREATE VIEW v AS SELECT * FROM t WHERE a = ?", "CREATE VIEW cannot have the parameter ?, because its text"),
        ("CREATE VIEW v AS SELECT * FROM t WHERE a = $n", "write the value into the SELECT, or filter where the view"),
        ("CREATE TABLE t LOCATION 's3://x' AS SELECT 1", "the end of the statement: a table at a LOCATION"),
        ("CREATE TABLE t (a INT) LOCATION 's3://x'", "LOCATION goes with a Delta table that is there"),
        ("CREATE OR REPLACE TABLE t LOCATION 's3://x'", "DROP TABLE t first"),
        ("GRANT SELECT ON t TO me", "GRANT is not supported: who may read or write is decided by"),
        ("COPY t FROM 'x.csv'", "COPY is not supported: load files with `alluvia ingest` or `alluvia upsert`"),
        ("ATTACH 'x.db' AS t (TYPE sqlite)", "only Delta tables can be attached"),
        ("PRAGMA threads = 4", "PRAGMA is not supported"),
        ("SET threads = 4", "SET is not supported"),
        ("INSTALL httpfs", "INSTALL is not supported"),
        ("SAVEPOINT a", "SAVEPOINT is not supported: a transaction has no savepoints"),
        ("INSERT OR REPLACE INTO t VALUES (1)", "INSERT OR REPLACE is not supported: use MERGE INTO"),
        ("INSERT OVERWRITE t VALUES (1)", "INSERT OVERWRITE is not supported"),
        ("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", "INSERT … ON CONFLICT is not supported: use MERGE INTO"),
        ("INSERT INTO t SELECT 1 RETURNING a", "RETURNING is not supported: read the rows with a SELECT"),
        ("DELETE FROM t RETURNING a", "RETURNING is not supported"),
        ("UPDATE t SET a = 1 FROM u", "UPDATE … FROM is not supported: use MERGE INTO"),
        ("UPDATE t SET (a, b) = (SELECT 1, 2)", "SET (a, b) = (SELECT …) is not supported: write SET a = (SELECT"),
        ("UPDATE t SET (a, b) = (1, 2, 3)", "SET (a, b) = (…) has 2 columns, but 3 values"),
        ("INSERT INTO t VALUES (DEFAULT + 1)", "DEFAULT stands alone as a value, as in VALUES (1, DEFAULT)"),
        ("INSERT INTO t VALUES (1), (coalesce(DEFAULT, 1))", "DEFAULT stands alone as a value"),
        ("INSERT INTO t VALUES (1, -DEFAULT)", "DEFAULT stands alone as a value"),
        (
            "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN ERROR",
            "THEN ERROR is not supported: a CHECK constraint",
        ),
        (
            "MERGE INTO t USING s USING (a) WHEN NOT MATCHED THEN INSERT BY POSITION",
            "INSERT BY POSITION is not supported: INSERT takes the source's columns by name",
        ),
        ("UPDATE t SET a.b = 1", "a field of a struct cannot be set alone"),
        ("UPDATE t SET a[1] = 1", "a part of a value cannot be set alone"),
        ("DELETE FROM t USING u WHERE t.a = u.a", "DELETE … USING is not supported: use MERGE INTO"),
        ("ALTER TABLE t RENAME COLUMN a b", "TO"),
        ("ALTER TABLE t RENAME TO u", "RENAME TO is not supported"),
        ("ALTER TABLE t ALTER COLUMN a TYPE int", "ALTER COLUMN is not supported: a column keeps its type"),
        ("ALTER TABLE t ADD COLUMN a int NOT NULL", "a column that is added must be nullable"),
        (
            "ALTER TABLE t ADD COLUMN a int NOT NULL",
            "set the column with UPDATE, and ALTER TABLE t ADD CONSTRAINT c CHECK (a IS NOT NULL)",
        ),
        (
            'ALTER TABLE t ALTER COLUMN "a b" SET NOT NULL',
            'SET NOT NULL is not supported: ALTER TABLE t ADD CONSTRAINT c CHECK ("a b" IS NOT NULL)',
        ),
        (
            "ALTER TABLE t ADD COLUMN a int CHECK (a > 0)",
            "ALTER TABLE t ADD CONSTRAINT check_1 CHECK (a > 0)",
        ),
        (
            "ALTER TABLE t ADD COLUMN v FLOAT[2]",
            "add it as a list without a size, and the constraint",
        ),
        ("CREATE TABLE t (v FLOAT[0])", "column v: a list of a fixed size has 1 to 100000 elements, not 0"),
        ("CREATE TABLE t (v FLOAT[3][])", "column v: only a list of plain values can have a fixed size"),
        ("CREATE TABLE t (v STRUCT(a FLOAT[3]))", "only a column itself can have lists of a fixed size"),
        ("CREATE TABLE t (LIKE u)", "LIKE is not supported: take the columns with CREATE TABLE … AS FROM u LIMIT 0"),
        ("CREATE TABLE t LIKE u", "or change what SHOW CREATE TABLE u gives"),
        ("CREATE TABLE t (a NUMBER(10,2))", "Delta has no type NUMBER: use DECIMAL with its digits, such as DECIMAL"),
        ("CREATE TABLE t._rejects (a INT)", "table t._rejects cannot be created: ingestion creates"),
        ("DROP DATABASE s", "DROP DATABASE is not supported: only SCHEMA, TABLE"),
        ("DROP TABLE t CASCADE", "DROP … CASCADE is not supported"),
        ("OPTIMIZE t WHERE a = 1", "OPTIMIZE … WHERE is not supported: call table.optimize(partition={…})"),
        ("OPTIMIZE t ZORDER BY (a)", "OPTIMIZE … ZORDER BY is not supported: ALTER TABLE … CLUSTER BY"),
    ],
)
def test_what_cannot_be_done_says_what_to_do_instead(text: str, message: str) -> None:
    with pytest.raises(Invalid) as raised:
        parse(text)
    assert message in str(raised.value)


@pytest.fixture(scope="module")
def lake() -> alluvia.Lake:
    """A table `t` of two rows, a table `empty` and a stream `s`."""
    lake = alluvia.connect("memory://refusals")
    lake.sql("CREATE TABLE t (id BIGINT, name VARCHAR, seen TIMESTAMP); CREATE TABLE empty (id BIGINT)")
    lake.sql("INSERT INTO t (id) VALUES (1), (2)")
    lake.sql("CREATE STREAM s ON TABLE t")
    return lake


_UNDERSTOOD_SINCE_2: dict[str, list[dict[str, object]]] = {
    "SELECT `id` FROM t": [{"id": 1}, {"id": 2}],
    "SELECT t.`id` FROM t": [{"id": 1}, {"id": 2}],
    "SELECT * EXCEPT (id) FROM t": [{"name": None, "seen": None}] * 2,
}
"""The rows of what DuckDB 2.0 reads."""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT id BETWEEN SYMMETRIC 2 AND 1 FROM t", "BETWEEN SYMMETRIC is not supported"),
        ("SELECT id BETWEEN SYMMETRIC 2 AND 1 FROM t", "write BETWEEN least(a, b) AND greatest(a, b)"),
        ("WITH a AS (SELECT 5) INSERT INTO t FROM a", "WITH stands behind the table: INSERT INTO t WITH … SELECT …"),
        ("WITH a AS (SELECT 5) DELETE FROM t", "DELETE FROM t WHERE id IN (WITH … SELECT …)"),
        ("WITH a AS (SELECT 5) UPDATE t SET id = 1", "UPDATE t SET … WHERE id IN (WITH … SELECT …)"),
        ("WITH a AS (SELECT 5) MERGE INTO t USING a ON true WHEN MATCHED THEN DELETE", "USING (WITH … SELECT …) AS s"),
        ("SHOW DATABASES", "only SHOW TABLES, SHOW VIEWS, SHOW STREAMS, SHOW CREATE TABLE t, DESCRIBE and SUMMARIZE"),
        ("SHOW TABLES LIKE 's%'", "SELECT name FROM tables() WHERE name LIKE '…'"),
        ("SHOW COLUMNS FROM t", "DESCRIBE t, or SELECT * FROM columns('t')"),
        ("SHOW TBLPROPERTIES t", "DESCRIBE DETAIL t has the properties"),
        ("-- parts\nshow partitions t", "SELECT * FROM partitions('t')"),
        ("DESCRIBE EXTENDED t", "DESCRIBE EXTENDED is not supported: DESCRIBE t has the columns, DESCRIBE DETAIL t"),
        ("DESC FORMATTED t", "DESCRIBE FORMATTED is not supported"),
        ("DESCRIBE TABLE EXTENDED t", "DESCRIBE TABLE EXTENDED is not supported"),
        ("FROM t BEFORE (VERSION => 3)", "BEFORE (…) is not supported: AT (VERSION => n) with the version before"),
        ("SELECT * FROM t@v1 WHERE id = 1", "@v1 is not supported: t VERSION AS OF 1"),
        ("FROM t VERSION AS OF -1", "VERSION AS OF takes the number of a version, 0 or more"),
        ("SELECT 'VERSION AS OF -1', 't@v1', FROM FROM t", 'syntax error at or near "FROM"'),
        ("SELECT TOP 10 * FROM t", "TOP 10 is not supported: write LIMIT 10 at the end of the query"),
        ("SELECT DISTINCT TOP (5) * FROM t", "TOP 5 is not supported: write LIMIT 5"),
        ("SELECT TOP (5) id FROM t", "Write LIMIT n at the end of the query instead of TOP (n)"),
        ("FROM t LIMIT 10, 5", "LIMIT 10, 5 is not supported: write LIMIT 5 OFFSET 10"),
        ("FROM t LIMIT 2 WHERE id = 1", "WHERE stands before LIMIT: SELECT … FROM … WHERE … GROUP BY … HAVING"),
        ("SELECT (FROM t GROUP BY id WHERE id = 1) LIMIT 1", "WHERE stands before GROUP: SELECT"),
        ("SELECT * FROM [t]", 'square brackets make a list here: write the name as t, or as "t" if it has spaces'),
        ("SELECT t.[my id] FROM t", 'write the name as my id, or as "my id" if it has spaces'),
        ("SELECT `id` FROM t", "Backticks do not quote names here: write a name as it is"),
        ("SELECT t.`id` FROM t", "backticks do not quote names here: write a name as it is"),
        ("DELETE FROM `t`", "line 1, column 13: backticks do not quote names here"),
        ("SELECT * EXCEPT (id) FROM t", "* EXCEPT (…) is not supported: write * EXCLUDE (…)"),
        ("FROM t WHERE id > 1.100,50", "1.100,50 is not a number in SQL: write 1100.50, with a point"),
        ("UPDATE t SET id = 1100,5", "line 1, column 19: 1100,5 is not a number in SQL: write 1100.5, with a point"),
        ("SELECT convert(varchar(10), id, 104) FROM t", "write CAST(value AS type), or strftime(value, "),
        ("FROM t WHERE name = \u2018a\u2019", "SQL does not know the quotes \u2018 \u2019: write a text as 'a text'"),
        ("FROM t WHERE name = \u201ca b\u201d", "SQL does not know the quotes \u201c \u201d: write a text as 'a text'"),
        ("SELECT 'TOP 10 `x` \u2018y\u2019', 1,5, FROM FROM t", 'syntax error at or near "FROM"'),
        ('SELECT "LIMIT", "WHERE" FROM FROM t', 'syntax error at or near "FROM"'),
        ("FROM t WHERE id = 1, 5", 'syntax error at or near ","'),
        ("SELECT isnull(id, 0) FROM t", "Function with name isnull does not exist! Write coalesce(a, b)"),
        ("SELECT NVL(id, 0) FROM t", "Write coalesce(a, b)"),
        ("SELECT sysdate FROM t", "Write now()"),
        ("SELECT dateadd(day, 1, seen) FROM t", "Write d + INTERVAL 1 DAY"),
        ("SELECT datediff(day, seen, seen) FROM t", "Write the unit as a text: datediff('day', …)"),
        ("SELECT datediff(seen, seen) FROM t", "Write date_diff('day', d, other_d)"),
        ("SELECT trunc(seen, 'MM') FROM t", "Write date_trunc('month', t)"),
        ('FROM t WHERE name = "it\'s"', "If it is a text, write it in single quotes: 'it''s'"),
        ('DELETE FROM t WHERE name = "00007"', "If it is a text, write it in single quotes: '00007'"),
        ("SELECT name + ' ' FROM t", "+ adds numbers: write a || b to join texts"),
        ("SELECT name + 1 FROM t", "write a || b to join texts, or CAST the text to a number"),
        (
            "SELECT coalesce(seen, '2026-01-01') AT TIME ZONE 'berlin' FROM t",
            "Unknown TimeZone 'berlin'! Write 'Europe/Berlin'",
        ),
        (
            "SELECT coalesce(seen, '2026-01-01') AT TIME ZONE 'Atlantis' FROM t",
            "Write a region and a city, as in 'Europe/Berlin'",
        ),
    ],
)
def test_a_query_of_another_dialect_says_what_to_write(lake: alluvia.Lake, text: str, message: str) -> None:
    if since_2() and text in _UNDERSTOOD_SINCE_2:
        assert lake.sql(text).to_pylist() == _UNDERSTOOD_SINCE_2[text]
        return
    with pytest.raises(Invalid) as raised:
        lake.sql(text)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO empty WITH a AS (FROM empty) SELECT * FROM a",
        "DELETE FROM empty WHERE id IN (WITH a AS (FROM t) SELECT id FROM a)",
        "UPDATE empty SET id = 1 WHERE id IN (WITH a AS (FROM t) SELECT id FROM a)",
        "MERGE INTO empty USING (WITH a AS (FROM t) SELECT id FROM a) AS s ON empty.id = s.id WHEN MATCHED THEN DELETE",
        "SELECT name FROM tables() WHERE name LIKE 't%'",
        "SELECT * FROM partitions('t')",
        "SELECT * FROM t WHERE id BETWEEN least(2, 1) AND greatest(2, 1)",
    ],
)
def test_what_is_to_be_written_runs(lake: alluvia.Lake, text: str) -> None:
    lake.sql(text)


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("ttl", "alluvia.ttl"),
        ("Codec", "alluvia.codec"),
        ("sort_by", "alluvia.sort_by"),
        ("appendonly", "delta.appendOnly"),
    ],
)
def test_a_property_without_its_prefix_is_refused_with_its_name(lake: alluvia.Lake, name: str, whole: str) -> None:
    for text in ("CREATE TABLE n (a INT)", "ALTER TABLE t SET"):
        with pytest.raises(Invalid) as raised:
            lake.sql(f"{text} TBLPROPERTIES ({name} = '1')")
        assert str(raised.value) == f"property {name} is unknown: did you mean {whole}?"


def test_several_rows_of_a_scalar_subquery_bring_no_advice_to_set_what_cannot_be_set(lake: alluvia.Lake) -> None:
    with pytest.raises(Invalid, match="More than one row returned by a subquery") as raised:
        lake.sql("SELECT (SELECT id FROM t)")
    assert "SET" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "kind"), [("CREATE TABLE t (a INT)", "TABLE"), ("CREATE STREAM s ON TABLE t", "STREAM")]
)
def test_what_exists_is_told_in_sqls_terms(lake: alluvia.Lake, text: str, kind: str) -> None:
    with pytest.raises(TableExists, match=f"already exists: choose another name, or write CREATE {kind} IF NOT EXISTS"):
        lake.sql(text)
