"""Texts of a lake that users write: which an erasure may delete because they have ended, and how to end the others.

A record of a token or link has ended once that is revoked or expired, and one of a failed run at once. A version of a
view has ended when a newer one is there, and one of a published query when the query was withdrawn after it, since
tokens may name earlier versions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

import orjson

from alluvia.access.registry import ISSUED, find_issued
from alluvia.clock import Clock
from alluvia.errors import Corrupt, Invalid
from alluvia.operations.catalog.views import VIEWS
from alluvia.operations.erasure.erase_files import mentions
from alluvia.operations.erasure.erase_matching import word_pattern
from alluvia.operations.erasure.erase_report import read_if_there
from alluvia.store import Store

QUERIES = "_alluvia/queries/"
FAILED_RUNS = "_alluvia/pipelines/failed/"


def how_to_end(key: str) -> str:
    """Return how a user can end a text that contains an erased value, for the end of a sentence; "" if unknown."""
    name = key.rpartition("/")[2] if key.startswith(ISSUED) else key.rpartition("/")[0].rpartition("/")[2]
    if key.startswith(ISSUED):
        return f": end the token or link with `alluvia token revoke {name.removesuffix('.json')}`, then erase again"
    if key.startswith(VIEWS):
        return f": replace or drop view {name}, then erase again"
    if key.startswith(QUERIES):
        return f": withdraw the query with `alluvia unpublish {name}`, then erase again"
    return ""


def delete_ended(store: Store, clock: Clock, words: Collection[str]) -> int:
    """Delete the texts that have ended and contain one of some words, and return how many.

    Four LISTs, a GET for each token and each failed run, and one for each earlier version of a view or a query.
    """
    pattern = word_pattern([word for word in words if not word.isdecimal()])
    if pattern is None:
        return 0
    ended = []
    for key in (*_superseded(store, VIEWS), *_withdrawn(store), *_keys(store, ISSUED), *_keys(store, FAILED_RUNS)):
        data = read_if_there(store, key)
        if data is not None and mentions(data, pattern) and _has_ended(store, clock, key):
            ended.append(key)
    store.delete(ended)
    return len(ended)


def _has_ended(store: Store, clock: Clock, key: str) -> bool:
    if not key.startswith(ISSUED):
        return True
    try:
        token = find_issued(store, clock, key.removeprefix(ISSUED).removesuffix(".json"))
    except (Corrupt, Invalid):  # no record that this library wrote, or one that is gone: the search names it
        return False
    return token.revoked or token.claims.expires_s < clock.now_ms() / 1000


def _keys(store: Store, folder: str) -> Iterator[str]:
    return (info.key for info in store.list(folder))


def _superseded(store: Store, folder: str) -> Iterator[str]:
    """Yield the versions of objects that are not the newest ones."""
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for info in store.list(folder):
        by_name[info.key.rpartition("/")[0]].append(info.key)
    for keys in by_name.values():
        yield from sorted(keys)[:-1]


def _withdrawn(store: Store) -> Iterator[str]:
    """Yield the versions of published queries before their last withdrawal."""
    newest: dict[str, int] = {}
    for key in _superseded(store, QUERIES):
        folder, _, name = key.rpartition("/")
        if folder not in newest:
            newest[folder] = _first_version(store, folder)
        if int(name.removesuffix(".json")) < newest[folder]:
            yield key


def _first_version(store: Store, folder: str) -> int:
    """Return the first version of a query since it was last withdrawn; the newest one if that withdrew it."""
    key = max(info.key for info in store.list(f"{folder}/"))
    try:
        body = orjson.loads(store.get(key))
        return int(body.get("first", 0)) if body.get("query") else int(key.rpartition("/")[2].removesuffix(".json"))
    except (ValueError, TypeError, AttributeError) as error:
        raise Corrupt(f"{key} is not an object of this library") from error
