"""The service of Flight as gRPC calls it: who calls, what with, how it ends. What commands mean is in `commands.py`."""

from __future__ import annotations

import base64
import binascii
import socket
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Timer
from typing import NoReturn

import grpc

from alluvia.api.lake import Lake
from alluvia.errors import AlluviaError, Invalid, StoreRefused, Unsupported
from alluvia.flight.commands import Commands
from alluvia.flight.messages import Message, new, packed, read, reader_of, received, schema_bytes, sent, unpacked
from alluvia.flight.statements import FlightCaller, StatementRules, Statements
from alluvia.flight.statuses import fitting, status_of
from alluvia.lazy_dataclasses import dataclass
from alluvia.serverless.authorization import OPEN, Authorization, bearer
from alluvia.serverless.http import BRANCH_HEADER, Request

SERVICE = "arrow.flight.protocol.FlightService"
REQUEST_BYTES_MAX = 10 << 20
"""As HTTP takes them."""
AUTHORIZATION = "authorization"
NO_TOKEN = "open"  # noqa: S105
"""Stands for a token where none is needed, and a client signs in with a name and a password all the same."""
_CANCELLED = 1
_GRACE_SECONDS = 5.0
"""A query that runs out of time says so before its call is ended."""
_ACTIONS = {
    "CreatePreparedStatement": "Prepare a statement, and tell its columns and parameters",
    "ClosePreparedStatement": "Let a prepared statement go",
    "BeginTransaction": "Begin a transaction",
    "EndTransaction": "Commit a transaction, or roll it back",
    "CancelFlightInfo": "Cancel a query",
    "CancelQuery": "Cancel a query, as clients before Arrow 13 do",
}
Context = grpc.ServicerContext


@dataclass(frozen=True, slots=True)
class Gate:
    """How calls get in: who a caller is, and `slot`, which holds one of the slots of queries."""

    authorization: Callable[[], Authorization]
    slot: Callable[[], AbstractContextManager[None]]
    log: Callable[[str], object]


@dataclass(slots=True)
class _Call:
    """What is known of a call by its end."""

    what: str = "-"


