"""The processes that run queries, and compute expressions, as `alluvia.processes` starts, watches and kills them."""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from alluvia import errors
from alluvia.engine.duck.arrow_values import DuckType, read_told
from alluvia.engine.duck.failures import EngineError, ResultTooLarge, UnservedFile
from alluvia.engine.queries.parse import Analysis
from alluvia.engine.queries.shown_names import Shown
from alluvia.lazy_dataclasses import dataclass
from alluvia.processes.pool import OutOfMemory, OutOfTime, Pool, ProcessDied, Watch, Worker
from alluvia.query.rendering import RenderedRows
from alluvia.store.caches.served import ServedFile, packed
from alluvia.store.requests import note_requests

DESCRIBE = "DESCRIBE "
_WITHOUT_DATABASE = ("analyse", "plan")
_CLOSE_SECONDS = 5.0
_STOP_SECONDS = 0.25
"""How long a process may take to leave a query whose rows are not wanted: to start another takes about as long."""


class QueryWorker(Worker):
    """A process that runs queries."""

    def __init__(self) -> None:
        super().__init__("alluvia.query.process.worker", failure)


def failure(reply: Mapping[str, Any]) -> EngineError:
    """Return the error of a reply: DuckDB's, or that of a file that it could not be given."""
    details, step = reply["error"], reply.get("step")
    if "unserved" in details:
        return UnservedFile(details["unserved"], details["why"], step)
    return EngineError(details, step)


POOL = Pool(QueryWorker)
atexit.register(POOL.close)


@dataclass(frozen=True, slots=True)
class LargeResults:
    """A place for results of more than some bytes: `keep` takes their parts, to the end."""

    after_bytes: int
    keep: Callable[[Iterator[bytes]], None]


@dataclass(frozen=True, slots=True)
class ResultRows:
    """The rows of a statement, with values that JSON has."""

    rows: list[list[Any]]

    def fetchall(self) -> list[list[Any]]:
        """Return all of them."""
        return self.rows


