"""A store in an S3 bucket, by obstore (Rust's object_store).

Its retries are off: it would send a conditional PUT again whose answer was lost, and then report 412 for the caller's
own write. So here a 412 is `EXISTS`, a 409 (`ConditionalRequestConflict`, a concurrent delete won) is sent again, and
everything unclear is `AnswerLost`, for the committer to read back. What may be repeated is repeated here.
Source: S3 user guide, "How to prevent object overwrites with conditional writes".
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, TypeVar
from urllib.parse import urlsplit

import obstore
import obstore.store
from obstore.exceptions import BaseError

from alluvia.clock import Clock
from alluvia.errors import AnswerLost, Invalid, NotDeleted, ObjectNotFound, Unavailable, Unsupported
from alluvia.store.answers import NOT_PARTIAL, Failure, NoKeys, read_failure
from alluvia.store.base import (
    PAGE_KEYS,
    ListedPage,
    ObjectInfo,
    OldVersion,
    PutResult,
    Store,
    check_key,
    check_prefix,
    check_range,
)
from alluvia.store.credentials import Access, Keys, find_access
from alluvia.store.metering import note_requests

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ClientConfig, S3Credential

T = TypeVar("T")
TRIES = 5
CONFLICT_TRIES = 8
REFUSED_MAX = 100
"""If S3 refuses to delete more objects than this, something is wrong with all."""
CONFLICT_WAIT_SECONDS = 0.05
READ_SECONDS = 30
"""How long an answer may keep silent. The time begins with a request, so a big upload needs longer."""
UPLOAD_SECONDS = 3600
PART_BYTES, PARTS_AT_ONCE = 8 << 20, 4
"""Of a multipart upload: S3 takes 10,000 parts, and so 80 GB."""
SMALL_BYTES = 8 << 20
"""What is uploaded within `READ_SECONDS` over any line that is worth its name."""
IDLE_SECONDS = 5
"""S3 closes an idle connection later. Who was frozen meanwhile, as Lambda does it, may send into a closed one."""
KEYS_MINUTES = 10
"""obstore asks for keys that expire 5 minutes before they do; boto3's are good for 10 at least."""
_process: int | None = None
"""The process that began to send requests: obstore's threads do not go with a fork."""


