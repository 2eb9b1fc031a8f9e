"""Results of queries that a lake keeps, so that the same query on the same versions need not run again.

`_alluvia/results/<key>` in the lake's folder. The parts of the key decide whether a result is still right; nothing here
does. A result is never changed, only deleted: when it is old, when there are too many, and by every erasure, since it
may show rows that were erased.

`_alluvia/results/large/[<hash of a caller>/]<id>.<form>[.<coding>]`, written once, in parts, under a name that nobody
can guess. They are results like the others: an erasure deletes them, clean-up those that are old. Callers that are told
apart have folders of their own, so that one LIST says how many bytes a caller has kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from hashlib import blake2b, sha256
from typing import NamedTuple

import orjson
import pyarrow as pa

from alluvia.clock import Clock
from alluvia.commit.versions import oldest_readable
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ObjectNotFound, TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog
from alluvia.store import ObjectInfo, Store

RESULTS = "_alluvia/results/"
LARGE = f"{RESULTS}large/"
"""Results that are too large for an answer: see `large_results`."""
LINK_SECONDS = 3600
"""How long a link to one is valid: clean-up leaves it as long."""
_MAGIC = b"alluvia-result-1\n"
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class KeptResult:
    """A result as bytes, and its headers by name.

    One that is too large for an answer has no body, but `links`: the keys of its objects, by their coding ("": none).
    """

    body: bytes
    told: Mapping[str, str]
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """How old results may become, and how many bytes they may take together; large ones are counted for themselves.

    They hold when results are cleaned up.
    """

    age_ms_max: int = 24 * 3_600_000
    bytes_max: int = 1_000_000_000
    large_bytes_max: int = 50_000_000_000


@dataclass(frozen=True, slots=True)
class CleanedResults:
    """How many results were deleted and are left, with their bytes."""

    deleted: int
    deleted_bytes: int
    kept: int
    kept_bytes: int


def find_result(store: Store, key: str) -> KeptResult | None:
    """Return what is kept under a key; None if there is nothing, or it is not as it was written. One GET."""
    try:
        data = store.get(RESULTS + key)
    except ObjectNotFound:
        return None
    kept = _decoded(data)
    return None if kept is None or kept[0] != key else kept[1]


def read_result(data: bytes) -> KeptResult | None:
    """Return the result in an object; None if the object is damaged or not a result."""
    kept = _decoded(data)
    return None if kept is None else kept[1]


def keep_result(store: Store, key: str, result: KeptResult) -> None:
    """Keep a result. One PUT, which replaces one that is damaged: all results of a key are equally good."""
    store.put(RESULTS + key, _encoded(key, result))


def forget_result(store: Store, key: str) -> None:
    """Take back a kept result with the right to put but not to delete. One PUT; clean-up deletes the rest."""
    store.put(RESULTS + key, b"")


def delete_results(store: Store) -> int:
    """Delete all results, and return how many there were. One LIST, and a bulk delete for each 1,000."""
    keys = [info.key for info in store.list(RESULTS)]
    if keys:
        store.delete(keys)
    return len(keys)


def clean_results(store: Store, clock: Clock, limits: ResultLimits, *, dry_run: bool = False) -> CleanedResults:
    """Delete results that are too old, and the oldest ones beyond the limit on their bytes. Costs as `delete_results`.

    Large ones stay an hour longer, since links are made until they are too old; the limit on their bytes may end links
    to those that are older than an hour. A dry run only counts.
    """
    now_ms = clock.now_ms()
    objects = list(store.list(RESULTS))
    large = [info for info in objects if info.key.startswith(LARGE)]
    others = [info for info in objects if not info.key.startswith(LARGE)]
    old_ms, linked_ms = now_ms - limits.age_ms_max, now_ms - LINK_SECONDS * 1000
    gone = _beyond(others, old_ms, limits.bytes_max)
    gone += _beyond(large, old_ms - LINK_SECONDS * 1000, limits.large_bytes_max, linked_ms)
    if gone and not dry_run:
        store.delete([info.key for info in gone])
    gone_bytes = sum(info.size for info in gone)
    kept_bytes = sum(info.size for info in objects) - gone_bytes
    return CleanedResults(len(gone), gone_bytes, len(objects) - len(gone), kept_bytes)


def _beyond(infos: Iterable[ObjectInfo], old_ms: int, bytes_max: int, young_ms: int | None = None) -> list[ObjectInfo]:
    """Return those written before a moment, those without rows, and the oldest beyond a limit that are not young."""
    gone, kept_bytes = [], 0
    for info in sorted(infos, key=lambda info: info.modified_ms, reverse=True):
        is_young = young_ms is not None and info.modified_ms > young_ms
        too_many = not is_young and kept_bytes + info.size > bytes_max
        if info.modified_ms < old_ms or not info.size or too_many:
            gone.append(info)
        else:
            kept_bytes += info.size
    return gone


def _encoded(key: str, result: KeptResult) -> bytes:
    body = pa.compress(result.body, codec="zstd", asbytes=True)
    head = orjson.dumps({"key": key, "bytes": len(result.body), "told": dict(result.told), "links": dict(result.links)})
    content = head + b"\n" + body
    return _MAGIC + blake2b(content, digest_size=_DIGEST_BYTES).digest() + content


def _decoded(data: bytes) -> tuple[str, KeptResult] | None:
    """Return a result with its key."""
    start = len(_MAGIC) + _DIGEST_BYTES
    content = data[start:]
    if not data.startswith(_MAGIC) or blake2b(content, digest_size=_DIGEST_BYTES).digest() != data[len(_MAGIC) : start]:
        return None
    first, _, body = content.partition(b"\n")
    head = orjson.loads(first)
    body = pa.decompress(body, head["bytes"], codec="zstd", asbytes=True)
    return head["key"], KeptResult(body, head["told"], head.get("links", {}))


class LinkedBytes(NamedTuple):
    """How many bytes of results a caller has links to, and in how many seconds the first of these links expires."""

    total: int
    seconds: int


def new_large_key(clock: Clock, form: str, coding: str | None, caller: str = "") -> str:
    """Return a fresh key for a caller's result in a form, by its name in lower case, and a coding.

    `caller` is "" for those that are not told apart.
    """
    suffix = "" if coding is None else f".{coding}"
    return f"{_folder(caller)}{clock.new_id()}.{form}{suffix}"


def kept_bytes(store: Store, clock: Clock, caller: str) -> LinkedBytes:
    """Return the bytes of a caller's results that links may still lead to. One LIST."""
    old_ms = clock.now_ms() - LINK_SECONDS * 1000
    linked = [info for info in store.list(_folder(caller)) if info.size and info.modified_ms > old_ms]
    first_ms = min((info.modified_ms for info in linked), default=old_ms)
    return LinkedBytes(sum(info.size for info in linked), max(1, -((old_ms - first_ms) // 1000)))


def _folder(caller: str) -> str:
    return f"{LARGE}{sha256(caller.encode()).hexdigest()[:32]}/" if caller else LARGE


def is_there(store: Store, clock: Clock, key: str, age_ms_max: int) -> bool:
    """Whether a result is still there, was not taken back, and is young enough for another link. One HEAD."""
    info = store.head(key)
    return info is not None and info.size > 0 and info.modified_ms >= clock.now_ms() - age_ms_max


def take_back(store: Store, key: str) -> None:
    """Take the rows out of a result with the right to put but not to delete. One PUT; clean-up deletes the rest."""
    store.put(key, b"")


def erased_since(catalog: Catalog, read: Iterable[Snapshot]) -> bool:
    """Whether rows may have been erased from some versions of tables since they were read.

    An erasure makes every version that held the rows unreadable, and deletes results after that: it has deleted a
    result that was complete by then, and a query that completes one later finds out here. One GET for each table.
    """
    return any(_is_gone(catalog, snapshot) for snapshot in {(each.name, each.version): each for each in read}.values())


def _is_gone(catalog: Catalog, snapshot: Snapshot) -> bool:
    try:
        newest = catalog.handle(snapshot.name).newest()
    except TableNotFound:
        return True
    same = newest.state.metadata.id == snapshot.state.metadata.id
    return not same or snapshot.version < oldest_readable(newest.state)
