"""Read files for commands: files of events part by part, by this process or by several at once, and files of rows."""

from __future__ import annotations

import glob
import multiprocessing
import os
import re
import shlex
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from alluvia.api.lake import Lake, Table, connect
from alluvia.arrow_compute import pc
from alluvia.cli.terminal.terminal import tell
from alluvia.errors import Invalid
from alluvia.events.ingest.event_tables import find_events
from alluvia.events.ingest.values import IngestOutcome
from alluvia.files.event_files import PART_BYTES, FilePart, NoEvents, parts
from alluvia.files.file_rows import FORMAT_BYTES, format_of
from alluvia.files.file_text import is_parquet
from alluvia.files.limits import UNLIMITED, Misfit
from alluvia.files.reading_options import DEFAULT, ReadingOptions, YearsOfTwoDigits
from alluvia.files.sent import SentFile
from alluvia.files.text_values import as_declared
from alluvia.files.uploads.storing import check_declared, fitted
from alluvia.files.uploads.uploaded_events import store_parts
from alluvia.progress import report

WORKERS_MAX = 4
CORES_MIN = 3
"""With fewer, one process is faster: several take a third to two thirds more CPU time, and wait after lost races."""
LARGE_BYTES = 64 << 20
"""How large files are, together, that several processes take by default: each has loaded the library after 0.3 s."""

GROUP_FILES_MAX = 256
"""So many files are committed together at most. If one breaks the code, each of them is committed alone."""

Store = Callable[[Iterable[list[FilePart]]], Iterator[list[IngestOutcome]]]
"""Commits groups of parts, each in one commit, and returns the outcome of each part, in order."""
_UNKNOWN = "{}: expected a file that ends in .csv, .tsv, .ndjson, .jsonl, .json or .parquet, or --format"
_URI = re.compile(r"([a-z][a-z0-9+.-]*)://", re.ASCII | re.IGNORECASE)


