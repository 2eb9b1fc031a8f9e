"""The DuckDB database of one query, in a separate process: views over its files, limits, a working folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from alluvia.delta.log.actions import AddFile
from alluvia.engine.duck.failures import (
    UNREAD,
    Context,
    EngineError,
    QueryTooCostly,
    UnreadableFile,
    UnreadField,
    UnservedFile,
    translate,
)
from alluvia.engine.duck.literals import quote_text
from alluvia.engine.duck.relation import empty_sql, escape_glob, relation_sql, shown_sql
from alluvia.engine.duck.views import Views
from alluvia.engine.queries.engine_faults import TOP_N
from alluvia.engine.queries.parse import Analysis, Statement
from alluvia.engine.queries.shown_names import VIEW_SCHEMA, Shown
from alluvia.errors import AlluviaError, Corrupt, Invalid, ObjectNotFound, Unavailable
from alluvia.operations.reading.relations import Files, Inputs, LocalRows
from alluvia.processes.pool import Watch
from alluvia.query.describe import PROPERTIES, field_hint
from alluvia.query.known_texts import known_statement, parsed
from alluvia.query.limits import QueryLimits
from alluvia.query.process.ends import missing_file, unlike, unserved, within
from alluvia.query.process.fetching import (
    TAILS_AT_ONCE,
    TAILS_BYTES,
    footer,
    small_files,
    tail_of,
    wanted_columns,
)
from alluvia.query.process.processes import DESCRIBE, Engine, LargeResults
from alluvia.query.process.sized_lists import sized_view, sizes_of
from alluvia.query.rendering import RenderedRows
from alluvia.recent import Recent
from alluvia.scratch import scratch_root
from alluvia.store import Store
from alluvia.store.caches.file_cache import FILES, Held
from alluvia.store.caches.range_cache import RANGES
from alluvia.store.caches.served import ServedFile, WantedColumns, name_of
from alluvia.store.numbers import number_of

_TREE_BYTES_MAX = 100_000
_ANALYSES: Recent[str, Analysis] = Recent(100 * _TREE_BYTES_MAX)
"""Syntax trees by text; consoles and published queries send the same texts again."""


class Session:
    """Runs one query, and must be closed after it.

    `watch` has the limits as a process is held to them, with the time at which the query must be done.
    `copied` says of which data files, by name, DuckDB is given a copy that this library made.
    """

    def __init__(
        self,
        store: Store,
        limits: QueryLimits,
        watch: Watch,
        copied: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._store = store
        self._limits = limits
        self._watch = watch
        self._copied = copied
        self._files: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._served: list[ServedFile] = []
        self._held = Held()
        self._values: pa.Table | None = None
        self._engine = Engine(watch, of_network=store.parallel)
        self._closed = False
        self._folder = scratch_root() / f"query-{uuid4().hex}"
        self._spill = self._folder.with_name(f"{self._folder.name}-spill")
        self._hidden: set[str] = {str(self._folder)}
        self._reads_events = False
        self._begun = False
        self._tables: dict[int, str] = {}
        self.shown: Shown = {}
        self._views = Views(self._engine, VIEW_SCHEMA, store, self._folder, self.check_time)

    @property
    def folder(self) -> Path:
        """Return the session's folder, for files that it is about to open."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        return self._folder

    def parse(self, text: str) -> Statement:
        """Return a parsed query. Its database opens meanwhile. Raises what `parse` does."""
        if known_statement(text) is not None:
            with within(self._limits):
                self._begin()
        return parsed(text, self._analyse_and_begin)

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self._engine.open(self._limits.engine_options(self._spill))

    def analyse(self, text: str) -> Analysis:
        """Have DuckDB read a text, which may take it as long as the query has."""
        return self._analysed(text, None)

    def _analyse_and_begin(self, text: str) -> Analysis:
        options = None if self._begun else self._limits.engine_options(self._spill)
        self._begun = True
        return self._analysed(text, options)

    def _analysed(self, text: str, options: Mapping[str, str] | None) -> Analysis:
        with self._translated(Context(text)):
            known = _ANALYSES.get(text)
            if known is None:
                known = self._engine.analyse(text, options)
                if (size := len(text) + len(known.tree)) <= _TREE_BYTES_MAX:
                    _ANALYSES.keep(text, known, size)
            elif options is not None:
                self._engine.open(options)
            return known

    def bind(self, values: pa.Table) -> None:
        """Have the query run with the values of its parameters: one row, by name."""
        self._values = values

    def begin(self) -> int:
        """Wait until the database is open, and return the query's `now()` in µs since the Unix epoch."""
        with self._translated(Context("")):
            self._begin()
            return self._engine.now_us

    def plan(self, sql: str, parameters: Sequence[Any]) -> pa.Table | None:
        """Return the rows of a statement that a plan needs; None where DuckDB cannot run it."""
        with within(self._limits):
            try:
                return self._engine.plan(sql, parameters)
            except (EngineError, Invalid):
                return None

    def open(
        self,
        inputs: Inputs,
        views: Mapping[str, str] | None = None,
        fetched_max: int | None = None,
        without: Sequence[str] = (),
        tables: Shown | None = None,
    ) -> None:
        """Make a view of each input, by name, and shut the database; then make views of SELECTs over them, in order.

        Small files are fetched whole, up to `fetched_max` of them. The database runs without some rules of its
        optimizer. `tables` are those that names of columns show for views.
        """
        self.check_time()
        self.shown = tables or {}
        self._fetch(inputs, fetched_max)
        wanted = wanted_columns(inputs)
        urls = {
            name: self._urls(source, (number, wanted.get(name, WantedColumns())))
            for number, (name, source) in enumerate(inputs.items())
            if isinstance(source, Files)
        }
        self._serve(fetched_max)
        if max(map(len, urls.values()), default=0) == 1:
            # DuckDB reads the footer of a view's first file twice; with this, it keeps the footers of all files.
            self._engine.later("SET parquet_metadata_cache = true")
        for name, source in inputs.items():
            self.check_time()
            if isinstance(source, LocalRows):
                self._open_rows(name, source)
                continue
            shown = source.shown
            has_properties = source.snapshot.has_properties if shown is None else PROPERTIES in shown.columns
            self._reads_events = self._reads_events or has_properties
            first = self._engine.steps
            try:
                with self._translated(Context("")):
                    self._make_view(name, source, urls[name])
            except QueryTooCostly:
                raise
            except Invalid:
                raise unlike(source.snapshot.name) from None
            self._tables |= dict.fromkeys(range(first, self._engine.steps), source.snapshot.name)
        self._files |= self._views.copies
        if without or self._views.narrows:
            rules = ",".join({*without, *([TOP_N] if self._views.narrows else [])})
            self._engine.later(f"SET disabled_optimizers = {quote_text(rules)}")
        self._engine.confine(sorted({form for path in self._files for form in (path, escape_glob(path))}), self.shown)
        for name, select in (views or {}).items():
            self._engine.later(f"CREATE VIEW {VIEW_SCHEMA}.{name} AS {select}")

    def _make_view(self, name: str, source: Files, urls: Sequence[str]) -> None:
        if source.rows is not None:
            select = empty_sql(islice(source.snapshot.schema, 1), source.rows)  # the query names no column
            self._engine.later(f"CREATE VIEW {VIEW_SCHEMA}.{name} AS {select}")
            return
        base = name if source.shown is None else f"all_{name}"
        sizes = sizes_of(source.snapshot, source.named)
        whole = f"plain_{base}" if sizes else base
        self._views.create(
            whole,
            source.snapshot,
            source.files,
            urls,
            self._copied,
            source.places,
            fields=source.fields,
            named=source.named,
        )
        if sizes:
            self._engine.later(sized_view(base, whole, source.snapshot.schema, sizes))
        if source.shown is not None:
            schema, shown = source.snapshot.schema, source.shown
            select = shown_sql(f"{VIEW_SCHEMA}.{base}", schema, shown.columns, shown.where, shown.without)
            self._engine.later(f"CREATE VIEW {VIEW_SCHEMA}.{name} AS {select}")

    def _fetch(self, inputs: Inputs, files_max: int | None) -> None:
        """Fetch small files."""
        if self._store.parallel and self._limits.file_cache_bytes:
            small = islice(small_files(inputs, self._copied), files_max)
            self._held = FILES.hold(self._store, small, self._limits.file_cache_bytes, self.check_time)
            self._hidden.update(str(path.parent) for path in self._held.paths.values())

    def _serve(self, files_max: int | None) -> None:
        """Have the query's process read the other files of a store elsewhere, from their footers on.

        Footers are fetched ahead, up to `files_max` of them.
        """
        if not self._served:
            return
        with within(self._limits):
            self._engine.get_ready_to_serve()
        tails, held_bytes = dict[str, bytes](), 0
        ahead = iter(self._served[:files_max])
        while held_bytes < TAILS_BYTES and (some := [*islice(ahead, TAILS_AT_ONCE)]):
            parts = [tail_of(self._keys[file.name], file.size) for file in some]
            known = RANGES.get(self._store, parts)
            for file, part in zip(some, parts, strict=True):
                if part in known and held_bytes < TAILS_BYTES:
                    tails[file.name] = footer(known[part], file.size)
                    held_bytes += len(tails[file.name])
            self.check_time()
        with self._translated(Context("")):
            self._engine.serve([file._replace(tail=tails.get(file.name, b"")) for file in self._served])

    def _open_rows(self, name: str, rows: LocalRows) -> None:
        self._files[str(rows.path)] = rows.path.name
        add = AddFile(rows.path.name, {}, 0, 0, data_change=False)
        select = relation_sql(rows.schema, (), [add], [str(rows.path)])
        self._engine.later(f"CREATE VIEW {VIEW_SCHEMA}.{name} AS {select}")

    def run(self, text: str, source: str, position: Callable[[int], int]) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Run a text; return the columns and, as they come, the rows. Raises our errors for DuckDB's.

        The first rows are awaited: what is wrong with the files shows by then, most of the time.
        `source` is what the user wrote, and `position` maps a byte offset in `text` to one in it.
        """
        context = Context(source, position)
        with self._translated(context):
            streams = self._engine.stream(text, self._values)
            schema, first = next(streams).schema, next(streams, None)

        def batches() -> Iterator[pa.RecordBatch]:
            reader = first
            while reader is not None:
                yield from reader
                if self._closed:
                    raise Invalid("the query was closed before all of its rows were read")
                with self._translated(context):
                    reader = next(streams, None)

        return schema, batches()

    def described(self, text: str, source: str, position: Callable[[int], int]) -> pa.Schema:
        """Return the columns of a text, which is not run. Raises our errors for DuckDB's, as `run` does."""
        with self._translated(Context(source, lambda at: position(at - len(DESCRIBE)))):
            return self._engine.described(text, self._values)

    def render(
        self,
        text: str,
        source: str,
        position: Callable[[int], int],
        form: str,
        limit_bytes: int,
        large: LargeResults | None = None,
    ) -> RenderedRows:
        """Run a text as `run` does, and return its rows in a form of results. Raises our errors for DuckDB's."""
        with self._translated(Context(source, position)):
            return self._engine.render(text, form, limit_bytes, self._values, large)

    def close(self) -> None:
        """Stop what runs, and remove every trace."""
        self._closed = True
        self._engine.close(wait=self._spill.exists())  # DuckDB itself removes its spilled files
        self._held.release()
        for folder in (self._folder, self._spill):
            if folder.exists():
                shutil.rmtree(folder, ignore_errors=True)

    def _urls(self, scan: Files, source: tuple[int, WantedColumns]) -> list[str]:
        """Return where DuckDB finds a scan's files: in the store, or copied from a store that it cannot open.

        `source` is the number of the scan, and the columns that are wanted of it.
        """
        if scan.paths:
            self._files |= {path: file.path for path, file in zip(scan.paths, scan.files, strict=True)}
            return list(scan.paths)
        urls = []
        for file in scan.files:
            key = scan.snapshot.key(file)
            copy = self._held.paths.get(key)
            url = str(copy) if copy is not None else self._served_as(key, file, source) or self._local_url(key)
            url = self._copy(key, scan) if url is None else url
            self._files[url] = file.path
            urls.append(url)
        return urls

    def _served_as(self, key: str, file: AddFile, source: tuple[int, WantedColumns]) -> str | None:
        """Return the name by which DuckDB gets an object from the query's process; None where it finds it itself."""
        address = self._store.address(key)
        if address is None:
            return None
        name = name_of(len(self._served))
        number = number_of(self._store)
        self._served.append(ServedFile(name, address, number, file.size, file.modification_time, *source))
        self._keys[name] = key
        return name

    def _local_url(self, key: str) -> str | None:
        url = self._store.url(key)
        if url is not None:
            self._hidden.add(url.removesuffix(key))
            self._keys[url] = key
        return url

    def _copy(self, key: str, scan: Files) -> str:
        path = self.folder / f"{len(self._files)}.parquet"
        self.check_time()
        try:
            self._store.get_file(key, path)
        except ObjectNotFound as error:
            raise Corrupt(f"data file {key} of version {scan.snapshot.version} is missing") from error
        return str(path)

    def check_time(self) -> None:
        """Raise `QueryTooCostly` if the time is up."""
        if self._watch.deadline is not None and time.monotonic() > self._watch.deadline:
            raise self._limits.too_slow()

    @contextmanager
    def _translated(self, context: Context) -> Iterator[None]:
        """Raise our errors for failures in the query's process."""
        try:
            with within(self._limits):
                yield
        except EngineError as error:
            if error.step is None:
                raise self._failure(error, context) from None
            raise self._step_failure(error, self._tables.get(error.step)) from None

    def _step_failure(self, error: EngineError, table: str | None) -> AlluviaError:
        """Return our error for the failure of a statement of our own, which may concern a table."""
        failure = self._failure(error, Context(""))
        is_unlike = table is not None and isinstance(failure, Invalid) and not isinstance(failure, QueryTooCostly)
        return unlike(str(table)) if is_unlike else failure

    def _failure(self, error: EngineError, context: Context) -> AlluviaError:
        known = Context(
            text=context.text,
            position=context.position,
            files=self._files,
            hidden=tuple(sorted(self._hidden, key=len, reverse=True)),
            memory_limit_bytes=self._limits.memory_bytes,
        )
        if isinstance(error, UnservedFile):
            return unserved(error, self._files[error.name])
        translated = translate(error.details, known)
        if isinstance(translated, UnreadField) and self._copied(UNREAD):  # in a file with all values in their columns
            return UnreadableFile(None, translated.otherwise)
        if isinstance(translated, Unavailable):
            url = missing_file(self._store, self._keys, str(error))
            return translated if url is None else Corrupt(f"data file {self._files[url]} is missing")
        hint = field_hint(error.details.get("exception_message", ""), context.text) if self._reads_events else None
        return translated if hint is None or type(translated) is not Invalid else Invalid(f"{translated}\n\n{hint}")
