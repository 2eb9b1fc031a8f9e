"""How files are shared out among tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

GROUP_BYTES = 64 << 20
"""About how much of files one task reads."""
OPEN_BYTES = 1 << 20
"""The cost of opening a file, as bytes."""


class HasSize(Protocol):
    """A file, or something else that has a size in bytes."""

    @property
    def size(self) -> int:
        """Return it."""


Item = TypeVar("Item", bound=HasSize)


def grouped(files: Iterable[Item], most: int = GROUP_BYTES) -> list[list[Item]]:
    """Return files in groups of about a number of bytes, in their order."""
    groups: list[list[Item]] = []
    room = 0
    for file in files:
        cost = file.size + OPEN_BYTES
        if cost > room:
            groups.append([])
            room = most
        groups[-1].append(file)
        room -= cost
    return groups
