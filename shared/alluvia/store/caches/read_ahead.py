"""Column chunks of Parquet files, fetched while DuckDB still waits for the first of them.

DuckDB reads a row group's columns one after another, and a store answers many requests in the time of one. Which chunks
it reads is seen from its reads: a thread that reads a column of which only the result is made reads all others, too (a
condition that lets no row pass would have ended it before). So the rest is fetched from then on, and from a row group's
first read on once others have shown that none is left early. Columns side by side are one request.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from threading import Lock, get_ident
from typing import NamedTuple, Protocol

from alluvia.lazy_dataclasses import dataclass
from alluvia.store.caches.range_cache import SPAN_BYTES
from alluvia.store.caches.served import ServedFile
from alluvia.store.requests import REQUESTS_AT_ONCE

AHEAD_BYTES = 32 << 20
"""The most bytes of chunks that a query holds, or has on their way, before they are read."""
FOOTER_BYTES = 64 << 10
"""Of a file with a longer footer, which takes longer to read than a request, nothing is fetched ahead."""
READ_TO_THE_END = 2
"""After this many row groups that were read to their end, and none that was not, the next is fetched at once."""
GAP_BYTES = 16 << 10
"""DuckDB, too, reads gaps up to this length to save a request."""
FILLED_BYTES_MAX = 1 << 20
_MAGIC = b"PAR1"
_END_BYTES = 8
"""The length of the footer, and the magic bytes."""


class Span(NamedTuple):
    """The bytes [start, end) of a file."""

    start: int
    end: int


class Layout(Protocol):
    """Where the columns of a file's row groups lie."""

    def at(self, start: int) -> tuple[int, Mapping[str, tuple[int, int]]]:
        """Return the number of the row group that a position is in, and where its columns lie, by path."""


def as_read(spans: Iterable[Span], starts: Sequence[int]) -> Iterator[Span]:
    """Yield parts as DuckDB reads them one after another, with a small gap before a part that it has read.

    `starts` are where its reads began. Source: `ShouldExpandToFillGap` of its `CachingFileHandle`.
    """
    starts = [*starts]
    for span in spans:
        at = bisect_left(starts, span.end)
        above = starts[at] if at < len(starts) else span.end
        is_filled = above - span.end <= min(span.end - span.start, FILLED_BYTES_MAX)
        yield Span(span.start, above) if is_filled else span
        insort(starts, span.start)


def together(spans: Iterable[Span]) -> Iterator[list[Span]]:
    """Yield parts of a file that are fetched with one request: close to one another, and not too much."""
    some: list[Span] = []
    for span in sorted(set(spans)):
        if some and (span.start - some[-1].end > GAP_BYTES or span.end - some[0].start > SPAN_BYTES):
            yield some
            some = []
        some.append(span)
    if some:
        yield some


@dataclass(eq=False, slots=True)
class _Visit:
    """A thread's reads of one row group."""

    place: tuple[str, int]
    goes_on: bool = False
    """Whether rows have met the conditions, as far as that is seen."""
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

    span: Span
    unread: list[Span]
    fetched: Future[bytes | str]