class Engine:
    """A query's database in a process of its own: what makes views needs of a DuckDB connection, and the query."""

    def __init__(self, watch: Watch, *, of_network: bool = False) -> None:
        """`of_network`: its files may be those of a store that is on a network."""
        self._watch = watch
        self._of_network = of_network
        self._worker = POOL.take()
        self._rows: Generator[pa.RecordBatchReader] | None = None
        self._answered, self._closed, self._serves = True, False, False
        self._opening = self._getting_ready = False
        self._now_us = 0
        self._waiting: list[dict[str, Any]] = []
        self.steps = 0
        """How many statements `later` has taken."""

    def analyse(self, text: str, options: Mapping[str, str] | None = None) -> Analysis:
        """Have DuckDB parse a text, without a database. With `options`, a database opens meanwhile, as in `open`."""
        with self._asking("analyse", text=text):
            if options is not None:
                self.open(options)
            return Analysis(self._worker.reply(self._watch)["starts"], self._worker.data(self._watch))

    def open(self, options: Mapping[str, str]) -> None:
        """Start to open the database. The next request waits until it is open, and raises its error."""
        self._worker.send("open", options=options, of_network=self._of_network)
        self._opening = True

    @property
    def now_us(self) -> int:
        """Wait until the database is open, and return its `now()` in µs since the Unix epoch."""
        with self._asking(None):
            return self._now_us

    def later(self, sql: str) -> None:
        """Run a statement of our own, which returns nothing, before the next request is answered.

        If the statement fails, so does that request. The `step` of the error is the statement's number, from 0.
        """
        self._put_off("execute", sql=sql, parameters=())

    def _put_off(self, name: str, **request: Any) -> None:
        self._waiting.append({"step": self.steps, "do": name, **request})
        self.steps += 1

    def get_ready_to_serve(self) -> None:
        """Have the process load what `serve` needs, while the files' footers are fetched."""
        self._worker.send("get_ready_to_serve")
        self._getting_ready = True

    def serve(self, files: Sequence[ServedFile]) -> None:
        """Let the database open objects of stores as files."""
        self._serves = True
        request, tails = packed(files)
        self._ask("serve", pa.py_buffer(tails), **request)

    def execute(self, query: str, parameters: Sequence[Any] = ()) -> ResultRows:
        """Run a statement of our own."""
        return ResultRows(self._ask("execute", sql=query, parameters=parameters)["rows"])

    def register(self, view_name: str, python_object: pa.Table) -> None:
        """Give the database rows under a name."""
        self._ask("register", _arrow(python_object), view=view_name)

    def unregister(self, view_name: str) -> None:
        """Take rows back that were registered."""
        self._ask("unregister", view=view_name)

    def columns(self, source: str) -> list[tuple[str, DuckType]] | None:
        """Return the columns of a relation; None where it does not bind."""
        columns = self._ask("columns", source=source)["columns"]
        return None if columns is None else [(name, read_told(kind)) for name, kind in columns]

    def plan(self, sql: str, parameters: Sequence[Any]) -> pa.Table:
        """Return the rows of a statement of our own that needs no table, as a plan does. Raises `EngineError`."""
        with self._asking("plan", sql=sql, parameters=parameters):
            self._worker.reply(self._watch)
            return pa.ipc.open_stream(self._worker.data(self._watch)).read_all()

    def confine(self, paths: Sequence[str], shown: Shown | None = None) -> None:
        """Confine the database before the next request: from then on it opens these files and nothing else.

        `shown` as for `column_name`.
        """
        self._put_off("confine", paths=paths, shown=dict(shown or {}))

    def stream(self, sql: str, values: pa.Table | None = None) -> Iterator[pa.RecordBatchReader]:
        """Run the query and yield its rows as they come; the first batch has the columns and no rows.

        `values` has one row, the values of the query's parameters by name.
        """
        self._rows = self._streamed(sql, values)
        return self._rows

    def _streamed(self, sql: str, values: pa.Table | None) -> Generator[pa.RecordBatchReader]:
        with self._asking("stream", None if values is None else _arrow(values), sql=sql):
            while "batch" in self._worker.reply(self._watch):
                yield pa.ipc.open_stream(self._worker.data(self._watch))

    def described(self, sql: str, values: pa.Table | None = None) -> pa.Schema:
        """Return the columns of a query, which is not run."""
        with self._asking("described", None if values is None else _arrow(values), sql=DESCRIBE + sql):
            self._worker.reply(self._watch)
            return pa.ipc.open_stream(self._worker.data(self._watch)).schema

    def render(
        self,
        sql: str,
        form: str,
        limit_bytes: int,
        values: pa.Table | None = None,
        large: LargeResults | None = None,
    ) -> RenderedRows:
        """Run the query and return its rows in a form; without a body, if they were large and went elsewhere.

        Raises `ResultTooLarge` where they are more than the limit.
        """
        given = None if values is None else _arrow(values)
        overflow_bytes = None if large is None else large.after_bytes
        with self._asking("render", given, sql=sql, form=form, limit_bytes=limit_bytes, overflow_bytes=overflow_bytes):
            reply = self._rendered()
            if large is None or "batch" not in reply:
                return RenderedRows(self._worker.data(self._watch), reply["rows"])
            rows = 0

            def parts(reply: dict[str, Any]) -> Iterator[bytes]:
                nonlocal rows
                while "batch" in reply:
                    yield self._worker.data(self._watch)
                    reply = self._rendered()
                yield self._worker.data(self._watch)
                rows = reply["rows"]

            large.keep(parts(reply))
            return RenderedRows(b"", rows)

    def _rendered(self) -> dict[str, Any]:
        reply = self._worker.reply(self._watch)
        if "too_large" in reply:
            self._answered = True
            raise ResultTooLarge(reply["too_large"])
        return reply

    def compute(self, sql: str, rows: pa.Table, limit_bytes: int) -> pa.Table | None:
        """Run a query over rows, which it knows as `rows`; None if its own rows take more bytes than the limit."""
        with self._asking("compute", _arrow(rows), sql=sql, limit_bytes=limit_bytes):
            if "too_large" in self._worker.reply(self._watch):
                return None
            return pa.ipc.open_stream(self._worker.data(self._watch)).read_all()

    def close(self, *, wait: bool = False) -> None:
        """End the query. Its process takes the next one if it has answered every request.

        With `wait`, return only once its database is closed.
        """
        if self._closed:
            return
        self._closed = True
        if self._rows is not None:
            with contextlib.suppress(ValueError):  # where another thread waits for rows, which learns of it by the kill
                self._rows.close()
        if self._answered:
            self._watch = Watch(time.monotonic() + _CLOSE_SECONDS)
            self._waiting = []
            with contextlib.suppress(ProcessDied, EngineError, OutOfTime, OutOfMemory):
                self._await_what_began()
                for kind, count in self._ask("sent").items() if self._serves else ():
                    note_requests(kind, count)
                POOL.give_back(self._worker, wait=wait)
                return
        self._worker.kill()

    def _ask(self, name: str, rows: pa.Buffer | None = None, **request: Any) -> dict[str, Any]:
        with self._asking(name, rows, **request):
            return self._worker.reply(self._watch)

    @contextmanager
    def _asking(self, name: str | None, rows: pa.Buffer | None = None, **request: Any) -> Iterator[None]:
        """Send a request; the block takes all that comes back. A process is left as it is only by a full answer."""
        self._answered = False
        try:
            self._await_what_began()
            if name is not None:
                if self._waiting and name not in _WITHOUT_DATABASE:
                    request["before"], self._waiting = self._waiting, []
                self._worker.send(name, rows, **request)
            yield
        except EngineError:
            self._answered = True
            raise
        except GeneratorExit:
            self._stop()
            raise
        except BaseException as error:
            self._answered = self._answered or error is self._worker.refusal
            if not self._answered:
                self._worker.kill()
            raise
        self._answered = True

    def _await_what_began(self) -> None:
        if self._opening:
            self._opening = False
            self._now_us = self._worker.reply(self._watch)["now_us"]
        if self._getting_ready:
            self._getting_ready = False
            self._worker.reply(self._watch)

    def _stop(self) -> None:
        """Have the process leave a query whose rows are not wanted, or kill it."""
        watch = Watch(time.monotonic() + _STOP_SECONDS, self._watch.memory_bytes)
        reply: dict[str, Any] = {}
        with contextlib.suppress(ProcessDied, OutOfTime, OutOfMemory):
            self._worker.send("stop")
            while "stopped" not in reply:
                with contextlib.suppress(EngineError, errors.AlluviaError):  # the query failed before it heard
                    reply = self._worker.reply(watch)
                    if "batch" in reply:
                        self._worker.data(watch)
            self._answered = True


def _arrow(rows: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()
