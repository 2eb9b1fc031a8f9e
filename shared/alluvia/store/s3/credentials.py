"""Where the keys for S3 come from: the caller, the environment, or other sources that boto3 knows.

boto3 reads profiles and asks containers, instances and sign-on services for the keys of a role. Importing it takes
over a third of a cold start, so it is used only if the environment has no keys.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alluvia.errors import StoreRefused
from alluvia.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    import boto3

DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys that sign a request. Never log them."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class Access:
    """The region of requests, and a function that returns the keys of the moment, or None where there are none.

    `expire` says whether the keys are another after a while.
    """

    region: str
    keys: Callable[[], Keys | None]
    expire: bool = False


def find_access(region: str | None, given: Keys | None, environment: Mapping[str, str] = os.environ) -> Access:
    """Return the access that boto3 would find, by way of boto3 only where it is needed. Raises `StoreRefused`."""
    keys = given or _of_environment(environment)
    region = region or environment.get("AWS_DEFAULT_REGION") or environment.get("AWS_REGION")
    if keys is not None and (region or not _config_file(environment).exists()):
        return Access(region or DEFAULT_REGION, lambda: keys)
    session = _session()
    region = region or session.region_name or DEFAULT_REGION
    return Access(region, lambda: keys) if keys is not None else Access(region, _of_session(session), expire=True)


def _of_environment(environment: Mapping[str, str]) -> Keys | None:
    """Keys that do not expire while this process lives, as Lambda sets them."""
    key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret or environment.get("AWS_CREDENTIAL_EXPIRATION"):
        return None
    return Keys(key, secret, environment.get("AWS_SESSION_TOKEN") or environment.get("AWS_SECURITY_TOKEN"))


def _config_file(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser()


def _session() -> boto3.session.Session:
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        return boto3.session.Session()
    except BotoCoreError as error:
        msg = f"the AWS configuration cannot be used ({type(error).__name__}): check AWS_PROFILE and ~/.aws"
        raise StoreRefused(msg) from error


def _of_session(session: boto3.session.Session) -> Callable[[], Keys | None]:
    """Keys of boto3, which gets new ones at least 10 minutes before the old expire."""

    def keys() -> Keys | None:
        credentials: Any = session.get_credentials()
        if credentials is None:
            return None
        frozen = credentials.get_frozen_credentials()
        return Keys(frozen.access_key, frozen.secret_key, frozen.token)

    return keys
