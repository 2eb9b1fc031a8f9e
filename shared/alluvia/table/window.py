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
from alluvia.log.commit import EVENT_IDS, CommitActions
from alluvia.table.lineage import Gaps, in_gap, undone_versions, version_gaps
from alluvia.table.properties import read_properties

FINGERPRINT_BYTES = 12


def fingerprints(event_ids: Iterable[str]) -> list[bytes]:
    """Return the fingerprint of each event id."""
    return [blake2b(text.encode(), digest_size=FINGERPRINT_BYTES).digest() for text in event_ids]


def encode_fingerprints(prints: Sequence[bytes]) -> str:
    """Return fingerprints as a commit carries them: base64, 16 characters each."""
    return b64encode(b"".join(prints)).decode()


def fingerprints_of(commit: CommitActions) -> list[bytes]:
    """Return the fingerprints that a commit carries. Raises `Corrupt` where they cannot be read."""
    text = commit.info.get(EVENT_IDS)
    if not text:
        return []
    try:
        data = b64decode(text, validate=True)
    except (ValueError, TypeError) as error:
        msg = f"version {commit.version}: its event ids cannot be read: {error}"
        raise Corrupt(msg) from error
    return [data[at : at + FINGERPRINT_BYTES] for at in range(0, len(data), FINGERPRINT_BYTES)]


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
        self._known: dict[bytes, int] = {}
        self._by_commit: deque[tuple[int, int, list[bytes]]] = deque()

    def __contains__(self, fingerprint: bytes) -> bool:
        return fingerprint in self._known

    def __len__(self) -> int:
        return len(self._known)

    def add(self, version: int, timestamp_ms: int, prints: list[bytes]) -> None:
        """Take the fingerprints of the next commit."""
        self.version = version
        if prints and not in_gap(self.rules.gaps, version):
            if not in_gap(self.rules.undone, version):
                self._known.update(dict.fromkeys(prints, version))
            self._by_commit.append((version, timestamp_ms, prints))
        self._forget(timestamp_ms - self.rules.window_ms)

    def follow(self, commits: Iterable[CommitActions]) -> None:
        """Take the commits that the window has not seen yet."""
        for commit in commits:
            if commit.version > self.version:
                self.add(commit.version, commit.timestamp_ms, fingerprints_of(commit))

    def entries(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield version, timestamp in ms and joined fingerprints of each commit in the window."""
        for version, timestamp_ms, prints in self._by_commit:
            yield version, timestamp_ms, b"".join(prints)

    def _forget(self, before_ms: int) -> None:
        while self._by_commit and self._by_commit[0][1] < before_ms:
            version, _, prints = self._by_commit.popleft()
            for fingerprint in prints:
                if self._known.get(fingerprint) == version:
                    del self._known[fingerprint]


WINDOW_FOLDER = "_alluvia/window/"
_INDEX = re.compile(rf"^{WINDOW_FOLDER}(\d{{20}})\.arrow$")
_INDEX_SCHEMA = pa.schema({"version": pa.int64(), "timestamp_ms": pa.int64(), "fingerprints": pa.binary()})


def index_name(version: int) -> str:
    """Path of the window's index at a checkpoint's version, below the table's root."""
    return f"{WINDOW_FOLDER}{version:020d}.arrow"


def index_version(path: str) -> int | None:
    """Return the version of an index by its path; None for another file."""
    match = _INDEX.match(path)
    return int(match[1]) if match else None


def write_index(window: DedupWindow) -> bytes:
    """Return the window as an Arrow file, for whoever opens the table from the checkpoint beside it."""
    columns = list(zip(*window.entries(), strict=True)) or [(), (), ()]
    table = pa.table([pa.array(column, field.type) for column, field in zip(columns, _INDEX_SCHEMA, strict=True)],
                     schema=_INDEX_SCHEMA)  # fmt: skip
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _INDEX_SCHEMA) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def read_index(data: bytes, name: str, rules: WindowRules, version: int) -> DedupWindow:
    """Read the window at a version. Raises `Corrupt`, naming the file."""
    try:
        table = pa.ipc.open_file(pa.BufferReader(data)).read_all().select(_INDEX_SCHEMA.names)
        table.validate(full=True)  # reading checks no offsets: a value beyond its buffer would end the process
    except (pa.ArrowException, KeyError, ValueError, OSError) as error:
        msg = f"{name} cannot be read: {error}"
        raise Corrupt(msg) from error
    if table.schema != _INDEX_SCHEMA or any(column.null_count for column in table.columns):
        msg = f"{name} cannot be read: its columns are not those of an index"
        raise Corrupt(msg)
    window = DedupWindow(rules)
    for at, timestamp_ms, joined in zip(*(column.to_pylist() for column in table.columns), strict=True):
        parts = [joined[start : start + FINGERPRINT_BYTES] for start in range(0, len(joined), FINGERPRINT_BYTES)]
        window.add(at, timestamp_ms, parts)
    window.version = version
    return window
