"""The process that runs a query with DuckDB and writes its result. `processes.py` starts, calls and kills it.

It serves one query at a time, on request of its parent: open a database, create views, confine it, run the query,
close. Requests and replies are JSON objects, followed by bytes if they say so. It reads of the lake what it is told to
serve to the database, and it ends when its parent does.
"""

from __future__ import annotations

import importlib
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from alluvia.engine.duck.arrow_values import arrow_reader, arrow_table, told
from alluvia.engine.duck.database import OwnDatabase, confine, planner
from alluvia.engine.duck.evaluators import ROWS, registered
from alluvia.engine.duck.failures import INTERRUPT, ResultTooLarge, details_of
from alluvia.engine.duck.literals import quote_name, quote_text
from alluvia.engine.duck.native import duckdb
from alluvia.engine.queries.parse import analyse
from alluvia.engine.queries.shown_names import Shown, column_name
from alluvia.errors import AlluviaError
from alluvia.extras import needing
from alluvia.processes.child import Reply, refusal, serve
from alluvia.query.formats import format_named
from alluvia.query.process.ahead import DatabasesAhead
from alluvia.query.rendering import Overflow, render

if TYPE_CHECKING:
    from alluvia.store.caches.engine_files import EngineFiles

BATCH_ROWS = 16_384
PARSE_CPU_SECONDS = 20
_RUNS_TO_HEAR_WHY = 5
_SERVING = "alluvia.store.caches.engine_files"


