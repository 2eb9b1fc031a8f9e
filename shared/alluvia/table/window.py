"""The ids of events that were committed lately: what makes ingestion exactly-once. Pure.

An ingest commit carries a 96-bit fingerprint of each of its events' ids. With n ids in the window, a new event is taken
for a known one by chance with probability n / 2**96: for ten million ids about 1 in 8 * 10**21.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import pyarrow as pa

from alluvia.errors import Corrupt
from alluvia.log.commit import EVENT_CONTENTS, EVENT_IDS, CommitActions
from alluvia.table.lineage import Gaps, in_gap, undone_versions, version_gaps
from alluvia.table.properties import read_properties

FINGERPRINT_BYTES = 12
CONTENT_BYTES = 4
UNKNOWN = bytes(CONTENT_BYTES)
"""The content of an event whose commit carries ids alone, as those of earlier versions of this library do."""
_WITH_SOURCE = b"source"


def fingerprints(event_ids: Iterable[str], sources: Iterable[str | None] | None = None) -> list[bytes]:
    """Return the fingerprint of each event id within its source; None is no source."""
    if sources is None:
        return [blake2b(text.encode(), digest_size=FINGERPRINT_BYTES).digest() for text in event_ids]
    return [_fingerprint(text, source) for text, source in zip(event_ids, sources, strict=True)]


def _fingerprint(event_id: str, source: str | None) -> bytes:
    if source is None:
        return blake2b(event_id.encode(), digest_size=FINGERPRINT_BYTES).digest()
    name = source.encode()
    both = b"%d:%b%b" % (len(name), name, event_id.encode())
    return blake2b(both, digest_size=FINGERPRINT_BYTES, person=_WITH_SOURCE).digest()


def encode_event_ids(prints: Sequence[bytes], contents: Sequence[bytes]) -> dict[str, str]:
    """Return events as commitInfo carries them, base64: 16 characters of fingerprint and 5 of content each."""
    return {EVENT_IDS: b64encode(b"".join(prints)).decode(), EVENT_CONTENTS: b64encode(b"".join(contents)).decode()}


def event_ids_of(commit: CommitActions) -> tuple[bytes, bytes]:
    """Return the joined fingerprints and contents that a commit carries. Raises `Corrupt` if they cannot be read."""
    prints = _decoded(commit, EVENT_IDS)
    contents = _decoded(commit, EVENT_CONTENTS)
    count, rest = divmod(len(prints), FINGERPRINT_BYTES)
    if rest or (contents and len(contents) != count * CONTENT_BYTES):
        msg = f"version {commit.version}: its event ids cannot be read: {len(prints)} bytes, {len(contents)} of content"
        raise Corrupt(msg)
    return prints, contents or UNKNOWN * count


def _decoded(commit: CommitActions, key: str) -> bytes:
    text = commit.info.get(key)
    if not text:
        return b""
    try:
        return b64decode(text, validate=True)
    except (ValueError, TypeError) as error:
        msg = f"version {commit.version}: its event ids cannot be read: {error}"
        raise Corrupt(msg) from error


def parts(joined: bytes, size: int) -> list[bytes]:
    """Split joined values of one size."""
    return [joined[at : at + size] for at in range(0, len(joined), size)]


@dataclass(frozen=True, slots=True)
class WindowRules:
    """For how long ids are remembered, and of which commits: not those of other tables, or those that were undone."""

    window_ms: int
    gaps: Gaps = ()
    undone: Gaps = ()

    @classmethod
    def of(cls, configuration: Mapping[str, str]) -> WindowRules:
        """Read the rules of a table from its properties. Raises `Corrupt`."""
        window_ms = read_properties(configuration).dedup_window_ms
        return cls(window_ms, version_gaps(configuration), undone_versions(configuration))


class DedupWindow:
    """Fingerprints by the time of their commit; those older than the window are forgotten.

    Time here is the log's own: the newest commit seen, never this machine's clock. Commits of other tables are passed
    over. Those that a restore has undone are kept, for a restore that goes back to them; their events are not known.
    """

    def __init__(self, rules: WindowRules, version: int = -1) -> None:
        self.rules = rules
        self.version = version
        self._known: dict[bytes, dict[int, bytes]] = {}
        self._by_commit: deque[tuple[int, int, bytes, bytes]] = deque()

    def held(self, prints: Iterable[bytes]) -> dict[bytes, set[bytes]]:
        """Return the contents under which the window holds each fingerprint that it knows."""
        return {each: set(self._known[each].values()) for each in prints if each in self._known}

    def __len__(self) -> int:
        return len(self._known)

    def add(self, version: int, timestamp_ms: int, prints: bytes, contents: bytes) -> None:
        """Take the joined fingerprints and contents of the next commit."""
        self.version = version
        if prints and not in_gap(self.rules.gaps, version):
            if not in_gap(self.rules.undone, version):
                for each, content in zip(parts(prints, FINGERPRINT_BYTES), parts(contents, CONTENT_BYTES), strict=True):
                    self._known.setdefault(each, {})[version] = content
            self._by_commit.append((version, timestamp_ms, prints, contents))
        self._forget(timestamp_ms - self.rules.window_ms)

    def follow(self, commits: Iterable[CommitActions]) -> None:
        """Take the commits that the window has not seen yet."""
        for commit in commits:
            if commit.version > self.version:
                self.add(commit.version, commit.timestamp_ms, *event_ids_of(commit))

    def entries(self) -> Iterator[tuple[int, int, bytes, bytes]]:
        """Yield version, timestamp in ms, joined fingerprints and contents of each commit in the window."""
        yield from self._by_commit

    def _forget(self, before_ms: int) -> None:
        while self._by_commit and self._by_commit[0][1] < before_ms:
            version, _, prints, _ = self._by_commit.popleft()
            for each in parts(prints, FINGERPRINT_BYTES):
                found = self._known.get(each, {})
                found.pop(version, None)
                if not found:
                    self._known.pop(each, None)


WINDOW_FOLDER = "_alluvia/window/"
_INDEX = re.compile(rf"^{WINDOW_FOLDER}(\d{{20}})\.arrow$")
_INDEX_SCHEMA = pa.schema({"version": pa.int64(), "timestamp_ms": pa.int64(), "fingerprints": pa.binary()})
_CONTENTS = pa.field("contents", pa.binary())


def index_name(version: int) -> str:
    """Path of the window's index at a checkpoint's version, below the table's root."""
    return f"{WINDOW_FOLDER}{version:020d}.arrow"


