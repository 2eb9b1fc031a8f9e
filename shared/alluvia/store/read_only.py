"""A store that nothing can be written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from alluvia.errors import ReadOnly
from alluvia.store.base import Store
from alluvia.store.uris import canonical_path
from alluvia.store.wrapper import Wrapper

T = TypeVar("T")
_READS = frozenset({"get", "get_same", "get_tagged", "list", "list_folders", "head", "get_file"})


class ReadOnlyStore(Wrapper):
    """`inner`, for reading what is below `root`, a place outside, and for writing nothing.

    `why` is the message of `ReadOnly`, which every write raises.
    """

    def __init__(self, inner: Store, root: str, why: str) -> None:
        super().__init__(inner)
        self._root = root
        self._why = why

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        if kind not in _READS:
            raise ReadOnly(self._why)
        return super().request(kind, key, send)

    def sweep(self, prefix: str, before_ms: int) -> None:  # noqa: ARG002
        raise ReadOnly(self._why)

    def locate(self, path: str) -> str | None:
        """Return the key of an absolute path below the root: what else a log names may be anybody's."""
        whole = canonical_path(path)
        return whole if whole.startswith(self._root) else None
