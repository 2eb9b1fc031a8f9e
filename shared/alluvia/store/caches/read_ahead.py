"""Column chunks of Parquet files, fetched while DuckDB still waits for the first of them.

DuckDB reads a row group's columns one after another, although a store answers many requests in the time of one. It
reads columns of conditions first, and leaves a row group if no row meets them. So a thread that reads a column for the
result alone goes on to all the others: they are fetched from then on. After some row groups were read to their end, and
none was left early, they are fetched from a row group's first read on. Columns side by side are one request.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import field
from threading import Lock, get_ident
from typing import NamedTuple, Protocol

from alluvia.lazy_dataclasses import dataclass
from alluvia.recent import Recent
from alluvia.store.caches.range_cache import SPAN_BYTES
from alluvia.store.caches.served import ServedFile
from alluvia.store.requests import REQUESTS_AT_ONCE

AHEAD_BYTES = 32 << 20
"""The most bytes of chunks that a query holds, or has on their way, before they are read."""
FOOTER_BYTES = 64 << 10
"""Of a file with a longer footer, which takes longer to read than a request, nothing is fetched ahead."""
FOOTERS_BYTES = 16 << 20
"""The most bytes of footers that a query keeps until columns of their files are read."""
COLUMNS_MAX = 100_000
"""A query keeps the places of up to this many columns of row groups, of the files it read last: 30 MB."""
READ_TO_THE_END = 2
"""After this many row groups that were read to their end, and none that was not, the next is fetched at once."""
GAP_BYTES = 16 << 10
"""DuckDB, too, reads gaps up to this length to save a request."""
FILLED_BYTES_MAX = 1 << 20
_MAGIC = b"PAR1"
_END_BYTES = 8
"""The length of the footer, and the magic bytes."""


class Extent(NamedTuple):
    """The bytes [start, end) of a file."""

    start: int
    end: int


class ChunkPlaces(Protocol):
    """Where the columns of a file's row groups lie."""

    def __len__(self) -> int:
        """Return how many places it knows."""

    def at(self, start: int) -> tuple[int, Mapping[str, tuple[int, int]]]:
        """Return the number of the row group that a position is in, and where its columns lie, by path."""


def as_read(spans: Iterable[Extent], starts: Sequence[int]) -> Iterator[Extent]:
    """Yield parts as DuckDB reads them one after another, with a small gap before a part that it has read.

    `starts` are where its reads began. Source: `ShouldExpandToFillGap` of its `CachingFileHandle`.
    """
    starts = [*starts]
    for span in spans:
        at = bisect_left(starts, span.end)
        above = starts[at] if at < len(starts) else span.end
        is_filled = above - span.end <= min(span.end - span.start, FILLED_BYTES_MAX)
        yield Extent(span.start, above) if is_filled else span
        insort(starts, span.start)


def together(spans: Iterable[Extent]) -> Iterator[list[Extent]]:
    """Yield parts of a file that are fetched with one request: close to one another, and not too much."""
    some: list[Extent] = []
    for span in sorted(set(spans)):
        if some and (span.start - some[-1].end > GAP_BYTES or span.end - some[0].start > SPAN_BYTES):
            yield some
            some = []
        some.append(span)
    if some:
        yield some


class _Known(NamedTuple):
    """Where the columns of a file lie, and where those that were read begin, in order."""

    layout: ChunkPlaces
    starts: list[int]


class _First(NamedTuple):
    """A thread's first read of the file that it reads."""

    name: str
    read: Extent


