"""Stores in S3 whose conditional writes this process has proved already, for tests of what comes after that."""

from __future__ import annotations

from alluvia.store import Store
from alluvia.store.s3.s3_conditions import PROOF_KEY


def proved(store: Store) -> Store:
    """Return a store, in whose bucket the conditions have been proved. It is empty."""
    store.put_if_absent("proved", b"")
    assert store.put_if_same("proved", b"", store.get_tagged("proved")[1])
    store.delete(["proved", PROOF_KEY])
    return store
