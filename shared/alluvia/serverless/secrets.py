"""Secrets, from where references say that they are. No error and no log line shows one."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from alluvia.errors import Invalid, Unavailable
from alluvia.extras import needing
from alluvia.sources.references import parse_reference

if TYPE_CHECKING:
    from botocore.config import Config

    from alluvia.clock import Clock

STALE_MS = 300_000
"""How old a secret may be that this process knows."""
LOOK_MS = 30_000
"""How soon a secret that is missing, or did not fit, is asked for again: its service is paid by the request."""
_SECRET_BYTES_MAX = 65_536
_MISSING = ("ResourceNotFoundException", "ParameterNotFound", "AccessDeniedException", "ValidationException")


class Secrets:
    """The secrets that a warm process knows. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._known: dict[str, tuple[str | Invalid, int]] = {}

    def get(self, reference: str, *, age_ms_max: int = STALE_MS) -> str:
        """Return a secret as it was at most so long ago. Raises as `read_secret`, again without asking for a while."""
        with self._lock:
            now_ms = self._clock.now_ms()
            found, read_ms = self._known.get(reference, ("", None))
            age_ms_max = min(age_ms_max, LOOK_MS) if isinstance(found, Invalid) else age_ms_max
            if read_ms is None or not 0 <= now_ms - read_ms < age_ms_max:
                try:
                    found = read_secret(reference)
                except Invalid as error:
                    found = error
                self._known[reference] = found, now_ms
        if isinstance(found, Invalid):
            raise Invalid(str(found))
        return found


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
        raise Invalid(f"the secret env:{name} is not set: set that environment variable")
    return os.environ[name]


def _of_file(name: str) -> str:
    try:
        with Path(name).open("rb") as file:
            return file.read(_SECRET_BYTES_MAX).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"the secret file:{name} cannot be read: {type(error).__name__}") from None


def _of_secrets_manager(name: str) -> str:
    answer = _asked(f"secretsmanager:{name}", lambda: _secrets_manager().get_secret_value(SecretId=name))
    return str(answer.get("SecretString") or "")


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
        if code in _MISSING:
            raise Invalid(f"the secret {reference} cannot be read: {code}") from None
        raise Unavailable(f"the secret {reference} cannot be read now: {code}") from None
    except BotoCoreError as error:
        raise Unavailable(f"the secret {reference} cannot be read now: {type(error).__name__}") from None
