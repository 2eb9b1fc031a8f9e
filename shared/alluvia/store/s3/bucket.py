"""A store in an S3 bucket, by obstore (Rust's object_store).

Of conditional PUTs, a 412 is `EXISTS`, a 409 (`ConditionalRequestConflict`, a concurrent delete won) is sent again, and
everything unclear is `AnswerLost`, for the committer to read back. How other requests are sent, and sent again, is in
`s3_requests.py`; how obstore is set up, in `s3_client.py`; listings, in `s3_listing.py`.
Source: S3 user guide, "How to prevent object overwrites with conditional writes".
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import obstore

from alluvia.errors import AnswerLost, KeyTaken, NotDeleted, ObjectNotFound, Unavailable
from alluvia.store.base import PAGE_KEYS, Address, ObjectInfo, OldVersion, PutResult, check_prefix, check_range
from alluvia.store.requests import note_requests
from alluvia.store.s3.s3_client import CHANGED, NOT_PARTIAL, Failure
from alluvia.store.s3.s3_conditions import PROOF_KEY, Condition, is_aws, prove
from alluvia.store.s3.s3_listing import S3Listing, object_info, old_versions
from alluvia.store.s3.s3_requests import fail, sent

if TYPE_CHECKING:
    import obstore.store
    from obstore import GetOptions, UpdateVersion

CONFLICT_TRIES = 8
REFUSED_MAX = 100
"""If S3 refuses to delete more objects than this, something is wrong with all."""
CONFLICT_WAIT_SECONDS = 0.05
PART_BYTES, PARTS_AT_ONCE = 8 << 20, 4
"""Of a multipart upload: S3 takes 10,000 parts, and so 80 GB."""
SMALL_BYTES = 8 << 20
"""What is uploaded within `READ_SECONDS` over any line that is worth its name."""


class S3Store(S3Listing):
    """Objects below a prefix of one bucket.

    `endpoint_url`, `region`, `access_key_id`, `secret_access_key` and `session_token` default to what boto3 finds in
    the environment. With an `endpoint_url`, buckets are addressed by path.
    """

    parallel = True

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        answer = self._get(key, start, end, {})
        if isinstance(answer, Failure):
            fail(answer, key, self.bucket)
        return answer

    def get_same(self, key: str, etag: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Read with `If-Match`, and look at the tag of what came: some stores ignore the condition."""
        answer = self._get(key, start, end, {"if_match": etag})
        if isinstance(answer, Failure):
            if answer.status == 412:
                return None
            fail(answer, key, self.bucket)
        return answer

    def _get(self, key: str, start: int, end: int | None, options: GetOptions) -> bytes | Failure:
        check_range(start, end)
        name, whole = self._key(key), options.copy()
        if start < 0:
            options["range"] = {"suffix": -start}
        elif end is not None:
            options["range"] = (start, max(start + 1, end))
        elif start:
            options["range"] = {"offset": start}

        def read(options: GetOptions) -> bytes | Failure:
            answer, wanted = self._client.get(name, options=options), options.get("if_match")
            return CHANGED if wanted is not None and answer.meta["e_tag"] != wanted else bytes(answer.bytes())

        answer = self._attempted("get", key, lambda: read(options))
        if answer == NOT_PARTIAL:  # as servers answer the range of an empty object
            answer = self._attempted("get", key, lambda: read(whole))
            answer = answer if isinstance(answer, Failure) else answer[start:end]
        if isinstance(answer, Failure):
            return b"" if answer.status == 416 else answer
        return b"" if end is not None and end <= start else answer

    def put(self, key: str, data: bytes) -> None:
        """Write an object, and again where that fails for a while."""
        name = self._key(key)
        self._tried("put", key, lambda: self._client_for(data).put(name, data, use_multipart=False))

    def _client_for(self, data: bytes | mmap.mmap) -> obstore.store.S3Store:
        return self._client if len(data) <= SMALL_BYTES else self._uploads

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        """Write an object with `If-None-Match: *`, sent once; a 409 is sent again, a little later each time."""
        name = self._key(key)
        self._prove("If-None-Match")
        for attempt in range(CONFLICT_TRIES):
            answer = sent(
                "put", name, lambda: self._client_for(data).put(name, data, mode="create", use_multipart=False)
            )
            if not isinstance(answer, Failure):
                return PutResult.CREATED
            if answer.status == 412:
                return PutResult.EXISTS
            if answer.is_conflict:
                self._clock.sleep(CONFLICT_WAIT_SECONDS * (attempt + self._clock.uniform()))
                continue
            if answer.is_final:
                fail(answer, key, self.bucket)
            raise AnswerLost(f"the conditional write of {key} got no clear answer ({answer.code})")
        raise Unavailable(f"S3 kept answering 409 to the conditional write of {key}: try again")

    def put_new(self, key: str, data: bytes) -> None:
        """Write an object with `If-None-Match: *`, and again where that fails for a while.

        No proof of the condition is needed before: no commit depends on it.
        """
        self._put_new(key, data)

    def _put_new(self, key: str, data: bytes | mmap.mmap) -> None:
        answer = self.put_if(key, data, "create")
        if not isinstance(answer, Failure):
            return
        if answer.status == 412 and self._holds(key, data):  # by an earlier attempt, whose answer was lost
            return
        if answer.status == 412:
            raise KeyTaken(key)
        if answer.status == 501:
            self._prove("If-None-Match")  # which says what the store lacks
        fail(answer, key, self.bucket)

    def _holds(self, key: str, data: bytes | mmap.mmap) -> bool:
        """Whether an object, which is there, has these bytes; one GET."""
        name = self._key(key)

        def same() -> bool:
            at = 0
            for chunk in self._client.get(name).stream(1 << 20):
                if bytes(chunk) != data[at : at + len(chunk)]:
                    return False
                at += len(chunk)
            return at == len(data)

        try:
            return self._tried("get", key, same)
        except ObjectNotFound as error:
            raise Unavailable(f"{key} was deleted while it was written: try again") from error

    def get_tagged(self, key: str) -> tuple[bytes, str]:
        name = self._key(key)

        def read() -> tuple[bytes, str]:
            answer = self._client.get(name)
            return bytes(answer.bytes()), answer.meta["e_tag"] or ""

        return self._tried("get", key, read)

    def put_if_same(self, key: str, data: bytes, tag: str) -> bool:
        """Write an object with `If-Match`, and again where that fails for a while."""
        self._prove("If-Match")
        answer = self.put_if(key, data, tag)
        if isinstance(answer, Failure):
            if answer.is_missing or answer.status == 412:
                return False
            fail(answer, key, self.bucket)
        return True

    def put_if(self, key: str, data: bytes | mmap.mmap, condition: str) -> object:
        """Write an object under a condition, `create` or an entity tag, and again where that fails for a while."""
        name = self._key(key)
        mode: Literal["create"] | UpdateVersion = "create" if condition == "create" else {"e_tag": condition}
        return self._attempted(
            "put", key, lambda: self._client_for(data).put(name, data, mode=mode, use_multipart=False)
        )

    def _prove(self, condition: Condition) -> None:
        """Raise `StoreRefused` where S3's condition for writes is not known to hold, and `Unavailable`."""
        if is_aws(self.endpoint_url):
            return
        failure = prove(condition, self, self._clock.new_id)
        if failure is not None:
            fail(failure, PROOF_KEY, self.bucket)

    def old_versions(self, prefix: str) -> Iterator[OldVersion]:
        """Replaced and deleted versions, where S3 Versioning is on; asks for the right `s3:ListBucketVersions`."""

        whole, access = self._prefix + check_prefix(prefix), self._access
        versions = old_versions(
            self.bucket, whole, access.keys(), region=access.region, endpoint_url=self.endpoint_url or None
        )
        return (replace(each, key=each.key[len(self._prefix) :]) for each in versions)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, 1,000 a request, and one more for each object that S3 refuses to delete."""
        names = [self._key(key) for key in keys]
        refused: dict[str, str] = {}
        for start in range(0, len(names), PAGE_KEYS):
            batch = names[start : start + PAGE_KEYS]
            while batch:
                key = batch[0][len(self._prefix) :]
                answer = self._attempted("delete", key, partial(self._client.delete, batch))
                if not isinstance(answer, Failure):
                    break
                text = answer.refused or ""
                name = max((name for name in batch if text.startswith(f"{name}: ")), key=len, default=None)
                if name is None or len(refused) == REFUSED_MAX:
                    fail(answer, batch[0], self.bucket)
                refused[name[len(self._prefix) :]] = answer.code
                batch.remove(name)
        if refused:
            raise NotDeleted(list(refused), next(iter(refused.values())))

    def head(self, key: str) -> ObjectInfo | None:
        name = self._key(key)
        answer = self._attempted("head", key, lambda: self._client.head(name))
        if isinstance(answer, Failure):
            if answer.is_missing:
                return None
            fail(answer, key, self.bucket)
        return object_info(key, answer)

    def get_file(self, key: str, path: Path) -> None:
        """Stream an object into a local file, in one request."""
        name = self._key(key)

        def copy() -> None:
            with path.open("wb") as file:
                for chunk in self._client.get(name).stream(1 << 20):
                    file.write(chunk)

        self._tried("get", key, copy)

    def put_new_file(self, key: str, path: Path) -> None:
        """Send a local file's bytes as they lie in the system's cache, in one request (S3 takes up to 5 GiB so)."""
        with path.open("rb") as file:
            if not path.stat().st_size:
                self.put_new(key, b"")
                return
            # Not closed here: obstore's threads can hold the bytes for a moment after a request has ended.
            self._put_new(key, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def copy(self, source: str, key: str) -> None:
        """Have S3 copy an object with `If-None-Match: *`, in one request.

        Stores that know no condition of copies ignore it, or answer 501, as S3 did until October 2025.
        """
        start, end = self._key(source), self._key(key)
        answer = self._attempted("put", source, lambda: self._client.copy(start, end, overwrite=False))
        if isinstance(answer, Failure) and answer.status == 412:
            self._renew(key, self.get(source))
        elif isinstance(answer, Failure) and answer.status == 501:
            self._tried("put", source, lambda: self._client.copy(start, end))
        elif isinstance(answer, Failure):
            fail(answer, source, self.bucket)

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
        answer = sent(
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
        if isinstance(answer, Failure):
            fail(answer, key, self.bucket)

    def url(self, key: str) -> str | None:
        """Return the object's s3:// URL; None if other software would read a part of it as parameters."""
        return None if "?" in self._key(key) else f"s3://{self.bucket}/{self._key(key)}"

    def address(self, key: str) -> Address | None:
        """Return the object's place in the bucket, with the keys of the moment."""
        options = {"region": self._access.region}
        if self.endpoint_url:
            options["endpoint_url"] = self.endpoint_url
        keys = self._access.keys()
        if keys is not None:
            options |= {"access_key_id": keys.access_key_id, "secret_access_key": keys.secret_access_key}
            if keys.session_token:
                options["session_token"] = keys.session_token
        return Address(f"s3://{self.bucket}", options, self._key(key))

    def signed_url(self, method: str, key: str, seconds: int) -> str:
        """Return a presigned URL (SigV4, in the query string)."""
        name = self._key(key)
        signed: Literal["GET", "PUT"] = "PUT" if method == "PUT" else "GET"
        return self._tried(None, key, lambda: obstore.sign(self._client, signed, name, timedelta(seconds=seconds)))
