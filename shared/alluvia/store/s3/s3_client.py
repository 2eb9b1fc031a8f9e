"""obstore's clients for a bucket: its endpoint, the keys of the moment, and how long answers may take.

obstore has a type for some of S3's answers and a text for all of them. The text ends in a dump that repeats the whole
answer, which can hold a session token: nothing of it goes further than the status and the code, and no error of
obstore's stays attached to one of ours.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import obstore.store

from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.store.s3.credentials import Access

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Credential

_STATUS = re.compile(r"Server returned non-2xx status code: (\d{3})\b")
_CODE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)|External AWS credential provider: (\w+)")
_NOT_DELETED = re.compile(r"DeleteObjects request failed for key (.*: .*) \(code: (\w+)\)", re.DOTALL)
_ODD_KEY = re.compile(
    r'invalid path: (?:Error parsing )?Path "(.*)"(?: contained empty|: Encountered illegal)', re.DOTALL
)
_KIND = re.compile(r"kind: (\w+),")
_WRONG_REGION = "Received redirect without LOCATION"
_NOT_PARTIAL = "Received non-partial response"
_NAMES = {400: "BadRequest", 403: "AccessDenied", 404: "NoSuchKey", 412: "PreconditionFailed", 416: "InvalidRange"}
_UNTIL_FIXED = (
    *("AccessDenied", "NoSuchBucket", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken"),
    *("NoKeys", "InvalidPathError"),
)
_PASSING = (0, 408, 409, 429)


class NoKeys(Exception):
    """There are no credentials. Raised to obstore when it asks for some, and read from its error."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that failed: the status of S3's answer (0 if no complete one came), and S3's code or what failed.

    `refused` begins with the key of an object that a bulk delete did not delete, a colon and a space. `key` is one that
    obstore does not list. `is_last` says that an invocation has no time to send the request again.
    """

    status: int
    code: str
    refused: str | None = None
    key: str | None = None
    is_last: bool = False

    @property
    def is_missing(self) -> bool:
        """Whether the object does not exist."""
        return self.status == 404 and self.code != "NoSuchBucket"

    @property
    def is_conflict(self) -> bool:
        """Whether a concurrent delete won over a conditional write, which S3 asks to send again."""
        return self.status == 409 and self.code == "ConditionalRequestConflict"

    @property
    def is_final(self) -> bool:
        """Whether S3 would answer the same again. (A slow upload is a 400 as well, `RequestTimeout`, but passes.)"""
        passing = self.status in _PASSING or self.status >= 500 or self.code == "RequestTimeout"
        passing = passing and self.status != 501  # the store lacks what was asked for
        return self.code in _UNTIL_FIXED or not passing


NOT_PARTIAL = Failure(200, "NotPartial")
"""The answer to a ranged read is the whole object."""
CHANGED = Failure(412, "PreconditionFailed")
"""The object is not the one that was asked for."""


def read_failure(error: Exception, name: str) -> Failure:
    """Read what failed out of an error of obstore's. `name` is the object's key, which may hold any text."""
    text = str(error).replace(f"location {name} ", "", 1).replace(f"path {name}: ", "", 1)
    answer, _, dump = text.partition("\n\nDebug source:")
    if _NOT_PARTIAL in answer:
        return NOT_PARTIAL
    if _WRONG_REGION in answer:
        return Failure(301, "PermanentRedirect")
    kept = _NOT_DELETED.search(answer)
    if kept is not None:
        return Failure(0, kept[2], kept[1])
    status, code = _STATUS.search(answer), _CODE.search(answer)
    if status is None and code is None:
        kind, odd = _KIND.search(dump), _ODD_KEY.search(answer)
        return Failure(0, kind[1] if kind else type(error).__name__, key=odd[1] if odd else None)
    number = int(status[1]) if status else 0
    return Failure(number, code[code.lastindex or 0] if code else _NAMES.get(number, str(number)))


READ_SECONDS, FUNCTION_READ_SECONDS = 30, 10
"""How long an answer may keep silent, here and in a function, whose line is fast, and which is to try again in the half
minute that it has. The time begins with a request, so a big upload needs longer."""
UPLOAD_SECONDS = 3600
IDLE_SECONDS = 5
"""S3 closes an idle connection later. Who was frozen meanwhile, as Lambda does it, may send into a closed one."""
KEYS_MINUTES = 10
"""obstore asks for keys that expire 5 minutes before they do; boto3's are good for 10 at least."""


def read_seconds_here() -> int:
    """Return how long an answer may keep silent in this process."""
    return FUNCTION_READ_SECONDS if "AWS_LAMBDA_FUNCTION_NAME" in os.environ else READ_SECONDS


def new_client(
    bucket: str,
    endpoint_url: str,
    access: Access,
    read_seconds: int,
    retries: int = 0,
    total_seconds: int = UPLOAD_SECONDS,
) -> obstore.store.S3Store:
    """Return a client that takes nothing from the environment where boto3 and DuckDB do not look for it.

    An answer may keep silent for `read_seconds`, and take `total_seconds`.
    """
    region, by_path = access.region, bool(endpoint_url) or "." in bucket
    domain = f"s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
    endpoint = endpoint_url or f"https://{domain if by_path else f'{bucket}.{domain}'}"
    _check_endpoint(endpoint)
    bundle = os.environ.get("AWS_CA_BUNDLE")
    options: ClientConfig = {
        "allow_http": endpoint.startswith("http:"),
        "connect_timeout": timedelta(seconds=min(5, total_seconds)),
        "read_timeout": timedelta(seconds=read_seconds),
        "timeout": timedelta(seconds=total_seconds),
        "pool_idle_timeout": timedelta(seconds=IDLE_SECONDS),
    }
    if bundle:
        options["root_certificate"] = Path(bundle).read_bytes()
    return obstore.store.S3Store(
        bucket,
        region=region,
        endpoint=endpoint,
        aws_endpoint_url_s3=endpoint,
        virtual_hosted_style_request=not by_path,
        conditional_put="etag",
        copy_if_not_exists="header:If-None-Match:*",
        skip_signature=False,
        credential_provider=partial(credential, access),
        retry_config={"max_retries": retries, "retry_timeout": timedelta(seconds=min(180, total_seconds))},
        client_options=options,
    )


def credential(access: Access) -> S3Credential:
    """Return the keys of the moment, in obstore's form. Raises `NoKeys`."""
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
