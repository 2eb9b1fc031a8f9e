"""Table functions of a lake in SQL: versions, partitions, columns, changes and tables, what they cost and show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest

import alluvia
from alluvia.access.rights import Grant, Rights
from alluvia.api.lake import Lake
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.engine.queries.functions import INFORMATION_SCHEMA_VIEWS, LAKE_FUNCTIONS
from alluvia.errors import Forbidden, Invalid, TableNotFound, VersionNotFound
from alluvia.query.engine import columns, run
from alluvia.query.identity import identify
from alluvia.query.inspecting import OF_LAKES, OF_TABLES
from alluvia.query.limits import QueryLimits
from alluvia.query.permitted import permitted
from alluvia.sql.run import execute
from tests.unit.query.inspected import READ, ask, counted, filled


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return filled(alluvia.connect(tmp_path_factory.mktemp("lake")))


def test_every_function_has_something_that_answers_it() -> None:
    assert {*OF_TABLES, *OF_LAKES} == {
        *LAKE_FUNCTIONS,
        *(f"information_schema.{each}" for each in INFORMATION_SCHEMA_VIEWS),
    }


def test_history_says_what_each_version_holds_and_can_be_joined(lake: Lake) -> None:
    found = ask(lake, "SELECT version, operation, files, rows, readable FROM history('orders') ORDER BY version")
    assert [tuple(each.values()) for each in found] == [
        (0, "CREATE TABLE", 0, 0, True),
        (1, "WRITE", 1, 4, True),
        (2, "WRITE", 2, 8, True),
        (3, "WRITE", 3, 12, True),
        (4, "DELETE", 3, 11, True),
    ]
    for version in range(5):
        snapshot = lake["orders"].snapshot(version)
        assert ask(lake, f"SELECT files, bytes FROM history('orders') WHERE version = {version}") == [
            {"files": len(snapshot.files), "bytes": sum(file.size for file in snapshot.files)}
        ]
    assert ask(lake, "SELECT version FROM history('orders', 2) WHERE version < 4") == [{"version": 3}]
    said = ask(
        lake, "SELECT parameters['mode'] AS mode, metrics['numOutputRows'] AS n FROM history('orders', 2) LIMIT 2"
    )
    assert said[1] == {"mode": "Append", "n": "4"}


def test_what_a_version_held_is_known_after_a_restore_and_a_checkpoint(tmp_path: Path) -> None:
    lake = filled(alluvia.connect(tmp_path / "lake"))
    table = lake["orders"]
    table.restore(2)
    table.checkpoint()
    table.optimize()
    table.delete("land = 'de'")
    fresh = alluvia.connect(tmp_path / "lake")
    expected = {
        version: (len(at.files), fresh["orders"].count(version), sum(file.size for file in at.files))
        for version in range(fresh["orders"].version + 1)
        for at in [fresh["orders"].snapshot(version)]
    }
    found = ask(fresh, "SELECT version, files, rows, bytes FROM history('orders')")
    assert {each["version"]: (each["files"], each["rows"], each["bytes"]) for each in found} == expected
    newest = max(expected)
    part = ask(fresh, f"SELECT version, files, rows, bytes FROM history('orders') WHERE version > {newest - 2}")
    assert {each["version"]: (each["files"], each["rows"], each["bytes"]) for each in part} == {
        version: expected[version] for version in (newest, newest - 1)
    }


def test_files_and_partitions_of_an_old_version_and_by_named_arguments(lake: Lake) -> None:
    assert ask(lake, "SELECT count(*) AS n FROM files('orders', version => 1)") == [{"n": 1}]
    for where in ("where", '"where"', "WHERE"):
        sql = f"SELECT count(*) AS n FROM files('orders', {where} => 'id < 20', version => 3)"
        assert ask(lake, sql) == [{"n": 1}]
    assert ask(lake, "FROM history('orders', limit => 1)") == ask(lake, "FROM history('orders') LIMIT 1")
    assert len(ask(lake, "FROM partitions('orders', offset => '0 seconds ago', where := 'id < 20')")) == 1
    lake["orders"].tag("first", version=1)
    assert len(ask(lake, "FROM files('orders', tag => 'first')")) == 1
    for moment in ("timestamp => '1999-01-01'", "offset => '1000 weeks ago'"):
        with pytest.raises(VersionNotFound):
            ask(lake, f"FROM files('orders', {moment})")
    found = ask(lake, "SELECT partition_values['land'] AS land, sum(files) AS files, sum(rows) AS rows "
                      "FROM partitions('orders') GROUP BY 1 ORDER BY 1")  # fmt: skip
    assert found == [{"land": "de", "files": 2, "rows": 7}, {"land": "fr", "files": 1, "rows": 4}]
    assert len(ask(lake, "FROM partitions('orders', 'land = ''fr''')")) == 1
    assert len(ask(lake, "FROM partitions('orders', version => 2)")) == 2
    assert ask(lake, "FROM partitions('users')") == []


def test_columns_have_their_types_and_what_all_files_say(lake: Lake) -> None:
    found = ask(lake, "SELECT name, type, nullable, partition, min, max, null_count FROM columns('orders')")
    assert [tuple(each.values()) for each in found] == [
        ("id", "long", False, False, "10", "33", 0),
        ("ts", "timestamp", True, False, "2024-01-01 00:00:00+00:00", "2024-01-03 03:00:00+00:00", 0),
        ("kind", "string", True, False, "kind-1", "kind-3", 0),
        ("land", "string", True, True, "de", "fr", 0),
        ("ok", "boolean", True, False, None, None, 12),
        ("place", "struct<zip:integer,city:string>", True, False, None, None, None),
    ]
    assert ask(lake, "FROM table_columns('orders')") == ask(lake, "SELECT columns.* FROM columns('orders')")
    assert ask(lake, "SELECT min, null_count FROM columns('users')") == [{"min": None, "null_count": 0}]


def test_changes_are_those_of_the_feed(lake: Lake) -> None:
    for arguments, (first, last) in {"1": (1, None), "2, 3": (2, 3), '4, "to" => 4': (4, 4)}.items():
        feed = lake["orders"].changes(first, last).read_all()
        found = lake.sql(f"FROM changes('orders', {arguments})")
        assert found.column_names == feed.column_names
        assert found.to_pylist() == feed.to_pylist()
    assert ask(lake, "SELECT id FROM changes('orders', 1) WHERE _change_type = 'delete'") == [{"id": 21}]
    with pytest.raises(QueryTooCostly, match="bytes allowed by max_bytes"):
        run(lake.catalog, "FROM changes('orders', 1)", QueryLimits(asked_bytes=10))
    with pytest.raises(QueryTooCostly, match=r"changes\(\) gives more rows"):
        run(lake.catalog, "FROM changes('orders', 1)", QueryLimits(spill_bytes=10))


def test_tables_are_listed_with_what_they_hold(lake: Lake) -> None:
    found = ask(lake, "SELECT name, version, files, rows, bytes > 0 AS some, error FROM tables() ORDER BY name")
    assert [tuple(each.values()) for each in found] == [
        ("orders", 4, 3, 11, True, None),
        ("users", 0, 0, 0, False, None),
    ]


def test_a_damaged_table_does_not_hide_the_others(tmp_path: Path) -> None:
    filled(alluvia.connect(tmp_path / "lake"))
    (tmp_path / "lake/users/_delta_log/00000000000000000000.json").write_text("{}")
    found = ask(alluvia.connect(tmp_path / "lake"), "SELECT name, rows, error FROM tables() ORDER BY name")
    assert found[0] == {"name": "orders", "rows": 11, "error": None}
    assert "the log holds no protocol" in str(found[1]["error"])


def test_what_is_asked_composes_with_sql(lake: Lake) -> None:
    text = """
        WITH big AS (SELECT path, rows FROM files('orders') WHERE rows > 3)
        SELECT count(*) AS n, (SELECT count(*) FROM orders) AS all_rows,
               (SELECT max(version) FROM history('orders')) AS newest
        FROM big JOIN files('orders') AS f USING (path)
    """
    assert ask(lake, text) == [{"n": 2, "all_rows": 11, "newest": 4}]
    assert ask(lake, "SELECT f.statistics.id.max AS m FROM files('orders') f ORDER BY m DESC LIMIT 1") == [{"m": 33}]
    [row] = ask(lake, "SELECT f FROM files('orders', 'id = 30') AS f")
    assert row["f"]["statistics"]["id"]["min"] == 30  # type: ignore[index]
    assert len(ask(lake, "SELECT t.a FROM tables() AS t (a)")) == 2
    lake.sql("CREATE OR REPLACE VIEW sizes AS SELECT sum(bytes) AS bytes FROM files('orders')")
    assert ask(lake, "FROM sizes") == ask(lake, "SELECT sum(bytes) AS bytes FROM files('orders')")


def test_a_transaction_asks_about_what_it_has_written(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.sql("INSERT INTO users VALUES ('Ada')")
        assert tx.sql("SELECT rows FROM files('users')").to_pylist() == [{"rows": 1}]
        assert tx.sql("SELECT name, rows FROM tables() WHERE name = 'users'")["rows"].to_pylist() == [1]
        with pytest.raises(Invalid, match=r"name the last version, as in changes\('users', 0, 0\)"):
            tx.sql("FROM changes('users', 0)")
        assert not len(tx.sql("FROM changes('users', 0, 0)"))
        tx.rollback()


def test_a_table_of_such_a_name_is_still_there_at_a_time(own_lake: Lake) -> None:
    own_lake.create_table("files", {"n": "long"}).append([{"n": 1}])
    assert ask(own_lake, "FROM files") == [{"n": 1}]
    assert ask(own_lake, "FROM files('2999-01-01')") == [{"n": 1}]
    assert ask(own_lake, "FROM files(version => 0)") == []
    assert ask(own_lake, "SELECT rows FROM files('files')") == [{"rows": 1}]


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("FROM files('nope')", TableNotFound, "the lake has no table 'nope'; the tables are: orders, users"),
        ("FROM files('german')", Invalid, r"german is a view: files\(\) takes a table"),
        ("FROM files(3)", Invalid, r"needs the name of a table as text first, as in files\('events'\)"),
        ("FROM files('2024-01-01')", Invalid, r"files\(\) needs the name of a table as text first"),
        ("FROM files('orders', 3)", Invalid, "where: expected a condition as text"),
        ("FROM files('orders', 'nope > 3')", Invalid, 'Referenced column "nope" not found'),
        ("FROM files('orders', 'id > 3 ORDER BY id')", Invalid, "syntax error at or near"),
        ("FROM files('orders', 'true) FROM rows --')", Invalid, "."),
        ("FROM files('orders', 'id > (SELECT 1)')", Invalid, "subqueries"),
        ("FROM files('orders', 'getenv(''HOME'') > ''a''')", Invalid, r"getenv\(\) is not allowed"),
        ("FROM files('orders', limit => 3)", Invalid, "takes these arguments, each once: table, where, version"),
        ("FROM files('orders', version => 1, \"timestamp\" => 'x')", Invalid, "version, timestamp: give one of them"),
        ("FROM history('orders', -1)", Invalid, "limit: expected a whole number, 0 or more"),
        ("FROM history('orders', version => 1)", Invalid, "takes these arguments, each once: table, limit"),
        ("FROM history('orders', 'x')", Invalid, "limit: expected a whole number"),
        ("FROM changes('orders')", Invalid, r"needs the first version, as in changes\('orders', 1\)"),
        ("FROM changes('orders', 1, \"expired\" => 'yes')", Invalid, "expired: expected true or false"),
        ("FROM changes('orders', 9)", Invalid, "9 is greater than the last version"),
        ("FROM orders, files(orders.kind)", Invalid, "needs the name of a table as text first"),
    ],
)
def test_a_call_that_is_wrong_says_what_to_write(lake: Lake, sql: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ask(lake, sql)


def test_arguments_cannot_be_parameters(lake: Lake) -> None:
    with pytest.raises(Invalid, match=r"the argument where of files\(\) cannot be a parameter"):
        lake.sql("FROM files('orders', $where)", {"where": "id = 1"})


def test_planning_gives_the_columns_without_rows(lake: Lake) -> None:
    assert columns(lake.catalog, "SELECT path, statistics.id FROM files('orders')").names == ["path", "id"]
    described = ask(lake, "DESCRIBE FROM changes('orders', 1)")
    assert [each["column_name"] for each in described][-3:] == ["_change_type", "_commit_version", "_commit_timestamp"]
    assert lake.sql("EXPLAIN FROM files('orders')")["plan"][-1].as_py()


@pytest.mark.parametrize(
    ("call", "files"),
    [("files('orders')", 0), ("row_groups('orders')", 3), ("row_groups('orders', 'id > 30')", 1), ("tables()", None)],
)
def test_a_dry_run_says_which_data_files_would_be_read(lake: Lake, call: str, files: int | None) -> None:
    with run(lake.catalog, f"FROM {call}", dry_run=True) as result:
        found = result.read_all().to_pylist()
    if files is None:
        assert [each["table"] for each in found] == [None]
        return
    assert (found[0]["table"], found[0]["version"], found[0]["files_read"]) == ("orders", 4, files)
    assert bool(found[0]["bytes_read"]) is bool(files)


def test_a_dry_run_of_changes_counts_the_files_that_came_and_went(lake: Lake) -> None:
    with run(lake.catalog, "FROM changes('orders', 3)", dry_run=True) as result:
        [scan, _] = result.read_all().to_pylist()
    third = max(lake["orders"].snapshot(3).files, key=lambda file: file.partition_values["land"] or "")
    assert (scan["files_read"], scan["requests"]) == (3, 3)  # one added, and one whose vector changed
    assert scan["bytes_read"] >= third.size


def test_answers_are_not_kept(lake: Lake) -> None:
    assert identify(lake.catalog, "SELECT count(*) FROM orders") is not None
    assert identify(lake.catalog, "SELECT count(*) FROM files('orders')") is None
    assert identify(lake.catalog, "SELECT count(*) FROM tables()") is None


def test_no_data_file_is_read_but_for_row_groups_and_changes() -> None:
    lake, store = counted()
    look = {"get": 1}
    for call, requests in {
        "files('orders')": look,
        "files('orders', 'id > 20')": look,
        "files('orders', version => 2)": {"get": 1 + 3, "list": 1},
        "partitions('orders')": look,
        "table_columns('orders')": look,
        "history('orders')": {"get": 1 + 5 + 1, "list": 2},
        "row_groups('orders')": {"get": 1 + 3},
        "row_groups('orders', 'land = ''fr''')": {"get": 1 + 1},
    }.items():
        store.reset()
        lake.sql(f"FROM {call}")
        assert dict(store.requests) == requests, call
        data = [key for _, key in store.keys if key.endswith(".parquet")]
        assert bool(data) is call.startswith("row_groups"), call
    store.reset()
    lake.sql("SELECT version, operation FROM history('orders', 2)")
    assert dict(store.requests) == {"get": 1 + 2, "list": 1}


@pytest.mark.parametrize(
    ("sql", "looks"),
    [
        ("SELECT name FROM tables()", 0),
        ("SELECT name, rows FROM tables() WHERE name = 'users'", 1),
        ("SELECT name, rows FROM tables() WHERE name LIKE 'o%' OR name IN ('a', 'b')", 1),
        ("FROM tables()", 2),
    ],
)
def test_tables_are_opened_only_as_the_query_needs(sql: str, looks: int) -> None:
    lake, store = counted()
    lake.sql(sql)
    assert store.requests["get"] == looks


def in_part(where: str | None = "land = 'de'", hide: Sequence[str] = ()) -> Rights:
    return Rights((Grant(READ, ("orders",), where, frozenset(hide)),))


@pytest.mark.parametrize("call", ["history", "files", "partitions", "row_groups", "changes"])
@pytest.mark.parametrize("rights", [in_part(), in_part(None, ("kind",))], ids=["filter", "hidden"])
def test_what_would_tell_of_hidden_rows_and_columns_is_refused(lake: Lake, call: str, rights: Rights) -> None:
    with pytest.raises(Forbidden, match=rf"may read orders only in part, and {call}\(\) would reveal the rest"):
        execute(lake, f"FROM {call}('orders'{', 1' if call == 'changes' else ''})", rights=rights)


def test_a_caller_is_told_of_what_it_may_read(lake: Lake) -> None:
    def told(sql: str, rights: Rights) -> list[dict[str, object]]:
        found: list[dict[str, object]] = run(permitted(lake.catalog, rights), sql).read_all().to_pylist()
        return found

    hiding, filtering = in_part(None, ("kind", "place")), in_part(hide=("kind",))
    named = "SELECT name, max FROM columns('orders') WHERE name IN ('id', 'kind')"
    assert told(named, hiding) == [{"name": "id", "max": "33"}]
    assert told(named, filtering) == [{"name": "id", "max": None}]
    assert told("FROM tables()", filtering) == [
        {"name": "orders"} | dict.fromkeys(["version", "committed_at", "files", "rows", "bytes", "comment", "error"])
    ]
    whole = Rights((Grant(READ, ("orders",)),))
    assert [each["rows"] for each in told("FROM tables()", whole)] == [11]
    assert len(told("FROM files('orders')", whole)) == 3
    for call in ("files", "history", "columns"):
        with pytest.raises(Forbidden, match="this needs the scope read:users"):
            told(f"FROM {call}('users')", whole)


def test_history_of_a_table_in_the_place_of_another_is_its_own(own_lake: Lake) -> None:
    own_lake.create_table("t", {"n": "long"}).append([{"n": 1}])
    own_lake.drop_table("t")
    own_lake.create_table("t", {"m": "string"}).append([{"m": "x"}, {"m": "y"}])
    found = ask(own_lake, "SELECT version, files, rows FROM history('t')")
    assert [tuple(each.values()) for each in found] == [(4, 1, 2), (3, 0, 0)]


def test_a_condition_is_read_in_a_process_that_can_be_killed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(lake, "FROM files('orders', 'lower(kind) = ''kind-1''')")  # what this process reads once is read
    read: list[str] = []
    tokenize = duckdb.tokenize

    def noted(text: str) -> object:
        read.append(text)
        return tokenize(text)

    monkeypatch.setattr(duckdb, "tokenize", noted)
    assert len(ask(lake, "FROM files('orders', 'upper(kind) = ''KIND-1'' AND id < 10 + 5')")) == 1
    assert not read
