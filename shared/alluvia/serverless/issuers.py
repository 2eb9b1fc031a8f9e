"""Verify the JWTs of an identity provider by the keys that it publishes (a JWKS), where no API Gateway does it."""

from __future__ import annotations

import http.client
import json
import time
from contextlib import suppress
from functools import cache
from threading import Lock
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from alluvia.access.claims import SKEW_SECONDS
from alluvia.errors import Invalid, Unavailable
from alluvia.extras import needing
from alluvia.serverless.http import Unauthenticated

ALGORITHMS = ("EdDSA", "ES256", "ES384", "PS256", "RS256", "RS384", "RS512")
"""None of them uses a shared secret, so that no public key is ever taken for one."""
TOKEN_CHARS_MAX = 10_000
LIFETIME_SECONDS = 300
AGAIN_SECONDS = 30
"""Unknown keys are looked for no more often than this, however many ids of keys callers invent."""
FAILED_SECONDS = 2
"""After keys could not be read, they are not requested again for this long."""
ANSWER_SECONDS = 5
KEYS_BYTES_MAX = 1 << 20


class Issuer:
    """Verifies the tokens of one provider for one audience. One request every five minutes. Thread-safe."""

    def __init__(self, issuer: str, audience: str, jwks_url: str) -> None:
        with needing("cli", "verifying the JWTs of an issuer"):
            import jwt  # noqa: F401

        if urlsplit(jwks_url).scheme != "https" and urlsplit(jwks_url).hostname not in ("127.0.0.1", "localhost"):
            raise Invalid(f"{jwks_url} is not safe: the keys of an issuer must come by https")
        self._issuer, self._audience = issuer, audience
        self._url = jwks_url
        self._lock = Lock()
        self._keys: list[Any] = []
        self._read_at = self._failed_at = self._refreshed = float("-inf")

    def claims(self, token: str) -> dict[str, Any]:
        """Return the claims of a token. Raises `Unauthenticated`, and `Unavailable` where the keys cannot be read."""
        import jwt

        if len(token) > TOKEN_CHARS_MAX:
            raise Unauthenticated("the token is too long", given=True)
        try:
            key = self._key(jwt.get_unverified_header(token).get("kid"))
            if key is None:
                raise Unauthenticated("the token is signed with a key that its issuer does not publish", given=True)
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm_name],
                audience=self._audience,
                issuer=self._issuer,
                leeway=SKEW_SECONDS,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("the token has expired", given=True) from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise Unauthenticated("the token is not valid", given=True) from None
        return claims

    def _key(self, identity: str | None) -> Any:
        """Return the key of an id; None if it does not exist, or if the token has no id."""
        if not identity:
            return None
        key = self._find(identity, refresh=False)
        if key is not None:
            return key
        with self._lock:
            now = time.monotonic()
            if now - self._refreshed < AGAIN_SECONDS:
                return None
            self._refreshed = now
        return self._find(identity, refresh=True)

    def _find(self, identity: str, *, refresh: bool) -> Any:
        keys = self._published(refresh=refresh)
        return next((key for key in keys if key.key_id == identity and _verifies(key)), None)

    def _published(self, *, refresh: bool) -> list[Any]:
        """Return the keys that the provider publishes. Raises `Unavailable`."""
        now = time.monotonic()
        if not refresh and now - self._read_at < LIFETIME_SECONDS:
            return self._keys
        if now - self._failed_at < FAILED_SECONDS:
            raise Unavailable("the keys of the tokens' issuer cannot be read: try again")
        try:
            self._keys = _read_keys(_fetch(self._url))
        except (OSError, http.client.HTTPException, ValueError, TypeError, RecursionError) as error:
            self._failed_at = time.monotonic()
            raise Unavailable("the keys of the tokens' issuer cannot be read: try again") from error
        self._read_at = now
        return self._keys


class _NoRedirect(HTTPRedirectHandler):
    """Takes a redirect for an error: it may lead to http, and to where only this machine may ask."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _fetch(url: str) -> bytes:
    """Return what is at a URL. Raises `OSError`, `HTTPException`, and `ValueError` where it is too long or too slow."""
    until = time.monotonic() + ANSWER_SECONDS
    request = Request(url, headers={"Accept": "application/json", "User-Agent": "alluvia"})  # noqa: S310 - checked
    body = b""
    try:
        with build_opener(_NoRedirect).open(request, timeout=ANSWER_SECONDS) as answer:
            while part := answer.read1(1 << 16):
                body += part
                if len(body) > KEYS_BYTES_MAX or time.monotonic() > until:
                    raise ValueError(f"{url} has too many keys, or sends them too slowly")
    except HTTPError as error:
        error.close()
        raise
    return body


def _read_keys(body: bytes) -> list[Any]:
    """Return the keys of a JWKS that can be used, whatever the others are. Raises `ValueError` where there is none."""
    import jwt

    published = json.loads(body)
    keys = []
    for each in published.get("keys", ()) if isinstance(published, dict) else ():
        with suppress(jwt.PyJWTError, ValueError, TypeError, AttributeError, OverflowError):
            keys.append(jwt.PyJWK(each))
    if not keys:
        raise ValueError("the issuer publishes no key that can be used")
    return keys


def _verifies(key: Any) -> bool:
    """Whether a published key is one for signatures (RFC 7517, sections 4.2 and 4.3), by an algorithm that is taken."""
    published = key._jwk_data  # noqa: SLF001 - PyJWT shows `use`, but not `key_ops`
    operations = published.get("key_ops", ["verify"])
    may = published.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
    return may and key.algorithm_name in ALGORITHMS


@cache
def issuer(name: str, audience: str, jwks_url: str) -> Issuer:
    """Return what verifies the tokens of a provider, one for the process."""
    return Issuer(name, audience, jwks_url)
