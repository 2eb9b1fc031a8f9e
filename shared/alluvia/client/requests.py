"""Requests to a server: their proof of identity, and the errors for its statuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, cast
from urllib.parse import urlsplit

import orjson
import pyarrow as pa

from alluvia.errors import (
    AlluviaError,
    CommitUnknown,
    Conflict,
    Forbidden,
    Invalid,
    TableNotFound,
    Unavailable,
    VersionExpired,
    VersionNotFound,
    cut,
)
from alluvia.extras import needing
from alluvia.store.s3.credentials import find_access
from alluvia.version import __version__

Proof = Callable[[str, str, bytes | None], Mapping[str, str]]
"""Returns headers for a request, given its method, URL and body."""
HEADERS = ("Authorization", "X-Amz-Date", "X-Amz-Security-Token")
"""What proofs are in; for one host alone."""
_HOSTS = {
    "execute-api": re.compile(r".+\.execute-api\.([a-z0-9-]+)\.amazonaws\.com"),
    "lambda": re.compile(r".+\.lambda-url\.([a-z0-9-]+)\.on\.aws"),
}


def nothing(method: str, url: str, body: bytes | None) -> Mapping[str, str]:  # noqa: ARG001
    """Prove nothing: the server asks nobody."""
    return {}


def bearer(token: str) -> Proof:
    """Prove it by a token."""
    return lambda method, url, body: {"Authorization": f"Bearer {token}"}  # noqa: ARG005


def signature(server: str, region: str | None) -> Proof:
    """Prove it by signing each request (Signature Version 4), with the credentials that boto3 would find.

    API Gateway's own hosts and those of function URLs name their region. Raises `Invalid` where there are no
    credentials, and `NotInstalled`.
    """
    with needing("aws", "a request that is signed with AWS credentials"):
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials
    service, place = "execute-api", None
    for name, pattern in _HOSTS.items():
        if match := pattern.fullmatch(urlsplit(server).hostname or ""):
            service, place = name, match[1]
    access = find_access(region or place, None)

    def sign(method: str, url: str, body: bytes | None) -> Mapping[str, str]:
        keys = access.keys()
        if keys is None:
            raise Invalid("auth: no AWS credentials were found: set a profile, or AWS_ACCESS_KEY_ID and its secret")
        request = AWSRequest(method, url, data=body or b"")
        credentials = Credentials(keys.access_key_id, keys.secret_access_key, keys.session_token)
        SigV4Auth(credentials, service, access.region).add_auth(request)
        return {name: request.headers[name] for name in HEADERS if name in request.headers}

    return sign


class NotThere(TableNotFound, VersionNotFound):
    """The lake has no such table or version."""


class NotYet(Unavailable):
    """The server, or what is in front of it, did not answer in time."""


_ERRORS: dict[int, type[AlluviaError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotThere,
    409: Conflict,
    410: VersionExpired,
    413: Invalid,
    422: Invalid,
    429: Unavailable,
    500: CommitUnknown,
    502: NotYet,
    503: NotYet,
    504: NotYet,
}


def error_of(status: int, body: bytes, place: str) -> AlluviaError:
    """Return the error that an answer stands for: what the server says, or where nothing it understands was sent."""
    kind = _ERRORS.get(status, Invalid if status < 500 else AlluviaError)
    told = _object_in(body)
    if isinstance(told.get("error"), str):
        return kind(told["error"])
    said = told.get("message")  # API Gateway's word for it
    said = said if isinstance(said, str) else f"no answer of Alluvia, but {cut(body.decode(errors='replace'), 200)!r}"
    return kind(f"{place} answered with status {status}: {said}")


def _object_in(body: bytes) -> dict[str, Any]:
    """Return the JSON object that a body is; an empty one for another body."""
    try:
        told = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return told if isinstance(told, dict) else {}


with needing("client", "a lake behind a server"):
    import urllib3

WRITE_ONCE = urllib3.Retry(
    connect=2,
    read=0,
    redirect=3,
    status=0,
    other=0,
    allowed_methods=None,
    raise_on_status=False,
    remove_headers_on_redirect=HEADERS,  # to another host
)
READ_AGAIN = WRITE_ONCE.new(read=1, status=2, status_forcelist=(503,))
"""A read may be sent again where the store did not answer; a write may have happened."""
BRANCH_HEADER = "X-Alluvia-Branch"
_ZSTD = "zstd"
_REJECTED = (400, 413)
"""Statuses of answers that may have the outcome of events."""
NOT_OURS = "is this a server of Alluvia?"


class LakeServer:
    """A server, and what proves to it who asks. Thread-safe."""

    def __init__(self, url: str, proof: Proof, timeout_seconds: float, branch: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._pool = urllib3.PoolManager(timeout=urllib3.Timeout(timeout_seconds), maxsize=4)
        self._headers = {"User-Agent": f"alluvia/{__version__}", "Accept-Encoding": _ZSTD}
        if branch is not None:
            self._headers[BRANCH_HEADER] = branch
        self._proof = proof

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        retries: urllib3.Retry = WRITE_ONCE,
    ) -> urllib3.BaseHTTPResponse:
        """Return a good answer, whose body `body_of` reads. Raises what other answers stand for, and `Unavailable`."""
        url = self.url + path
        return self._sent(
            method, url, body, {**self._headers, **(headers or {}), **self._proof(method, url, body)}, retries
        )

    def json(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        kind: str = "application/json",
        *,
        retries: urllib3.Retry = WRITE_ONCE,
    ) -> Any:
        """Return the JSON of a good answer. `kind` is the media type of what is sent."""
        headers = {} if body is None else {"Content-Type": kind}
        return _parsed(_read(self.send(method, path, body, headers, retries=retries)), self.url + path)

    def outcome(self, path: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
        """Post events or rows, and return the outcome as JSON, also where all were rejected."""
        url = self.url + path
        response = self._sent(
            "POST", url, body, {**self._headers, **headers, **self._proof("POST", url, body)}, WRITE_ONCE, _REJECTED
        )
        said = _read(response)
        told = _object_in(said)
        if response.status >= 300 and "rejected" not in told:
            raise error_of(response.status, said, url)
        return told or dict(_parsed(said, url))

    def put_part(self, url: str, data: bytes) -> None:
        """Put a part of a file where the server has said: its URL proves what it allows, and takes no token."""
        place = url if url.startswith(("http://", "https://")) else self.url + url
        _read(self._sent("PUT", place, data, {}, READ_AGAIN))

    def close(self) -> None:
        """Close connections."""
        self._pool.clear()

    def _sent(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        retries: urllib3.Retry,
        told: Sequence[int] = (),
    ) -> urllib3.BaseHTTPResponse:
        place = url.partition("?")[0]  # what follows may prove who asks
        with broken_off(place):
            response = self._pool.request(
                method, url, body=body, headers=headers, retries=retries, preload_content=False, decode_content=False
            )
            if response.status >= 300 and response.status not in told:
                raise error_of(response.status, _read(response), place)
            return response


def _parsed(told: bytes, place: str) -> Any:
    try:
        return orjson.loads(told)
    except orjson.JSONDecodeError:
        raise Unavailable(f"{place} sent an answer that is not JSON: {NOT_OURS}") from None


def body_of(response: urllib3.BaseHTTPResponse) -> pa.NativeFile:
    """Return the body of an answer as it comes, not compressed."""
    return _plain(response, pa.PythonFile(cast("IO[bytes]", response), mode="r"))


def _read(response: urllib3.BaseHTTPResponse) -> bytes:
    with broken_off(), _plain(response, pa.BufferReader(response.read(decode_content=False))) as body:
        return body.read()


def _plain(response: urllib3.BaseHTTPResponse, body: pa.NativeFile) -> pa.NativeFile:
    coding = response.headers.get("Content-Encoding")
    return pa.CompressedInputStream(body, _ZSTD) if coding == _ZSTD else body


@contextmanager
def broken_off(place: str = "the answer") -> Iterator[None]:
    """Raise `Unavailable` where a server cannot be reached, or stops in the middle of an answer."""
    try:
        yield
    except urllib3.exceptions.HTTPError as error:
        # The texts of these errors may have the URL with what proves who asks.
        reason = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
        late = isinstance(reason, urllib3.exceptions.ReadTimeoutError)
        no_tls = isinstance(reason, urllib3.exceptions.SSLError) and "WRONG_VERSION_NUMBER" in str(reason)
        told = "the server speaks http: begin the address with http://" if no_tls else type(reason).__name__
        raise (NotYet if late else Unavailable)(f"{place}: {told}") from None
    except (pa.ArrowException, OSError) as error:
        raise Unavailable(f"{place}: the answer cannot be read: {error}") from error
