"""A store in an S3 bucket, by boto3.

The conditional PUT goes through a client of its own whose retries are off: botocore would send a PUT again whose
answer was lost, and then report 412 for the caller's own write. So here a 412 is `EXISTS`, a 409
(`ConditionalRequestConflict`, a concurrent delete won) is sent again, and everything unclear is `AnswerLost`, for the
committer to read back.
Source: S3 user guide, "How to prevent object overwrites with conditional writes".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import boto3
import botocore.session
from botocore.client import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.loaders import Loader
from urllib3.exceptions import HTTPError

from alluvia.clock import Clock
from alluvia.errors import AnswerLost, Invalid, ObjectNotFound, Unavailable
from alluvia.store.answers import refuse_half
from alluvia.store.base import ObjectInfo, PutResult, Store, check_key, check_prefix, check_range

if TYPE_CHECKING:
    from botocore.response import StreamingBody
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")
DELETE_BATCH = 1000
CONFLICT_TRIES = 8
BODY_TRIES = 3
CONFLICT_WAIT_SECONDS = 0.05
_UNANSWERED = (BotoCoreError, HTTPError)
"""What is raised for no answer or half of one: botocore lets urllib3's error through where a refused GET breaks off."""
_BROKEN_OFF = (IncompleteReadError, ResponseStreamingError, ReadTimeoutError, HTTPError)
_MISSING = ("404", "NoSuchKey", "NotFound")
_OURS_TO_MEND = ("AccessDenied", "403", "NoSuchBucket", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken")


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
        self.uri = f"s3://{bucket}/{prefix}".rstrip("/")
        self.bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._clock = clock
        self._endpoint_url = endpoint_url
        self._session = boto3.session.Session(
            botocore_session=_botocore_session(),
            aws_access_key_id=access_key_id,
            aws_secret_access_key=secret_access_key,
            aws_session_token=session_token,
            region_name=region,
        )
        self._region = self._session.region_name or "us-east-1"
        self._client = self._new_client(attempts=5)

    @cached_property
    def _once(self) -> S3Client:
        """Return the client of conditional writes, made by the first of them: who only reads does without."""
        return self._new_client(attempts=1)

    def _new_client(self, attempts: int) -> S3Client:
        config = Config(
            retries={"total_max_attempts": attempts, "mode": "standard"},
            connect_timeout=5,
            read_timeout=30,
            max_pool_connections=32,
            s3={"addressing_style": "path" if self._endpoint_url else "auto"},
        )
        client = self._session.client("s3", endpoint_url=self._endpoint_url, region_name=self._region, config=config)
        client.meta.events.register("before-parse.s3.*", refuse_half)
        return client

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes [start, end) of an object."""
        check_range(start, end)
        request: dict[str, Any] = {"Bucket": self.bucket, "Key": self._key(key)}
        if start < 0:
            request["Range"] = f"bytes={start}"
        elif start or end is not None:
            request["Range"] = f"bytes={start}-{'' if end is None else max(start, end - 1)}"
        try:
            data = self._body(request, lambda body: body.read())
            return b"" if end is not None and end <= start else data
        except ClientError as error:
            if _code(error) in ("416", "InvalidRange"):
                return b""
            _fail(error, key)
        except _UNANSWERED as error:
            _fail(error, key)

    def _body(self, request: dict[str, Any], read: Callable[[StreamingBody], T]) -> T:
        """Read an object's bytes, and again where they break off: botocore retries what comes before them only."""
        for attempt in range(BODY_TRIES - 1):
            body = self._client.get_object(**request)["Body"]
            try:
                return read(body)
            except _BROKEN_OFF:
                self._clock.sleep(CONFLICT_WAIT_SECONDS * (attempt + self._clock.uniform()))
        return read(self._client.get_object(**request)["Body"])

    def put(self, key: str, data: bytes) -> None:
        """Write an object; boto3 retries."""
        try:
            self._client.put_object(Bucket=self.bucket, Key=self._key(key), Body=data)
        except (ClientError, *_UNANSWERED) as error:
            _fail(error, key)

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        """Write an object with `If-None-Match: *`, sent once; a 409 is sent again, a little later each time."""
        name = self._key(key)
        for attempt in range(CONFLICT_TRIES):
            try:
                self._once.put_object(Bucket=self.bucket, Key=name, Body=data, IfNoneMatch="*")
            except ClientError as error:
                code, status = _code(error), error.response["ResponseMetadata"]["HTTPStatusCode"]
                if status == 412:
                    return PutResult.EXISTS
                if status == 409 and code == "ConditionalRequestConflict":
                    self._clock.sleep(CONFLICT_WAIT_SECONDS * (attempt + self._clock.uniform()))
                    continue
                if _refused(code, status):
                    _fail(error, key)
                msg = f"the conditional write of {key} got no clear answer ({code})"
                raise AnswerLost(msg) from error
            except _UNANSWERED as error:
                if isinstance(error, NoCredentialsError):
                    _fail(error, key)
                msg = f"the answer to the conditional write of {key} was lost ({type(error).__name__})"
                raise AnswerLost(msg) from error
            return PutResult.CREATED
        msg = f"S3 kept answering 409 to the conditional write of {key}: try again"
        raise Unavailable(msg)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects below a prefix, 1,000 keys a request."""
        request: dict[str, Any] = {"Bucket": self.bucket, "Prefix": self._prefix + check_prefix(prefix)}
        if start_after is not None:
            request["StartAfter"] = self._prefix + start_after
        try:
            for page in self._client.get_paginator("list_objects_v2").paginate(**request):
                for entry in page.get("Contents", ()):
                    modified_ms = int(entry["LastModified"].timestamp() * 1000)
                    yield ObjectInfo(entry["Key"][len(self._prefix) :], entry["Size"], modified_ms)
        except (ClientError, *_UNANSWERED) as error:
            _fail(error, prefix)

    def list_folders(self, prefix: str) -> Iterator[str]:
        """Names of the folders directly below a prefix."""
        whole = self._prefix + check_prefix(prefix)
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=whole, Delimiter="/"
            )
            for page in pages:
                for entry in page.get("CommonPrefixes", ()):
                    yield entry["Prefix"][len(whole) : -1]
        except (ClientError, *_UNANSWERED) as error:
            _fail(error, prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, 1,000 a request."""
        names = [self._key(key) for key in keys]
        for start in range(0, len(names), DELETE_BATCH):
            batch = [{"Key": name} for name in names[start : start + DELETE_BATCH]]
            try:
                answer = self._client.delete_objects(
                    Bucket=self.bucket,
                    Delete={"Objects": batch, "Quiet": True},  # type: ignore[typeddict-item]
                )
            except (ClientError, *_UNANSWERED) as error:
                _fail(error, names[start])
            for failed in answer.get("Errors", ()):
                msg = f"S3 did not delete {failed.get('Key')} ({failed.get('Code')})"
                raise Unavailable(msg)

    def head(self, key: str) -> ObjectInfo | None:
        """Size and time of an object."""
        try:
            found = self._client.head_object(Bucket=self.bucket, Key=self._key(key))
        except ClientError as error:
            if _code(error) in _MISSING:
                return None
            _fail(error, key)
        except _UNANSWERED as error:
            _fail(error, key)
        return ObjectInfo(key, found["ContentLength"], int(found["LastModified"].timestamp() * 1000))

    def get_file(self, key: str, path: Path) -> None:
        """Stream an object into a local file, in one request."""

        def copy(body: StreamingBody) -> None:
            with path.open("wb") as file:
                for chunk in body.iter_chunks(1 << 20):
                    file.write(chunk)

        try:
            self._body({"Bucket": self.bucket, "Key": self._key(key)}, copy)
        except (ClientError, *_UNANSWERED) as error:
            _fail(error, key)

    def put_file(self, key: str, path: Path) -> None:
        """Stream a local file into an object, in one request (S3 takes up to 5 GiB so)."""
        try:
            with path.open("rb") as file:
                self._client.put_object(Bucket=self.bucket, Key=self._key(key), Body=file)
        except (ClientError, *_UNANSWERED) as error:
            _fail(error, key)

    def url(self, key: str) -> str | None:
        """Return the object's s3:// URL; None where DuckDB would take a part of it for parameters."""
        return None if "?" in self._key(key) else f"s3://{self.bucket}/{self._key(key)}"

    def duckdb_secret(self) -> dict[str, str | bool] | None:
        """Parameters of DuckDB's `CREATE SECRET (TYPE s3, …)` for this store. Never log them."""
        secret: dict[str, str | bool] = {"region": self._region, "scope": f"s3://{self.bucket}/{self._prefix}"}
        credentials = self._session.get_credentials()
        if credentials is not None:
            frozen = credentials.get_frozen_credentials()
            secret |= {"key_id": frozen.access_key or "", "secret": frozen.secret_key or ""}
            if frozen.token:
                secret["session_token"] = frozen.token
        if self._endpoint_url:
            scheme, _, host = self._endpoint_url.rstrip("/").partition("://")
            secret |= {"endpoint": host, "use_ssl": scheme == "https", "url_style": "path"}
        return secret

    def _key(self, key: str) -> str:
        return self._prefix + check_key(key)


def _botocore_session() -> botocore.session.Session:
    """Return a new session that shares its models of AWS's services with all others: to read them takes 50 ms."""
    session = botocore.session.get_session()
    loader = _loader()
    loader.search_paths[:] = dict.fromkeys(loader.search_paths)  # each boto3 session adds the same one
    session.register_component("data_loader", loader)
    return session


@cache
def _loader() -> Loader:
    loader: Loader = botocore.session.get_session().get_component("data_loader")
    return loader


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _refused(code: str, status: int) -> bool:
    """Whether S3 would answer the same again. (A slow upload is a 400 as well, `RequestTimeout`, but passes.)"""
    passing = status in (408, 409, 429) or code == "RequestTimeout"
    return code in _OURS_TO_MEND or (400 <= status < 500 and not passing)


def _fail(error: Exception, key: str) -> NoReturn:
    """Raise ours for theirs; of the message only the code, since S3 puts request details into the rest."""
    if isinstance(error, ClientError):
        code = _code(error)
        if code in _MISSING:
            raise ObjectNotFound(key) from error
        status = error.response["ResponseMetadata"].get("HTTPStatusCode", 500)
        if _refused(code, status):
            msg = f"S3 refuses {key or 'the bucket'} ({code}): check the lake's URI, endpoint, credentials and policy"
            raise Invalid(msg) from error
        msg = f"S3 did not serve {key or 'the bucket'} ({code}): try again"
        raise Unavailable(msg) from error
    if isinstance(error, NoCredentialsError):
        msg = "no AWS credentials found: set them in the environment, or pass access_key_id and secret_access_key"
        raise Invalid(msg) from error
    if isinstance(error, (BotoConnectionError, HTTPClientError, HTTPError)):
        msg = f"S3 cannot be reached for {key or 'the bucket'} ({type(error).__name__}): try again"
        raise Unavailable(msg) from error
    msg = f"S3 request for {key or 'the bucket'} failed ({type(error).__name__})"
    raise Unavailable(msg) from error
