"""What a job failed with for good: EMR Serverless tries again whatever the reason, and need not do the work again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import orjson

from alluvia.errors import Corrupt, Invalid, ObjectNotFound, Unsupported
from alluvia.store import Store


@contextmanager
def told_once(store: Store, folder: str, attempt: int | None) -> Iterator[None]:
    """Keep an error that would come again, and raise it at once in later tries of the same attempt.

    `folder` is the job's. An attempt is a start of the job by somebody, who has repaired something when the next is
    started. None is one that nobody tries again.
    """
    if attempt is None:
        yield
        return
    key = f"{folder}failed-{attempt}.json"
    try:
        reason = orjson.loads(store.get(key))["reason"]
    except ObjectNotFound:
        reason = None
    if reason is not None:
        raise Invalid(f"{reason} (found by an earlier try of attempt {attempt}: raise attempt to run this job again)")
    try:
        yield
    except (Invalid, Corrupt, Unsupported) as error:
        store.put(key, orjson.dumps({"reason": str(error)}))
        raise
