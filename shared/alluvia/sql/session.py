"""One query's own DuckDB database: views over its files, a time limit, a private folder, all gone with it."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import duckdb
import pyarrow as pa

from alluvia.errors import AlluviaError, Corrupt, Invalid, ObjectNotFound, Unavailable
from alluvia.sql.duck import S3_OPTIONS, confine, connect, use_s3
from alluvia.sql.failures import Context, QueryTooCostly, translate
from alluvia.sql.rewrite import VIEW_SCHEMA
from alluvia.sql.scans import Scan
from alluvia.store import Store
from alluvia.table.relation import escape_glob
from alluvia.table.views import Views

BATCH_ROWS = 16_384
_INTERRUPT_SECONDS = 0.05
HEADS_MAX = 64
"""So many files are looked for when DuckDB could not open one and does not say which."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a query may take; None is no limit of ours (DuckDB's own is 80% of the memory, and every core)."""

    timeout_seconds: float | None = None
    memory_bytes: int | None = None
    threads: int | None = None
    spill_bytes: int | None = None


class Session:
    """Runs one query, and must be closed after it. The time limit runs from the start.

    `copied` says of which data files, by name, DuckDB is given a copy that this library made.
    """

    def __init__(self, store: Store, limits: Limits, copied: Callable[[str], bool] = lambda _: False) -> None:
        self._store = store
        self._limits = limits
        self._copied = copied
        self._folder = Path(tempfile.mkdtemp(prefix="alluvia-query-"))
        self._closed = threading.Event()
        self._expired = False
        self._files: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._hidden: set[str] = {str(self._folder)}
        try:
            self._connection = self._connect()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._views = Views(self._connection, VIEW_SCHEMA, store, self._folder, self._check_time)
        self._watcher = threading.Thread(target=self._interrupt_late, daemon=True)
        self._watcher.start()

    def begin(self) -> int:
        """Begin the query's transaction, and return its `now()` in µs since the Unix epoch."""
        row = self._connection.execute("BEGIN").execute("SELECT epoch_us(now())").fetchone()
        return int(row[0]) if row else 0

    def open(self, scans: Sequence[Scan], names: Sequence[str]) -> None:
        """Make a view for each scan, by these names, and shut the database."""
        self._connection.execute(f"CREATE SCHEMA {VIEW_SCHEMA}")
        for scan, name in zip(scans, names, strict=True):
            self._check_time()
            try:
                self._views.create(name, scan.snapshot, scan.files, self._urls(scan), self._copied)
            except duckdb.Error as error:
                found = self._failure(error, Context(""))
                if not isinstance(found, Invalid) or isinstance(found, QueryTooCostly):
                    raise found from None
                msg = f"the data files of {scan.reference.shown} do not fit the table's schema"
                raise Corrupt(msg) from None
        self._files |= self._views.copies
        confine(self._connection, sorted({form for path in self._files for form in (path, escape_glob(path))}))

    def run(self, text: str, source: str, position: Callable[[int], int]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Run a text; return the columns and, as they come, the rows. Raises our errors for DuckDB's.

        The first rows are awaited: what is wrong with the files shows by then, most of the time.
        `source` is what the user wrote, and `position` maps a byte offset in `text` to one in it.
        """
        context = Context(source, position)
        self._check_time()
        try:
            reader = self._connection.execute(text).to_arrow_reader(BATCH_ROWS)
        except duckdb.Error as error:
            raise self._failure(error, context) from None
        batches = self._batches(reader, context)
        first = next(batches, None)
        return reader.schema, batches if first is None else chain([first], batches)

    def close(self) -> None:
        """Stop what runs, and remove every trace."""
        self._closed.set()
        self._watcher.join()
        self._connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _batches(self, reader: pa.RecordBatchReader, context: Context) -> Iterator[pa.RecordBatch]:
        while True:
            self._check_time()
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            except (OSError, pa.ArrowException, duckdb.Error) as error:
                raise self._failure(error, context) from None
            yield batch

    def _connect(self) -> duckdb.DuckDBPyConnection:
        secret = self._store.duckdb_secret()
        connection = connect(self._options() | ({} if secret is None else S3_OPTIONS))
        if secret is not None:
            use_s3(connection, secret)
        return connection

    def _options(self) -> dict[str, str]:
        options = {"temp_directory": str(self._folder / "spill")}
        if self._limits.memory_bytes is not None:
            options["memory_limit"] = f"{self._limits.memory_bytes}B"
        if self._limits.spill_bytes is not None:
            options["max_temp_directory_size"] = f"{self._limits.spill_bytes}B"
        if self._limits.threads is not None:
            options["threads"] = str(self._limits.threads)
        return options

    def _urls(self, scan: Scan) -> list[str]:
        """Return where DuckDB finds a scan's files: in the store, or copied from a store that it cannot open."""
        urls = []
        for file in scan.files:
            key = scan.snapshot.key(file)
            url = self._store.url(key)
            if url is None:
                url = self._copy(key, scan)
            else:
                self._hidden.add(url.removesuffix(key))
                self._keys[url] = key
            self._files[url] = file.path
            urls.append(url)
        return urls

    def _copy(self, key: str, scan: Scan) -> str:
        path = self._folder / f"{len(self._files)}.parquet"
        self._check_time()
        try:
            self._store.get_file(key, path)
        except ObjectNotFound as error:
            msg = f"data file {key} of version {scan.snapshot.version} is missing"
            raise Corrupt(msg) from error
        return str(path)

    def _interrupt_late(self) -> None:
        if self._closed.wait(self._limits.timeout_seconds):
            return
        self._expired = True
        # Again and again, since an interrupt between two statements stops neither.
        while not self._closed.wait(_INTERRUPT_SECONDS):
            self._connection.interrupt()

    def _check_time(self) -> None:
        if self._expired:
            raise QueryTooCostly(self._too_slow())

    def _too_slow(self) -> str:
        return (
            f"the query took longer than the {self._limits.timeout_seconds:g} seconds allowed: "
            "narrow it by time or another column of the WHERE clause, or select fewer columns"
        )

    def _failure(self, error: Exception, context: Context) -> AlluviaError:
        if self._expired:
            return QueryTooCostly(self._too_slow())
        known = Context(
            text=context.text,
            position=context.position,
            files=self._files,
            hidden=tuple(sorted(self._hidden, key=len, reverse=True)),
            memory_limit_bytes=self._limits.memory_bytes,
        )
        found = translate(error, known)
        if isinstance(found, Unavailable) and (path := self._missing(str(error))) is not None:
            return Corrupt(f"data file {path} is missing")
        return found

    def _missing(self, message: str) -> str | None:
        """Return the name of a file that is not in the store, of those that a message of DuckDB's may be about."""
        named = [url for url in self._keys if url in message] or list(self._keys)[:HEADS_MAX]
        return next((self._files[url] for url in named if self._store.head(self._keys[url]) is None), None)