@dataclass(eq=False, slots=True)
class _Visit:
    """A thread's reads of one row group."""

    place: tuple[str, int]
    goes_on: bool = False
    """Whether rows have met the conditions, as far as the reads show."""
    reads: int = 0
    paths: dict[str, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Habit:
    """The columns that are read of row groups of the same source, in order, and how many were read to their end."""

    paths: dict[str, None] = field(default_factory=dict)
    to_the_end: int = 0
    left_early: bool = False
    ends: set[frozenset[str]] = field(default_factory=set)
    """The columns that were read of each row group before it was left."""

    def note(self, visit: _Visit) -> None:
        """Learn from a row group that a thread has left."""
        self.ends.add(frozenset(visit.paths))
        if visit.goes_on:
            self.paths |= visit.paths
            self.to_the_end += 1
        else:
            self.left_early = True

    def fetches(self, visit: _Visit) -> bool:
        """Whether the rest of a row group is fetched now."""
        if self.to_the_end >= READ_TO_THE_END and not self.left_early:
            return True
        return visit.goes_on and frozenset(visit.paths) not in self.ends


@dataclass(eq=False, slots=True)
class _Piece:
    """Bytes that are on their way or there, until DuckDB has read all parts of them that it may want."""

    span: Extent
    unread: list[Extent]
    fetched: Future[bytes | str]


class ReadAhead:
    """Reads ahead for one query. Safe for use from several threads; `close` it at the query's end.

    `fetch` returns bytes of a file, or why they cannot be had. `layout` reads a footer, given the file's size and how
    many of its last bytes are known. It raises `ValueError` for one that is damaged.
    """

    def __init__(
        self, fetch: Callable[[ServedFile, int, int], bytes | str], layout: Callable[[bytes, int, int], ChunkPlaces]
    ) -> None:
        self._fetch = fetch
        self._layout = layout
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False
        self._footers: Recent[str, tuple[bytes, int]] = Recent(FOOTERS_BYTES)
        self._files: Recent[str, _Known] = Recent(COLUMNS_MAX)
        self._damaged: set[str] = set()
        self._firsts: dict[int, _First] = {}
        self._visits: dict[int, _Visit] = {}
        self._habits: dict[int, _Habit] = {}
        self._pieces: dict[str, list[_Piece]] = {}
        self.held_bytes = 0

    def note_footer(self, file: ServedFile, start: int, data: bytes) -> None:
        """Keep the footer, if that is what DuckDB has read, and the file's `tail` does not have it."""
        end = start + len(data)
        if end < file.size - _END_BYTES or start >= file.size - len(file.tail) or _reads_one_column(file):
            return
        footer = whole_footer(data) if end == file.size else data
        if footer is not None and end in (file.size, file.size - _END_BYTES) and len(footer) <= FOOTER_BYTES:
            self._footers.keep(file.name, (footer, file.size - start), len(footer))

    def read(self, file: ServedFile, start: int, end: int) -> bytes | str | None:
        """Return [start, end), or why it cannot be had; None if nothing of it was fetched ahead.

        Starts to fetch the chunks that DuckDB reads after this one.
        """
        with self._lock:
            self._follow(file, Extent(start, end))
            taken = self._taken(file.name, Extent(start, end))
        if all(piece is None for piece, _ in taken):
            return None
        found = []
        for piece, part in taken:
            if piece is None:
                data = self._fetch(file, *part)
            elif isinstance(data := piece.fetched.result(), bytes) and part != piece.span:
                at = part.start - piece.span.start
                data = data[at : at + part.end - part.start]
            if isinstance(data, str):  # asked for alone, it may be there
                return None if data == "short" else data
            found.append(data)
        return found[0] if len(found) == 1 else b"".join(found)

    def close(self) -> None:
        """Send no more requests, and drop the pieces that were not read."""
        with self._lock:
            self._closed = True
            self._pieces = {}
            if self._pool is not None:
                self._pool.shutdown(wait=False, cancel_futures=True)

    def _follow(self, file: ServedFile, read: Extent) -> None:
        if _reads_one_column(file):
            return
        habit = self._habits.setdefault(file.source, _Habit())
        known = self._files.get(file.name)
        if known is None:
            first = self._firsts.get(get_ident())
            if first is None or first.name != file.name:
                first = self._firsts[get_ident()] = _First(file.name, read)
            is_enough = first.read is not read or habit.to_the_end or file.wanted.results
            known = self._opened(file) if is_enough else None  # of one read nothing follows
            if known is None:
                return
            if first.read is not read:
                self._visited(file, known, habit, first.read)
        chunks, visit = self._visited(file, known, habit, read)
        if visit is not None and habit.fetches(visit):
            expected = habit.paths if habit.to_the_end else file.wanted.as_read
            rest = [chunks[path] for path in expected if path in chunks and not _has(known.starts, chunks[path].start)]
            self._begin(file, read, as_read(rest, known.starts))

    def _opened(self, file: ServedFile) -> _Known | None:
        """Return where the columns of a file lie; None if that is not known."""
        footer, known_bytes = self._footers.get(file.name) or (whole_footer(file.tail), len(file.tail))
        if footer is None or len(footer) > FOOTER_BYTES or file.name in self._damaged:
            return None
        try:
            layout = self._layout(footer, file.size, known_bytes)
        except ValueError:  # DuckDB reads the same footer, and says what is wrong with it
            self._damaged.add(file.name)
            return None
        known = _Known(layout, [])
        self._files.keep(file.name, known, len(layout) + 1)
        return known

    def _visited(
        self, file: ServedFile, known: _Known, habit: _Habit, read: Extent
    ) -> tuple[Mapping[str, Extent], _Visit | None]:
        """Note a read; return where the columns of its row group lie, and the visit, if it reads one of them."""
        group, found = known.layout.at(read.start)
        chunks = {path: Extent(*span) for path, span in found.items()}
        paths = {path for path, span in chunks.items() if read.start <= span.start and span.end <= read.end}
        names, results = file.wanted
        if names:  # of which a read may have others in between
            paths = {path for path in paths if _column(path, names) in names}
        if not paths:
            return chunks, None
        visit = self._visits.get(get_ident())
        if visit is None or visit.place != (file.name, group):
            if visit is not None:
                habit.note(visit)
            visit = self._visits[get_ident()] = _Visit((file.name, group))
        visit.reads += 1
        has_result = any(_column(path, names) in results for path in paths)
        visit.goes_on = visit.goes_on or (has_result if names else visit.reads > 1)
        visit.paths |= dict.fromkeys(paths)
        for start in {chunks[path].start for path in paths}:
            if not _has(known.starts, start):
                insort(known.starts, start)
        return chunks, visit

    def _begin(self, file: ServedFile, read: Extent, rest: Iterable[Extent]) -> None:
        """Have the rest fetched as far as it may be, and the present read with it where that saves a request."""
        pieces = self._pieces.setdefault(file.name, [])
        new = {span for span in rest if not any(_meet(span, piece.span) for piece in pieces)}
        is_new = not any(_meet(read, each) for each in (*new, *(piece.span for piece in pieces)))
        for some in together([*new, read] if is_new else new):
            span = Extent(some[0].start, some[-1].end)
            size = span.end - span.start
            if new.isdisjoint(some) or self._closed or self.held_bytes + size > AHEAD_BYTES:
                continue
            self.held_bytes += size
            if self._pool is None:
                self._pool = ThreadPoolExecutor(REQUESTS_AT_ONCE)
            pieces.append(_Piece(span, some, self._pool.submit(self._fetch, file, *span)))

    def _taken(self, name: str, read: Extent) -> list[tuple[_Piece | None, Extent]]:
        """Return the parts of a read, each with the piece that has it, if one does; they count as read."""
        pieces = sorted(self._pieces.get(name, ()), key=lambda piece: piece.span)
        parts: list[tuple[_Piece | None, Extent]] = []
        at = read.start
        for piece in pieces:
            part = Extent(max(at, piece.span.start), min(read.end, piece.span.end))
            if part.start >= part.end:
                continue
            if at < part.start:
                parts.append((None, Extent(at, part.start)))
            parts.append((piece, part))
            at = part.end
            piece.unread = [each for each in piece.unread if not part.start <= each.start < part.end]
            if not piece.unread:
                self._pieces[name].remove(piece)
                self.held_bytes -= piece.span.end - piece.span.start
        return [*parts, (None, Extent(at, read.end))] if at < read.end else parts


def whole_footer(tail: bytes) -> bytes | None:
    """Return the footer of a file with these last bytes; None if they do not have all of it."""
    length = int.from_bytes(tail[-_END_BYTES : -len(_MAGIC)], "little")
    is_whole = tail.endswith(_MAGIC) and length + _END_BYTES <= len(tail)
    return tail[-length - _END_BYTES : -_END_BYTES] if is_whole else None


def _reads_one_column(file: ServedFile) -> bool:
    """Whether nothing can be fetched ahead, since a query reads one column of a file."""
    return len(file.wanted.names) == 1


def _column(path: str, names: Sequence[str]) -> str:
    """Return the column that a path leads to, or into. Names of columns may have dots, too."""
    return path if path in names else path.partition(".")[0]


def _meet(one: Extent, other: Extent) -> bool:
    return one.start < other.end and other.start < one.end


def _has(ordered: Sequence[int], value: int) -> bool:
    at = bisect_left(ordered, value)
    return at < len(ordered) and ordered[at] == value
