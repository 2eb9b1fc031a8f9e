"""Group commit: rows of writers that meet others are offered to the next commit, and how long to wait for it. Pure.

An offer is an object below `OFFERS`, named by its `base`: the newest version that its owner knew. Its fate
follows from the commits after that version alone, so that all readers of them come to the same result, whatever
their clocks say and however long they were asleep:

* A commit that names the offer has taken it. All its rows are in that version.
* A commit that changes metadata or protocol, restores or erases ends it, and so does one that brings one of its event
  ids, one that has its ids in files, and the last of `LIFE` versions after its base. It will never be taken then, and
  its owner goes on without it.
* Otherwise it waits.

So only a commit within `LIFE` versions of its base can take it, by a writer that knows all commits in between.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any

import orjson
import pyarrow as pa

from alluvia.commit.event_window.id_runs import CONTENT_BYTES, FINGERPRINT_BYTES
from alluvia.commit.event_window.window import parts
from alluvia.delta.log.commit import EVENT_FILES, CommitActions
from alluvia.errors import Corrupt
from alluvia.lazy_dataclasses import dataclass

COMMITS = 4
"""So many commits of offers tell how long it takes from one to the next."""
_REQUESTS_LEAST, _REQUESTS_MOST, _REQUESTS_USUAL = 3.0, 16.0, 4.0
"""How long that takes, as multiples of the time of a request: listing, reading offers, the file and the commit."""
_STALE = 3
"""After this many intervals without a commit, the time of the next one is unknown."""
_NEARLY = 0.3


@dataclass(frozen=True, slots=True)
class CommitInterval:
    """The interval of commits of offers: the last known one at `last_ms`, and each an interval after the one before."""

    last_ms: float
    each_ms: float

    @classmethod
    def of(cls, times_ms: Sequence[int], now_ms: int, request_ms: float) -> CommitInterval:
        """Return the interval of commits by the times that they record, the newest of which was just seen.

        Their writers' clocks may be wrong, so this is no more than a hint: the time between two is kept within what
        the requests may take, and none came in the future.
        """
        gaps = [after - before for before, after in pairwise(times_ms)]
        each = sum(gaps) / len(gaps) if gaps else _REQUESTS_USUAL * request_ms
        each = min(_REQUESTS_MOST * request_ms, max(_REQUESTS_LEAST * request_ms, each))
        last = times_ms[-1] + request_ms if times_ms else now_ms  # a commit tells when its request began
        return cls(min(now_ms, last), each)

    @property
    def due_ms(self) -> float:
        """When the next commit is expected."""
        return self.last_ms + self.each_ms

    def is_stale(self, now_ms: float) -> bool:
        """Whether the next commit is overdue, and so may come at any time."""
        return now_ms - self.due_ms > _STALE * self.each_ms

    def missed(self, now_ms: float) -> int:
        """Return how many commits there should be by now since the last known one, at least 1."""
        return max(1, int((now_ms - self.last_ms) / self.each_ms + _NEARLY))


CONTENTION_MS = 10_000
"""For how long a process that met other writers offers its rows at once."""


class Contention:
    """Whether other writers commit to a table at the same time, as far as this process has seen."""

    def __init__(self) -> None:
        self._until_ms = 0

    def note(self, now_ms: int) -> None:
        """Take note of other writers."""
        self._until_ms = now_ms + CONTENTION_MS

    def clear(self) -> None:
        """Take note that there are no other writers."""
        self._until_ms = 0

    def is_recent(self, now_ms: int) -> bool:
        """Whether others were seen lately."""
        return now_ms < self._until_ms


OFFERS = "_alluvia/offers/"
TAKEN_INFO = "alluviaOffers"
"""What commitInfo says of offers that the commit has taken: their ids, separated by spaces."""
NEXT_INFO = "alluviaNextOffer"
"""The oldest offer that the commit leaves, by its base and id. Its owner commits next, unless it has gone."""
LIFE = 32
ROWS_MAX = 1000
BYTES_MAX = 1 << 20
"""Rows and bytes of an offer; what is bigger is committed by its own writer."""
AGE_MS_MAX = 60_000
"""An offer older than this, by the store's clock, is not taken: its owner has gone."""
_ENDING = frozenset({"RESTORE", "ERASE"})
_HEADER = b"alluvia.offer"


