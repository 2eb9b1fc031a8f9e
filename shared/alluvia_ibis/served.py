"""A lake behind a server: `alluvia serve`, or the functions on AWS, by the routes that they all have."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import IO, Any
from urllib.parse import quote

import orjson
import pyarrow as pa
from pyarrow import ipc, parquet

from alluvia.engine.duck.literals import quote_name
from alluvia.errors import Invalid, Unavailable
from alluvia.sql.grammar.nodes import Query
from alluvia.sql.grammar.statements import parse
from alluvia.sql.showing import sql_type
from alluvia.table_names import REJECTS
from alluvia_ibis.access import LakeAccess, NamedTable, Rows
from alluvia_ibis.requests import NOT_OURS, READ_AGAIN, WRITE_ONCE, LakeServer, NotYet, Proof, body_of, broken_off

WHOLE_BYTES_MAX = 4_000_000
"""A larger file goes in parts: a request to Lambda takes little more."""
WAIT_SECONDS, WAITS_MAX = 5.0, 180


def upload(server: LakeServer, table: str, rows: Rows) -> None:
    """Append rows to an existing table, all or none. Raises `Invalid` where a table of events rejects some."""
    path = f"/v1/upload/{quote(table, safe='')}"
    asked = "format=parquet&create=false"
    with tempfile.TemporaryFile() as file:
        with parquet.ParquetWriter(file, rows.schema, compression="zstd") as writer:
            if isinstance(rows, pa.Table):
                writer.write_table(rows)
            else:
                for batch in rows:
                    writer.write_batch(batch)
        size = file.tell()
        file.seek(0)
        if size <= WHOLE_BYTES_MAX:
            done = server.json("POST", f"{path}?{asked}", file.read(), "application/vnd.apache.parquet")
        else:
            done = _in_parts(server, f"{path}?{asked}", file, size)
    if done.get("rejected"):
        raise Invalid(
            f"{done['rejected']} of the rows were rejected, and the others stored: {table} is a table of events, and "
            f"{table}._rejects has the reasons"
        )


def _in_parts(server: LakeServer, path: str, file: IO[bytes], size: int) -> Any:
    begun = server.json("POST", f"{path}&bytes={size}")
    for part in begun["parts"]:
        server.put_part(part["url"], file.read(begun["part_bytes"]))
    told = orjson.dumps({"bytes": size})
    for _ in range(WAITS_MAX):  # to complete an upload again gives the first answer
        try:
            done = server.json("POST", begun["complete"], told)
        except NotYet:
            done = None  # API Gateway does not wait for long
        if done is not None and done.get("state") != "running":
            return done
        time.sleep(WAIT_SECONDS)
    raise Unavailable("the server has not said whether it stored the rows: check the table before you send them again")


READS, WRITES, TABLES = "/q", "/sql", "/v1/tables"


class ServedLake(LakeAccess):
    """A lake that a server answers for, with the rights of a token."""

    def __init__(self, url: str, proof: Proof, timeout_seconds: float, branch: str | None = None) -> None:
        self._server = LakeServer(url, proof, timeout_seconds, branch)

    @property
    def version(self) -> str:
        document = self._server.json("GET", "/openapi.json", retries=READ_AGAIN)
        return str(document["info"]["version"])

    def tables(self) -> Sequence[str]:
        listing = self._server.json("GET", TABLES, retries=READ_AGAIN)
        return [str(each["name"]) for each in listing["tables"]]

    def schema_of(self, table: NamedTable) -> pa.Schema:
        name = quote_name(table.name) + (f".{quote_name(REJECTS)}" if table.rejects else "")
        return self.columns(f"SELECT * FROM {name}")  # noqa: S608

    def columns(self, query: str) -> pa.Schema:
        _check_one_query(query)
        # which reads no data file. A comment at the end of the query must not take the bracket.
        columns, batches = self.read(f"SELECT * FROM (\n{query}\n) LIMIT 0")  # noqa: S608
        batches.close()
        return columns

    def read(self, query: str) -> tuple[pa.Schema, Generator[pa.RecordBatch]]:
        _check_one_query(query)
        stream = self._ask(READS, query)
        return stream.schema, _batches(stream)

    def execute(self, text: str) -> pa.Table:
        writes = any(each.writes for each in parse(text))
        stream = self._ask(WRITES if writes else READS, text)
        return pa.Table.from_batches(_batches(stream), stream.schema)

    def create(self, name: str, schema: pa.Schema, rows: Rows | None, *, replace: bool) -> None:
        columns = [
            f"{quote_name(field.name)} {sql_type(field.type)}{'' if field.nullable else ' NOT NULL'}"
            for field in schema
        ]
        replacing = "OR REPLACE " if replace else ""
        self.execute(f"CREATE {replacing}TABLE {quote_name(name)} ({', '.join(columns)})")
        if rows is not None:
            try:
                self.append(name, rows)
            except BaseException:
                with suppress(Exception):  # what went wrong first is what to tell
                    self.execute(f"DROP TABLE {quote_name(name)}")
                raise

    def append(self, name: str, rows: Rows) -> None:
        upload(self._server, name, rows)

    def close(self) -> None:
        self._server.close()

    def _ask(self, path: str, text: str) -> pa.RecordBatchReader:
        body = orjson.dumps({"query": text, "format": "arrow"})
        retries = READ_AGAIN if path == READS else WRITE_ONCE
        response = self._server.send("POST", path, body, {"Content-Type": "application/json"}, retries=retries)
        try:
            return ipc.open_stream(body_of(response))
        except pa.ArrowException as error:
            raise Unavailable(f"{self._server.url}{path} sent an answer without rows: {NOT_OURS}") from error


def _check_one_query(text: str) -> None:
    """Raise `Invalid` for a text that is more than one query: a server may run what it writes."""
    statements = parse(text)
    if len(statements) != 1 or not isinstance(statements[0].node, Query):
        raise Invalid("expected one query: send statements with raw_sql")


def _batches(stream: pa.RecordBatchReader) -> Generator[pa.RecordBatch]:
    """Yield rows as they come. Raises `Unavailable` where the connection ends before they do."""
    with stream, broken_off():
        yield from stream
