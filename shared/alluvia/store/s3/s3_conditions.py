"""The proof that an S3-compatible store honours conditional writes, before anything in a lake depends on one.

A store that ignores `If-None-Match` lets each of two writers believe that a commit is its own, and loses the rows of
one. So the first conditional write of a process to a bucket that AWS does not serve is preceded by one that must be
refused: of a key of its own, in the lake, that is taken. The object stays, so that a proof is one request. It is no
evidence by itself: each process asks the store anew, since a lake can be copied to another store, and a store can be
replaced behind its address.

Some stores look and write in two steps, and so honour the condition until writers meet. Where a lake has no such object
yet, many writers race for keys, once in a process for each endpoint. A race proves nothing if it has one winner, but
finds the stores whose two steps are far apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from alluvia.errors import NotDeleted, StoreRefused
from alluvia.store.s3.s3_client import Failure

PROOF_KEY = "_alluvia.conditional-writes.json"
"""Next to the tables, since a folder `_alluvia` is where to look for dropped tables, one LIST a look."""
PROOF = b'{"about": "Alluvia writes this key on a condition that must fail, to prove that the store honours it."}\n'
RACES, RACERS = 16, 8
AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".api.aws")
NO_CONTENT_HAS_IT = '"00000000000000000000000000000000"'
"""An entity tag for `If-Match`: the MD5 of nothing that anyone knows."""

Condition = Literal["If-None-Match", "If-Match"]
IF_NONE_MATCH: Condition = "If-None-Match"


class ConditionalStore(Protocol):
    """What the proof uses of a store."""

    endpoint_url: str
    bucket: str

    def put_if(self, key: str, data: bytes, condition: str) -> object:
        """Write a key under a condition, `create` or the entity tag that must match; return a `Failure` if it fails."""

    def map(self, work: Callable[[Any], Any], items: Iterable[Any], at_once: int = ...) -> Sequence[Any]:
        """Return what `work` returns for each item, several at once."""

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects."""


_proved: set[tuple[str, str, Condition]] = set()
_exact: dict[str, bool] = {}
"""Whether no race at an endpoint had two winners."""


def is_aws(endpoint_url: str) -> bool:
    """Whether AWS itself serves an endpoint, which is empty where none is set."""
    return not endpoint_url or (urlsplit(endpoint_url).hostname or "").endswith(AWS_DOMAINS)


def prove(condition: Condition, store: ConditionalStore, new_id: Callable[[], str]) -> Failure | None:
    """Prove once in a process that an endpoint honours a condition in a bucket; no request if that is known.

    Raises `StoreRefused` if it ignores the condition or does not know it. Returns the failure of a proof that could not
    be carried out.
    """
    proved = (store.endpoint_url, store.bucket, condition)
    if proved in _proved:
        return None
    if condition == IF_NONE_MATCH:
        failure = _prove_absence(store, new_id)
    else:
        failure = prove(IF_NONE_MATCH, store, new_id)
        if failure is None:
            failure = _refused(condition, store, store.put_if(PROOF_KEY, PROOF, NO_CONTENT_HAS_IT))
    if failure is None:  # threads that begin at once each find it out, rather than wait for one that gets no answer
        _proved.add(proved)
    return failure


def _prove_absence(store: ConditionalStore, new_id: Callable[[], str]) -> Failure | None:
    """Have the store refuse a second object under the key of the proof, and have writers race if that is the first."""
    answer = store.put_if(PROOF_KEY, PROOF, "create")
    if isinstance(answer, Failure):
        return _refused(IF_NONE_MATCH, store, answer)
    failure = _refused(IF_NONE_MATCH, store, store.put_if(PROOF_KEY, PROOF, "create"))
    if failure is not None:
        return failure
    if store.endpoint_url not in _exact:
        raced = _race(store, new_id())
        if isinstance(raced, Failure):
            _clean_up(store, [PROOF_KEY])  # so that the next proof includes a race
            return raced
        _exact[store.endpoint_url] = raced
    if not _exact[store.endpoint_url]:
        _clean_up(store, [PROOF_KEY])
        raise _refusal(IF_NONE_MATCH, store, "ignores", " when writers race")
    return None


def _race(store: ConditionalStore, name: str) -> bool | Failure:
    """Have writers race for keys, which are deleted afterwards; return whether none of them has two winners.

    Returns the failure of a write if that left a key without a winner, so that its race shows nothing.
    """
    keys = [f"{PROOF_KEY}.{name}.{number}" for number in range(RACES)]
    entered = [key for key in keys for _ in range(RACERS)]
    results = store.map(lambda key: store.put_if(key, PROOF, "create"), entered, 2 * RACERS)
    _clean_up(store, keys)
    answers = list(zip(entered, results, strict=True))
    won = [key for key, answer in answers if not isinstance(answer, Failure)]
    if len(won) > len(set(won)):
        return False
    failed = (answer for key, answer in answers if isinstance(answer, Failure) and key not in won)
    return next((each for each in failed if each.status != 412 and not each.is_conflict), True)


def _clean_up(store: ConditionalStore, keys: Sequence[str]) -> None:
    """Delete what a proof left. A process that may not delete leaves the small objects, which are harmless."""
    with suppress(NotDeleted, StoreRefused):
        store.delete(keys)


def _refused(condition: Condition, store: ConditionalStore, answer: object) -> Failure | None:
    """Return None if a write that must fail by its condition did so, or why it failed otherwise."""
    if not isinstance(answer, Failure):
        raise _refusal(condition, store, "ignores")
    if answer.status == 501:
        raise _refusal(condition, store, "does not implement")
    return None if answer.status == 412 else answer


def _refusal(condition: Condition, store: ConditionalStore, does: str, when: str = "") -> StoreRefused:
    lost = "one commit can overwrite another and lose its rows" if condition == IF_NONE_MATCH else "changes can be lost"
    return StoreRefused(
        f"the S3 endpoint {store.endpoint_url} {does} {condition} on PUT{when}, so {lost}; nothing was committed: "
        "use AWS S3, or a store that honours conditional writes (docs/STORES.md lists those that were tried)"
    )