class QueryDatabase:
    """One query's own database, in memory. Each method is a request, by its name."""

    def __init__(
        self, send: Callable[[Reply, bytes | pa.Buffer], None], asked: Callable[[], bool] = lambda: False
    ) -> None:
        """`send` sends a reply while a request is answered; `asked` says whether another request has come since."""
        self._send = send
        self._asked = asked
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._ahead = DatabasesAhead()
        self._files: EngineFiles | None = None
        self._sent: Callable[[], dict[str, int]] = dict
        self._steps: list[Callable[[], object]] = []
        self._shown: Shown = {}
        self._confined = self._of_network = False

    def analyse(self, text: str) -> Reply:
        """Have DuckDB read a text that a user wrote. No database needs to be open."""
        with _cpu_limit(PARSE_CPU_SECONDS):
            parsed = analyse(text)
        return {"starts": parsed.starts, "body": parsed.tree}

    def open(self, options: dict[str, str], *, of_network: bool = False) -> Reply:
        """Open the database, begin its transaction, and tell its `now()` in µs since the Unix epoch.

        `options` are DuckDB's. Its files may be those of a store `of_network`.
        """
        connection = self._ahead.take({**options, "temp_directory": ""})
        if folder := options.get("temp_directory"):  # an unused database still takes a new folder
            connection.execute(f"SET GLOBAL temp_directory = {quote_text(folder)}")
        self._connection, self._files, self._sent = connection, None, dict
        self._steps, self._shown, self._confined, self._of_network = [], {}, False, of_network
        [(now_us,)] = self._connection.execute("BEGIN").execute("SELECT epoch_us(now())").fetchall()
        return {"now_us": now_us}

    def get_ready_to_serve(self) -> Reply:
        """Load what `serve` needs."""
        with needing("aws", "a query on S3"):
            importlib.import_module(_SERVING)  # most queries do without
        return {}

    def serve(self, places: list[Any], wanted: list[Any], files: list[Any], rows: bytes) -> Reply:
        """Let the database open objects of stores as files; see `alluvia.store.caches.served.packed`."""
        from alluvia.delta.data_files.column_chunks import ColumnChunks
        from alluvia.store.caches.engine_files import EngineFiles, sent_since  # loaded by `get_ready_to_serve`
        from alluvia.store.caches.served import unpacked

        self._sent = sent_since()
        self._files = EngineFiles(unpacked(places, wanted, files, rows), ColumnChunks)
        self._open.register_filesystem(self._files)
        self._open.execute("SET enable_external_file_cache = true")  # these are read from stores
        # They never change. Otherwise DuckDB trusts nothing that it has read of a file younger than ten seconds.
        self._open.execute("SET validate_external_file_cache = 'NO_VALIDATION'")
        return {}

    @property
    def unserved(self) -> Reply | None:
        """What is said of a file that could not be read, if there is one."""
        file = None if self._files is None else self._files.unserved
        return None if file is None else {"error": {"unserved": file.name, "why": file.why}}

    def execute(self, sql: str, parameters: list[Any]) -> Reply:
        """Run a statement of the parent's own and return its rows."""
        rows = self._open.execute(sql, parameters).fetchall()
        if sql.startswith("CREATE "):
            self._steps.append(lambda: self._open.execute(sql, parameters))
        return {"rows": rows}

    def columns(self, source: str) -> Reply:
        """Return the columns of a relation, with their types."""
        kinds = OwnDatabase(self._open).columns(source)
        return {"columns": None if kinds is None else [(name, told(kind)) for name, kind in kinds]}

    def plan(self, sql: str, parameters: list[Any]) -> Reply:
        """Return the rows of a statement of the parent's own that needs no database. None needs to be open."""
        rows = arrow_table(planner(), sql, parameters)
        return {"body": _arrow(rows.schema, rows.to_batches())}

    def register(self, view: str, rows: bytes) -> Reply:
        """Give the database rows, an Arrow stream, under a name."""
        table = pa.ipc.open_stream(rows).read_all()
        self._open.register(view, table)
        self._steps.append(lambda: self._open.register(view, table))
        return {}

    def unregister(self, view: str) -> Reply:
        """Take rows back that were registered."""
        self._open.unregister(view)
        self._steps.append(lambda: self._open.unregister(view))
        return {}

    def confine(self, paths: list[str], shown: Shown | None = None) -> Reply:
        """Shut the database: from now on it opens these files and nothing else. `shown` as for `column_name`."""
        confine(self._open, paths)
        self._shown, self._confined = shown or {}, True
        return {}

    def stream(self, sql: str, rows: bytes = b"") -> Reply:
        """Run the query, and send its columns and then its rows, as Arrow streams of one batch each; leave it if asked.

        `rows` is an Arrow stream with one row, the values of the query's parameters by name.
        """
        reader = self._reader(sql, rows)
        schema = self._named(reader.schema)
        self._send({"batch": True}, _arrow(schema, []))
        for batch in reader:
            if self._asked():  # to stop: nothing else is asked before the end
                break
            self._send({"batch": True}, _arrow(schema, [_renamed(batch, schema)]))
        reader.close()  # without Python's lock, which threads that still read files wait for
        return {"end": True}

    def described(self, sql: str, rows: bytes = b"") -> Reply:
        """Send the columns of a query by DESCRIBE, which does not run it; `rows` as for `stream`."""
        columns = self._shut.execute(sql, _values(rows)).fetchall()
        nulls = ", ".join(f"NULL::{kind} AS {quote_name(name)}" for name, kind, *_ in columns)
        typed = self._reader(f"SELECT {nulls} LIMIT 0").schema
        fields = [
            field.with_name(column_name(name, self._shown)) for field, (name, *_) in zip(typed, columns, strict=True)
        ]
        return {"body": _arrow(pa.schema(fields), [])}

    def stop(self) -> Reply:
        """Say that no query runs: one that did has come to its end, or left off."""
        return {"stopped": True}

    def render(
        self, sql: str, form: str, limit_bytes: int, rows: bytes = b"", overflow_bytes: int | None = None
    ) -> Reply:
        """Run the query, and send its rows in a form of results; `rows` as for `stream`.

        With `overflow_bytes`, a result that has more is sent in parts.
        """
        reader = self._reader(sql, rows)
        chosen = format_named(form)
        overflow = None if overflow_bytes is None else Overflow(overflow_bytes, self._send_part)
        schema = self._named(reader.schema)
        try:
            rendered = render(schema, (_renamed(batch, schema) for batch in reader), chosen, limit_bytes, overflow)
        except ResultTooLarge as error:
            return {"too_large": str(error)}
        return {"rows": rendered.rows, "body": rendered.body}

    def _named(self, schema: pa.Schema) -> pa.Schema:
        """Return columns with the names that a query of the tables themselves would give them."""
        if not self._shown:
            return schema
        return pa.schema([field.with_name(column_name(field.name, self._shown)) for field in schema])

    def _reader(self, sql: str, rows: bytes = b"") -> pa.RecordBatchReader:
        """Run a query; `rows` as for `stream`. Raises `Invalid` for values that Arrow's form of them would change."""
        return arrow_reader(self._shut, sql, _values(rows), BATCH_ROWS)

    def reason(self, sql: str, rows: bytes = b"") -> dict[str, str] | None:
        """Run a query once more, to hear why it failed; None if that is not to be heard.

        Where one of its threads fails, DuckDB 1.5 says at times that another was interrupted, which never happens here.
        The failure ended the transaction, so that each run needs one of its own, with the same views.
        """
        for _ in range(_RUNS_TO_HEAR_WHY):
            try:
                self._begin_again()
                for _ in self._reader(sql, rows):
                    if self._asked():
                        return None
            except (duckdb.Error, OSError) as error:
                if (details := details_of(error))["exception_type"] != INTERRUPT:
                    return details
            except AlluviaError:
                return None
            else:
                return None
        return None

    def _begin_again(self) -> None:
        """Begin another transaction, and take the same steps as in the failed one."""
        self._open.execute("ROLLBACK").execute("BEGIN")
        for step in self._steps:
            step()

    def _send_part(self, part: bytes) -> None:
        self._send({"batch": True}, part)

    def compute(self, sql: str, limit_bytes: int, rows: bytes) -> Reply:
        """Run a query over rows, an Arrow stream that it knows as `rows`, and send its own, unless they are too large.

        The query is a user's.
        """
        with registered(ROWS, pa.ipc.open_stream(rows), self._open):
            computed = arrow_table(self._shut, sql)
        return (
            {"too_large": True}
            if computed.nbytes > limit_bytes
            else {"body": _arrow(computed.schema, computed.to_batches())}
        )

    def sent(self) -> Reply:
        """Send no more requests to stores, and report how many there were, by kind."""
        if self._files is not None:
            self._files.end()
        return self._sent()

    def close(self) -> Reply:
        """Close the database if one is open, and start to open others for later queries."""
        connection, self._connection = self._connection, None
        if self._files is not None:
            self._files.end()
        if connection is not None:
            connection.close()
            self._ahead.refill()
            if self._of_network and _SERVING not in sys.modules:  # while no request waits
                Thread(target=importlib.import_module, args=(_SERVING,), daemon=True).start()
        return {}

    @property
    def _open(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            raise RuntimeError("no database is open")
        return self._connection

    @property
    def _shut(self) -> duckdb.DuckDBPyConnection:
        """The database for a user's text. It must be confined."""
        if not self._confined:
            raise RuntimeError("the database is not confined")
        return self._open


def _renamed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return batch if batch.schema is schema else pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _arrow(schema: pa.Schema, batches: list[pa.RecordBatch]) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def _values(rows: bytes) -> dict[str, Any] | None:
    return dict(pa.ipc.open_stream(rows).read_all().to_pylist()[0]) if rows else None


@contextmanager
def _cpu_limit(seconds: int) -> Iterator[None]:
    """Have the system end this process if the block takes more CPU time.

    DuckDB's lexer keeps Python's lock, so that no thread could end a process whose parent is gone.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def main(descriptor: int) -> None:
    """Serve the parent at the other end of a socket until it hangs up."""
    serve(descriptor, lambda send, asked: partial(_answer, QueryDatabase(send, asked)))


def _answer(database: QueryDatabase, name: str, request: dict[str, Any]) -> Reply:
    """Run the steps `before` a request, then answer it. Nothing runs after a step that failed."""
    for step in request.pop("before", ()):
        number = step.pop("step")
        reply = _answer(database, step.pop("do"), step)
        if not reply.keys().isdisjoint(("error", "refused")):
            return {**reply, "step": number}
    if name == "close":
        return database.close()
    try:
        answered: Reply = getattr(database, name)(**request)
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        if (unserved := database.unserved) is not None:
            return unserved
        details = details_of(error)
        if details["exception_type"] == INTERRUPT and name in ("stream", "render"):
            details = database.reason(request["sql"], request.get("rows", b"")) or details
        return {"error": details}
    except AlluviaError as error:
        return refusal(error)
    return answered