def index_version(path: str) -> int | None:
    """Return the version of an index by its path; None for another file."""
    match = _INDEX.match(path)
    return int(match[1]) if match else None


def write_index(window: DedupWindow) -> bytes:
    """Return the window as an Arrow file, for whoever opens the table from the checkpoint beside it."""
    schema = _INDEX_SCHEMA.append(_CONTENTS)
    columns = list(zip(*window.entries(), strict=True)) or [(), (), (), ()]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    table = pa.table(arrays, schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def read_index(data: bytes, name: str, rules: WindowRules, version: int) -> DedupWindow:
    """Read the window at a version. Raises `Corrupt`, naming the file."""
    try:
        table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
        table.validate(full=True)  # reading checks no offsets: a value beyond its buffer would end the process
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        msg = f"{name} cannot be read: {error}"
        raise Corrupt(msg) from error
    if table.schema == _INDEX_SCHEMA:
        prints = table["fingerprints"].to_pylist()
        unknown = [UNKNOWN * (len(each or b"") // FINGERPRINT_BYTES) for each in prints]
        table = table.append_column(_CONTENTS, pa.array(unknown, pa.binary()))
    if table.schema != _INDEX_SCHEMA.append(_CONTENTS) or any(column.null_count for column in table.columns):
        msg = f"{name} cannot be read: its columns are not those of an index"
        raise Corrupt(msg)
    window = DedupWindow(rules)
    for at, timestamp_ms, joined, contents in zip(*(column.to_pylist() for column in table.columns), strict=True):
        if len(joined) * CONTENT_BYTES != len(contents) * FINGERPRINT_BYTES:
            msg = f"{name} cannot be read: version {at} has {len(joined)} bytes of ids, {len(contents)} of contents"
            raise Corrupt(msg)
        window.add(at, timestamp_ms, joined, contents)
    window.version = version
    return window
