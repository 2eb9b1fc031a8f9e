"""What does not work says why, and what to do instead."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ibis
import ibis.common.exceptions as exc
import pyarrow as pa
import pytest
from ibis import _

import alluvia
from alluvia.errors import Invalid, NotInstalled, TableNotFound, VersionNotFound

MANY = pa.table({"n": range(20_001)})


@ibis.udf.scalar.python  # type: ignore[untyped-decorator]  # ibis has no types
def doubled(n: int) -> int:
    return 2 * n


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "table": (lambda c: c.table("nope"), TableNotFound, "no table 'nope'; the tables are: "),
    "ibis's own error": (lambda c: c.table("nope"), exc.TableNotFound, "no table 'nope'"),
    "rejects": (lambda c: c.table("_rejects", database="users"), TableNotFound, "users[./]_rejects"),
    "database": (lambda c: c.table("users", database="other"), exc.TableNotFound, r"no table 'other\.users'"),
    "listed database": (lambda c: c.list_tables(database="other"), Invalid, "there is no schema 'other'"),
    "a table's database": (
        lambda c: c.create_table("x", MANY, database="other"),
        TableNotFound,
        "there is no schema .other.*CREATE SCHEMA other",
    ),
    "a catalog": (lambda c: c.table("users", database=("other", "main")), Invalid, "the one catalog is memory"),
    "a catalog to list": (lambda c: c.list_databases(catalog="other"), Invalid, "a lake has memory alone"),
    "a schema in a name": (lambda c: c.table("a.users"), Invalid, "give 'users' alone, and database='a'"),
    "a path": (lambda c: c.drop_table("main/users"), Invalid, "name 'main/users'"),
    "a path as database": (lambda c: c.drop_table("users", database="main/"), Invalid, "name 'users'"),
    "a database's name": (lambda c: c.create_database('x"; DROP TABLE users'), Invalid, "schema name"),
    "a name of engines": (lambda c: c.create_database("pg_catalog"), Invalid, "schema name 'pg_catalog'"),
    "version": (lambda c: c.sql("FROM users(version => 9)"), VersionNotFound, "9"),
    "column": (lambda c: c.sql("SELECT nope FROM users"), Invalid, '"nope" not found'),
    "files": (lambda c: c.sql("FROM read_csv('/etc/passwd')"), Invalid, r"read_csv\(\) is neither a table of the lake"),
    "settings": (lambda c: c.raw_sql("SELECT current_setting('threads')"), Invalid, "current_setting"),
    "COPY": (lambda c: c.raw_sql("COPY users TO 'x.csv'"), Invalid, "COPY"),
    "a write as a query": (lambda c: c.sql("DROP TABLE users"), Invalid, "one query|DROP"),
    "a second statement": (
        lambda c: c.sql("SELECT 1) ; DELETE FROM users; SELECT (1"),
        Invalid,
        "one query|syntax error",
    ),
    "a value": (lambda c: c.table("events").event.cast("int64").sum().to_pyarrow(), Invalid, "Could not convert"),
    "Python": (lambda c: doubled(c.table("events").id).to_pyarrow(), exc.UnsupportedOperationError, "to_pyarrow"),
    "reading files": (lambda c: c.read_parquet("x.parquet"), NotImplementedError, "alluvia does not support"),
    "cache": (lambda c: c.table("users").cache(), Invalid, "a lake has no temporary tables, so nothing is cached"),
    "temporary": (lambda c: c.create_table("x", MANY, temp=True), Invalid, "no temporary tables"),
    "nothing to create": (lambda c: c.create_table("x"), Invalid, "give rows, an expression or a schema"),
    "a name": (lambda c: c.create_table('x"; DROP TABLE users', MANY), Invalid, "name"),
    "a type": (lambda c: c.create_table("x", [{"a": None}]), Invalid, "column a is NULL in all rows"),
    "other columns": (
        lambda c: c.create_table("x", [{"a": 1}], schema={"b": "int64"}),
        Invalid,
        "columns a, and the schema has b",
    ),
    "rename": (lambda c: c.rename_table("users", "people"), Invalid, "create_table.'people', con.table.'users'.."),
    "many values": (
        lambda c: c.to_pyarrow(ibis.memtable(MANY).count()),
        Invalid,
        "20,001 rows of 1 columns.*create_table",
    ),
    "an interval with months": (
        lambda c: c.sql("SELECT INTERVAL 1 MONTH AS long", schema={"long": "interval('s')"}).to_pyarrow(),
        Invalid,
        "column long: .*an interval has months",
    ),
    "another schema": (
        lambda c: c.sql("SELECT 1 AS a, 2 AS b", schema={"a": "int64"}).select(_.a, _.b),
        Exception,
        "b",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(con: Any, name: str) -> None:
    does, error, says = REFUSED[name]
    with pytest.raises(error, match=says):
        does(con)
    assert con.table("users").count().to_pyarrow().as_py() == 3


@pytest.mark.parametrize(
    ("place", "options", "says"),
    [
        ("lake", {"token": "t"}, "token is an option of servers"),
        ("lake", {"timeout_seconds": 3}, "timeout_seconds is an option of servers"),
        ("http://127.0.0.1:1", {"region": "eu-west-1"}, "region is not an option of a server"),
        ("http://127.0.0.1:1", {"auth": "iam", "endpoint_url": "x"}, "endpoint_url is not an option of a server"),
        ("http://127.0.0.1:1", {"auth": "basic"}, "auth: the only value is 'iam'"),
        ("http://127.0.0.1:1", {"auth": "iam", "token": "t"}, "auth: the only value is 'iam'"),
        ("grpc://127.0.0.1:31337", {}, "give the address where the server has HTTP"),
        ("lake", {"auth": "iam"}, "auth is an option of servers"),
        ("http://127.0.0.1:1", {"timeout_seconds": "soon"}, "timeout_seconds: give a number above 0"),
        ("http://127.0.0.1:1", {"timeout_seconds": 0}, "timeout_seconds: give a number above 0"),
        ("http://user:secret@127.0.0.1:1", {}, "pass a token as token=…"),
        ("http://127.0.0.1:1?token=secret", {}, "pass a token as token=…"),
        (alluvia.connect("memory://open"), {"region": "eu-west-1"}, "region is an option of alluvia.connect"),
    ],
)
def test_options_that_do_not_go_together(place: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(Invalid, match=says) as error:
        ibis.alluvia.connect(place, **options)
    assert "secret" not in str(error.value)


def test_a_url_needs_a_lake() -> None:
    with pytest.raises(Invalid, match="name a lake, such as alluvia://lake"):
        ibis.connect("alluvia://")


@pytest.mark.parametrize("form", ["{}", "alluvia://{}"])
def test_a_lake_is_a_path_or_a_url(tmp_path: Any, form: str) -> None:
    alluvia.connect(tmp_path).create_table("t", {"n": "long"})
    place = form.format(tmp_path)
    con = ibis.connect(place) if "://" in form else ibis.alluvia.connect(place)
    assert con.list_tables() == ["t"]


@pytest.mark.parametrize(("package", "extra"), [("pyarrow_hotfix", "ibis"), ("urllib3", "client")])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, package: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for module in ("api.served_lake", "client.uploading", "client.requests"):
        monkeypatch.delitem(sys.modules, f"alluvia.{module}", raising=False)
    with pytest.raises(NotInstalled, match=rf"needs the package {package}: pip install 'alluvia\[{extra}\]'"):
        ibis.alluvia.connect("http://127.0.0.1:9")