def found_files(names: Sequence[str], table: str) -> list[str]:
    """Return the files that names and patterns mean, in order.

    Raises `Invalid` for a pattern without a file, for a folder, and for a URI, whose message says what loads it.
    """
    paths: list[str] = []
    for name in names:
        if (uri := _URI.match(name)) and not Path(name).exists():
            raise Invalid(f"{name}: {_instead(uri[1].lower(), name, table)}")
        if Path(name).is_dir():
            pattern = Path(glob.escape(name)) / "**" / "*"
            raise Invalid(f'{name} is a folder: write a pattern for its files, such as "{pattern}"')
        if name == "-" or Path(name).exists() or not glob.has_magic(name):
            paths.append(name)
            continue
        every = glob.glob(name, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
        matching = sorted(each for each in every if Path(each).is_file())
        if not matching:
            raise Invalid(f"{name}: no file matches")
        paths += matching
    return paths


def _instead(scheme: str, name: str, table: str) -> str:
    if scheme in ("s3", "s3a", "s3n"):
        return f"ingest reads files of this machine: load it with `alluvia backfill {table} {shlex.quote(name)}`"
    if scheme == "file":
        return "ingest takes paths: leave out file://"
    return 'ingest reads files of this machine: download it, or send it to standard input, which is "-"'


def workers_for(names: Sequence[str]) -> int:
    """Return how many processes some files are worth."""
    size = sum(Path(name).stat().st_size for name in names if Path(name).is_file())
    cores = os.cpu_count() or 1
    return min(WORKERS_MAX, cores) if size >= LARGE_BYTES and cores >= CORES_MIN else 1


def ingest_files(
    lake: Lake,
    table: str,
    names: Sequence[str],
    *,
    create: bool,
    kind: str | None = None,
    store: Store | None = None,
    options: ReadingOptions = DEFAULT,
) -> tuple[list[dict[str, Any]], list[Exception]]:
    """Ingest files of events; "-" is standard input. Return the reports, with counts for all of a file, and why files
    could not be read, which stops no other. `store` is by default this process.

    An event without an id gets one from its file's content up to its part's end and its position, so that the same
    file again adds nothing within the table's window. Of several files, one that is empty is read, and small ones are
    committed together. Errors about the table are raised: the next file would meet them, too.
    """
    files: list[_File] = []
    failures: list[Exception] = []
    under_way: deque[list[_File]] = deque()

    def opened() -> Iterator[tuple[_File, FilePart]]:
        for name in names:
            with ExitStack() as stack:
                try:
                    stream = sys.stdin.buffer if name == "-" else stack.enter_context(Path(name).open("rb"))
                except OSError as error:
                    failures.append(error)
                    continue
                files.append(_File(name, 0 if name == "-" else _size(stream)))
                try:
                    for part in _parts(stream, name, kind, options):
                        files[-1].read = stream.tell() if files[-1].size else 0
                        yield files[-1], part
                except Invalid as error:
                    files[-1].is_empty = isinstance(error, NoEvents)
                    if len(names) == 1 or not files[-1].is_empty:
                        failures.append(error)

    def groups() -> Iterator[list[FilePart]]:
        missing = create
        for group in _grouped(opened()):
            if missing and find_events(lake.catalog, table) is None:
                lake.create_events(table, exist_ok=True)  # even for rejects alone, which are kept
            missing = False
            under_way.append([file for file, _ in group])
            yield [part for _, part in group]

    store = store or partial(map, partial(_outcomes, lake, table))
    for outcomes in store(groups()):
        for file, outcome in zip(under_way.popleft(), outcomes, strict=True):
            file.add(outcome)
    passes = len(names) > 1
    return [file.row() for file in files if file.has_counts() or (passes and file.is_empty)], failures


def _parts(stream: IO[bytes], name: str, kind: str | None, options: ReadingOptions) -> Iterator[FilePart]:
    """Yield the events of a file. Parquet is read in a process of its own, which damage may end."""
    if stream.seekable() and kind in (None, "parquet"):
        at, start = stream.tell(), stream.read(4)
        stream.seek(at)
        if kind == "parquet" or is_parquet(start):
            source = stream.read() if name == "-" else Path(name)
            return SentFile(source, "parquet", UNLIMITED, options).parts(name)
    return parts(stream, name, kind, options=options)


class _File:
    """A file that is being ingested. `read`: so many of its bytes are."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.outcome = IngestOutcome()
        self.size = size
        self.read = 0
        self.is_empty = False
        self._show()

    def add(self, outcome: IngestOutcome) -> None:
        """Count what became of a part."""
        self.outcome += outcome
        self._show()

    def has_counts(self) -> bool:
        """Whether anything became of an event."""
        return bool(self.outcome.accepted or self.outcome.rejected)

    def row(self) -> dict[str, Any]:
        """Return the file's row of the table that the command shows."""
        return {"file": self.name, **self.outcome.said()}

    def _show(self) -> None:
        done, unit = (self.read, "bytes") if self.size else (self.outcome.accepted, "events")
        report(f"ingesting {self.name}", done, self.size, unit)


def _grouped(files_and_parts: Iterable[tuple[_File, FilePart]]) -> Iterator[list[tuple[_File, FilePart]]]:
    """Yield parts that are committed together: together they are no larger than one part may be."""
    group: list[tuple[_File, FilePart]] = []
    size = 0
    for file, part in files_and_parts:
        if group and size + len(part.data) > PART_BYTES:
            yield group
            group, size = [], 0
        group.append((file, part))
        size += len(part.data)
        if size >= PART_BYTES or len(group) == GROUP_FILES_MAX:
            yield group
            group, size = [], 0
    if group:
        yield group


@contextmanager
def processes(number: int, uri: str, table: str, endpoint_url: str | None) -> Iterator[Store]:
    """Yield what stores groups by several processes, twice as many groups as processes at a time.

    Of different events under one id, which is the first is then not certain.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(number, context, _open, (uri, table, endpoint_url))
    try:
        yield partial(_in_order, pool, 2 * number)
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def _in_order(pool: ProcessPoolExecutor, most: int, groups: Iterable[list[FilePart]]) -> Iterator[list[IngestOutcome]]:
    under_way: deque[Future[list[IngestOutcome]]] = deque()
    for group in groups:
        under_way.append(pool.submit(_store, group))
        if len(under_way) == most:
            yield under_way.popleft().result()
    for future in under_way:
        yield future.result()


_opened: list[tuple[Lake, str]] = []


def _open(uri: str, table: str, endpoint_url: str | None) -> None:
    lake = connect(uri, endpoint_url=endpoint_url) if endpoint_url else connect(uri)
    _opened.append((lake, table))


def _store(group: list[FilePart]) -> list[IngestOutcome]:
    lake, table = _opened[-1]
    return _outcomes(lake, table, group)


def _outcomes(lake: Lake, table: str, group: list[FilePart]) -> list[IngestOutcome]:
    """Commit parts, and return the outcome of each, without its rejects: they are in the table's."""
    return [replace(outcome, rejects=[]) for outcome in store_parts(lake.catalog, table, group)]


def _size(stream: IO[bytes]) -> int:
    """Return how many bytes a file has; 0 for anything else, such as a pipe."""
    facts = os.fstat(stream.fileno())
    return facts.st_size if stat.S_ISREG(facts.st_mode) else 0


def read_rows(
    table: Table, name: str, options: ReadingOptions = DEFAULT, declared: pa.Schema | None = None
) -> pa.Table:
    """Read a file's rows, with the table's types for the columns that it has; "-" is NDJSON from standard input.

    declared: columns, of the table's types, that the sender has declared. Raises `Invalid`, naming the file.
    """
    known = table.snapshot().schema
    check_declared(declared or (), known)
    try:
        with sent_file(name, "ndjson" if name == "-" else None, options).rows() as rows:
            schema = rows.schema({field.name: field.type for field in known})
            for note in (*rows.notes, *options.unused(schema.types)):
                tell(f"{name}: {note}")
            wanted = pa.schema([(field.name, field.type) for field in schema])
            tables = [fitted(table, wanted) for table in rows.tables(as_declared(wanted, declared))]
            found = pa.concat_tables([wanted.empty_table(), *tables])
            years = YearsOfTwoDigits(options)
            years.see(found)
            for note in years.notes():
                tell(f"{name}: {note}")
            return found
    except Misfit as error:
        raise Invalid(f"{name}: {error}") from error


def check_keys(name: str, rows: pa.Table, on: Sequence[str]) -> None:
    """Raise `Invalid` for a row without a key, which no row of a table could match; note keys with spaces around."""
    for column in on:
        if column not in rows.column_names:
            continue  # the upsert says so
        keys = rows.column(column)
        without = pc.indices_nonzero(pc.is_null(keys))
        if len(without):
            raise Invalid(
                f"{name}: row {without[0].as_py() + 1}, column {column}: no value, but it is the key: give it one, or "
                "leave the row out"
            )
        if pa.types.is_string(keys.type):
            spaced = pc.indices_nonzero(pc.not_equal(keys, pc.utf8_trim_whitespace(keys)))
            if len(spaced):
                at = spaced[0].as_py()
                key = f"row {at + 1}, column {column}: the key {keys[at].as_py()!r:.50}"
                tell(f"{name}: {key} has spaces around it, and is not the key without them")


def sent_file(name: str, asked: str | None, options: ReadingOptions = DEFAULT) -> SentFile:
    """Return a file of this machine, whose format is what was asked for, or what it says itself."""
    data = sys.stdin.buffer.read() if name == "-" else None
    path = Path(name)
    with path.open("rb") if data is None else BytesIO(data) as start:
        kind = format_of(asked, "", path.name, start.read(FORMAT_BYTES), _UNKNOWN.format(name))
    return SentFile(path if data is None else data, kind, UNLIMITED, options)
