"""The client of a server: its tables, SQL, rows and events. It has the names of a lake's own methods."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote, urlsplit

import pyarrow as pa
from pyarrow import ipc

from alluvia.api import api_hints
from alluvia.api.lake import Lake, Table
from alluvia.client.requests import (
    NOT_OURS,
    READ_AGAIN,
    WRITE_ONCE,
    LakeServer,
    Proof,
    bearer,
    body_of,
    broken_off,
    nothing,
    signature,
)
from alluvia.client.uploading import Rows, upload
from alluvia.delta.arguments import check_number
from alluvia.engine.duck.literals import quote_name, quote_table
from alluvia.errors import Invalid, TableNotFound, Unavailable
from alluvia.events.ingest.dict_events import Events, EventsOutcome, event_bodies
from alluvia.sql.grammar.nodes import Query
from alluvia.sql.grammar.statements import parse
from alluvia.table_names import TABLE_OR_REJECTS, folder_name

if TYPE_CHECKING:
    from alluvia.query.parameters import Parameters

READS, WRITES, TABLES = "/q", "/sql", "/v1/tables"
_NDJSON = "application/x-ndjson"


class ServedLake:
    """A lake that a server answers for, with the rights of the caller. Thread-safe."""

    def __init__(self, url: str, proof: Proof, timeout_seconds: float, branch: str | None = None) -> None:
        self._given = (url, proof, timeout_seconds)
        self.branch_name = branch
        self.server = LakeServer(url, proof, timeout_seconds, branch)

    @property
    def uri(self) -> str:
        """Return the address of the server."""
        return self.server.url

    @property
    def server_version(self) -> str:
        """Return the version of Alluvia that answers."""
        document = self.server.json("GET", "/openapi.json", retries=READ_AGAIN)
        return str(document["info"]["version"])

    def __repr__(self) -> str:
        return f"<ServedLake {self.uri!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())

    def __contains__(self, name: object) -> bool:
        return name in self.tables()

    def __getitem__(self, name: str) -> ServedTable:
        return self.table(name)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _no_attribute("ServedLake", Lake, name, dir(type(self)))

    def tables(self) -> list[str]:
        """Return the names of the tables that the caller may read."""
        listing = self.server.json("GET", TABLES, retries=READ_AGAIN)
        return [str(each["name"]) for each in listing["tables"]]

    def table(self, name: str) -> ServedTable:
        """Return a table by name, without a request. `events._rejects` is the table of rejected events."""
        return ServedTable(self, name.replace("/", "."))

    def on_branch(self, name: str) -> ServedLake:
        """Return the client of a branch of the lake, without a request."""
        return ServedLake(*self._given, branch=name)

    def sql(self, text: str, parameters: Parameters | None = None) -> pa.Table:
        """Run SQL statements, as `Lake.sql` does, and return the answer. Several are one transaction.

        SQL can write only if the server was started with `--allow-writes`, or deployed with `alluvia:sql_writes`.
        `parameters` is a list with the values of `?`, or a dict with those of `$name`. Raises the server's errors:
        `TableNotFound`, `Invalid`, `Forbidden`, `Conflict`, `Unavailable`.
        """
        writes = any(each.writes for each in parse(text))
        stream = self._ask(WRITES if writes else READS, text, parameters)
        return pa.Table.from_batches(_batches(stream), stream.schema)

    def read(self, query: str, parameters: Parameters | None = None) -> tuple[pa.Schema, Generator[pa.RecordBatch]]:
        """Run one query, and return its columns, and its rows as they come. Raises `Invalid` for more than one."""
        _check_one_query(query)
        stream = self._ask(READS, query, parameters)
        return stream.schema, _batches(stream)

    def columns(self, query: str) -> pa.Schema:
        """Return the columns that a query would have. Reads no data file."""
        _check_one_query(query)
        # A comment at the end of the query must not take the bracket.
        columns, batches = self.read(f"SELECT * FROM (\n{query}\n) LIMIT 0")  # noqa: S608
        batches.close()
        return columns

    def close(self) -> None:
        """Close connections."""
        self.server.close()

    def _ask(self, path: str, text: str, parameters: Parameters | None) -> pa.RecordBatchReader:
        asked: dict[str, Any] = {"query": text, "format": "arrow"}
        if parameters is not None:
            from alluvia.query.parameters import named_values
            from alluvia.query.typed_parameters import of_parameters

            named_values(parameters)  # raises for values that no query takes
            asked["parameters"] = of_parameters(parameters)
        body = _json(asked)
        retries = READ_AGAIN if path == READS else WRITE_ONCE
        response = self.server.send("POST", path, body, {"Content-Type": "application/json"}, retries=retries)
        try:
            return ipc.open_stream(body_of(response))
        except pa.ArrowException as error:
            raise Unavailable(f"{self.server.url}{path} sent an answer without rows: {NOT_OURS}") from error


class ServedTable:
    """A table, or a view, behind a server."""

    def __init__(self, lake: ServedLake, name: str) -> None:
        self.lake = lake
        self.name = name

    def __repr__(self) -> str:
        return f"<ServedTable {self.name!r} of {self.lake.uri!r}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _no_attribute("ServedTable", Table, name, dir(type(self)))

    @property
    def schema(self) -> pa.Schema:
        """Return the columns. Raises `TableNotFound`."""
        return self.lake.columns(f"SELECT * FROM {self._in_sql}")  # noqa: S608 - quoted

    def count(self, *, where: str | None = None) -> int:
        """Return the number of rows, or of those that match the SQL condition `where`."""
        answer = self.lake.sql(f"SELECT count(*) AS n FROM {self._in_sql}{_condition(where)}")  # noqa: S608 - quoted
        return int(answer["n"][0].as_py())

    def scan(
        self, columns: Sequence[str] | None = None, where: str | None = None, *, limit: int | None = None
    ) -> pa.RecordBatchReader:
        """Read the rows that match the SQL condition `where`, at most `limit` of them, as they come."""
        names = "*" if columns is None else ", ".join(map(quote_name, columns))
        check_number("limit", limit)
        end = "" if limit is None else f" LIMIT {limit}"
        query = f"SELECT {names} FROM {self._in_sql}{_condition(where)}{end}"  # noqa: S608 - quoted
        schema, batches = self.lake.read(query)
        return pa.RecordBatchReader.from_batches(schema, batches)

    def to_arrow(
        self, columns: Sequence[str] | None = None, where: str | None = None, *, limit: int | None = None
    ) -> pa.Table:
        """Read rows, as `scan` does, into memory."""
        return self.scan(columns, where, limit=limit).read_all()

    def append(self, rows: Rows | Iterable[Mapping[str, Any]]) -> int:
        """Append a pyarrow Table or RecordBatchReader, or a list of dicts, in one commit; return how many rows.

        Raises `TableNotFound`, and `Invalid`, naming the column, for rows that do not fit.
        """
        given = rows if isinstance(rows, pa.Table | pa.RecordBatchReader) else _table_of(rows)
        done = upload(self.lake.server, self.name, given)
        return int(done.get("rows", done.get("accepted", 0)))

    def ingest(self, events: Events, *, key: str | None = None) -> EventsOutcome:
        """Send events: one dict, a list, or an iterator; each is stored once by its `event_id`, as by `Table.ingest`.

        `key` identifies events without an id, with their position, so that the same call again adds none. Events that
        do not fit become rejects. Raises `Unavailable` where the server does not answer: with ids or a key, the same
        call may be made again.
        """
        outcome = EventsOutcome()
        path = f"/v1/events/{quote(self.name, safe='')}"
        for body in event_bodies(events, key):
            named = {} if body.key is None else {"Idempotency-Key": body.key}
            headers = {"Content-Type": _NDJSON, **named}
            outcome = outcome.add(self.lake.server.outcome(path, body.lines, headers), body.first)
        return outcome

    @property
    def _in_sql(self) -> str:
        name = folder_name(self.name)
        if "." in name and not TABLE_OR_REJECTS.fullmatch(name):
            raise TableNotFound(f"there is no table {self.name!r}")
        return quote_table(name)


def _condition(where: str | None) -> str:
    return "" if where is None else f" WHERE (\n{where}\n)"  # a comment at its end must not take the bracket


def _table_of(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return dicts as columns. Raises `Invalid`, naming the column, for values of which Arrow makes none."""
    every = None if isinstance(rows, Mapping | str | bytes) or not isinstance(rows, Iterable) else list(rows)
    if every is None or not all(isinstance(row, Mapping) for row in every):
        kind = type(rows).__name__
        raise Invalid(f"rows: expected a pyarrow Table or RecordBatchReader, or a list of dicts, got {kind}")
    columns = {}
    for name in dict.fromkeys(name for row in every for name in row):
        try:
            columns[str(name)] = pa.array([row.get(name) for row in every])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise Invalid(f"column {name}: its values have no common type: {error}") from error
    return pa.table(columns)