class S3Store(Store):
    """Objects below a prefix of one bucket.

    `endpoint_url`, `region`, `access_key_id`, `secret_access_key` and `session_token` default to what boto3 finds in
    the environment. With an `endpoint_url`, buckets are addressed by path.
    """

    parallel = True

    def __init__(
        self,
        bucket: str,
        prefix: str,
        clock: Clock,
        *,
        endpoint_url: str | None = None,
        region: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        session_token: str | None = None,
    ) -> None:
        if bool(access_key_id) != bool(secret_access_key):
            raise Invalid("access_key_id and secret_access_key go together: one of them is missing")
        given = Keys(access_key_id, secret_access_key, session_token) if access_key_id and secret_access_key else None
        if prefix.strip("/"):
            check_key(prefix.strip("/"))
        self.uri = f"s3://{bucket}/{prefix}".rstrip("/")
        self.bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._clock = clock
        self._endpoint_url = (
            endpoint_url or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        ).rstrip("/")
        self._access = find_access(region, given)
        self._client = self._new_client(READ_SECONDS)

    @cached_property
    def _uploads(self) -> obstore.store.S3Store:
        """The client of big uploads, which would be cut off by the time that an answer may keep silent."""
        return self._new_client(UPLOAD_SECONDS)

    @cached_property
    def _multipart(self) -> obstore.store.S3Store:
        """The client of multipart uploads, which may send each part again: it has a number of its own."""
        return self._new_client(UPLOAD_SECONDS, TRIES - 1)

    def _new_client(self, read_seconds: int, retries: int = 0) -> obstore.store.S3Store:
        """Say what obstore would otherwise take from the environment, where boto3 and DuckDB do not look for it."""
        region, by_path = self._access.region, bool(self._endpoint_url) or "." in self.bucket
        domain = f"s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
        endpoint = self._endpoint_url or f"https://{domain if by_path else f'{self.bucket}.{domain}'}"
        _check_endpoint(endpoint)
        bundle = os.environ.get("AWS_CA_BUNDLE")
        options: ClientConfig = {
            "allow_http": endpoint.startswith("http:"),
            "connect_timeout": timedelta(seconds=5),
            "read_timeout": timedelta(seconds=read_seconds),
            "timeout": timedelta(seconds=UPLOAD_SECONDS),
            "pool_idle_timeout": timedelta(seconds=IDLE_SECONDS),
        }
        if bundle:
            options["root_certificate"] = Path(bundle).read_bytes()
        return obstore.store.S3Store(
            self.bucket,
            region=region,
            endpoint=endpoint,
            aws_endpoint_url_s3=endpoint,
            virtual_hosted_style_request=not by_path,
            conditional_put="etag",
            skip_signature=False,
            credential_provider=partial(_credential, self._access),
            retry_config={"max_retries": retries},
            client_options=options,
        )

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        found = self._get(key, start, end, {})
        if isinstance(found, Failure):
            _fail(found, key)
        return found

    def get_same(self, key: str, etag: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Read with `If-Match`."""
        found = self._get(key, start, end, {"if_match": etag})
        if isinstance(found, Failure):
            if found.status == 412:
                return None
            _fail(found, key)
        return found

    def _get(self, key: str, start: int, end: int | None, options: GetOptions) -> bytes | Failure:
        check_range(start, end)
        name, whole = self._key(key), options.copy()
        if start < 0:
            options["range"] = {"suffix": -start}
        elif end is not None:
            options["range"] = (start, max(start + 1, end))
        elif start:
            options["range"] = {"offset": start}
        found = self._attempted("get", key, lambda: bytes(self._client.get(name, options=options).bytes()))
        if found == NOT_PARTIAL:  # as servers answer the range of an empty object
            found = self._attempted("get", key, lambda: bytes(self._client.get(name, options=whole).bytes())[start:end])
        if isinstance(found, Failure):
            return b"" if found.status == 416 else found
        return b"" if end is not None and end <= start else found

    def put(self, key: str, data: bytes) -> None:
        """Write an object, and again where that fails for a while."""
        self._put(key, data)

    def _put(self, key: str, data: bytes | mmap.mmap) -> None:
        name = self._key(key)
        self._tried("put", key, lambda: self._client_for(data).put(name, data, use_multipart=False))

    def _client_for(self, data: bytes | mmap.mmap) -> obstore.store.S3Store:
        return self._client if len(data) <= SMALL_BYTES else self._uploads

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        """Write an object with `If-None-Match: *`, sent once; a 409 is sent again, a little later each time."""
        name = self._key(key)
        for attempt in range(CONFLICT_TRIES):
            found = _sent(
                "put", name, lambda: self._client_for(data).put(name, data, mode="create", use_multipart=False)
            )
            if not isinstance(found, Failure):
                return PutResult.CREATED
            if found.status == 412:
                return PutResult.EXISTS
            if found.is_conflict:
                self._clock.sleep(CONFLICT_WAIT_SECONDS * (attempt + self._clock.uniform()))
                continue
            if found.is_final:
                _fail(found, key)
            raise AnswerLost(f"the conditional write of {key} got no clear answer ({found.code})")
        raise Unavailable(f"S3 kept answering 409 to the conditional write of {key}: try again")

    def get_tagged(self, key: str) -> tuple[bytes, str]:
        name = self._key(key)

        def read() -> tuple[bytes, str]:
            found = self._client.get(name)
            return bytes(found.bytes()), found.meta["e_tag"] or ""

        return self._tried("get", key, read)

    def put_if_same(self, key: str, data: bytes, tag: str) -> bool:
        """Write an object with `If-Match`, and again where that fails for a while."""
        name = self._key(key)
        found = self._attempted(
            "put", key, lambda: self._client_for(data).put(name, data, mode={"e_tag": tag}, use_multipart=False)
        )
        if isinstance(found, Failure):
            if found.is_missing or found.status == 412:
                return False
            _fail(found, key)
        return True

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
                yield _info(key, entry)
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

    def old_versions(self, prefix: str) -> Iterator[OldVersion]:
        """Replaced and deleted versions, where S3 Versioning is on; asks for the right `s3:ListBucketVersions`."""
        from alluvia.store.s3_versions import old_versions  # loaded late: it needs boto3

        whole, access = self._prefix + check_prefix(prefix), self._access
        found = old_versions(
            self.bucket, whole, access.keys(), region=access.region, endpoint_url=self._endpoint_url or None
        )
        return (replace(each, key=each.key[len(self._prefix) :]) for each in found)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, 1,000 a request, and one more for each object that S3 refuses to delete."""
        names = [self._key(key) for key in keys]
        refused: dict[str, str] = {}
        for start in range(0, len(names), PAGE_KEYS):
            batch = names[start : start + PAGE_KEYS]
            while batch:
                key = batch[0][len(self._prefix) :]
                found = self._attempted("delete", key, partial(self._client.delete, batch))
                if not isinstance(found, Failure):
                    break
                text = found.refused or ""
                name = max((name for name in batch if text.startswith(f"{name}: ")), key=len, default=None)
                if name is None or len(refused) == REFUSED_MAX:
                    _fail(found, batch[0])
                refused[name[len(self._prefix) :]] = found.code
                batch.remove(name)
        if refused:
            raise NotDeleted(list(refused), next(iter(refused.values())))

    def head(self, key: str) -> ObjectInfo | None:
        name = self._key(key)
        found = self._attempted("head", key, lambda: self._client.head(name))
        if isinstance(found, Failure):
            if found.is_missing:
                return None
            _fail(found, key)
        return _info(key, found)

    def get_file(self, key: str, path: Path) -> None:
        """Stream an object into a local file, in one request."""
        name = self._key(key)

        def copy() -> None:
            with path.open("wb") as file:
                for chunk in self._client.get(name).stream(1 << 20):
                    file.write(chunk)

        self._tried("get", key, copy)

    def put_file(self, key: str, path: Path) -> None:
        """Send a local file's bytes as they lie in the system's cache, in one request (S3 takes up to 5 GiB so)."""
        with path.open("rb") as file:
            if not path.stat().st_size:
                self.put(key, b"")
                return
            # Not closed here: obstore's threads can hold the bytes for a moment after a request has ended.
            self._put(key, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def copy(self, source: str, key: str) -> None:
        """Have S3 copy an object, in one request."""
        start, end = self._key(source), self._key(key)
        self._tried("put", source, lambda: self._client.copy(start, end))

    def put_parts(self, key: str, parts: Iterable[bytes], headers: Mapping[str, str]) -> None:
        """Write an object by a multipart upload, which S3 shows when it is complete, and which is aborted otherwise."""
        name, size = self._key(key), 0

        def counted() -> Iterator[bytes]:
            nonlocal size
            for part in parts:
                note_requests("put", (size + len(part)) // PART_BYTES - size // PART_BYTES)
                size += len(part)
                yield part

        note_requests("put", 3)  # to begin, the last part, and to complete
        found = _sent(
            None,
            name,
            lambda: obstore.put(
                self._multipart,
                name,
                counted(),
                attributes=dict(headers),
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            ),
        )
        if isinstance(found, Failure):
            _fail(found, key)

    def url(self, key: str) -> str | None:
        """Return the object's s3:// URL; None if DuckDB would read a part of it as parameters."""
        return None if "?" in self._key(key) else f"s3://{self.bucket}/{self._key(key)}"

    def duckdb_secret(self) -> dict[str, str | bool] | None:
        secret: dict[str, str | bool] = {"region": self._access.region, "scope": f"s3://{self.bucket}/{self._prefix}"}
        keys = self._access.keys()
        if keys is not None:
            secret |= {"key_id": keys.access_key_id, "secret": keys.secret_access_key}
            if keys.session_token:
                secret["session_token"] = keys.session_token
        if self._endpoint_url:
            scheme, _, host = self._endpoint_url.partition("://")
            secret |= {"endpoint": host, "use_ssl": scheme == "https", "url_style": "path"}
        return secret

    def signed_url(self, method: str, key: str, seconds: int) -> str:
        """Return a presigned URL (SigV4, in the query string)."""
        name = self._key(key)
        signed: Literal["GET", "PUT"] = "PUT" if method == "PUT" else "GET"
        return self._tried(None, key, lambda: obstore.sign(self._client, signed, name, timedelta(seconds=seconds)))

    def _key(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _tried(self, kind: str | None, key: str, request: Callable[[], T]) -> T:
        found = self._attempted(kind, key, request)
        if isinstance(found, Failure):
            _fail(found, key)
        return found

    def _attempted(self, kind: str | None, key: str, request: Callable[[], T]) -> T | Failure:
        """Send a request that may be repeated until it succeeds, S3 refuses it, or it failed too often; see `_sent`."""
        for attempt in range(TRIES - 1):
            found = _sent(kind, self._prefix + key, request)
            if not isinstance(found, Failure) or found.is_final:
                return found
            self._clock.sleep(self._clock.uniform() * 2**attempt)
        return _sent(kind, self._prefix + key, request)


def _sent(kind: str | None, name: str, request: Callable[[], T]) -> T | Failure:
    """Send a request, and count it as one of a kind; None: it counts itself.

    What obstore raises ends here, because it contains all of S3's answer.
    """
    _check_process()
    if kind is not None:
        note_requests(kind)
    try:
        return request()
    except BaseError as error:
        return read_failure(error, name)
    except FileNotFoundError as error:
        if error.errno is not None:  # a local file's
            raise
        return read_failure(error, name)


def _check_process() -> None:
    """Raise `Unsupported` in a fork of a process that has sent requests: it would wait for ever."""
    global _process
    if _process is None:
        _process = os.getpid()
    elif _process != os.getpid():
        msg = "a process that was forked from one that used S3 cannot use S3: start it by multiprocessing's 'spawn'"
        raise Unsupported(msg)


def _credential(access: Access) -> S3Credential:
    keys = access.keys()
    if keys is None:
        raise NoKeys
    return {
        "access_key_id": keys.access_key_id,
        "secret_access_key": keys.secret_access_key,
        "token": keys.session_token,
        "expires_at": datetime.now(UTC) + timedelta(minutes=KEYS_MINUTES) if access.expire else None,
    }


def _check_endpoint(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise Invalid(f"the endpoint URL {url!r} must read http://host:port or https://host")


def _info(key: str, found: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(key, found["size"], _milliseconds(found["last_modified"]), found["e_tag"] or "")


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _fail(failure: Failure, key: str) -> NoReturn:
    what, code = key or "the bucket", failure.code
    if failure.is_missing:
        raise ObjectNotFound(key)
    if code == NoKeys.__name__:
        msg = "no AWS credentials found: set them in the environment, or pass access_key_id and secret_access_key"
        raise Invalid(msg)
    if code == "InvalidPathError":
        raise Invalid(f"{what} holds an object whose key has an empty part, '.' or '..': it cannot be listed")
    if failure.is_final:
        raise Invalid(f"S3 refuses {what} ({code}): check the lake's URI, endpoint, region, credentials and policy")
    if failure.status:
        raise Unavailable(f"S3 did not serve {what} ({code}): try again")
    raise Unavailable(f"S3 cannot be reached for {what} ({code}): try again")
