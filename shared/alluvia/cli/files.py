"""Ingesting a file of events: in batches of lines, so that memory does not grow with the file."""

from __future__ import annotations

import gzip
import itertools
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import IO, Any

import orjson

from alluvia.errors import Invalid
from alluvia.ingest.envelope import split
from alluvia.ingest.pipeline import ingest_batch
from alluvia.ingest.tables import find_events
from alluvia.ingest.values import Limits
from alluvia.lake import Lake
from alluvia.progress import report

BATCH_BYTES = 4 << 20
COUNTS = ("accepted", "stored", "duplicates", "rejected", "conflicting")
_GZIP = b"\x1f\x8b"
_UNLIMITED = Limits(body_bytes=1 << 62, inflated_bytes=1 << 62, event_bytes=1 << 62)


def ingest_file(lake: Lake, table: str, name: str, stream: IO[bytes], *, create: bool) -> dict[str, Any]:
    """Ingest NDJSON, a JSON object or an array, gzip or not, and return counts for the whole file.

    An event without an id gets one from the content of its batch, so that the same file again adds nothing within the
    table's window. Positions in rejects count from the file's start.
    """
    size = 0 if name == "-" else _size(stream)
    report(f"ingesting {name}", 0, size, "bytes")
    totals: dict[str, Any] = {"file": name, **dict.fromkeys(COUNTS, 0), "version": None}
    position = 0
    for body in _bodies(_inflated(stream, name), name):
        parts = split(body, content_type="application/x-ndjson", content_encoding=None, limits=_UNLIMITED)
        moved = [event._replace(position=event.position + position) for event in parts.events]
        rejects = [replace(reject, position=reject.position + position) for reject in parts.rejects]
        position += len(moved) + len(rejects)
        if create and find_events(lake, table) is None:  # rejects are kept, even where a file holds nothing else
            lake.create_events(table, exist_ok=True)
        answer = ingest_batch(
            lake,
            table,
            moved,
            rejects,
            arrival_us=lake.clock.now_us(),
            idempotency_key=blake2b(body, digest_size=16).hexdigest(),
            create=create,
        )
        counts = answer.counts()
        for count in COUNTS:
            totals[count] += counts[count]
        totals["version"] = answer.version if answer.version is not None else totals["version"]
        read = stream.tell() if size else totals["accepted"]
        report(f"ingesting {name}", read, size, "bytes" if size else "events")
    return totals


def _size(stream: IO[bytes]) -> int:
    """Return how many bytes a file has; 0 for anything else, such as a pipe."""
    facts = os.fstat(stream.fileno())
    return facts.st_size if stat.S_ISREG(facts.st_mode) else 0


def _inflated(stream: IO[bytes], name: str) -> Iterator[bytes]:
    start = stream.read(2)
    if start != _GZIP:
        first = stream.readline() if not start.endswith(b"\n") else b""
        yield from itertools.chain([start + first], stream)
        return
    try:
        with gzip.GzipFile(fileobj=_Prefixed(start, stream)) as inflated:  # type: ignore[call-overload]
            yield from inflated
    except (EOFError, gzip.BadGzipFile) as error:
        raise Invalid(f"{name}: the gzip data is damaged ({error}); what came before is ingested") from error


class _Prefixed:
    """A stream with bytes in front that were read from it already."""

    def __init__(self, start: bytes, stream: IO[bytes]) -> None:
        self._start = start
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        """Read as the stream does."""
        if not self._start:
            return self._stream.read(size)
        start, self._start = self._start, b""
        return start + self._stream.read(size if size < 0 else max(0, size - len(start)))


def _bodies(lines: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Yield batches of complete lines, or everything at once if the file is one JSON value over several lines."""
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise Invalid(f"{name} contains no events")
    everything = itertools.chain([first], lines)
    if first.lstrip(b"\xef\xbb\xbf").lstrip().startswith((b"[", b"{")) and not _whole(first):
        yield b"".join(everything)
        return
    batch: list[bytes] = []
    size = 0
    for line in everything:
        batch.append(line)
        size += len(line)
        if size >= BATCH_BYTES:
            yield b"".join(batch)
            batch, size = [], 0
    if batch:
        yield b"".join(batch)


def _whole(line: bytes) -> bool:
    try:
        orjson.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError:
        return False
    return True
