"""Statements that write, by what is in the tables afterwards."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.errors import Invalid, TableExists, TableNotFound
from alluvia.query.limits import QueryLimits
from alluvia.sql import writing
from alluvia.sql.fitting import fitted
from alluvia.sql.run import execute
from alluvia.store import CountingStore
from tests.judges import canonical, deltalake_rows, duckdb_rows
from tests.unit.sql.selected import rows

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def numbers(lake: alluvia.Lake) -> alluvia.Lake:
    """A table `t` of three rows."""
    lake.sql("CREATE TABLE t (a BIGINT, b STRING)")
    lake.sql("INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, NULL)")
    return lake


def test_create_table_takes_types_layout_properties_and_constraints(lake: alluvia.Lake) -> None:
    lake.sql(
        """CREATE TABLE IF NOT EXISTS events (
             id BIGINT NOT NULL, n INT, small SMALLINT, tiny TINYINT, f REAL, d DOUBLE PRECISION, x DECIMAL(10, 2),
             ok BOOLEAN, name VARCHAR(10), raw BLOB, day DATE, ts TIMESTAMP, local TIMESTAMP WITHOUT TIME ZONE,
             list INT[][], arr ARRAY<STRING>, tags MAP(VARCHAR, INT), "odd-name" STRUCT(p INT, q MAP<STRING, LONG>),
             CONSTRAINT positive CHECK (id > 0), CHECK (n IN (1, 2))
           ) USING DELTA PARTITIONED BY (day(ts)) SORT BY (id)
           TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', delta.checkpointInterval = 20, mine = 'it''s')"""
    )
    table = lake["events"]
    assert table.schema == pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False), ("n", pa.int32()), ("small", pa.int16()), ("tiny", pa.int8()),
            ("f", pa.float32()), ("d", pa.float64()), ("x", pa.decimal128(10, 2)), ("ok", pa.bool_()),
            ("name", pa.string()), ("raw", pa.binary()), ("day", pa.date32()), ("ts", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")), ("list", pa.list_(pa.list_(pa.int32()))), ("arr", pa.list_(pa.string())),
            ("tags", pa.map_(pa.string(), pa.int32())),
            ("odd-name", pa.struct([("p", pa.int32()), ("q", pa.map_(pa.string(), pa.int64()))])),
        ]
    )  # fmt: skip
    settings = table.snapshot().settings
    assert (settings.partition_by, settings.sort_by) == (("day(ts)",), ("id",))
    assert (settings.change_data_feed, settings.checkpoint_interval) == (True, 20)
    assert settings.constraints == {"positive": "id > 0", "check_2": "n IN (1, 2)"}
    assert table.snapshot().properties["mine"] == "it's"
    assert lake.sql("CREATE TABLE IF NOT EXISTS events (other INT)").to_pylist()[0]["version"] == 0
    with pytest.raises(TableExists):
        lake.sql("CREATE TABLE events (other INT)")


def test_show_create_table_makes_the_same_table(lake: alluvia.Lake) -> None:
    lake.sql(
        """CREATE TABLE t (a BIGINT NOT NULL, "b-c" STRUCT(x INT, "y-z" STRING[]), m MAP(INT, DATE), ts TIMESTAMP,
             n TIMESTAMP_NTZ, d DECIMAL(5, 1), CONSTRAINT c CHECK (a > 0))
           PARTITION BY (day(ts), d) SORT BY (a, n) TBLPROPERTIES ('delta.appendOnly' = 'true', 'k' = 'it''s')"""
    )
    statement = lake.sql("SHOW CREATE TABLE t").to_pylist()[0]["create_statement"]
    lake.sql(statement.replace("CREATE TABLE t", "CREATE TABLE u"))
    assert lake["u"].schema == lake["t"].schema
    assert lake["u"].snapshot().properties == lake["t"].snapshot().properties


