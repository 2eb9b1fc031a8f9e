"""What no driver sends: bytes at random, forged tickets, requests that are too large, and handles without end."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import grpc
import pyarrow as pa
import pytest

import alluvia
from alluvia.flight.messages import new, packed, sent, unpacked
from alluvia.flight.service import REQUEST_BYTES_MAX
from alluvia.server.guards import QUERIES
from tests.flight.serving import RawClient, Served, descriptor, serving_flight, ticket

Code = grpc.StatusCode
PLACES = QUERIES.total
APPEND = new("TableDefinitionOptions", if_not_exist=2, if_exists=2)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("flight") / "lake"
    alluvia.connect(place).create_table("t", {"id": "long"}).append([{"id": 1}])
    with serving_flight(place) as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[RawClient]:
    with RawClient(served) as found:
        yield found
    assert served.process.poll() is None
    assert served.rows("SELECT id FROM t") == [(1,)]


def code_of(call: Callable[[], object]) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as failed:
        call()
    found: grpc.StatusCode = failed.value.code()
    return found


def test_bytes_at_random(client: RawClient) -> None:
    source = random.Random(1)
    command = packed("CommandStatementQuery", query="SELECT 1")
    samples = [source.randbytes(length) for length in (1, 7, 40, 400)]
    samples += [bytes([*command[:at], source.randrange(256), *command[at + 1 :]]) for at in range(0, len(command), 9)]
    for sample in samples:
        for method in ("GetFlightInfo", "GetSchema"):
            for request in (sample, descriptor(sample)):
                found = outcome(partial(client.one, method, request))
                assert found in (Code.OK, Code.INVALID_ARGUMENT), (method, request)
        for request in (sample, ticket(sample)):
            found = outcome(lambda request=request: list(client.stream("DoGet", request)))  # type: ignore[misc]
            assert found in (Code.INVALID_ARGUMENT, Code.NOT_FOUND), request
        assert outcome(partial(client.put, sample)) is Code.INVALID_ARGUMENT
        assert outcome(partial(client.action, "CreatePreparedStatement", sample)) is Code.INVALID_ARGUMENT
        assert outcome(lambda sample=sample: list(client.stream("DoAction", sample))) in (  # type: ignore[misc]
            Code.INVALID_ARGUMENT,
            Code.UNIMPLEMENTED,
        )


def outcome(call: Callable[[], object]) -> grpc.StatusCode:
    try:
        call()
    except grpc.RpcError as error:
        found: grpc.StatusCode = error.code()
        return found
    return Code.OK


def test_forged_tickets_and_handles(client: RawClient) -> None:
    guess = bytes(16)
    for handle in (b"", b"a", b"a" + guess, b"z" + guess):
        request = ticket(packed("TicketStatementQuery", statement_handle=handle))
        assert code_of(lambda request=request: list(client.stream("DoGet", request))) is Code.NOT_FOUND  # type: ignore[misc]
    hidden = new("CommandStatementQuery", query="CREATE TABLE forged (id BIGINT)").SerializeToString()
    request = ticket(packed("TicketStatementQuery", statement_handle=b"q" + guess + hidden))
    assert code_of(lambda: list(client.stream("DoGet", request))) is Code.PERMISSION_DENIED
    commands = [
        packed("CommandPreparedStatementQuery", prepared_statement_handle=guess),
        packed("CommandStatementQuery", query="SELECT 1", transaction_id=guess),
    ]
    for command in commands:
        assert code_of(partial(client.one, "GetFlightInfo", descriptor(command))) is Code.NOT_FOUND
    update = packed("CommandPreparedStatementUpdate", prepared_statement_handle=guess)
    assert code_of(partial(client.put, first_part(update))) is Code.NOT_FOUND


def test_commands_that_are_not_for_a_method(client: RawClient) -> None:
    begin = packed("ActionBeginTransactionRequest")
    update = packed("CommandStatementUpdate", query="DELETE FROM t")
    query = packed("CommandStatementQuery", query="SELECT 1")
    unknown = new("Any", type_url="type.googleapis.com/arrow.flight.protocol.sql.CommandMakeCoffee").SerializeToString()
    for command in (begin, update, unknown):
        assert code_of(partial(client.one, "GetFlightInfo", descriptor(command))) is Code.INVALID_ARGUMENT
    for command in (begin, query, unknown):
        assert code_of(partial(client.put, first_part(command))) is Code.INVALID_ARGUMENT
    assert code_of(lambda: list(client.stream("DoGet", ticket(query)))) is Code.INVALID_ARGUMENT
    assert code_of(partial(client.action, "EndTransaction", begin)) is Code.INVALID_ARGUMENT
    assert code_of(partial(client.action, "MakeCoffee", b"")) is Code.UNIMPLEMENTED
    assert code_of(lambda: list(client.stream("DoExchange", b""))) is Code.UNIMPLEMENTED
    for method in ("GetFlightInfo", "GetSchema", "DoGet", "DoAction", "DoPut"):
        assert client.without_a_request(method, ends=True) is Code.INVALID_ARGUMENT


def test_writes_that_are_not_allowed(client: RawClient) -> None:
    for text in ("DELETE FROM t", "SELECT 1; DROP TABLE t", "CREATE TABLE u (id BIGINT)"):
        assert code_of(partial(client.info, "CommandStatementQuery", query=text)) is Code.PERMISSION_DENIED
        update = packed("CommandStatementUpdate", query=text)
        assert code_of(partial(client.put, first_part(update))) is Code.PERMISSION_DENIED
        ingest = packed("CommandStatementIngest", table="t", table_definition_options=APPEND)
        assert code_of(partial(client.put, *parts_of(ingest, pa.table({"id": [1]})))) is Code.PERMISSION_DENIED
        prepared = packed("ActionCreatePreparedStatementRequest", query=text)
        assert code_of(partial(client.action, "CreatePreparedStatement", prepared)) is Code.PERMISSION_DENIED


def test_requests_that_are_too_large(client: RawClient) -> None:
    text = "SELECT 1 --" + "x" * 1_000_000
    assert code_of(partial(client.info, "CommandStatementQuery", query=text)) is Code.INVALID_ARGUMENT
    huge = bytes(REQUEST_BYTES_MAX * 2)
    for method in ("GetFlightInfo", "GetSchema"):
        assert code_of(partial(client.one, method, huge)) is Code.RESOURCE_EXHAUSTED
    assert code_of(partial(client.put, huge)) is Code.RESOURCE_EXHAUSTED
    assert code_of(lambda: list(client.stream("DoGet", huge))) is Code.RESOURCE_EXHAUSTED


def test_values_that_are_not_arrow(client: RawClient) -> None:
    statement = packed("ActionCreatePreparedStatementRequest", query="SELECT ? AS x")
    (result,) = client.action("CreatePreparedStatement", statement)
    handle = unpacked(result)[1].prepared_statement_handle
    command = packed("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    whole = list(sent(pa.schema([("1", pa.int64())]), [pa.record_batch({"1": pa.array([7], pa.int64())})]))
    good = [first_part(command, whole[0]), *(part.SerializeToString() for part in whole[1:])]
    source = random.Random(2)
    damaged = []
    for part in whole:
        for field in ("data_header", "data_body"):
            data = bytearray(getattr(part, field))
            for _ in range(12 if data else 0):
                data[source.randrange(len(data))] ^= 1 << source.randrange(8)
                damaged.append((part, new("FlightData", **{**fields_of(part), field: bytes(data)})))
    for part, other in damaged:
        parts = [other if each is part else each for each in whole]
        sent_parts = [first_part(command, parts[0]), *(each.SerializeToString() for each in parts[1:])]
        assert outcome(partial(client.put, *sent_parts)) in (Code.OK, Code.INVALID_ARGUMENT)
    assert code_of(partial(client.put, first_part(command, whole[0]), b"\xff")) is Code.INVALID_ARGUMENT
    many = pa.table({name: [1] for name in "abc"})
    assert code_of(partial(client.put, *parts_of(command, many))) is Code.INVALID_ARGUMENT
    client.put(*good)
    assert len(list(client.stream("DoGet", ticket(command)))) == 2


def test_statements_without_end_make_room_for_one_another(client: RawClient) -> None:
    """A caller holds 200 at most: the oldest goes."""
    handles = []
    for number in range(201):
        request = packed("ActionCreatePreparedStatementRequest", query=f"SHOW VIEWS -- {number}")
        (result,) = client.action("CreatePreparedStatement", request)
        handles.append(unpacked(result)[1].prepared_statement_handle)
    first, *_, last = (packed("CommandPreparedStatementQuery", prepared_statement_handle=each) for each in handles)
    assert code_of(partial(client.one, "GetFlightInfo", descriptor(first))) is Code.NOT_FOUND
    assert client.one("GetFlightInfo", descriptor(last))


def test_queries_that_nobody_waits_for_end(client: RawClient) -> None:
    """More than there are places ask for answers that would take hours; then all of them go."""
    info = client.info("CommandStatementQuery", query="SELECT max(hash(range)) FROM range(1000000000000)")
    request = ticket(info.endpoint[0].ticket.ticket)
    calls: list[Any] = [client.stream("DoGet", request) for _ in range(PLACES + 3)]
    wait_until(lambda: sum(call.done() for call in calls) == 3)
    assert {call.code() for call in calls if call.done()} == {Code.RESOURCE_EXHAUSTED}
    for call in calls:
        call.cancel()
    small = ticket(packed("CommandGetTableTypes"))
    wait_until(lambda: outcome(lambda: list(client.stream("DoGet", small))) is Code.OK)


def wait_until(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def parts_of(command: bytes, rows: pa.Table) -> list[bytes]:
    first, *others = sent(rows.schema, rows.to_batches())
    return [first_part(command, first), *(each.SerializeToString() for each in others)]


def first_part(command: bytes, part: object = None) -> bytes:
    fields = {} if part is None else fields_of(part)
    found: bytes = new(
        "FlightData", flight_descriptor=new("FlightDescriptor", type=2, cmd=command), **fields
    ).SerializeToString()
    return found


def fields_of(part: object) -> dict[str, bytes]:
    return {name: getattr(part, name) for name in ("data_header", "data_body")}
