"""Results of queries that a lake keeps, so that the same query on the same versions need not run again.

`_alluvia/results/<key>` in the lake's folder. What is in the key decides whether a result is still right; nothing here
does. A result is never changed, only deleted: when it is old, when there are too many, and by every erasure, since it
may show rows that were erased.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import orjson
import pyarrow as pa

from alluvia.clock import Clock
from alluvia.errors import ObjectNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import Store

RESULTS = "_alluvia/results/"
_MAGIC = b"alluvia-result-1\n"
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class KeptResult:
    """A result as bytes, and what is told of it, by name."""

    body: bytes
    told: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """How old results may become, and how many bytes they may take together. They hold when results are cleaned up."""

    age_ms_max: int = 24 * 3_600_000
    bytes_max: int = 1_000_000_000


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
    return _decoded(key, data)


def keep_result(store: Store, key: str, result: KeptResult) -> None:
    """Keep a result. One PUT, which replaces one that is damaged: all results of a key are equally good."""
    store.put(RESULTS + key, _encoded(key, result))


def forget_result(store: Store, key: str) -> None:
    """Take back what was kept, by whoever may put but not delete. One PUT; clean-up deletes what is left."""
    store.put(RESULTS + key, b"")


def delete_results(store: Store) -> int:
    """Delete all results, and return how many there were. One LIST, and a bulk delete for each 1,000."""
    keys = [info.key for info in store.list(RESULTS)]
    if keys:
        store.delete(keys)
    return len(keys)


def clean_results(store: Store, clock: Clock, limits: ResultLimits, *, dry_run: bool = False) -> CleanedResults:
    """Delete results that are too old, and the oldest ones beyond the limit on their bytes. Costs as `delete_results`.

    A dry run only counts.
    """
    oldest_ms = clock.now_ms() - limits.age_ms_max
    newest_first = sorted(store.list(RESULTS), key=lambda info: info.modified_ms, reverse=True)
    gone, kept, kept_bytes = [], 0, 0
    for info in newest_first:
        if info.modified_ms < oldest_ms or not info.size or kept_bytes + info.size > limits.bytes_max:
            gone.append(info)
        else:
            kept, kept_bytes = kept + 1, kept_bytes + info.size
    if gone and not dry_run:
        store.delete([info.key for info in gone])
    return CleanedResults(len(gone), sum(info.size for info in gone), kept, kept_bytes)


def _encoded(key: str, result: KeptResult) -> bytes:
    body = pa.compress(result.body, codec="zstd", asbytes=True)
    head = orjson.dumps({"key": key, "bytes": len(result.body), "told": dict(result.told)})
    content = head + b"\n" + body
    return _MAGIC + blake2b(content, digest_size=_DIGEST_BYTES).digest() + content


def _decoded(key: str, data: bytes) -> KeptResult | None:
    start = len(_MAGIC) + _DIGEST_BYTES
    content = data[start:]
    if not data.startswith(_MAGIC) or blake2b(content, digest_size=_DIGEST_BYTES).digest() != data[len(_MAGIC) : start]:
        return None
    first, _, body = content.partition(b"\n")
    head = orjson.loads(first)
    if head["key"] != key:
        return None
    return KeptResult(pa.decompress(body, head["bytes"], codec="zstd", asbytes=True), head["told"])
