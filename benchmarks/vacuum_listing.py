"""A directory with logs as a store that also lists data files, which are only lines of a file, as S3 would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from alluvia.store import DirectoryStore, ListedPage, Wrapper

SIZE = 120_000
PAGE_CHARACTERS = 80_000
MODIFIED_MS = 1_700_000_000_000


class Listed(Wrapper):
    """`root`, and the keys in a file, in order, all of which sort after those of the logs."""

    def __init__(self, root: Path, keys: Path) -> None:
        super().__init__(DirectoryStore(root))
        self._keys = keys

    def list_pages(self, prefix: str, start_after: str | None = None) -> Iterator[ListedPage]:
        yield from super().list_pages(prefix, start_after)
        rest = ""
        with self._keys.open() as lines:
            while text := lines.read(PAGE_CHARACTERS):
                *page, rest = (rest + text).split("\n")
                yield ListedPage(page, [SIZE] * len(page), [MODIFIED_MS] * len(page))
