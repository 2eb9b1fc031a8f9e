"""Hashes of many short texts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b


def digests(begun: blake2b, texts: Iterable[bytes]) -> list[bytes]:
    """Return the hash of each text after what `begun` has hashed: to copy one is faster than to set one up."""
    found = []
    for text in texts:
        each = begun.copy()
        each.update(text)
        found.append(each.digest())
    return found