def _check_one_query(text: str) -> None:
    """Raise `Invalid` for a text with more than one query: a server may run statements that write."""
    statements = parse(text)
    if len(statements) != 1 or not isinstance(statements[0].node, Query):
        raise Invalid("expected one query: send statements with sql(…)")


def _batches(stream: pa.RecordBatchReader) -> Generator[pa.RecordBatch]:
    """Yield rows as they come. Raises `Unavailable` where the connection ends before they do."""
    with stream, broken_off():
        yield from stream


def _json(value: object) -> bytes:
    from alluvia.query.parameters import to_json

    try:
        return to_json(value).encode()
    except TypeError as error:
        raise Invalid(f"parameters: a value has no form in JSON: {error}: pass text or a number") from error


def _no_attribute(owner: str, known: type, name: str, names: Iterable[str]) -> AttributeError:
    """Return the error for a name: one of the `known` class of lakes and tables needs the store."""
    if not name.startswith("_") and hasattr(known, name):
        return AttributeError(
            f"{name} needs the lake's store, and this is a server: {api_hints.at_server(name)}",
            name=name,
        )
    return api_hints.no_attribute(owner, name, {}, names)


TOKEN, IAM = "ALLUVIA_TOKEN", "iam"
TIMEOUT_SECONDS = 60.0
_HERE = ("localhost", "127.0.0.1", "::1")


