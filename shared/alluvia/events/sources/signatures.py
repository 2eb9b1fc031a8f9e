"""What the kinds of sources share to check a signature: HMACs, comparison in constant time, and ages. Pure."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MISSING = "a header of the signature is missing or malformed"
STALE = "the timestamp is too old, or too far in the future"
WRONG = "the signature does not match"
SIGNATURES_MAX = 10
"""Signatures of one request that are looked at: a rotation needs two."""
_TIMESTAMP_CHARS_MAX = 12


def mac(secret: bytes, *parts: bytes, algorithm: str = "sha256") -> bytes:
    """Return the HMAC of parts that follow each other."""
    made = hmac.new(secret, digestmod=getattr(hashlib, algorithm))
    for part in parts:
        made.update(part)
    return made.digest()


def to_bytes(text: str) -> bytes:
    """Return a header's bytes, whatever characters it has."""
    return text.encode("utf-8", "surrogatepass")


def same(one: str, other: str) -> bool:
    """Compare two texts in a time that does not depend on where they differ.

    Texts, not what they encode: base64 and hex have several texts for the same bytes, and a sender uses one of them.
    """
    return hmac.compare_digest(to_bytes(one), to_bytes(other))


def any_same(expected: Sequence[str], given: Sequence[str]) -> bool:
    """Whether one of the expected texts is among the first of those given."""
    return any(same(one, other) for one in expected for other in given[:SIGNATURES_MAX])


def is_fresh(timestamp: str, now_us: int, tolerance_seconds: int) -> bool:
    """Whether a timestamp, in seconds since the Unix epoch, is at most so far from now."""
    if not is_timestamp(timestamp):
        return False
    return abs(now_us - int(timestamp) * 1_000_000) <= tolerance_seconds * 1_000_000


def is_timestamp(text: str) -> bool:
    """Whether a text is a number of seconds since the Unix epoch."""
    return text.isascii() and text.isdigit() and len(text) <= _TIMESTAMP_CHARS_MAX
