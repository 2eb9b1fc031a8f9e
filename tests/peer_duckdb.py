"""DuckDB of the version that extensions for Delta and S3 have wheels for, which is not ours: in a process of its own.

It lies in a folder of its own, which the Makefile fills. Run as a script, this file is that process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

FOLDER = Path(sys.prefix) / "judges"
_numbers = count()


def version(package: str) -> str:
    """Return the version of a package in the peer's folder."""
    (found,) = metadata.distributions(name=package, path=[str(FOLDER)])
    return found.version


class PeerError(Exception):
    """DuckDB refuses a statement."""


class Found:
    """The rows of a statement."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def to_arrow_table(self) -> pa.Table:
        return self._table

    def fetchall(self) -> list[tuple[Any, ...]]:
        return list(zip(*(column.to_pylist() for column in self._table.columns), strict=True))


class Peer:
    """A new database with some extensions; `options` are a lake's on S3, for the credentials."""

    def __init__(self, *extensions: str, options: Mapping[str, str] | None = None) -> None:
        self._number = next(_numbers)
        self._ask("open", extensions=[*extensions, *(["httpfs"] if options else [])])
        if options:
            self.execute(secret(options))

    def execute(self, query: str) -> Found:
        """Run a statement. Raises `PeerError` with DuckDB's message."""
        return Found(pa.ipc.open_stream(self._ask("execute", query=query)).read_all())

    def close(self) -> None:
        self._ask("close")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, name: str, **request: Any) -> bytes:
        pipe = _process(os.getpid())
        pipe.send_bytes(json.dumps({"do": name, "number": self._number, **request}).encode())
        reply = pipe.recv_bytes()
        if reply.startswith(b"!"):
            raise PeerError(reply[1:].decode())
        return reply


def secret(options: Mapping[str, str]) -> str:
    """Return the statement that gives DuckDB a lake's options on S3."""
    endpoint = options["endpoint_url"].removeprefix("http://")
    return (
        f"CREATE OR REPLACE SECRET peer (TYPE s3, KEY_ID '{options['access_key_id']}', "
        f"SECRET '{options['secret_access_key']}', REGION '{options['region']}', ENDPOINT '{endpoint}', "
        "URL_STYLE 'path', USE_SSL false)"
    )


def use_here() -> None:
    """Have this process import DuckDB from that folder, for what must be measured in it."""
    assert not {"duckdb", "_duckdb"} & sys.modules.keys()
    sys.path.insert(0, str(FOLDER))


def load(connection: Any, *extensions: str) -> None:
    """Load extensions from their wheels; the connection must allow unsigned ones."""
    for name in extensions:
        (path,) = FOLDER.glob(f"duckdb_extension_{name}/extensions/*/{name}.duckdb_extension")
        connection.execute(f"LOAD '{path}'")


@cache
def _process(_: int) -> Connection:
    assert (FOLDER / "duckdb").is_dir(), f"{FOLDER} is missing: `make test` fills it"
    ours, theirs = Pipe()
    with theirs:
        command = [sys.executable, __file__, str(theirs.fileno())]
        subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    return ours


def _serve(pipe: Connection) -> None:
    """Answer until the other end hangs up."""
    use_here()
    import duckdb

    open_ones: dict[int, Any] = {}
    while True:
        try:
            request = json.loads(pipe.recv_bytes())
        except EOFError:
            return
        number, reply = request["number"], b""
        try:
            if request["do"] == "open":
                # It remembers nothing of the files that it has read.
                open_ones[number] = duckdb.connect(
                    config={"allow_unsigned_extensions": "true", "enable_external_file_cache": "false"}
                )
                open_ones[number].execute("SET GLOBAL TimeZone = 'UTC'")
                load(open_ones[number], *request["extensions"])
            elif request["do"] == "execute":
                reply = _arrow(open_ones[number].execute(request["query"]).to_arrow_table())
            else:
                open_ones.pop(number).close()
        except duckdb.Error as error:
            reply = b"!" + str(error).encode()
        pipe.send_bytes(reply)


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