def connect_server(
    url: str,
    *,
    token: str | None = None,
    auth: str | None = None,
    branch: str | None = None,
    timeout_seconds: float | str | None = None,
    **options: str | None,
) -> ServedLake:
    """Return the client of a server. Makes no request.

    Without a `token`, that of the environment variable ALLUVIA_TOKEN is sent, but not unencrypted to other machines.
    `auth="iam"` signs requests with AWS credentials, for `region` if the address does not name it. Raises `Invalid`.
    """
    parts = urlsplit(url)
    if parts.username is not None or parts.query or parts.fragment:
        raise Invalid("a server's URL is its address alone: pass a token as token=…")
    if auth not in (None, IAM) or (auth is not None and token is not None):
        raise Invalid(f"auth: the only value is {IAM!r}, which signs requests with AWS credentials and takes no token")
    unknown = next((name for name in options if name != "region" or auth is None), None)
    if unknown is not None:
        raise Invalid(
            f"{unknown} is not an option of a server: it takes token, or auth and region; branch; timeout_seconds"
        )
    if auth is None and token is None and (kept := os.environ.get(TOKEN)):
        if parts.scheme != "https" and parts.hostname not in _HERE:
            raise Invalid(f"{TOKEN} is not sent unencrypted to {parts.hostname}: use https://, or pass token=…")
        token = kept
    proof = signature(url, options.get("region")) if auth else nothing if token is None else bearer(token)
    return ServedLake(url, proof, _seconds(timeout_seconds), branch)


def _seconds(given: float | str | None) -> float:
    try:
        seconds = TIMEOUT_SECONDS if given is None else float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise Invalid("timeout_seconds: give a number above 0")
    return seconds
