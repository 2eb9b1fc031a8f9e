"""Listing a bucket by obstore: pages, without the marks of folders, from and to the keys of a prefix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING

from alluvia.store.base import PAGE_KEYS, ListedPage, ObjectInfo, Store, check_prefix
from alluvia.store.metering import note_requests
from alluvia.store.s3_requests import S3Requests

if TYPE_CHECKING:
    from obstore import ObjectMeta


class S3Listing(S3Requests, Store):
    """What a store in S3 lists."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects below a prefix, 1,000 keys a request."""
        whole = self._prefix + check_prefix(prefix)
        folder, _, rest = whole.rpartition("/")
        after = None if start_after is None else self._prefix + start_after
        if rest[:-1] and (after is None or after < whole):
            after = whole[:-1]  # obstore lists whole folders: start near the first key, and stop after the last
        entries = chain.from_iterable(self._pages(folder, after))
        return self._without_marks(self._below(whole, entries, start_after or ""))

    def list_pages(self, prefix: str, start_after: str | None = None) -> Iterator[ListedPage]:
        whole = self._prefix + check_prefix(prefix)
        if not whole.endswith("/"):
            yield from super().list_pages(prefix, start_after)
            return
        last = start_after
        for page in self._pages(whole[:-1], None if start_after is None else self._prefix + start_after):
            if not all(entry["size"] for entry in page):  # one may be the mark of a folder
                yield from super().list_pages(prefix, last)
                return
            keys = [entry["path"][len(self._prefix) :] for entry in page]
            yield ListedPage(
                keys,
                [entry["size"] for entry in page],
                [_milliseconds(entry["last_modified"]) for entry in page],
                [entry["e_tag"] or "" for entry in page],
            )
            last = keys[-1] if keys else last

    def _below(self, whole: str, entries: Iterable[ObjectMeta], start_after: str) -> Iterator[ObjectInfo]:
        for entry in entries:
            name, key = entry["path"], entry["path"][len(self._prefix) :]
            if name.startswith(whole) and key > start_after:
                yield object_info(key, entry)
            elif name > whole and not name.startswith(whole):
                return

    def _pages(self, folder: str, after: str | None) -> Iterator[Sequence[ObjectMeta]]:
        """Yield what obstore lists; if a page fails for a while, go on after the last key that is not a mark."""
        stream: Iterator[Sequence[ObjectMeta]] | None = None
        empty: set[str] = set()

        def read_page() -> Sequence[ObjectMeta]:
            nonlocal stream
            begun, pages = stream, stream or self._client.list(folder or None, offset=after, chunk_size=PAGE_KEYS)
            stream = None
            if begun is None:
                note_requests("list")
            page = next(pages, ())
            if page and begun is not None:  # at the end of a listing, no request finds that out
                note_requests("list")
            stream = pages
            return page

        while page := self._tried(None, folder, read_page):
            fresh = []
            for entry in page:
                if entry["size"]:
                    after = entry["path"]
                    empty.clear()
                elif entry["path"] in empty:
                    continue
                else:
                    empty.add(entry["path"])
                fresh.append(entry)
            yield fresh

    def _without_marks(self, infos: Iterator[ObjectInfo]) -> Iterator[ObjectInfo]:
        """Leave out the marks of folders, empty objects named `folder/`, which obstore shows under the folder's name.

        An empty object with others below its name is a mark. Where there are none, a HEAD tells.
        """
        empty: ObjectInfo | None = None
        for info in infos:
            if empty is not None and not info.key.startswith(f"{empty.key}/") and self.head(empty.key) is not None:
                yield empty
            empty = None if info.size else info
            if info.size:
                yield info
        if empty is not None and self.head(empty.key) is not None:
            yield empty

    def list_folders(self, prefix: str) -> Iterator[str]:
        whole = self._prefix + check_prefix(prefix)
        found = self._tried("list", prefix, lambda: self._client.list_with_delimiter(whole or None))
        note_requests("list", (len(found["common_prefixes"]) + len(found["objects"]) - 1) // PAGE_KEYS)
        yield from sorted((each[len(whole) :] for each in found["common_prefixes"]), key=lambda name: f"{name}/")


def object_info(key: str, found: ObjectMeta) -> ObjectInfo:
    """Return what obstore tells of an object."""
    return ObjectInfo(key, found["size"], _milliseconds(found["last_modified"]), found["e_tag"] or "")


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
