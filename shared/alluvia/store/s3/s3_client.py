"""obstore's clients for a bucket: its endpoint, the keys of the moment, and how long answers may take."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import obstore.store

from alluvia.errors import Invalid
from alluvia.store.s3.answers import NoKeys
from alluvia.store.s3.credentials import Access

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Credential

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