class FlightService:
    """The methods of the service. Messages come and go as bytes."""

    def __init__(self, statements: Statements, commands: Commands, gate: Gate) -> None:
        self._statements = statements
        self._commands = commands
        self._gate = gate

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the methods in the form that gRPC registers.

        All of them take a stream, which is the same on the wire: gRPC runs a method of one request only when that is
        there, and a stranger who sends headers alone would hold a thread for good.
        """
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Handshake": grpc.stream_stream_rpc_method_handler(self.handshake),
                "ListFlights": grpc.stream_stream_rpc_method_handler(self.list_flights),
                "GetFlightInfo": grpc.stream_unary_rpc_method_handler(self.get_flight_info),
                "GetSchema": grpc.stream_unary_rpc_method_handler(self.get_schema),
                "DoGet": grpc.stream_stream_rpc_method_handler(self.do_get),
                "DoPut": grpc.stream_stream_rpc_method_handler(self.do_put),
                "DoAction": grpc.stream_stream_rpc_method_handler(self.do_action),
                "ListActions": grpc.stream_stream_rpc_method_handler(self.list_actions),
            },
        )

    def handshake(self, requests: Iterator[bytes], context: Context) -> Iterator[bytes]:  # noqa: ARG002 - headers tell
        """Take a name and a password, which is a token, and answer with what later calls are to bear."""
        with self._call("Handshake", context):
            self._caller(context)
            token = NO_TOKEN
            if self._gate.authorization().mode != OPEN:
                token = bearer(_request(context))
            context.send_initial_metadata(((AUTHORIZATION, f"Bearer {token}"),))
            yield new("HandshakeResponse").SerializeToString()

    def list_flights(self, requests: Iterator[bytes], context: Context) -> Iterator[bytes]:  # noqa: ARG002 - there are none
        """Answer that the only flights are those that SQL asks for."""
        with self._call("ListFlights", context):
            self._caller(context)
        yield from ()

    def get_flight_info(self, requests: Iterator[bytes], context: Context) -> bytes:
        """Answer with the columns of a command and the ticket for its rows."""
        with self._call("GetFlightInfo", context) as call:
            caller = self._caller(context)
            descriptor = read("FlightDescriptor", self._request(requests, context))
            call.what = unpacked(descriptor.cmd)[0]
            with self._gate.slot():
                columns, ticket = self._commands.info(descriptor.cmd, caller)
            endpoint = new("FlightEndpoint", ticket=new("Ticket", ticket=ticket))
            return bytes(
                new(
                    "FlightInfo",
                    schema=schema_bytes(columns),
                    flight_descriptor=descriptor,
                    endpoint=[endpoint],
                    total_records=-1,
                    total_bytes=-1,
                ).SerializeToString()
            )

    def get_schema(self, requests: Iterator[bytes], context: Context) -> bytes:
        """Answer with the columns of a command."""
        with self._call("GetSchema", context) as call:
            caller = self._caller(context)
            descriptor = read("FlightDescriptor", self._request(requests, context))
            call.what = unpacked(descriptor.cmd)[0]
            with self._gate.slot():
                columns = self._commands.columns(descriptor.cmd, caller)
            return bytes(new("SchemaResult", schema=schema_bytes(columns)).SerializeToString())

    def do_get(self, requests: Iterator[bytes], context: Context) -> Iterator[bytes]:
        """Send the rows of a ticket as they come, until its time is up or the client has gone."""
        with self._call("DoGet", context) as call:
            caller = self._caller(context)
            ticket = read("Ticket", self._request(requests, context)).ticket
            call.what = unpacked(ticket)[0]
            end = self._commands.running.add(caller, ticket, context.cancel)
            try:
                with (
                    self._gate.slot(),
                    self._in_time(context),
                    self._commands.rows(ticket, caller, _noting_end(context)) as rows,
                ):
                    yield from (each.SerializeToString() for each in sent(rows.schema, rows))
            finally:
                end()

    def do_put(self, requests: Iterator[bytes], context: Context) -> Iterator[bytes]:
        """Run what changes something, or bind values to a prepared statement."""
        with self._call("DoPut", context) as call, self._in_time(context):
            caller = self._caller(context)
            parts = _parts(requests)
            first = next(parts, None)
            if first is None:
                raise Invalid("the call has no message: send a command in the first one")
            name, asked = unpacked(first.flight_descriptor.cmd)
            call.what = name
            if name in ("CommandStatementUpdate", "CommandPreparedStatementUpdate"):
                rows = received(_all(first, parts), REQUEST_BYTES_MAX)
                if rows is not None and rows.num_columns and name == "CommandPreparedStatementUpdate":
                    self._commands.bind(asked, rows, caller)
                with self._gate.slot():
                    body = self._commands.update(name, asked, caller)
            elif name == "CommandStatementIngest":
                with self._gate.slot():
                    body = self._commands.ingest(asked, reader_of(_all(first, parts)), caller)
            elif name == "CommandPreparedStatementQuery":
                body = self._commands.bind(asked, received(_all(first, parts), REQUEST_BYTES_MAX), caller)
            else:
                raise Invalid(f"{name} cannot be put: put changes, rows of a table, or values of parameters")
            yield new("PutResult", app_metadata=body).SerializeToString()

    def do_action(self, requests: Iterator[bytes], context: Context) -> Iterator[bytes]:
        """Carry out an action of Flight SQL."""
        with self._call("DoAction", context) as call:
            caller = self._caller(context)
            action = read("Action", self._request(requests, context))
            if action.type not in _ACTIONS:
                raise Unsupported(f"there is no action {action.type!r:.100}")
            call.what = action.type
            body = self._acted(action.type, action.body, caller)
            if body is not None:
                yield new("Result", body=body).SerializeToString()

    def list_actions(self, requests: Iterator[bytes], context: Context) -> Iterator[bytes]:  # noqa: ARG002 - it is empty
        """Tell the actions."""
        with self._call("ListActions", context):
            self._caller(context)
            for name, description in _ACTIONS.items():
                yield new("ActionType", type=name, description=description).SerializeToString()

    def _acted(self, name: str, body: bytes, caller: FlightCaller) -> bytes | None:
        if name == "CancelFlightInfo":
            self._commands.cancel(read("CancelFlightInfoRequest", body).info, caller)
            return bytes(new("CancelFlightInfoResult", status=_CANCELLED).SerializeToString())
        kind, asked = unpacked(body)
        if kind != f"Action{name}Request":
            raise Invalid(f"{name}: send an Action{name}Request, not {kind}")
        if name == "CancelQuery":
            self._commands.cancel(read("FlightInfo", asked.info), caller)
            return packed("ActionCancelQueryResult", result=_CANCELLED)
        if name == "BeginTransaction":
            return self._commands.begin(caller)
        if name == "ClosePreparedStatement":
            self._commands.prepared.take(caller.key, asked.prepared_statement_handle)
            return None
        with self._gate.slot():
            if name == "CreatePreparedStatement":
                return self._commands.prepare(asked.query, asked.transaction_id, caller)
            self._commands.end(asked.transaction_id, asked.action, caller)
        return None

    def _caller(self, context: Context) -> FlightCaller:
        """Return who calls, by the token that the call bears. Raises what `Authorization.rights` raises.

        Raises `Forbidden` for a token of published queries alone, which HTTP serves, and `Invalid` for a call that is
        meant for a branch, and would write to the lake.
        """
        request = _request(context)
        if BRANCH_HEADER.lower() in request.headers:
            raise Invalid(
                f"{BRANCH_HEADER}: Flight SQL takes no branch: name its tables, as in fix.orders, or write by HTTP"
            )
        rights = self._gate.authorization().rights(request, self._statements.lake)
        if rights is not None:
            rights.check_any_table()
        return FlightCaller("" if rights is None else rights.key or rights.subject, rights, context.peer())

    def _request(self, requests: Iterator[bytes], context: Context) -> bytes:
        """Return the one request of a call, which has to come within the time that a query has. Raises `Invalid`."""
        with self._in_time(context):
            request = next(requests, None)
        if request is None:
            raise Invalid("the call has no message: send one request")
        return request

    @contextmanager
    def _in_time(self, context: Context) -> Iterator[None]:
        """End a call whose client does not send or take its rows within the time that a query has."""
        seconds = self._statements.rules.limits.timeout_seconds
        if seconds is None:
            yield
            return
        timer = Timer(seconds + _GRACE_SECONDS, context.cancel)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @contextmanager
    def _call(self, method: str, context: Context) -> Iterator[_Call]:
        """End a call that fails with the code and the text of its error, and tell the log of each call."""
        began = time.monotonic()
        code, call = grpc.StatusCode.OK, _Call()
        try:
            yield call
        except AlluviaError as error:
            code, text = status_of(error)
            if not context.is_active():
                code, text = grpc.StatusCode.CANCELLED, "the client has gone"
            if code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS) or isinstance(error, StoreRefused):
                traceback.print_exception(error)
            self._end(context, code, text)
        except (GeneratorExit, grpc.RpcError):  # the client has gone, or its time is up
            code = grpc.StatusCode.CANCELLED
            raise
        except Exception as error:  # noqa: BLE001 - a server goes on; the traceback is for whoever runs it
            code = grpc.StatusCode.INTERNAL
            traceback.print_exception(error)
            self._end(context, code, "internal error")
        finally:
            took_ms = int((time.monotonic() - began) * 1000)
            self._gate.log(f"{context.peer()} {method} {call.what} {code.name} {took_ms} ms")

    @staticmethod
    def _end(context: Context, code: grpc.StatusCode, text: str) -> NoReturn:
        context.abort(code, fitting(text))


def _noting_end(context: Context) -> Callable[[], bool]:
    """Return what says whether a call has ended."""
    gone = Event()
    if not context.add_callback(gone.set):
        gone.set()
    return gone.is_set


def _parts(requests: Iterable[bytes]) -> Iterator[Message]:
    for each in requests:
        yield read("FlightData", each)


def _all(first: Message, others: Iterator[Message]) -> Iterator[Message]:
    yield first
    yield from others


def _request(context: Context) -> Request:
    """Return a call as authorization knows requests. A name and a password are as good as the token that it is."""
    headers = {str(key).lower(): str(value) for key, value in context.invocation_metadata() if isinstance(value, str)}
    scheme, _, value = headers.get(AUTHORIZATION, "").partition(" ")
    if scheme.lower() == "basic":
        try:
            padding = "=" * (-len(value) % 4)  # which Go's driver leaves out
            password = base64.b64decode(value + padding, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            password = ""
        headers[AUTHORIZATION] = f"Bearer {password}"
    return Request("POST", "/flight", headers, {"requestContext": {}})


CALLS_MAX = 256
"""The maximum number of calls at once. Nearly all of them wait for a slot or for the client. Others are refused."""
_STOP_SECONDS = 2.0
_OPTIONS = (
    ("grpc.max_receive_message_length", REQUEST_BYTES_MAX + 65_536),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # else two servers share a port, and callers get either
    ("grpc.keepalive_time_ms", 60_000),  # so that a call ends whose client has gone without a word
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


@contextmanager
def serving(lake: Lake, rules: Callable[[], StatementRules], gate: Gate, host: str, port: int) -> Iterator[int]:
    """Serve a lake until the block ends, and yield the port. Raises `Invalid` where it cannot listen."""
    statements = Statements(lake, rules)
    commands = Commands(statements, lake.clock)
    pool = ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="flight")
    server = grpc.server(pool, options=_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
    server.add_generic_rpc_handlers((FlightService(statements, commands, gate).handler(),))
    try:
        bound = server.add_insecure_port(_address(host, port))
    except RuntimeError as error:
        raise Invalid(f"--flight-port {port} of {host}: cannot listen there: choose another, or 0") from error
    server.start()
    try:
        yield bound
    finally:
        server.stop(_STOP_SECONDS).wait()
        pool.shutdown(wait=False, cancel_futures=True)
        commands.close()


def _address(host: str, port: int) -> str:
    """Return where to listen: one address, of the older family first, as HTTP does."""
    family, _, _, _, address = min(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    shown = f"[{address[0]}]" if family == socket.AF_INET6 else str(address[0])
    return f"{shown}:{port}"
