"""Secrets, from where references say that they are. No error and no log line shows one."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import orjson

from alluvia.errors import Invalid, Unavailable
from alluvia.events.sources.definition import parse_reference
from alluvia.events.sources.lake_sources import FileState, file_state
from alluvia.extras import needing

if TYPE_CHECKING:
    from botocore.config import Config

    from alluvia.clock import Clock

STALE_MS = 300_000
"""How old a secret may be that this process knows."""
LOOK_MS = 30_000
"""How soon a secret that is missing, or did not fit, is asked for again: its service is paid by the request."""
RETRY_MS = 2_000
"""How soon a service that did not answer is asked again, however many requests come."""
_FILE = "file:"
_SECRET_BYTES_MAX = 65_536
_BUSY = ("Throttling", "ThrottlingException", "TooManyRequestsException", "RequestLimitExceeded")
_UNSET = {
    "NoRegionError": "set AWS_REGION",
    "NoCredentialsError": "set the credentials of AWS in the environment",
}


class _Known:
    """What a process knows of one secret: the secret, or the error with which it could not be read, and since when."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.found: str | Invalid | Unavailable = ""
        self.read_ms: int | None = None
        self.state: FileState = None

    def is_as_new_as(self, age_ms_max: int, now_ms: int, state: FileState) -> bool:
        if state != self.state:
            return False
        if isinstance(self.found, Invalid):
            age_ms_max = min(age_ms_max, LOOK_MS)
        elif isinstance(self.found, Unavailable):
            age_ms_max = RETRY_MS
        return self.read_ms is not None and 0 <= now_ms - self.read_ms < age_ms_max


class Secrets:
    """The secrets that a warm process knows. Thread-safe: waiting for one secret delays no other."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._known: dict[str, _Known] = {}

    def get(self, reference: str, *, age_ms_max: int = STALE_MS) -> str:
        """Return a secret, at most `age_ms_max` old. Raises as `read_secret`, again without asking for a while.

        A file is read again as soon as it has changed.
        """
        with self._lock:
            known = self._known.setdefault(reference, _Known())
        with known.lock:
            began_ms = self._clock.now_ms()
            state = file_state(reference.removeprefix(_FILE)) if reference.startswith(_FILE) else None
            if not known.is_as_new_as(age_ms_max, began_ms, state):
                known.state = state
                try:
                    known.found, known.read_ms = read_secret(reference), began_ms
                except (Invalid, Unavailable) as error:
                    known.found, known.read_ms = error, self._clock.now_ms()  # a service may be long in not answering
            secret = known.found
        if isinstance(secret, str):
            return secret
        raise type(secret)(str(secret))


def read_secret(reference: str) -> str:
    """Return the secret that a reference names, without white space around it.

    Raises Invalid where there is none, or it may not be read, and Unavailable where its service does not answer.
    """
    place, name = parse_reference(reference)
    text = _READERS[place](name).strip()
    if not text:
        raise Invalid(f"the secret {reference} is empty")
    return text


def _of_environment(name: str) -> str:
    if name not in os.environ:
        raise Invalid(
            f"the secret env:{name} is not set: set that environment variable before the process starts, or use a file"
        )
    return os.environ[name]


def _of_file(name: str) -> str:
    try:
        with Path(name).open("rb") as file:
            return file.read(_SECRET_BYTES_MAX).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"the secret file:{name} cannot be read: {type(error).__name__}") from None


def _of_secrets_manager(name: str) -> str:
    secret_id, _, key = name.partition("#")
    answer = _asked(f"secretsmanager:{name}", lambda: _secrets_manager().get_secret_value(SecretId=secret_id))
    text = str(answer.get("SecretString") or "")
    return _under(key, text, f"secretsmanager:{name}") if key else text


def _under(key: str, text: str, reference: str) -> str:
    """Return what a secret of several pairs has under a key, as the console of AWS makes them."""
    try:
        value = orjson.loads(text)[key]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        value = None
    if not isinstance(value, str):
        raise Invalid(f"the secret {reference} cannot be read: it must be a JSON object with a text under {key!r}")
    return value


def _of_ssm(name: str) -> str:
    answer = _asked(f"ssm:{name}", lambda: _ssm().get_parameter(Name=name, WithDecryption=True))
    return str(answer["Parameter"]["Value"])


_READERS = {"env": _of_environment, "file": _of_file, "secretsmanager": _of_secrets_manager, "ssm": _of_ssm}


@cache
def _secrets_manager() -> Any:
    import boto3

    return boto3.client("secretsmanager", config=_config())


@cache
def _ssm() -> Any:
    import boto3

    return boto3.client("ssm", config=_config())


def _config() -> Config:
    from botocore.config import Config

    return Config(connect_timeout=2, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})


def _asked(reference: str, ask: Any) -> Any:
    """Return a service's answer; its errors without their text, which may show what was asked."""
    with needing("aws", "secrets of AWS"):
        from botocore.exceptions import BotoCoreError, ClientError
    try:
        return ask()
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500 or code in _BUSY:
            raise Unavailable(f"the secret {reference} cannot be read now: {code}") from None
        raise Invalid(f"the secret {reference} cannot be read: {code}") from None
    except BotoCoreError as error:
        code = type(error).__name__
        if code in _UNSET:
            raise Invalid(f"the secret {reference} cannot be read: {_UNSET[code]}") from None
        raise Unavailable(f"the secret {reference} cannot be read now: {code}") from None
