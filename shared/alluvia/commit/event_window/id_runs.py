"""Event ids of many commits as sorted columns: 20 bytes per id, and no Python object per id. Pure.

A fingerprint's first 8 bytes are its head, a number to sort and search by; the last 4 are its tail.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate, pairwise
from struct import Struct
from typing import Any, Literal

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.lazy_dataclasses import dataclass

EVENT_ID = "event_id"
SOURCE = "source"
RECEIVED_AT = "received_at"
TS = "ts"


def identity_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that identify an event: its id, within its source if that is a column. None: no events."""
    there = tuple(
        name for name in (EVENT_ID, SOURCE) if name in schema.names and schema.field(name).type == pa.string()
    )
    return there if EVENT_ID in there else ()


def content_hashes(rows: pa.Table) -> list[bytes]:
    """Return the content hash of each row, made of its columns but for the id and what a delivery adds.

    That is `received_at`, and `ts` where it is the same, since then the event came without a time of its own. A null
    counts like a missing column, so that a column that is added to the table changes no hash.
    """
    names = sorted(set(rows.column_names) - {EVENT_ID, RECEIVED_AT})
    columns = {name: _values(rows[name]) for name in names}
    if TS in columns and RECEIVED_AT in rows.column_names:
        received = _values(rows[RECEIVED_AT])
        columns[TS] = [None if ts == at else ts for ts, at in zip(columns[TS], received, strict=True)]
    if not names:
        return [_hash([])] * len(rows)
    return [
        _hash([pair for pair in zip(names, row, strict=True) if pair[1] is not None])
        for row in zip(*columns.values(), strict=True)
    ]


def _hash(row: list[tuple[str, Any]]) -> bytes:
    return blake2b(repr(row).encode(), digest_size=CONTENT_BYTES).digest()


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return [_plain(each) for each in values] if pa.types.is_nested(column.type) else values


def _plain(value: Any) -> Any:
    """Return a value without its nulls, fields in the order of their names."""
    if isinstance(value, Mapping):
        return [(name, _plain(value[name])) for name in sorted(value) if value[name] is not None]
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value


def digests(begun: blake2b, texts: Iterable[bytes]) -> list[bytes]:
    """Return the hash of each text after what `begun` has hashed: to copy one is faster than to set one up."""
    hashes = []
    for text in texts:
        each = begun.copy()
        each.update(text)
        hashes.append(each.digest())
    return hashes


FINGERPRINT_BYTES = 12
HEAD_BYTES = 8
CONTENT_BYTES = 4
FINGERPRINT = Struct("=QI")
COLUMNS = pa.schema({"head": pa.uint64(), "tail": pa.uint32(), "content": pa.uint32(), "commit": pa.uint32()})


@dataclass(frozen=True, slots=True)
class CommitIds:
    """The ids of one commit: its version and time in ms, and the joined fingerprints and contents."""

    version: int
    timestamp_ms: int
    prints: bytes
    contents: bytes

    def __len__(self) -> int:
        """Return the number of ids."""
        return len(self.prints) // FINGERPRINT_BYTES


