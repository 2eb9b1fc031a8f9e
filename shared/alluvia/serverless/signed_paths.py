"""Signed paths: what `alluvia serve` gives out where S3 would have a presigned URL.

A signed path needs no token. It is good for one method (HEAD goes with GET), one path with its parameters, and until a
moment: `/v1/results/x.csv?expires=1700000000&signature=…`. The signature is HMAC-SHA256 with a key of the process, or
of the setting `ALLUVIA_SIGNING_KEY` where several servers take each other's paths.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from hashlib import sha256
from urllib.parse import parse_qsl, urlencode

from alluvia.clock import Clock
from alluvia.errors import Forbidden, Invalid
from alluvia.lazy_dataclasses import dataclass

SIGNING_KEY = "ALLUVIA_SIGNING_KEY"
KEY_CHARS_MIN = 32
EXPIRES, SIGNATURE = "expires", "signature"
_GOES_WITH = {"HEAD": "GET"}
_current: list[PathSigner] = []


@dataclass(frozen=True, slots=True)
class PathSigner:
    """Signs paths with a key, and checks them."""

    clock: Clock
    key: bytes = field(repr=False)

    def sign(self, method: str, path: str, seconds: int, parameters: Mapping[str, str] | None = None) -> str:
        """Return a path, not percent-encoded and with nothing in it that needs it, as it may be sent for a while."""
        expires_s = self.clock.now_ms() // 1000 + seconds
        query = urlencode({**(parameters or {}), EXPIRES: str(expires_s)})
        return f"{path}?{query}&{SIGNATURE}={self._signature(method, path, query)}"

    def check(self, method: str, path: str, query: str) -> dict[str, str]:
        """Return the parameters of a signed path. `query` is the query string as it was sent, without `?`.

        Raises `Forbidden` for one that was not signed so, or has expired.
        """
        signed, _, given = query.rpartition(f"&{SIGNATURE}=")
        expected = self._signature(_GOES_WITH.get(method, method), path, signed)
        if not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode()):
            raise Forbidden(
                "the signature of this path is wrong: send the path unchanged, or ask for a new one. If several "
                f"servers share paths, give each the same {SIGNING_KEY}"
            )
        parameters = dict(parse_qsl(signed, keep_blank_values=True))
        if self.clock.now_ms() // 1000 >= int(parameters.pop(EXPIRES)):
            raise Forbidden("this path has expired: ask for a new one")
        return parameters

    def _signature(self, method: str, path: str, query: str) -> str:
        text = f"{method}\n{path}\n{query}".encode("utf-8", "surrogatepass")
        return hmac.new(self.key, text, sha256).hexdigest()


def signer_of(environment: Mapping[str, str], clock: Clock) -> PathSigner:
    """Return a signer with the key of the settings, else with a fresh one. Raises `Invalid` for one that is short."""
    secret = environment.get(SIGNING_KEY)
    if secret is None:
        return PathSigner(clock, secrets.token_bytes(32))
    if len(secret) < KEY_CHARS_MIN:
        raise Invalid(f"{SIGNING_KEY}: give at least {KEY_CHARS_MIN} random characters, the same to each server")
    return PathSigner(clock, sha256(secret.encode()).digest())


def current_signer() -> PathSigner | None:
    """Return the signer of the server that this process is; None where it is none."""
    return _current[-1] if _current else None


@contextmanager
def using_signer(signer: PathSigner) -> Iterator[PathSigner]:
    """Have handlers of this process sign paths with a signer, which the server around them checks."""
    _current.append(signer)
    try:
        yield signer
    finally:
        _current.remove(signer)
