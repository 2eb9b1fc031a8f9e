"""Tokens over Flight SQL: the rights, row filters, hidden columns and limits that HTTP has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import adbc_driver_manager
import grpc
import pyarrow as pa
import pytest
from adbc_driver_flightsql import dbapi

import alluvia
from alluvia.flight.messages import new, packed, unpacked
from tests.access import grant, token
from tests.flight.serving import RawClient, Served, serving_flight, ticket

ROWS = [{"tenant": tenant, "email": f"{tenant}@x", "n": n} for n, tenant in enumerate("aabbb")]
HITS = "ARROW:FLIGHT:SQL:TABLE_NAME"


@dataclass(frozen=True)
class Tokens:
    all: str
    some: str
    writer: str
    few: str
    small: str
    query: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Tokens]]:
    folder = tmp_path_factory.mktemp("flight")
    lake = alluvia.connect(folder / "lake")
    columns = {"tenant": "string", "email": "string", "n": "long"}
    lake.create_table("hits", columns).append(ROWS)
    lake.create_table("secrets", {"id": "long"}).append([{"id": 1}])
    lake.sql("CREATE VIEW secret_view AS SELECT id FROM secrets")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        tokens = Tokens(
            all=token(lake, grant("read:*"), grant("write:*"), grant("admin:*")),
            some=token(lake, grant("read:hits", "tenant = 'a'", "email"), grant("read:secret_view")),
            writer=token(lake, grant("read:hits"), grant("append:hits")),
            few=token(lake, grant("read:hits"), requests=3),
            small=token(lake, grant("read:hits"), query_bytes=10),
            query=token(lake, grant("query:hits_of")),
        )
        with serving_flight(folder / "lake", "--auth", "tokens", "--allow-writes") as served:
            yield served, tokens


@pytest.mark.parametrize("given", ["", "none", "a.b.c"])
def test_nobody_gets_in_without_a_token(place: tuple[Served, Tokens], given: str) -> None:
    served, _ = place
    with RawClient(served, given) as client:
        for method in ("GetFlightInfo", "GetSchema"):
            with pytest.raises(grpc.RpcError) as failed:
                client.one(method, b"")
            assert failed.value.code() is grpc.StatusCode.UNAUTHENTICATED
        for method in ("DoGet", "DoAction", "ListActions", "ListFlights"):
            with pytest.raises(grpc.RpcError) as failed:
                list(client.stream(method, b""))
            assert failed.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError) as failed:
            client.put(b"")
        assert failed.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_stranger_who_sends_headers_alone_is_sent_away(place: tuple[Served, Tokens]) -> None:
    served, _ = place
    with RawClient(served) as client:
        for method in ("GetFlightInfo", "GetSchema", "DoGet", "DoAction", "ListActions", "ListFlights", "DoPut"):
            assert client.without_a_request(method, ends=False) is grpc.StatusCode.UNAUTHENTICATED, method


def test_a_token_is_a_password_too(place: tuple[Served, Tokens]) -> None:
    served, tokens = place
    with (
        dbapi.connect(served.uri, {"username": "token", "password": tokens.some}, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT count(*) FROM hits")
        assert cursor.fetchall() == [(2,)]
    with pytest.raises(adbc_driver_manager.Error, match="UNAUTHENTICATED"):
        dbapi.connect(served.uri, {"username": "token", "password": "wrong"}, autocommit=True)


def test_nothing_that_is_meant_for_a_branch_goes_to_the_lake(place: tuple[Served, Tokens]) -> None:
    served, tokens = place
    options = {
        "adbc.flight.sql.authorization_header": f"Bearer {tokens.writer}",
        "adbc.flight.sql.rpc.call_header.x-alluvia-branch": "fix",
    }
    with (
        dbapi.connect(served.uri, options, autocommit=True) as connection,
        connection.cursor() as cursor,
        pytest.raises(adbc_driver_manager.Error, match="Flight SQL takes no branch"),
    ):
        cursor.execute("INSERT INTO hits VALUES ('a', 'a@x', 1)")


def test_rows_and_columns_that_are_hidden_stay_hidden(place: tuple[Served, Tokens]) -> None:
    served, tokens = place
    assert served.rows("SELECT * FROM hits ORDER BY n", token=tokens.some) == [("a", 0), ("a", 1)]
    assert served.rows("SELECT n FROM hits WHERE n >= ?", [1], tokens.some) == [(1,)]
    with pytest.raises(adbc_driver_manager.ProgrammingError, match="email"):
        served.rows("SELECT email FROM hits", token=tokens.some)
    for sql in ("SELECT * FROM secrets", "SELECT * FROM secret_view"):
        with pytest.raises(adbc_driver_manager.Error, match="scope read:secrets"):
            served.rows(sql, token=tokens.some)


def test_a_token_of_published_queries_runs_no_sql(place: tuple[Served, Tokens]) -> None:
    served, tokens = place
    with pytest.raises(adbc_driver_manager.Error, match="no scope for any table"):
        served.rows("SELECT 1", token=tokens.query)


def test_a_transaction_gives_no_other_rights(place: tuple[Served, Tokens]) -> None:
    served, tokens = place
    with served.connect(tokens.some, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM hits ORDER BY n")
        assert cursor.fetchall() == [("a", 0), ("a", 1)]
        with pytest.raises(adbc_driver_manager.Error, match="scope append:hits"):
            cursor.execute("INSERT INTO hits VALUES ('c', 'c@x', 9)")
        connection.rollback()
        with pytest.raises(adbc_driver_manager.Error, match="scope read:secrets"):
            cursor.execute("SELECT * FROM secrets")


def test_tools_list_what_may_be_read(place: tuple[Served, Tokens]) -> None:
    served, tokens = place
    with served.connect(tokens.some) as connection:
        found = connection.adbc_get_objects(depth="all").read_all().to_pylist()
        schema = connection.adbc_get_table_schema("hits")
    tables = found[0]["catalog_db_schemas"][0]["db_schema_tables"]
    assert {each["table_name"]: [column["column_name"] for column in each["table_columns"]] for each in tables} == {
        "hits": ["tenant", "n"],
        "secret_view": [],
    }
    assert schema.names == ["tenant", "n"]


def test_what_tells_of_types_tells_of_no_hidden_column(place: tuple[Served, Tokens]) -> None:
    served, tokens = place
    with served.connect(tokens.some) as connection, connection.cursor() as cursor:
        parameters = cursor.adbc_prepare("UPDATE hits SET email = ? WHERE n = ?")
        assert parameters is not None
        assert [str(each) for each in parameters.types] == ["string", "int64"]
        with pytest.raises(adbc_driver_manager.Error, match="email"):
            cursor.adbc_prepare("SELECT n FROM hits WHERE email = ?")


def test_writes_need_their_scope(place: tuple[Served, Tokens]) -> None:
    served, tokens = place
    asked: list[tuple[Literal["create", "append", "create_append", "replace"], str]]
    asked = [("create", "admin"), ("replace", "admin"), ("append", "append"), ("create_append", "append")]
    with served.connect(tokens.writer) as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO hits VALUES (?, ?, ?)", [("z", "z@x", 100)])
        assert cursor.rowcount == 1
        with pytest.raises(adbc_driver_manager.Error, match="scope write:hits"):
            cursor.execute("DELETE FROM hits")
        with pytest.raises(adbc_driver_manager.Error, match="scope admin:hits"):
            cursor.execute("DROP TABLE hits")
        rows = pa.table({"tenant": ["y"], "email": ["y@x"], "n": [7]})
        assert cursor.adbc_ingest("hits", rows, mode="append") == 1
        with pytest.raises(adbc_driver_manager.Error, match="scope admin:hits"):
            cursor.adbc_ingest("hits", rows, mode="replace")
        for name in ("fresh", "secrets"):  # whether it is there or not
            for mode, scope in asked:
                with pytest.raises(adbc_driver_manager.Error, match=f"scope {scope}:{name}"):
                    cursor.adbc_ingest(name, rows, mode=mode)
    assert served.rows("SELECT count(*) FROM hits WHERE tenant = 'z'", token=tokens.all) == [(1,)]


def test_limits_of_a_token(place: tuple[Served, Tokens]) -> None:
    served, tokens = place
    with pytest.raises(adbc_driver_manager.Error, match="more than the 10 bytes allowed to this caller"):
        served.rows("SELECT * FROM hits", token=tokens.small)
    with RawClient(served, tokens.few) as client:
        for _ in range(3):
            list(client.stream("ListActions", b""))
        with pytest.raises(grpc.RpcError) as failed:
            list(client.stream("ListActions", b""))
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "3 requests a minute" in str(failed.value.details())


def test_what_is_held_for_a_caller_is_for_no_other(place: tuple[Served, Tokens]) -> None:
    served, tokens = place
    with RawClient(served, tokens.all) as owner, RawClient(served, tokens.some) as other:
        (result,) = owner.action(
            "CreatePreparedStatement", packed("ActionCreatePreparedStatementRequest", query="SELECT * FROM secrets")
        )
        statement = unpacked(result)[1].prepared_statement_handle
        (result,) = owner.action("BeginTransaction", packed("ActionBeginTransactionRequest"))
        transaction = unpacked(result)[1].transaction_id
        answer = owner.info("CommandStatementQuery", query="SHOW CREATE TABLE secrets").endpoint[0].ticket.ticket
        query = owner.info("CommandStatementQuery", query="SELECT * FROM secrets").endpoint[0].ticket.ticket
        attempts: list[Callable[[], object]] = [
            lambda: other.info("CommandPreparedStatementQuery", prepared_statement_handle=statement),
            lambda: list(
                other.stream(
                    "DoGet", ticket(packed("CommandPreparedStatementQuery", prepared_statement_handle=statement))
                )
            ),
            lambda: other.info("CommandStatementQuery", query="SELECT 1", transaction_id=transaction),
            lambda: other.action(
                "EndTransaction", packed("ActionEndTransactionRequest", transaction_id=transaction, action=1)
            ),
            lambda: other.action(
                "ClosePreparedStatement",
                packed("ActionClosePreparedStatementRequest", prepared_statement_handle=statement),
            ),
            lambda: list(other.stream("DoGet", ticket(answer))),
        ]
        for attempt in attempts:
            with pytest.raises(grpc.RpcError) as failed:
                attempt()
            assert failed.value.code() is grpc.StatusCode.NOT_FOUND
        with pytest.raises(grpc.RpcError) as failed:  # the ticket of a query is the query: it runs with other rights
            list(other.stream("DoGet", ticket(query)))
        assert failed.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert len(list(owner.stream("DoGet", ticket(query)))) == 2
        assert len(list(owner.stream("DoGet", ticket(answer)))) == 2


def test_nobody_cancels_the_query_of_another(place: tuple[Served, Tokens]) -> None:
    served, tokens = place
    with RawClient(served, tokens.all) as owner, RawClient(served, tokens.some) as other:
        info = owner.info("CommandStatementQuery", query="SELECT repeat('x', 500) FROM range(1000000000)")
        body = new("CancelFlightInfoRequest", info=info).SerializeToString()
        rows = owner.stream("DoGet", ticket(info.endpoint[0].ticket.ticket))
        next(rows), next(rows)
        with pytest.raises(grpc.RpcError) as failed:
            other.action("CancelFlightInfo", body)
        assert failed.value.code() is grpc.StatusCode.NOT_FOUND
        assert owner.action("CancelFlightInfo", body)
        with pytest.raises(grpc.RpcError) as failed:
            list(rows)
        assert failed.value.code() is grpc.StatusCode.CANCELLED
