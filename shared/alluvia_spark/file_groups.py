"""How files are shared out among tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from alluvia.delta.log.actions import AddFile

GROUP_BYTES = 64 << 20
"""About how much of files one task reads."""
OPEN_BYTES = 1 << 20
"""What opening a file costs, as if it were bytes."""


def grouped(files: Iterable[AddFile], most: int = GROUP_BYTES) -> list[list[AddFile]]:
    """Return files in groups of about a number of bytes, in their order."""
    groups: list[list[AddFile]] = []
    room = 0
    for file in files:
        cost = file.size + OPEN_BYTES
        if cost > room:
            groups.append([])
            room = most
        groups[-1].append(file)
        room -= cost
    return groups