@dataclass(frozen=True, slots=True)
class Offer:
    """Rows that fit version `base` of the table with `table_id`, with the fingerprint and content of each.

    odd_times: how many of them have an odd time, by kind (`delta.odd_times`).
    """

    id: str
    table_id: str
    base: int
    rows: pa.Table
    prints: Sequence[bytes]
    contents: Sequence[bytes]
    odd_times: Mapping[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Return the offer's object: an Arrow stream, the rest of the offer in its schema."""
        header = {
            "table": self.table_id,
            "base": self.base,
            "prints": b64encode(b"".join(self.prints)).decode(),
            "contents": b64encode(b"".join(self.contents)).decode(),
            **({"odd_times": dict(self.odd_times)} if self.odd_times else {}),
        }
        rows = self.rows.replace_schema_metadata({_HEADER: orjson.dumps(header)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return bytes(sink.getvalue())


def decode_offer(offer_id: str, data: bytes) -> Offer:
    """Read an offer. Raises `Corrupt`."""
    try:
        with pa.ipc.open_stream(data) as stream:
            rows = stream.read_all()
        rows.validate(full=True)
        header = orjson.loads((rows.schema.metadata or {})[_HEADER])
        prints = parts(b64decode(header["prints"], validate=True), FINGERPRINT_BYTES)
        contents = parts(b64decode(header["contents"], validate=True), CONTENT_BYTES)
        table_id, base = str(header["table"]), int(header["base"])
        odd_times = {str(kind): int(count) for kind, count in header.get("odd_times", {}).items()}
    except (pa.ArrowException, ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise Corrupt(f"offer {offer_id} cannot be read: {error}") from error
    if not len(rows) == len(prints) == len(contents) == len(set(prints)):
        raise Corrupt(f"offer {offer_id} cannot be read: it has {len(rows)} rows, and {len(set(prints))} event ids")
    return Offer(offer_id, table_id, base, rows.replace_schema_metadata(None), prints, contents, odd_times)


def offer_name(base: int, offer_id: str = "") -> str:
    """Return the path of an offer below the table's root; without an id, one before those of its base."""
    return f"{OFFERS}{base:020d}/{offer_id}"


def offer_at(path: str) -> tuple[int, str]:
    """Return base and id of an offer by its path or key."""
    base, _, offer_id = path.rpartition("/")
    return int(base.rpartition("/")[2]), offer_id


def taken_info(taken: Iterable[str], following: tuple[int, str] | None) -> dict[str, Any]:
    """Return what a commit says of the offers that it takes, and of the one whose owner commits next."""
    return {TAKEN_INFO: " ".join(taken), **({} if following is None else {NEXT_INFO: "{}/{}".format(*following)})}


def offers_in(commit: CommitActions) -> Sequence[str]:
    """Return the ids of the offers that a commit has taken."""
    return str(commit.info.get(TAKEN_INFO, "")).split()


def next_offer(commit: CommitActions) -> tuple[int, str] | None:
    """Return base and id of the offer whose owner is to make the commit after this one."""
    text = commit.info.get(NEXT_INFO)
    return None if text is None else offer_at(str(text))


def taken_by(offer_id: str, commits: Iterable[CommitActions]) -> CommitActions | None:
    """Return the commit that has taken an offer."""
    return next((commit for commit in commits if offer_id in offers_in(commit)), None)


def is_over(commits: Sequence[CommitActions]) -> bool:
    """Whether the commits after an offer's base end it, if none has taken it, and none brings its event ids."""
    return len(commits) >= LIFE or any(map(_ends, commits))


def _ends(commit: CommitActions) -> bool:
    changed = commit.metadata is not None or commit.protocol is not None
    return changed or commit.info.get("operation") in _ENDING or EVENT_FILES in commit.info
