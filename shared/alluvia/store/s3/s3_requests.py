"""Requests to S3: sent, sent again where that may be, and what their failures mean.

obstore's retries are off: it would send a conditional PUT again whose answer was lost, and then report 412 for the
caller's own write. So what may be repeated is repeated here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn, TypeVar

from obstore.exceptions import BaseError

from alluvia.clock import Clock
from alluvia.errors import Invalid, NoTimeLeft, ObjectNotFound, StoreRefused, Unavailable, Unsupported
from alluvia.store.base import check_key
from alluvia.store.requests import SECONDS_MIN, check_left, note_requests, seconds_left, within
from alluvia.store.s3.credentials import Keys, find_access
from alluvia.store.s3.s3_client import UPLOAD_SECONDS, Failure, NoKeys, new_client, read_failure, read_seconds_here

if TYPE_CHECKING:
    import obstore.store

T = TypeVar("T")
TRIES = 5
_process: int | None = None
"""The process that began to send requests: obstore's threads do not go with a fork."""


class S3Requests:
    """Requests for objects below a prefix of one bucket."""

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
        self.endpoint_url = (
            endpoint_url or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        ).rstrip("/")
        self._access = find_access(region, given)
        self._read_seconds = read_seconds_here()
        self._clients: dict[tuple[int, int], obstore.store.S3Store] = {}
        self._client_of(self._read_seconds)

    @property
    def _client(self) -> obstore.store.S3Store:
        return self._client_of(within(self._read_seconds))

    @property
    def _uploads(self) -> obstore.store.S3Store:
        """The client of big uploads, which would be cut off by the time that an answer may keep silent."""
        return self._client_of(within(UPLOAD_SECONDS))

    @property
    def _multipart(self) -> obstore.store.S3Store:
        """The client of multipart uploads, which may send each part again: it has a number of its own."""
        return self._client_of(within(UPLOAD_SECONDS), TRIES - 1)

    def _client_of(self, seconds: int, retries: int = 0) -> obstore.store.S3Store:
        """Return a client whose requests must be answered within `seconds`; two threads may make one each."""
        client = self._clients.get((seconds, retries))
        if client is None:
            total = UPLOAD_SECONDS if seconds == self._read_seconds else seconds
            client = new_client(self.bucket, self.endpoint_url, self._access, seconds, retries, total)
            self._clients[seconds, retries] = client
        return client

    def _key(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _tried(self, kind: str | None, key: str, request: Callable[[], T]) -> T:
        answer = self._attempted(kind, key, request)
        if isinstance(answer, Failure):
            fail(answer, key, self.bucket)
        return answer

    def _attempted(self, kind: str | None, key: str, request: Callable[[], T]) -> T | Failure:
        """Send a request that may be repeated until it succeeds, S3 refuses it, or it failed too often; see `sent`."""
        for attempt in range(TRIES - 1):
            answer = sent(kind, self._prefix + key, request)
            if not isinstance(answer, Failure) or answer.is_final:
                return answer
            pause, left = self._clock.uniform() * 2**attempt, seconds_left()
            if left is not None and left < pause + SECONDS_MIN:
                return replace(answer, is_last=True)
            self._clock.sleep(pause)
        return sent(kind, self._prefix + key, request)


def sent(kind: str | None, name: str, request: Callable[[], T]) -> T | Failure:
    """Send a request, and count it as one of a kind; None: it counts itself.

    What obstore raises ends here, because it contains all of S3's answer. Raises `NoTimeLeft`, and sends nothing,
    where too little of an invocation's time is left.
    """
    _check_process()
    check_left()
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


def fail(failure: Failure, key: str, bucket: str) -> NoReturn:
    """Raise what a failure means. `key`: of the object, for the message, as the bucket's name is."""
    what, code = f"{key} in the bucket {bucket}" if key else f"the bucket {bucket}", failure.code
    if failure.is_missing:
        raise ObjectNotFound(key)
    if code == NoKeys.__name__:
        msg = "no AWS credentials found: set them in the environment, or pass access_key_id and secret_access_key"
        raise StoreRefused(msg)
    if code == "InvalidPathError":
        subject = "one" if failure.key is None else repr(failure.key)
        odd = "an empty part, '.', '..' or a control character"
        raise Invalid(f"cannot list {what}: no key may have {odd}, but {subject} has; copy the object to another key")
    if code == "NoSuchBucket":
        raise StoreRefused(f"bucket {bucket} does not exist ({code}): check the URI, the endpoint and the region")
    if failure.is_final:
        raise StoreRefused(f"S3 refuses {what} ({code}): check the URI, endpoint, region, credentials and policy")
    kind = NoTimeLeft if failure.is_last else Unavailable
    if failure.status:
        raise kind(f"S3 did not serve {what} ({code}): try again")
    raise kind(f"S3 cannot be reached for {what} ({code}): try again")