class ReadAhead:
    """Reads ahead for one query. Safe for use from several threads; `close` it at the query's end.

    `fetch` returns bytes of a file, or why they cannot be had. `layout` reads a footer, given the file's size and how
    many of its last bytes are known. It raises `ValueError` for one that is damaged.
    """

    def __init__(
        self, fetch: Callable[[ServedFile, int, int], bytes | str], layout: Callable[[bytes, int, int], Layout]
    ) -> None:
        self._fetch = fetch
        self._layout = layout
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False
        self._footers: dict[str, bytes] = {}
        self._layouts: dict[str, Layout] = {}
        self._damaged: set[str] = set()
        self._firsts: dict[tuple[int, str], Span] = {}
        self._visits: dict[int, _Visit] = {}
        self._starts: dict[str, list[int]] = {}
        self._habits: dict[int, _Habit] = {}
        self._pieces: dict[str, list[_Piece]] = {}
        self.held_bytes = 0

    def note_footer(self, file: ServedFile, start: int, data: bytes) -> None:
        """Keep bytes that DuckDB has read, if they are a footer that did not fit into the file's `tail`."""
        if start + len(data) == file.size - _END_BYTES and len(data) <= FOOTER_BYTES:
            self._footers.setdefault(file.name, data)

    def read(self, file: ServedFile, start: int, end: int) -> bytes | str | None:
        """Return [start, end), or why it cannot be had; None if nothing of it was fetched ahead.

        It notes the read, and has fetched what follows from it.
        """
        with self._lock:
            self._follow(file, Span(start, end))
            taken = self._taken(file.name, Span(start, end))
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

    def _follow(self, file: ServedFile, read: Span) -> None:
        if len(file.wanted.names) == 1:
            return
        habit = self._habits.setdefault(file.source, _Habit())
        if file.name not in self._layouts:
            first = self._firsts.setdefault((get_ident(), file.name), read)
            is_enough = bool(habit.to_the_end or file.wanted.results)
            if (first is read and not is_enough) or not self._is_known(file):  # of one read nothing follows
                return
            if first is not read:
                self._visited(file, habit, first)
        chunks, visit = self._visited(file, habit, read)
        if visit is not None and habit.fetches(visit):
            starts = self._starts[file.name]
            expected = habit.paths if habit.to_the_end else file.wanted.as_read
            rest = [chunks[path] for path in expected if path in chunks and not _has(starts, chunks[path].start)]
            self._begin(file, read, as_read(rest, starts))

    def _is_known(self, file: ServedFile) -> bool:
        """Whether it is known where the columns of a file lie."""
        footer = self._footers.pop(file.name, None) or whole_footer(file.tail)
        if footer is not None and len(footer) <= FOOTER_BYTES and file.name not in self._damaged:
            self._damaged.add(file.name)
            with suppress(ValueError):  # DuckDB reads the same footer, and says what is wrong with it
                self._layouts[file.name] = self._layout(footer, file.size, len(file.tail))
                self._damaged.remove(file.name)
        return file.name in self._layouts

    def _visited(self, file: ServedFile, habit: _Habit, read: Span) -> tuple[Mapping[str, Span], _Visit | None]:
        """Note a read; return where the columns of its row group lie, and the visit, if it reads one of them."""
        group, found = self._layouts[file.name].at(read.start)
        chunks = {path: Span(*span) for path, span in found.items()}
        paths = {path for path, span in chunks.items() if read.start <= span.start and span.end <= read.end}
        names, results = file.wanted
        if names:  # of which a read may have others in between
            paths = {path for path in paths if path.partition(".")[0] in names}
        if not paths:
            return chunks, None
        visit = self._visits.get(get_ident())
        if visit is None or visit.place != (file.name, group):
            if visit is not None:
                habit.note(visit)
            visit = self._visits[get_ident()] = _Visit((file.name, group))
        visit.reads += 1
        visit.goes_on = visit.goes_on or (any(path in results for path in paths) if names else visit.reads > 1)
        visit.paths |= dict.fromkeys(paths)
        for path in paths:
            insort(self._starts.setdefault(file.name, []), chunks[path].start)
        return chunks, visit

    def _begin(self, file: ServedFile, read: Span, rest: Iterable[Span]) -> None:
        """Have the rest fetched as far as it may be, and the present read with it where that saves a request."""
        pieces = self._pieces.setdefault(file.name, [])
        new = {span for span in rest if not any(_meet(span, piece.span) for piece in pieces)}
        is_new = not any(_meet(read, each) for each in (*new, *(piece.span for piece in pieces)))
        for some in together([*new, read] if is_new else new):
            span = Span(some[0].start, some[-1].end)
            size = span.end - span.start
            if new.isdisjoint(some) or self._closed or self.held_bytes + size > AHEAD_BYTES:
                continue
            self.held_bytes += size
            if self._pool is None:
                self._pool = ThreadPoolExecutor(REQUESTS_AT_ONCE)
            pieces.append(_Piece(span, some, self._pool.submit(self._fetch, file, *span)))

    def _taken(self, name: str, read: Span) -> list[tuple[_Piece | None, Span]]:
        """Return the parts of a read, each with the piece that has it, if one does; they count as read."""
        pieces = sorted(self._pieces.get(name, ()), key=lambda piece: piece.span)
        parts: list[tuple[_Piece | None, Span]] = []
        at = read.start
        for piece in pieces:
            part = Span(max(at, piece.span.start), min(read.end, piece.span.end))
            if part.start >= part.end:
                continue
            if at < part.start:
                parts.append((None, Span(at, part.start)))
            parts.append((piece, part))
            at = part.end
            piece.unread = [each for each in piece.unread if not part.start <= each.start < part.end]
            if not piece.unread:
                self._pieces[name].remove(piece)
                self.held_bytes -= piece.span.end - piece.span.start
        return [*parts, (None, Span(at, read.end))] if at < read.end else parts


def whole_footer(tail: bytes) -> bytes | None:
    """Return the footer of a file with these last bytes; None if they do not have all of it."""
    length = int.from_bytes(tail[-_END_BYTES : -len(_MAGIC)], "little")
    is_whole = tail.endswith(_MAGIC) and length + _END_BYTES <= len(tail)
    return tail[-length - _END_BYTES : -_END_BYTES] if is_whole else None


def _meet(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


def _has(ordered: Sequence[int], value: int) -> bool:
    at = bisect_left(ordered, value)
    return at < len(ordered) and ordered[at] == value
