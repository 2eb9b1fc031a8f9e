"""Footers of files, read only after a reading process has looked at every part of them.

pyarrow aborts a process that looks at a column whose footer contradicts itself. The same library does the same with the
same bytes: what a reading process has survived, this one does too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa

from alluvia.arrow_parquet import pq
from alluvia.delta.log.files.parquet import UNREADABLE
from alluvia.delta.statistics.footer import footer_bytes, parse_footer
from alluvia.errors import Invalid
from alluvia.processes.pool import OutOfMemory, OutOfTime, Watch
from alluvia.processes.reading import Crashed, ReadingSession

SECONDS_MAX = 60.0
MEMORY_BYTES_MAX = 1 << 30


def vetted_footers(footers: Sequence[bytes]) -> list[pq.FileMetaData | Invalid]:
    """Return each footer, read, or why it cannot be. The bytes are those of `footer.footer_bytes`."""
    vetted: list[pq.FileMetaData | Invalid] = []
    harmless = set(_harmless(footers))
    for at, footer in enumerate(footers):
        try:
            vetted.append(parse_footer(footer) if at in harmless else Invalid("its footer is damaged"))
        except Invalid as error:
            vetted.append(error)
    return vetted


def vetted_footer(path: Path) -> pq.FileMetaData:
    """Return the footer of a file. Raises `Invalid`."""
    with path.open("rb") as file:

        def read(start: int, end: int) -> bytes:
            file.seek(start)
            return file.read(end - start)

        [footer] = vetted_footers([footer_bytes(read, path.stat().st_size)])
    if isinstance(footer, Invalid):
        raise footer
    return footer


def _harmless(footers: Sequence[bytes]) -> Iterator[int]:
    """Yield the places of the footers that a process survives to look at, in as few processes as that takes."""
    start = 0
    while start < len(footers):
        try:
            lengths = [len(footer) for footer in footers[start:]]
            watch = Watch(time.monotonic() + SECONDS_MAX, MEMORY_BYTES_MAX)
            with ReadingSession(FooterSession, watch, b"".join(footers[start:]), lengths=lengths) as session:
                for _ in session.stream("walk"):
                    yield start
                    start += 1
        except (Crashed, OutOfTime, OutOfMemory):
            start += 1


class FooterSession:
    """Footers in a reading process, one behind the other."""

    def __init__(self, lengths: Sequence[int], data: bytes) -> None:
        ends = list(accumulate(lengths))
        self._footers = [data[end - length : end] for length, end in zip(lengths, ends, strict=True)]

    def walk(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Look at all of each footer, and say so."""
        for footer in self._footers:
            # A damaged footer that raises is harmless: its reader raises again. Other damage would end the process.
            with suppress(Invalid, *UNREADABLE, ValueError, TypeError, KeyError, AttributeError):
                walk(parse_footer(footer))
            yield {}, b""


def walk(metadata: pq.FileMetaData) -> None:
    """Look at everything in a footer that code of ours looks at."""
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for at in range(group.num_columns):
            column = group.column(at)
            statistics = column.statistics
            for name in ("min", "max") if statistics is not None and statistics.has_min_max else ():
                try:
                    getattr(statistics, name)
                except (pa.ArrowException, ValueError, OverflowError, TypeError):
                    continue  # not a value that Python has: the others may end the process yet
