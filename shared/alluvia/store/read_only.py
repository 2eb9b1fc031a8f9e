"""A store that nothing can be written to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from alluvia.errors import ReadOnly, Unsupported
from alluvia.store.base import ListedPage, Store
from alluvia.store.uris import canonical_path
from alluvia.store.wrapper import Wrapper

T = TypeVar("T")
_READS = frozenset({"get", "get_same", "get_tagged", "list", "list_folders", "head", "get_file"})
_DECISION = re.compile(r"[^/]+/_alluvia/transactions/[^/]+\.json")
"""Decisions next to the root, of transactions in which the table takes part."""
_OF_LAKE = "_alluvia/"


class ReadOnlyStore(Wrapper):
    """`inner`, for reading what is below `root`, a place outside, and for writing nothing.

    `why` is the message of `ReadOnly`, which every write raises.
    """

    def __init__(self, inner: Store, root: str, why: str) -> None:
        super().__init__(inner)
        self._root = root
        self._beside = root[: root.rstrip("/").rfind("/") + 1]
        self._why = why

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        if kind not in _READS:
            raise ReadOnly(self._why)
        self._check(key)
        return super().request(kind, key, send)

    def _check(self, key: str) -> None:
        """Raise `Unsupported` for a key that is neither of the table nor of a lake's own records, here or beside it."""
        if key.startswith((self._root, _OF_LAKE)):
            return
        if not (key.startswith(self._beside) and _DECISION.fullmatch(key[len(self._beside) :])):
            raise Unsupported(f"{key} is outside {self._root}, the folder of the attached table")

    def list_pages(self, prefix: str, start_after: str | None = None) -> Iterator[ListedPage]:
        self._check(prefix)
        return super().list_pages(prefix, start_after)

    def url(self, key: str) -> str | None:
        self._check(key)
        return super().url(key)

    def local_path(self, key: str) -> Path | None:
        self._check(key)
        return super().local_path(key)

    def sweep(self, prefix: str, before_ms: int) -> None:  # noqa: ARG002
        raise ReadOnly(self._why)

    def locate(self, path: str) -> str | None:
        """Return an absolute path as the key that it is here; what a log may name is for `delta/places.py` to say."""
        return canonical_path(path)
