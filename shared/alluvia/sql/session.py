"""One query's own DuckDB database: views over its files, a time limit, a private folder, all gone with it."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from alluvia.errors import AlluviaError, Corrupt, Invalid, ObjectNotFound
from alluvia.sql.duck import S3_OPTIONS, confine, connect, use_s3
from alluvia.sql.failures import Context, QueryTooCostly, translate
from alluvia.sql.rewrite import VIEW_SCHEMA
from alluvia.sql.scans import Scan
from alluvia.store import Store
from alluvia.table.relation import relation_sql

BATCH_ROWS = 16_384
_INTERRUPT_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Limits:
    """What a query may take; None is no limit of ours (DuckDB's own is 80% of the memory, and every core)."""

    timeout_seconds: float | None = None
    memory_bytes: int | None = None
    threads: int | None = None
    spill_bytes: int | None = None


class Session:
    """Runs one query, and must be closed after it. The time limit runs from the start."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._folder = Path(tempfile.mkdtemp(prefix="alluvia-query-"))
        self._closed = threading.Event()
        self._expired = False
        self._files: dict[str, str] = {}
        self._hidden: set[str] = {str(self._folder)}
        secret = _secret(store)
        self._connection = connect(self._options() | ({} if secret is None else S3_OPTIONS))
        if secret is not None:
            use_s3(self._connection, secret)
        self._watcher = threading.Thread(target=self._interrupt_late, daemon=True)
        self._watcher.start()

    def begin(self) -> int:
        """Begin the query's transaction, and return its `now()` in µs since the Unix epoch."""
        row = self._connection.execute("BEGIN").execute("SELECT epoch_us(now())").fetchone()
        return int(row[0]) if row else 0

    def open(self, scans: Sequence[Scan], names: Sequence[str]) -> None:
        """Make a view for each scan, by these names, and shut the database."""
        paths: set[str] = set()
        self._connection.execute(f"CREATE SCHEMA {VIEW_SCHEMA}")
        for scan, name in zip(scans, names, strict=True):
            urls = self._urls(scan)
            paths.update(urls)
            snapshot = scan.snapshot
            relation = relation_sql(snapshot.schema, snapshot.partition_columns, scan.files, urls)
            self._check_time()
            try:
                self._connection.execute(f"CREATE VIEW {VIEW_SCHEMA}.{name} AS {relation}")
            except duckdb.Error as error:
                found = self._failure(error, Context(""))
                if not isinstance(found, Invalid) or isinstance(found, QueryTooCostly):
                    raise found from None
                msg = f"the data files of {scan.reference.shown} do not fit the table's schema"
                raise Corrupt(msg) from None
        confine(self._connection, sorted(paths))

    def run(self, text: str, source: str, position: Callable[[int], int]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Run a text; return the columns and, as they come, the rows. Raises our errors for DuckDB's.

        `source` is what the user wrote, and `position` maps a byte offset in `text` to one in it.
        """
        context = Context(source, position)
        self._check_time()
        try:
            reader = self._connection.execute(text).to_arrow_reader(BATCH_ROWS)
        except duckdb.Error as error:
            raise self._failure(error, context) from None
        return reader.schema, self._batches(reader, context)

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
        return translate(error, known)


def _secret(store: Store) -> dict[str, str | bool] | None:
    """Return the parameters of DuckDB's S3 secret, if the store is one on S3 or wraps one."""
    inner: object = store
    while inner is not None:
        if (method := getattr(inner, "duckdb_secret", None)) is not None:
            return dict(method())
        inner = getattr(inner, "inner", None)
    return None
