"""Ingest files of events part by part, by this process or by several at once."""

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
from functools import partial
from pathlib import Path
from typing import IO, Any

from alluvia.errors import Invalid
from alluvia.formats.event_files import FilePart, NoEvents, parts
from alluvia.ingest.tables import find_events
from alluvia.lake import Lake, connect
from alluvia.progress import report
from alluvia.uploads.event_rows import store_part

COUNTS = ("accepted", "stored", "duplicates", "rejected", "conflicting")
WORKERS_MAX = 4
LARGE_BYTES = 32 << 20
"""How large files are, together, that several processes take by default: each needs half a second to start."""

Counts = dict[str, int | None]
Store = Callable[[Iterable[FilePart]], Iterator[Counts]]
"""Stores parts, and says what became of each, in order."""
_URI = re.compile(r"([a-z][a-z0-9+.-]*)://", re.ASCII | re.IGNORECASE)


class Unread(Invalid):
    """A file could not be read to its end, or has no events. `counts`: the report about what came before."""

    def __init__(self, reason: Invalid, counts: dict[str, Any]) -> None:
        super().__init__(str(reason))
        self.counts = counts
        self.is_empty = isinstance(reason, NoEvents)


def found_files(names: Sequence[str], table: str) -> list[str]:
    """Return the files that names and patterns mean, in order.

    Raises `Invalid` for a pattern without a file, for a folder, and for a URI, whose message says what loads it.
    """
    found: list[str] = []
    for name in names:
        if (uri := _URI.match(name)) and not Path(name).exists():
            raise Invalid(f"{name}: {_instead(uri[1].lower(), name, table)}")
        if Path(name).is_dir():
            pattern = Path(glob.escape(name)) / "**" / "*"
            raise Invalid(f'{name} is a folder: write a pattern for its files, such as "{pattern}"')
        if name == "-" or Path(name).exists() or not glob.has_magic(name):
            found.append(name)
            continue
        every = glob.glob(name, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
        matching = sorted(each for each in every if Path(each).is_file())
        if not matching:
            raise Invalid(f"{name}: no file matches")
        found += matching
    return found


def _instead(scheme: str, name: str, table: str) -> str:
    if scheme in ("s3", "s3a", "s3n"):
        return f"ingest reads files of this machine: load it with `alluvia backfill {table} {shlex.quote(name)}`"
    if scheme == "file":
        return "ingest takes paths: leave out file://"
    return 'ingest reads files of this machine: download it, or send it to standard input, which is "-"'


def workers_for(names: Sequence[str]) -> int:
    """Return how many processes some files are worth."""
    size = sum(Path(name).stat().st_size for name in names if Path(name).is_file())
    return min(WORKERS_MAX, os.cpu_count() or 1) if size >= LARGE_BYTES else 1


def ingest_files(
    lake: Lake, table: str, names: Sequence[str], *, create: bool, kind: str | None, store: Store | None
) -> tuple[list[dict[str, Any]], list[Exception]]:
    """Ingest files; "-" is standard input. Return the reports, and why files could not be read, which stops no other.

    Of several files, one that is empty is read. Errors about the table are raised: the next file would meet them, too.
    """
    reports: list[dict[str, Any]] = []
    failures: list[Exception] = []
    for name in names:
        with ExitStack() as stack:
            try:
                file = sys.stdin.buffer if name == "-" else stack.enter_context(Path(name).open("rb"))
            except OSError as error:
                failures.append(error)
                continue
            try:
                reports.append(ingest_file(lake, table, name, file, create=create, kind=kind, store=store))
            except Unread as error:
                passes = error.is_empty and len(names) > 1
                if passes or any(error.counts[count] for count in COUNTS):
                    reports.append(error.counts)
                if not passes:
                    failures.append(error)
    return reports, failures


def ingest_file(
    lake: Lake,
    table: str,
    name: str,
    stream: IO[bytes],
    *,
    create: bool,
    kind: str | None = None,
    store: Store | None = None,
) -> dict[str, Any]:
    """Ingest a file of events, and return counts for all of it. `store` is by default this process.

    An event without an id gets one from the file's content up to its part's end and its position, so that the same
    file again adds nothing within the table's window. Raises `Invalid`, naming the file.
    """
    if create and find_events(lake, table) is None:  # rejects are kept, even where a file holds nothing else
        lake.create_events(table, exist_ok=True)
    store = store or partial(map, partial(_counts, lake, table))
    size = 0 if name == "-" else _size(stream)
    report(f"ingesting {name}", 0, size, "bytes")
    totals: dict[str, Any] = {"file": name, **dict.fromkeys(COUNTS, 0), "version": None}
    source = _Source(parts(stream, name, kind))
    for counts in store(source):
        for count in COUNTS:
            totals[count] += counts[count]
        totals["version"] = max(
            (each for each in (totals["version"], counts["version"]) if each is not None), default=None
        )
        read = stream.tell() if size else totals["accepted"]
        report(f"ingesting {name}", read, size, "bytes" if size else "events")
    if source.failure is not None:
        raise Unread(source.failure, totals) from source.failure
    return totals


class _Source:
    """Parts up to the first that cannot be read, so that those before it are stored; `failure` says why it cannot."""

    def __init__(self, found: Iterable[FilePart]) -> None:
        self._found = found
        self.failure: Invalid | None = None

    def __iter__(self) -> Iterator[FilePart]:
        try:
            yield from self._found
        except Invalid as error:
            self.failure = error


@contextmanager
def processes(number: int, uri: str, table: str, endpoint_url: str | None) -> Iterator[Store]:
    """Yield what stores parts by several processes, twice as many parts as processes at a time.

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


def _in_order(pool: ProcessPoolExecutor, most: int, found: Iterable[FilePart]) -> Iterator[Counts]:
    under_way: deque[Future[Counts]] = deque()
    for part in found:
        under_way.append(pool.submit(_store, part))
        if len(under_way) == most:
            yield under_way.popleft().result()
    for future in under_way:
        yield future.result()


_opened: list[tuple[Lake, str]] = []


def _open(uri: str, table: str, endpoint_url: str | None) -> None:
    lake = connect(uri, endpoint_url=endpoint_url) if endpoint_url else connect(uri)
    _opened.append((lake, table))


def _store(part: FilePart) -> Counts:
    lake, table = _opened[-1]
    return _counts(lake, table, part)


def _counts(lake: Lake, table: str, part: FilePart) -> Counts:
    return store_part(lake, table, part).counts()


def _size(stream: IO[bytes]) -> int:
    """Return how many bytes a file has; 0 for anything else, such as a pipe."""
    facts = os.fstat(stream.fileno())
    return facts.st_size if stat.S_ISREG(facts.st_mode) else 0
