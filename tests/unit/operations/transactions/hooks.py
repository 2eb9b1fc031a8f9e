"""Both isolations, and acts that come before a request of a transaction."""

from __future__ import annotations

from collections.abc import Callable

from alluvia.api.lake import Lake

Change = Callable[[Lake], None]


def ids(lake: Lake, name: str) -> list[str]:
    return sorted(lake.table(name).to_arrow()["id"].to_pylist())


def first_at(part: str, act: Callable[[], object], kind: str = "") -> Callable[[str, str], None]:
    """Return a hook that does something once, before the first request of a kind to a key that holds a text."""
    waiting = [act]

    def hook(asked: str, key: str) -> None:
        if waiting and part in key and kind in ("", asked):
            waiting.pop()()

    return hook
