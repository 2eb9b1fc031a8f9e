"""Listing a bucket by obstore: pages, without the marks of folders, from and to the keys of a prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.errors import StoreRefused, Unavailable
from alluvia.store.base import PAGE_KEYS, ListedPage, ObjectInfo, OldVersion, Store, check_prefix
from alluvia.store.requests import note_requests
from alluvia.store.s3.credentials import Keys
from alluvia.store.s3.s3_requests import S3Requests

if TYPE_CHECKING:
    from obstore import ObjectMeta

P = TypeVar("P", bound=Sized)


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
        for page in self._column_pages(whole[:-1], None if start_after is None else self._prefix + start_after):
            if not pc.min(page["size"]).as_py():  # one may be the mark of a folder
                yield from super().list_pages(prefix, last)
                return
            columns = _columns(page).moved(self._prefix, "")
            yield columns
            last = columns.keys[-1].as_py()

    def _below(self, whole: str, entries: Iterable[ObjectMeta], start_after: str) -> Iterator[ObjectInfo]:
        for entry in entries:
            name, key = entry["path"], entry["path"][len(self._prefix) :]
            if name.startswith(whole) and key > start_after:
                yield object_info(key, entry)
            elif name > whole and not name.startswith(whole):
                return

    def _pages(self, folder: str, after: str | None) -> Iterator[Sequence[ObjectMeta]]:
        """Yield what obstore lists; if a page fails for a while, go on after the last key that is not a mark."""
        empty: set[str] = set()

        def begin() -> Iterator[Sequence[ObjectMeta]]:
            return self._client.list(folder or None, offset=after, chunk_size=PAGE_KEYS)

        for page in self._read(folder, begin):
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

    def _column_pages(self, folder: str, after: str | None) -> Iterator[pa.RecordBatch]:
        """Yield what obstore lists, as columns: Python's objects take five times as long. None may be a mark."""

        def begin() -> Iterator[pa.RecordBatch]:
            pages = self._client.list(folder, offset=after, chunk_size=PAGE_KEYS, return_arrow=True)
            return (pa.record_batch(page) for page in pages)

        for page in self._read(folder, begin):
            after = page["path"][-1].as_py()
            yield page

    def _read(self, folder: str, begin: Callable[[], Iterator[P]]) -> Iterator[P]:
        """Yield the pages of a listing; if one fails for a while, begin again. The caller says where."""
        stream: Iterator[P] | None = None

        def read_page() -> P | None:
            nonlocal stream
            begun, pages = stream, stream or begin()
            stream = None
            if begun is None:
                note_requests("list")
            page = next(pages, None)
            if page is not None and begun is not None:  # at the end of a listing, no request finds that out
                note_requests("list")
            stream = pages
            return page

        while (page := self._tried(None, folder, read_page)) is not None and len(page):
            yield page

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
        listing = self._tried("list", prefix, lambda: self._client.list_with_delimiter(whole or None))
        note_requests("list", (len(listing["common_prefixes"]) + len(listing["objects"]) - 1) // PAGE_KEYS)
        yield from sorted((each[len(whole) :] for each in listing["common_prefixes"]), key=lambda name: f"{name}/")


def object_info(key: str, answer: ObjectMeta) -> ObjectInfo:
    """Return the facts of an object from obstore's."""
    return ObjectInfo(key, answer["size"], _milliseconds(answer["last_modified"]), answer["e_tag"] or "")


def _columns(page: pa.RecordBatch) -> ListedPage:
    times = pc.divide(page["last_modified"].view(pa.int64()), pa.scalar(1000, pa.int64()))
    etags = pc.coalesce(page["e_tag"], pa.scalar("", pa.string()))
    return ListedPage(page["path"], pc.cast(page["size"], pa.int64()), times, etags)


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


TRIES = 5
FORBIDDEN = (401, 403)


def old_versions(
    bucket: str, prefix: str, keys: Keys | None, *, region: str, endpoint_url: str | None
) -> Iterator[OldVersion]:
    """Yield what is not the newest version of an object below a prefix of a bucket: one request per 1,000 versions.

    Raises `StoreRefused` where the policy does not allow it, and `Unavailable`.
    """
    import boto3
    from botocore.client import Config
    from botocore.exceptions import BotoCoreError, ClientError

    by_path = endpoint_url or "." in bucket
    client = boto3.client(
        "s3",
        region_name=region,
        endpoint_url=endpoint_url,
        aws_access_key_id=None if keys is None else keys.access_key_id,
        aws_secret_access_key=None if keys is None else keys.secret_access_key,
        aws_session_token=None if keys is None else keys.session_token,
        config=Config(
            s3={"addressing_style": "path" if by_path else "auto"},
            retries={"mode": "standard", "total_max_attempts": TRIES},
            connect_timeout=5,
            read_timeout=30,
        ),
    )
    try:
        for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
            for each in page.get("Versions", ()):
                if not each["IsLatest"]:
                    modified_ms = int(each["LastModified"].timestamp() * 1000)
                    yield OldVersion(each["Key"], each["VersionId"], each["Size"], modified_ms)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in FORBIDDEN:
            msg = f"S3 refuses to list object versions of {bucket} ({code}): allow s3:ListBucketVersions"
            raise StoreRefused(msg) from error
        raise Unavailable(f"S3 did not list the object versions of {bucket} ({code}): try again") from error
    except BotoCoreError as error:
        msg = f"S3 cannot be reached for the object versions of {bucket} ({type(error).__name__}): try again"
        raise Unavailable(msg) from error
