"""Reads of results in ranges: a reader gets all its ranges from one result, even if tables change in between.

`_alluvia/results/reads/<name>` in the lake's folder points to that result. Its name is made of the reader's address,
program, rights and query, which distinguish readers: most of them send neither If-Range nor If-Match. Like results,
these objects are deleted when they are old, and by every erasure.
"""

from __future__ import annotations

import orjson

from alluvia.errors import ObjectNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.results.results import RESULTS
from alluvia.store import Store

READS = f"{RESULTS}reads/"
GOES_ON_MS = 3_600_000
"""How long after its beginning a reader may ask for further ranges."""
SAME_MS, SAME_MS_MAX = 5_000, 60_000
"""A reader that begins so soon after another was active gets the same result, but none that is older than the second:
the two cannot be told apart once they go on."""
CLOCKS_MS = 5_000
"""The clocks of two machines differ by no more: the machine that noted a read may be ahead of the one that answers."""
NOTED_MS = 2_000
"""A read that goes on is noted no more often."""


@dataclass(frozen=True, slots=True)
class Read:
    """The key of a result, when it was first read in ranges, and when a range was last noted, in ms since the epoch."""

    key: str
    began_ms: int
    used_ms: int

    def serves(self, now_ms: int, *, begins: bool) -> bool:
        """Whether a request gets this result: one that goes on, or one that begins while another is active."""
        age_ms = now_ms - self.began_ms
        if not begins:
            return -CLOCKS_MS <= age_ms < GOES_ON_MS
        return -CLOCKS_MS <= age_ms < SAME_MS_MAX and now_ms - self.used_ms < SAME_MS

    def is_to_note(self, now_ms: int) -> bool:
        """Whether that a range was asked for is to be noted."""
        return now_ms - self.used_ms >= NOTED_MS


def find_read(store: Store, name: str) -> Read | None:
    """Return a read by its name; None if there is none. One GET."""
    try:
        said = orjson.loads(store.get(READS + name))
        return Read(str(said["key"]), int(said["began"]), int(said["used"]))
    except (ObjectNotFound, ValueError, KeyError, TypeError):  # a damaged object names none
        return None


def keep_read(store: Store, name: str, read: Read) -> None:
    """Keep a read. One PUT."""
    store.put(READS + name, orjson.dumps({"key": read.key, "began": read.began_ms, "used": read.used_ms}))