class IdRun:
    """The ids of some commits, oldest first, in columns that are sorted by head.

    `commit` says which of the commits, by position. Those before `first_live` are forgotten. `borrowed` says that the
    columns lie in a file's bytes, which stay in memory for as long as one of its runs does.
    """

    def __init__(self, versions: array[int], times_ms: array[int], ids: pa.RecordBatch, *, borrowed: bool = False):
        self.versions = versions
        self.times_ms = times_ms
        self.ids = ids
        self.borrowed = borrowed
        self.first_live = 0
        self._heads = _view(ids["head"], "Q")
        self._tails, self._contents, self._commits = (_view(ids[name], "I") for name in COLUMNS.names[1:])

    @classmethod
    def of(cls, commits: Sequence[CommitIds]) -> IdRun:
        """Sort the ids of some commits."""
        count = sum(len(commit.prints) for commit in commits) // FINGERPRINT_BYTES
        prints = _column(pa.binary(FINGERPRINT_BYTES), count, b"".join(commit.prints for commit in commits))
        ordinals = array("I")
        for at, commit in enumerate(commits):
            ordinals.extend(array("I", [at]) * (len(commit.prints) // FINGERPRINT_BYTES))
        columns = [
            _heads_of(prints),
            pc.binary_slice(prints, HEAD_BYTES, FINGERPRINT_BYTES).view(pa.uint32()),
            _column(pa.uint32(), count, b"".join(commit.contents for commit in commits)),
            _column(pa.uint32(), count, ordinals),
        ]
        versions = array("q", [commit.version for commit in commits])
        times_ms = array("q", [commit.timestamp_ms for commit in commits])
        return cls(versions, times_ms, _sorted(pa.RecordBatch.from_arrays(columns, schema=COLUMNS)))

    def __len__(self) -> int:
        """Return the number of ids, forgotten ones included."""
        return self.ids.num_rows

    @property
    def has_content(self) -> bool:
        """Whether every id has a content; 0 means none."""
        return not len(self) or bool(pc.min(self.ids["content"]).as_py())

    def forget(self, before_ms: int) -> bool:
        """Forget the expired commits before the first one that has not expired. Returns whether none is left."""
        while self.first_live < len(self.times_ms) and self.times_ms[self.first_live] < before_ms:
            self.first_live += 1
        return self.first_live == len(self.times_ms)

    def find(self, wanted: WantedIds) -> Iterator[tuple[int, int, bytes]]:
        """Look ids up by head and tail. Yields position, version and content of each that a live commit holds."""
        heads, count = self._heads, len(self._heads)
        for position in wanted.possible_in(self.ids["head"]):
            head, tail = FINGERPRINT.unpack(wanted.prints[position])
            at = bisect_left(heads, head)
            while at < count and heads[at] == head:
                if self._tails[at] == tail and self._commits[at] >= self.first_live:
                    content = self._contents[at].to_bytes(CONTENT_BYTES, "little")
                    yield position, self.versions[self._commits[at]], content
                at += 1

    def followed_by(self, later: IdRun) -> IdRun:
        """Return this run and the commits of a later one as one run, without what is forgotten."""
        own = self.compacted()
        shifted = pc.add(later.ids["commit"], pa.scalar(len(own.versions), pa.uint32()))
        both = _sorted(pa.concat_batches([own.ids, _with_commits(later.ids, shifted)]))
        return IdRun(own.versions + later.versions, own.times_ms + later.times_ms, both)

    def compacted(self) -> IdRun:
        """Return the run without what is forgotten, in memory of its own."""
        if not self.first_live and not self.borrowed:
            return self
        commits = self.ids["commit"]
        kept = pc.filter(self.ids, pc.greater_equal(commits, pa.scalar(self.first_live, pa.uint32())))
        moved = pc.subtract(kept["commit"], pa.scalar(self.first_live, pa.uint32()))
        return IdRun(self.versions[self.first_live :], self.times_ms[self.first_live :], _with_commits(kept, moved))

    def without(self, unwanted: Callable[[int], bool]) -> IdRun:
        """Return the run without some versions."""
        kept = [at for at, version in enumerate(self.versions) if not unwanted(version)]
        if len(kept) == len(self.versions):
            return self
        places = pc.cast(pc.index_in(self.ids["commit"], pa.array(kept, pa.uint32())), pa.uint32())
        ids = pc.filter(_with_commits(self.ids, places), pc.is_valid(places))
        return IdRun(
            array("q", map(self.versions.__getitem__, kept)), array("q", map(self.times_ms.__getitem__, kept)), ids
        )

    def by_commit(self) -> Iterator[CommitIds]:
        """Yield the ids of each commit that is not forgotten and has any, sorted."""
        ids = pc.take(self.ids, pc.sort_indices(self.ids["commit"]))
        heads = pc.cast(ids["head"].view(pa.binary(HEAD_BYTES)), pa.binary())
        tails = pc.cast(ids["tail"].view(pa.binary(FINGERPRINT_BYTES - HEAD_BYTES)), pa.binary())
        prints = memoryview(b"".join(pc.binary_join_element_wise(heads, tails, b"").to_pylist()))
        contents = memoryview(_view(ids["content"], "I").tobytes())
        counts = {entry["values"]: entry["counts"] for entry in pc.value_counts(ids["commit"]).to_pylist()}
        ends = accumulate((counts.get(at, 0) for at in range(len(self.versions))), initial=0)
        for at, (start, end) in enumerate(pairwise(ends)):
            if start < end and at >= self.first_live:
                yield CommitIds(
                    self.versions[at],
                    self.times_ms[at],
                    bytes(prints[start * FINGERPRINT_BYTES : end * FINGERPRINT_BYTES]),
                    bytes(contents[start * CONTENT_BYTES : end * CONTENT_BYTES]),
                )


_FEW = 256
"""Fewer ids are looked up one by one, which is faster than a call of Arrow's functions."""


class WantedIds:
    """Ids to look up in several runs, by their fingerprints."""

    def __init__(self, prints: Sequence[bytes]) -> None:
        self.prints = prints

    def possible_in(self, heads: pa.Array) -> Iterable[int]:
        """Return the positions of the ids whose heads may be among some sorted ones, in any order."""
        if len(self.prints) < _FEW or not len(heads):
            return range(len(self.prints) if len(heads) else 0)
        order, wanted = self._by_head
        last = pa.scalar(len(heads) - 1, pa.uint64())
        at = pc.min_element_wise(pc.search_sorted(heads, wanted), last)
        return order.filter(pc.equal(heads.take(at), wanted)).to_pylist()

    @cached_property
    def _by_head(self) -> tuple[pa.Array, pa.Array]:
        """Return the positions sorted by head, and the sorted heads."""
        prints = _column(pa.binary(FINGERPRINT_BYTES), len(self.prints), b"".join(self.prints))
        heads = _heads_of(prints)
        order = pc.array_sort_indices(heads)
        return order, heads.take(order)


def _heads_of(prints: pa.Array) -> pa.Array:
    return pc.binary_slice(prints, 0, HEAD_BYTES).view(pa.uint64())


def _sorted(ids: pa.RecordBatch) -> pa.RecordBatch:
    return pc.take(ids, pc.sort_indices(ids["head"]))


def _with_commits(ids: pa.RecordBatch, commits: pa.Array) -> pa.RecordBatch:
    return ids.set_column(COLUMNS.get_field_index("commit"), COLUMNS.field("commit"), commits)


def _column(kind: pa.DataType, count: int, data: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


def _view(column: pa.Array, code: Literal["Q", "I"]) -> memoryview[int]:
    """Return the numbers of a column that has no nulls, without a copy."""
    width = column.type.bit_width // 8
    start = column.offset * width
    return memoryview(column.buffers()[1])[start : start + len(column) * width].cast(code)
