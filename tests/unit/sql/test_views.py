"""Views: what they show, what they refuse, and that a reader of one gets no more than of its tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

import alluvia
from alluvia.errors import Conflict, Invalid, TableExists, TableNotFound
from alluvia.operations.catalog.views import find_view, write_view
from tests.unit.sql.selected import rows


@pytest.fixture
def viewed(lake: alluvia.Lake) -> alluvia.Lake:
    """A table `t` of a file a day, and the view `late` of the days from the third.

    The view comes first: a query whose rows nobody takes, as it is tried with, would end its process.
    """
    lake.sql("CREATE TABLE t (day DATE, n BIGINT) PARTITION BY (day)")
    lake.sql("CREATE VIEW late AS SELECT day, n, n * 10 AS tens FROM t WHERE day >= '2026-01-03' -- from then on")
    for day in range(1, 6):
        lake.table("t").append([{"day": dt.date(2026, 1, day), "n": day}])
    return lake


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT n FROM late ORDER BY n", [(3,), (4,), (5,)]),
        ("SELECT late.n FROM late WHERE late.tens = 40", [(4,)]),
        ('SELECT "L".n FROM LATE AS "L" JOIN t USING (n) WHERE t.n > 4', [(5,)]),
        ("TABLE late ORDER BY n DESC LIMIT 1", [(dt.date(2026, 1, 5), 5, 50)]),
        ("FROM late SELECT count(*), (SELECT min(n) FROM late)", [(3, 3)]),
        ("WITH late AS (SELECT 7 AS n) FROM late", [(7,)]),
        ("SELECT n FROM t SEMI JOIN late USING (n) WHERE n < 4", [(3,)]),
        ("SELECT x FROM late AS v(a, x, b) WHERE x = 3", [(3,)]),
        ("SELECT column_name FROM (DESCRIBE late)", [("day",), ("n",), ("tens",)]),
        ("FROM (PIVOT (SELECT n, tens FROM late) ON n IN (3) USING sum(tens))", [(30,)]),
    ],
)
def test_a_view_is_what_its_query_gives(viewed: alluvia.Lake, query: str, expected: list[Any]) -> None:
    found = rows(viewed, query)
    assert found[: len(expected)] == expected


def test_describe_and_explain_a_view(viewed: alluvia.Lake) -> None:
    assert rows(viewed, "DESCRIBE late")[0][:2] == ("day", "date")
    [first, *_] = viewed.sql("EXPLAIN SELECT n FROM late WHERE day = '2026-01-04'").to_pylist()
    assert (first["table"], first["files_total"], first["files_read"]) == ("t", 5, 1)  # conditions reach the table
    assert rows(viewed, "SELECT sum(n) FROM late WHERE n > ?", [3]) == [(9,)]


def test_views_of_views_and_of_versions(viewed: alluvia.Lake) -> None:
    viewed.sql("CREATE VIEW last AS WITH x AS (FROM late) SELECT max(n) AS n FROM x")
    viewed.sql("CREATE VIEW early AS SELECT count(*) AS n FROM t(version => 2)")
    assert rows(viewed, "SELECT last.n, early.n AS m FROM last, early") == [(5, 2)]
    viewed.sql("CREATE OR REPLACE VIEW late AS SELECT 1 AS n, day FROM t")
    assert rows(viewed, "FROM last") == [(1,)]
    assert [row[0::2] for row in rows(viewed, "SHOW VIEWS")][1] == ("last", 0, None)
    assert rows(viewed, "SHOW CREATE VIEW late") == [("CREATE VIEW late AS SELECT 1 AS n, day FROM t",)]
    assert viewed.tables() == ["t"]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("CREATE VIEW late AS SELECT 1", TableExists, "view late already exists: CREATE OR REPLACE VIEW"),
        ("CREATE VIEW t AS SELECT 1", TableExists, "there is a table t"),
        ("CREATE TABLE late (a INT)", TableExists, "there is a view late: DROP VIEW late first"),
        ("CREATE TABLE late AS SELECT 1 AS a", TableExists, "there is a view late"),
        ("CREATE VIEW v AS SELECT * FROM nothing", TableNotFound, "the lake has no table 'nothing'"),
        ("CREATE VIEW v AS SELECT nothing FROM t", Invalid, "nothing"),
        ("CREATE VIEW v AS SELECT ? AS a", Invalid, "CREATE VIEW cannot have the parameter ?"),
        ("CREATE VIEW v AS DELETE FROM t", Invalid, "only a SELECT can be run here"),
        ("CREATE VIEW v AS SELECT getenv('HOME')", Invalid, "getenv"),
        ("CREATE VIEW v AS SELECT * FROM read_csv('/etc/passwd')", Invalid, "read_csv() is neither a table"),
        ("CREATE VIEW v (a, b) AS SELECT 1", Invalid, "has 1 columns available but 2 columns specified"),
        ("CREATE VIEW t_final AS SELECT 1", Invalid, "cannot end with _live, _final, _freshness"),
        ("CREATE OR REPLACE VIEW late AS SELECT * FROM late", Invalid, "view late cannot read itself"),
        ("DROP VIEW nothing", TableNotFound, "the lake has no view 'nothing'"),
        ("DROP VIEW t", TableNotFound, "t is a table: DROP TABLE t drops it"),
        ("SELECT * FROM late(version => 1)", TableNotFound, "late is a view, which has no versions"),
        ("SELECT * FROM late AT (VERSION => 1)", TableNotFound, "late is a view, which has no versions"),
        ("WITH t AS (SELECT 1) FROM late, t", Invalid, "the common table expression t has the name of a table that"),
        ("INSERT INTO late VALUES (1)", TableNotFound, "late is a view: INSERT needs a table"),
        ("DROP TABLE late", TableNotFound, "late is a view: DROP VIEW late drops it"),
        ("DROP TABLE IF EXISTS late", TableNotFound, "late is a view: DROP VIEW late drops it"),
        ("DROP VIEW IF EXISTS t", TableNotFound, "t is a table: DROP TABLE t drops it"),
        ("INSERT INTO t SELECT * FROM nothing", TableNotFound, "the lake has no table 'nothing'"),
        ("DESCRIBE DETAIL late", Invalid, "late is a view: SHOW CREATE VIEW late"),
        ("SELECT 1; CREATE VIEW v AS SELECT 1", Invalid, "CREATE VIEW cannot be part of a transaction"),
        ("SELECT nope FROM late", Invalid, "nope"),
    ],
)  # fmt: skip
def test_what_a_view_cannot_do(viewed: alluvia.Lake, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        viewed.sql(text)
    assert message in str(raised.value)
    assert rows(viewed, "SELECT count(*) FROM late") == [(3,)]
    assert rows(viewed, "SELECT name FROM (SELECT 'late' AS name)") == [("late",)]


@pytest.mark.parametrize(
    "use",
    [
        lambda lake: lake.drop_table("late"),
        lambda lake: lake.clone("late", "copied"),
        lambda lake: lake["late"].history(),
        lambda lake: lake["late"].count(),
        lambda lake: lake["late"].schema,
        lambda lake: lake["late"].append([{"n": 1}]),
        lambda lake: lake["late"].delete("n = 1"),
        lambda lake: lake["late"].optimize(),
    ],
)
def test_methods_of_tables_say_that_a_name_is_a_view(
    viewed: alluvia.Lake, use: Callable[[alluvia.Lake], object]
) -> None:
    with pytest.raises(
        TableNotFound, match=r"^there is no table 'late', but a view: DESCRIBE late shows it, DROP VIEW"
    ):
        use(viewed)
    with pytest.raises(TableNotFound, match=r"^there is no table 'lat'$"):
        viewed["lat"].history()


def test_an_error_in_a_query_with_views_shows_the_users_text(viewed: alluvia.Lake) -> None:
    with pytest.raises(Invalid) as raised:
        viewed.sql("SELECT n, nope FROM late WHERE true")
    assert "LINE 1: SELECT n, nope FROM late WHERE true\n                  ^" in str(raised.value)


def test_a_circle_of_views_is_refused(viewed: alluvia.Lake) -> None:
    viewed.sql("CREATE VIEW a AS FROM late")
    with pytest.raises(Invalid, match="view late cannot read itself, also not by way of other views"):
        viewed.sql("CREATE OR REPLACE VIEW late AS FROM a")
    # Two writers at once can still make one.
    write_view(viewed.store, viewed.clock, "late", "FROM a", known=find_view(viewed.store, "late"))
    with pytest.raises(Invalid, match="views are nested more than 16 deep, or in a circle: a, late"):
        viewed.sql("FROM late")


def test_a_dropped_view_is_gone_and_may_come_again(viewed: alluvia.Lake) -> None:
    assert rows(viewed, "DROP VIEW late") == [("late", 1)]
    with pytest.raises(TableNotFound):
        viewed.sql("FROM late")
    assert viewed.sql("SHOW VIEWS").num_rows == 0
    viewed.sql("DROP VIEW IF EXISTS late")
    viewed.sql("CREATE TABLE late (a INT)")
    viewed.sql("DROP TABLE late")
    assert rows(viewed, "CREATE VIEW IF NOT EXISTS late AS SELECT 1 AS a") == [("late", 2)]
    assert rows(viewed, "CREATE VIEW IF NOT EXISTS late AS SELECT 2 AS a") == [("late", 2)]
    assert rows(viewed, "FROM late") == [(1,)]


def test_one_of_two_writers_of_a_view_wins(viewed: alluvia.Lake) -> None:
    known = find_view(viewed.store, "late")
    write_view(viewed.store, viewed.clock, "late", "SELECT 1", known=known)
    with pytest.raises(Conflict, match="view late was changed by another writer meanwhile"):
        write_view(viewed.store, viewed.clock, "late", "SELECT 2", known=known)


def test_a_view_in_a_transaction_shows_what_the_transaction_wrote(viewed: alluvia.Lake) -> None:
    assert rows(viewed, "DELETE FROM t WHERE n = 5; SELECT max(n) FROM late") == [(4,)]


def test_views_that_double_each_other_are_limited(viewed: alluvia.Lake) -> None:
    viewed.sql(f"CREATE VIEW v0 AS SELECT n, '{'x' * 20_000}' AS x FROM t")
    viewed.sql("CREATE VIEW v1 AS FROM v0 UNION ALL FROM v0 UNION ALL FROM v0 UNION ALL FROM v0")
    viewed.sql("CREATE VIEW v2 AS FROM v1 UNION ALL FROM v1")
    with pytest.raises(Invalid, match="with its views, the query has more than 262144 bytes"):
        viewed.sql("FROM v2 UNION ALL FROM v2")
