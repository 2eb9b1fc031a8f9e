"""The write of an object that must be written once, such as a commit. I/O.

An unclear answer of the store proves nothing, and a taken key may have been taken by this very write. Only the object
under the key decides. Source: icechunk, design-docs/017-conditional-put-lost-response.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from alluvia.clock import Clock
from alluvia.errors import AnswerLost, CommitUnknown, Invalid, Unavailable
from alluvia.store import PutResult, Store

T = TypeVar("T")
WRITE_TRIES = 6


def put_once(
    store: Store,
    clock: Clock,
    key: str,
    data: bytes,
    *,
    what: str,
    read: Callable[[], T | None],
    is_ours: Callable[[T], bool],
) -> T | None:
    """Put an object. None if it is ours now; what another has put there if the key is taken.

    `read` returns what stands under the key, None for nothing. Raises `CommitUnknown`, naming `what` was to be written,
    when the outcome could not be learnt, so that the caller deletes nothing; `Unavailable` or `Invalid` if nothing
    happened.
    """
    sent_unclear = False
    for attempt in range(WRITE_TRIES):
        if attempt:
            clock.sleep(0.1 * 2**attempt * (0.5 + clock.uniform()))
        try:
            if store.put_if_absent(key, data) is PutResult.CREATED:
                return None
        except AnswerLost:
            sent_unclear = True
        except (Unavailable, Invalid) as error:
            if sent_unclear:
                raise unknown(what) from error
            raise
        try:
            found = read()
        except (Unavailable, Invalid) as error:
            raise unknown(what) from error
        if found is not None:
            return None if is_ours(found) else found
    raise unknown(what)


def unknown(what: str) -> CommitUnknown:
    """Return what to raise where nobody can tell whether something was written."""
    msg = f"it is unknown whether {what} was written: the store stopped answering; nothing was deleted"
    return CommitUnknown(msg)