def test_insert_values_by_position_and_by_name(lake: alluvia.Lake) -> None:
    lake.sql(
        "CREATE TABLE t (a INT, b STRING, c DOUBLE, d DATE, ts TIMESTAMP, x DECIMAL(8, 3), l INT[], s STRUCT(p INT))"
    )
    done = lake.sql(
        "INSERT INTO t VALUES (1, 'x', 1.5, '2026-01-01', '2026-01-01 12:00:00', 2.25, [1, NULL], {'p': 7}), "
        "(2, NULL, NULL, NULL, '2026-01-01', 3, [], NULL)"
    )
    assert done.to_pylist() == [{"rows_inserted": 2, "version": 1}]
    lake.sql("INSERT INTO t (\"B\", a) VALUES (DEFAULT, 3), ('default', 1 + 3)")
    lake.sql("INSERT INTO t DEFAULT VALUES")
    midnight = NOON.replace(hour=0)
    assert rows(lake, "SELECT * FROM t ORDER BY a") == [
        (1, "x", 1.5, dt.date(2026, 1, 1), NOON, Decimal("2.250"), [1, None], {"p": 7}),
        (2, None, None, None, midnight, Decimal("3.000"), [], None),
        (3, *[None] * 7),
        (4, "default", *[None] * 6),
        (None, *[None] * 7),
    ]


