"""What SQL cannot do here says so by name, and what to do instead."""

from __future__ import annotations

import pytest

from alluvia.errors import Invalid
from alluvia.sql.statements import parse


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE INDEX i ON t (a)", "CREATE INDEX is not supported: SORT BY or CLUSTER BY"),
        ("CREATE UNIQUE INDEX i ON t (a)", "CREATE UNIQUE is not supported: nothing enforces uniqueness"),
        ("CREATE SCHEMA s", "CREATE SCHEMA is not supported: a lake has one schema"),
        ("CREATE TEMP TABLE t (a int)", "CREATE TEMP is not supported: use a common table expression"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "call lake.create_rollup"),
        ("CREATE TABLE t (a int PRIMARY KEY)", "column a: PRIMARY is not supported: nothing enforces uniqueness"),
        ("CREATE TABLE t (a int, PRIMARY KEY (a))", "PRIMARY is not supported"),
        ("CREATE TABLE t (a int DEFAULT 1)", "column a: DEFAULT is not supported: columns are null by default"),
        ("CREATE TABLE t (a uuid)", "Delta has no type UUID: use STRING"),
        ("CREATE TABLE t (a wrong)", "unknown type 'wrong'"),
        ("CREATE TABLE t (a int) AS SELECT 1", "takes its columns from the SELECT"),
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
        ("UPDATE t SET (a, b) = (1, 2)", "SET (a, b) = (…) is not supported"),
        ("UPDATE t SET a.b = 1", "a field of a struct cannot be set alone"),
        ("UPDATE t SET a[1] = 1", "a part of a value cannot be set alone"),
        ("DELETE FROM t USING u WHERE t.a = u.a", "DELETE … USING is not supported: use MERGE INTO"),
        ("ALTER TABLE t RENAME COLUMN a b", "TO"),
        ("ALTER TABLE t RENAME TO u", "RENAME TO is not supported"),
        ("ALTER TABLE t ALTER COLUMN a TYPE int", "ALTER COLUMN is not supported: a column keeps its type"),
        ("ALTER TABLE t ADD COLUMN a int NOT NULL", "a column that is added must be nullable"),
        ("CREATE TABLE t._rejects (a INT)", "CREATE TABLE t._rejects is not possible: ingestion creates"),
        ("DROP SCHEMA s", "DROP SCHEMA is not supported"),
        ("DROP TABLE t CASCADE", "DROP … CASCADE is not supported"),
        ("OPTIMIZE t WHERE a = 1", "OPTIMIZE … WHERE is not supported: call table.optimize(partition={…})"),
        ("OPTIMIZE t ZORDER BY (a)", "OPTIMIZE … ZORDER BY is not supported: ALTER TABLE … CLUSTER BY"),
    ],
)
def test_what_cannot_be_done_says_what_to_do_instead(text: str, message: str) -> None:
    with pytest.raises(Invalid) as raised:
        parse(text)
    assert message in str(raised.value)
