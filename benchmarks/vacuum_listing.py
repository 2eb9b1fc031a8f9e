"""A directory with logs as a store that also lists data files, which are only rows of a file, as it has S3's pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa

from alluvia.store import DirectoryStore, ListedPage, ObjectInfo, Wrapper

SIZE = 120_000
PAGE_KEYS = 1000
MODIFIED_MS = 1_700_000_000_000
SCHEMA = pa.schema([("keys", pa.string()), ("sizes", pa.int64()), ("modified_ms", pa.int64()), ("etags", pa.string())])


def write_pages(path: Path, keys: Iterable[str]) -> None:
    """Write the pages of a listing of some keys, in order."""
    left = iter(keys)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as stream:
        while page := [ObjectInfo(key, SIZE, MODIFIED_MS) for key in islice(left, PAGE_KEYS)]:
            stream.write(pa.record_batch(list(ListedPage.of(page)), schema=SCHEMA))


class Listed(Wrapper):
    """`root`, and the objects that a file lists, in order, all of which sort after those of the logs."""

    def __init__(self, root: Path, pages: Path) -> None:
        super().__init__(DirectoryStore(root))
        self._pages = pages

    def list_pages(self, prefix: str, start_after: str | None = None) -> Iterator[ListedPage]:
        yield from super().list_pages(prefix, start_after)
        with pa.OSFile(str(self._pages)) as source, pa.ipc.open_stream(source) as pages:
            for page in pages:
                yield ListedPage(*page.columns)