def test_columns_are_renamed_and_dropped(numbers: alluvia.Lake) -> None:
    numbers.sql('ALTER TABLE t ADD COLUMN c INT; ALTER TABLE t RENAME COLUMN a TO "new"; ALTER TABLE t DROP COLUMN b')
    numbers.sql("INSERT INTO t (c, new) VALUES (10, 20)")
    assert numbers["t"].schema.names == ["new", "c"]
    assert rows(numbers, "SELECT new FROM t WHERE c = 10") == [(20,)]
    version = numbers["t"].version
    assert numbers.sql("ALTER TABLE t DROP COLUMN IF EXISTS b").to_pylist() == [{"table": "t", "version": version}]
    numbers.sql("ALTER TABLE t DROP COLUMNS (c)")
    created = numbers.sql("SHOW CREATE TABLE t").to_pylist()[0]["create_statement"]
    numbers.sql(created.replace("CREATE TABLE t", "CREATE TABLE u"))
    assert numbers["u"].schema.names == ["new"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("INSERT INTO t VALUES (1)", "INSERT INTO t takes 2 columns (a, b), but each row of VALUES has 1"),
        ("INSERT INTO t (a) SELECT 1, 2", "INSERT INTO t takes 1 columns (a), but the SELECT has 2"),
        ("INSERT INTO t (c) VALUES (1)", "table t has no column c: it has a, b"),
        ("INSERT INTO t (a, A) VALUES (1, 2)", "column a is named twice"),
        ("INSERT INTO t (a) VALUES ('x')", "column a: Conversion Error: Could not convert string 'x' to INT64"),
        ("INSERT INTO t (a) SELECT b FROM t", "column a is long in the table, but the rows have string"),
        ("INSERT INTO t (a) VALUES (1.5)", "column a is long in the table, but the rows have decimal(2,1)"),
        ("INSERT INTO t (a) SELECT sum(1e18::BIGINT) FROM range(20)", "column a: a value does not fit long"),
        ("INSERT INTO t (b) VALUES (1)", "column b is string in the table, but the rows have integer"),
        ("INSERT INTO t (a) SELECT CAST(error('stop') AS BIGINT)", "stop"),
        ("UPDATE t SET c = 1", "table t has no column c: it has a, b"),
        ("UPDATE t SET a = 1, A = 2", "column a is set twice"),
        ("UPDATE t SET a = 'x' WHERE a = 1", "Could not convert string 'x' to INT64"),
        ("UPDATE t SET a = 1 WHERE u.a = 1", "u"),
        ("ALTER TABLE t ADD COLUMN a INT", "column a already exists"),
        ("ALTER TABLE t ADD CONSTRAINT few CHECK (a < 3)", "1 of 3 rows break the CHECK constraint few (a < 3)"),
        ("ALTER TABLE t DROP CONSTRAINT few", "table t has no constraint few"),
        ("ALTER TABLE t DROP COLUMN c", "drop: 'c' is not a column of the table, whose columns are a, b"),
        ("ALTER TABLE t DROP COLUMNS (a, b)", "drop: a, b: a table needs at least one column"),
        ("ALTER TABLE t RENAME COLUMN a TO b", "rename: the table has a column b already"),
        ("ALTER TABLE t UNSET TBLPROPERTIES (mine)", "table t has no property mine"),
        ("CREATE TABLE u AS SELECT a, a FROM t", "CREATE TABLE u AS has two columns a"),
        ("CREATE TABLE u AS SELECT TIME '10:00:00' AS c", "column c is time64[us], which Delta has no type for"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    numbers: alluvia.Lake, statement: str, message: str
) -> None:
    with pytest.raises(Invalid) as raised:
        numbers.sql(statement)
    assert message in str(raised.value)
    assert numbers["t"].version == 1
    assert numbers.tables() == ["t"]


def test_insert_select_streams_what_a_query_gives(numbers: alluvia.Lake) -> None:
    done = numbers.sql("INSERT INTO t (b, a) WITH x AS (FROM t) SELECT b || '!', sum(a) + 10 FROM x GROUP BY b")
    assert done.to_pylist() == [{"rows_inserted": 3, "version": 2}]
    assert rows(numbers, "SELECT a, b FROM t WHERE a > 10 ORDER BY a") == [(11, "one!"), (12, "two!"), (13, None)]
    numbers.sql("INSERT INTO t SELECT range, 'many' FROM range(100000)")
    assert rows(numbers, "SELECT count(*), sum(a) FROM t WHERE b = 'many'") == [(100_000, 4_999_950_000)]


def test_a_table_as_a_select_is_one_commit(numbers: alluvia.Lake) -> None:
    numbers.sql(
        "CREATE TABLE u SORT BY (b) AS SELECT b, count(*) AS n, 1.5 AS x, now() AS ts FROM range(3), t GROUP BY b"
    )
    assert rows(numbers, "SELECT b, n, x FROM u ORDER BY b") == [
        ("one", 3, Decimal("1.5")), ("two", 3, Decimal("1.5")), (None, 3, Decimal("1.5")),
    ]  # fmt: skip
    assert len(numbers["u"].history()) == 1
    numbers.sql("CREATE TABLE v AS SELECT 1 AS a")
    assert numbers["v"].version == 0
    with pytest.raises(TableExists):
        numbers.sql("CREATE TABLE u AS SELECT 1 AS a")


def test_update_and_delete_know_the_table_by_its_name_and_alias(numbers: alluvia.Lake) -> None:
    assert rows(numbers, "UPDATE t SET b = upper(t.b), a = t.a + 10 WHERE t.a <= 2") == [(2, 2)]
    assert rows(numbers, 'UPDATE t AS "x" SET x.b = \'t.b\' || "X".a WHERE x.b IS NULL') == [(1, 3)]
    assert rows(numbers, "FROM t ORDER BY a") == [(3, "t.b3"), (11, "ONE"), (12, "TWO")]
    assert rows(numbers, "DELETE FROM t x WHERE x.a > 11") == [(1, 4)]
    assert rows(numbers, "TRUNCATE TABLE t") == [(2, 5)]
    assert rows(numbers, "SELECT count(*) FROM t") == [(0,)]


def test_a_field_of_a_struct_with_the_name_of_the_table(lake: alluvia.Lake) -> None:
    lake.sql("CREATE TABLE t (t STRUCT(a INT), a INT); INSERT INTO t VALUES ({'a': 1}, 2)")
    lake.sql("UPDATE t SET a = t.a + 10 WHERE t.t.a = 1")
    lake.sql("CREATE TABLE u (u STRUCT(b INT)); INSERT INTO u VALUES ({'b': 1})")
    assert rows(lake, "SELECT a FROM t") == [(12,)]  # the table's column is meant first, as in DuckDB
    assert rows(lake, "DELETE FROM u WHERE u.b = 2; DELETE FROM u WHERE u.u.b = 1; SELECT count(*) FROM u") == [(0,)]


def test_a_text_that_creates_a_table_knows_that_it_is_there(lake: alluvia.Lake) -> None:
    text = "CREATE TABLE IF NOT EXISTS t AS SELECT 1 AS a; "
    assert rows(lake, text * 2 + "SELECT count(*) FROM t") == [(1,)]
    assert rows(lake, text * 2 + "SELECT count(*) FROM t") == [(1,)]
    with pytest.raises(TableExists, match="table 't' already exists: choose another name, or DROP TABLE t"):
        lake.sql("CREATE TABLE t AS SELECT error('not looked at') AS a")


def test_requests_of_statements_on_a_warm_lake(lake: alluvia.Lake) -> None:
    lake.sql("CREATE TABLE t (a BIGINT, b STRING); INSERT INTO t VALUES (1, 'one')")
    store = CountingStore(lake.store)
    warm = alluvia.Lake(store, lake.clock)
    warm.sql("SELECT count(*) FROM t")

    def cost(text: str) -> tuple[int, int]:
        """Return the PUT requests, and the GET requests for the log: data files are read by DuckDB as well."""
        store.reset()
        warm.sql(text)
        return store.requests["put"], sum(kind == "get" and "_delta_log" in key for kind, key in store.keys)

    assert cost("INSERT INTO t (a) VALUES (2)") == (2, 0)  # what an append costs
    assert cost("INSERT INTO t VALUES (3, 'two')") == (2, 1)  # looks which columns there are
    assert cost("UPDATE t SET b = 'x' WHERE a = 2") == (2, 1)  # what an update costs
    assert cost("DELETE FROM t WHERE a = 2") == (1, 1)
    assert cost("INSERT INTO t SELECT a + 1, b FROM t")[0] == 2  # one statement is one commit, whatever it reads
    assert cost("MERGE INTO t USING (SELECT 1 AS a) s ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = 'y'")[0] == 2
    assert cost("CREATE TABLE u AS SELECT a FROM t")[0] == 2
    assert cost("DELETE FROM t WHERE a IN (SELECT a FROM u WHERE a > 3)")[0] == 2


def test_alter_table(numbers: alluvia.Lake) -> None:
    numbers.sql("ALTER TABLE t ADD COLUMN c INT, ADD COLUMN d STRUCT(e DOUBLE)")
    numbers.sql("ALTER TABLE t ADD COLUMNS (e DATE); ALTER TABLE t ADD COLUMN IF NOT EXISTS C INT, f INT")
    assert numbers["t"].schema.names == ["a", "b", "c", "d", "e", "f"]
    numbers.sql("ALTER TABLE t SET TBLPROPERTIES ('mine' = 'x', delta.appendOnly = false)")
    numbers.sql("ALTER TABLE t UNSET TBLPROPERTIES ('mine'); ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS ('other')")
    assert "mine" not in numbers["t"].snapshot().properties
    numbers.sql("ALTER TABLE t CLUSTER BY (a, b)")
    assert numbers["t"].snapshot().settings.cluster_by == ("a", "b")
    numbers.sql("ALTER TABLE t CLUSTER BY NONE; ALTER TABLE t SORT BY (a)")
    assert numbers["t"].snapshot().settings.sort_by == ("a",)
    numbers.sql("ALTER TABLE t ADD CONSTRAINT positive CHECK (a > 0)")
    with pytest.raises(Invalid, match="CHECK constraint positive"):
        numbers.sql("INSERT INTO t (a) VALUES (0)")
    numbers.sql("ALTER TABLE t DROP CONSTRAINT positive; INSERT INTO t (a) VALUES (0)")
    numbers.sql("ALTER TABLE t DROP CONSTRAINT IF EXISTS positive")
    assert rows(numbers, "SELECT count(*) FROM t WHERE a = 0") == [(1,)]


def test_drop_undrop_restore_optimize_and_vacuum(numbers: alluvia.Lake) -> None:
    numbers.sql("INSERT INTO t (a) VALUES (4)")
    assert rows(numbers, "RESTORE TABLE t TO VERSION AS OF 1") == [("t", 1, 3)]
    assert rows(numbers, "RESTORE TABLE t TO OFFSET '0 seconds ago'") == [("t", 3, 3)]
    with pytest.raises(Invalid, match="expected VERSION AS OF, TIMESTAMP AS OF, OFFSET or TAG, got NOW"):
        numbers.sql("RESTORE TABLE t TO NOW")
    assert rows(numbers, "SELECT count(*) FROM t") == [(3,)]
    numbers.sql("DROP TABLE t")
    with pytest.raises(TableNotFound):
        numbers.sql("SELECT 1 FROM t")
    with pytest.raises(TableNotFound):
        numbers.sql("DROP TABLE t")
    numbers.sql("DROP TABLE IF EXISTS t")
    assert rows(numbers, "UNDROP TABLE t")[0][:2] == ("t", 1)
    numbers.sql("INSERT INTO t (a) VALUES (5)")
    assert rows(numbers, "OPTIMIZE t")[0][:3] == ("t", 2, 1)
    assert rows(numbers, "VACUUM t RETAIN 240 HOURS DRY RUN") == [("t", 0, 0, 0)]
    assert rows(numbers, "SELECT sum(a) FROM t") == [(11,)]


def test_describe_detail_and_history(numbers: alluvia.Lake) -> None:
    [detail] = numbers.sql("DESCRIBE DETAIL t").to_pylist()
    assert (detail["name"], detail["version"], detail["files"]) == ("t", 1, 1)
    history = numbers.sql("DESCRIBE HISTORY t LIMIT 1").to_pylist()
    assert [(entry["version"], entry["files_added"]) for entry in history] == [(1, 1)]
    assert [row[0] for row in rows(numbers, "DESCRIBE t")] == ["a", "b"]


def test_several_statements_are_one_transaction(numbers: alluvia.Lake) -> None:
    numbers.sql("CREATE TABLE u (n BIGINT)")
    answer = numbers.sql(
        "INSERT INTO u SELECT sum(a) FROM t; UPDATE t SET a = a + 1; SELECT 'not the last'; "
        "SELECT (SELECT sum(a) FROM t), n FROM u; DELETE FROM u"
    )
    assert [tuple(row.values()) for row in answer.to_pylist()] == [(9, 6)]
    assert rows(numbers, "SELECT (SELECT count(*) FROM u), sum(a) FROM t") == [(0, 9)]


@pytest.mark.parametrize("end", ["SELECT error('stop')", "SELECT * FROM nothing", "INSERT INTO t (a) VALUES ('x')"])
def test_what_fails_undoes_the_writes_before_it(numbers: alluvia.Lake, end: str) -> None:
    with pytest.raises((Invalid, TableNotFound)):
        numbers.sql(f"CREATE TABLE u (a INT); INSERT INTO u VALUES (1); DELETE FROM t; {end}; SELECT 1")
    assert numbers.tables() == ["t"]
    assert rows(numbers, "SELECT count(*) FROM t") == [(3,)]


@pytest.mark.parametrize("alone", ["OPTIMIZE t", "VACUUM t", "UNDROP TABLE t"])
def test_what_no_transaction_can_hold_is_refused_among_others(numbers: alluvia.Lake, alone: str) -> None:
    with pytest.raises(
        Invalid, match=f"{alone.split(maxsplit=1)[0]} cannot be part of a transaction: send it in a text of its own"
    ):
        numbers.sql(f"INSERT INTO t (a) VALUES (4); {alone}")
    assert rows(numbers, "SELECT count(*) FROM t") == [(3,)]


def test_a_text_runs_again_where_what_it_read_has_changed(
    numbers: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An increment by reading and writing is never lost: here the other writer commits between the two."""
    others = iter(range(2))
    append = fitted

    def interrupted(*args: Any, **options: Any) -> Any:
        if next(others, None) is not None:
            alluvia.connect(numbers.uri).table("t").append([{"a": 100}])
        return append(*args, **options)

    monkeypatch.setattr(writing, "fitted", interrupted)
    numbers.sql("INSERT INTO t (a, b) SELECT sum(a), 'total' FROM t")
    assert rows(numbers, "SELECT a FROM t WHERE b = 'total'") == [(206,)]


@pytest.mark.parametrize("text", ["UPDATE t SET a = {slow}", "DELETE FROM t WHERE {slow} = 1"])
def test_a_change_of_rows_ends_within_a_file_when_its_time_is_up(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    lake.sql("CREATE TABLE t AS SELECT range AS a FROM range(300000)")
    monkeypatch.setattr(QueryLimits, "check", lambda _: None)  # it looks between files
    slow = "levenshtein(repeat('ab', 100 + a % 3), repeat('ba', 100))"
    with pytest.raises(QueryTooCostly, match=r"longer than the 0\.3 seconds allowed"):
        execute(lake, text.format(slow=slow), limits=QueryLimits(timeout_seconds=0.3))
    assert lake.table("t").version == 0


def test_create_or_replace_is_one_commit_that_older_versions_outlive(numbers: alluvia.Lake) -> None:
    numbers.sql("ALTER TABLE t SET TBLPROPERTIES ('note' = 'old')")
    before = numbers.table("t").version
    done = numbers.sql(
        "CREATE OR REPLACE TABLE t PARTITION BY (a) AS SELECT b AS a, a * 2.5 AS twice FROM t WHERE a > 1"
    )
    assert done.to_pylist() == [{"table": "t", "rows_inserted": 2, "version": before + 1}]
    table = alluvia.connect(numbers.uri).table("t")
    assert rows(numbers, "SELECT a, twice::DOUBLE FROM t ORDER BY twice") == [("two", 5.0), (None, 7.5)]
    assert (table.snapshot().partition_columns, table.snapshot().properties.get("note")) == (("a",), None)
    assert rows(numbers, f"SELECT a, b FROM t(version => {before}) ORDER BY a")[0] == (1, "one")
    assert table.verify(full=True).ok
    assert table.changes(1, before).read_all().num_rows == 3
    with pytest.raises(Invalid, match=f"ask for the changes up to {before}, or from {before + 2} on"):
        table.changes(1)
    for read in (deltalake_rows, duckdb_rows):
        assert read(table) == canonical(table.to_arrow())
    table.restore(version=before)
    assert rows(numbers, "SELECT a, b FROM t ORDER BY a")[0] == (1, "one")


def test_create_or_replace_where_there_is_no_table_or_it_was_dropped_or_has_rollups(numbers: alluvia.Lake) -> None:
    assert numbers.sql("CREATE OR REPLACE TABLE u (a INT)").to_pylist()[0]["version"] == 0
    numbers.sql("DROP TABLE u")
    numbers.sql(
        "CREATE OR REPLACE TABLE u (b INT); INSERT INTO u VALUES (7); CREATE OR REPLACE TABLE u AS SELECT 8 AS c"
    )
    assert rows(numbers, "SELECT c FROM u") == [(8,)]
    with pytest.raises(Invalid, match="contradicts itself"):
        numbers.sql("CREATE OR REPLACE TABLE IF NOT EXISTS u (b INT)")
    numbers.create_rollup("r", "SELECT a, count(*) AS n FROM t GROUP BY a")
    with pytest.raises(Invalid, match="table t is the source of r: drop it first"):
        numbers.sql("CREATE OR REPLACE TABLE t (a INT)")
    numbers.sql("ALTER TABLE u SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    with pytest.raises(Invalid, match="appendOnly"):
        numbers.sql("CREATE OR REPLACE TABLE u (a INT)")
