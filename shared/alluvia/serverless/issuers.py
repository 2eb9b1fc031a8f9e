"""Verify the JWTs of an identity provider by the keys that it publishes (a JWKS), where no API Gateway does it."""

from __future__ import annotations

import time
from functools import cache
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from alluvia.access.claims import SKEW_SECONDS
from alluvia.errors import Invalid, Unavailable
from alluvia.extras import needing
from alluvia.serverless.http import Unauthenticated

ALGORITHMS = ("EdDSA", "ES256", "ES384", "PS256", "RS256", "RS384", "RS512")
"""None of them uses a shared secret, so that no public key is ever taken for one."""
TOKEN_CHARS_MAX = 10_000
LIFETIME_SECONDS = 300
AGAIN_SECONDS = 30
"""Keys that are not known are looked for no more often than this, whoever invents ids of keys."""


class Issuer:
    """Verifies the tokens of one provider for one audience. One request every five minutes. Thread-safe."""

    def __init__(self, issuer: str, audience: str, jwks_url: str) -> None:
        with needing("cli", "verifying the JWTs of an issuer"):
            import jwt

        if urlsplit(jwks_url).scheme != "https" and urlsplit(jwks_url).hostname not in ("127.0.0.1", "localhost"):
            raise Invalid(f"{jwks_url} is not safe: the keys of an issuer must come by https")
        self._issuer, self._audience = issuer, audience
        self._client = jwt.PyJWKClient(jwks_url, cache_jwk_set=True, lifespan=LIFETIME_SECONDS, timeout=5)
        self._lock = Lock()
        self._refreshed = float("-inf")

    def claims(self, token: str) -> dict[str, Any]:
        """Return the claims of a token. Raises `Unauthenticated`, and `Unavailable` where the keys cannot be read."""
        import jwt

        if len(token) > TOKEN_CHARS_MAX:
            raise Unauthenticated("the token is too long", given=True)
        try:
            key = self._key(jwt.get_unverified_header(token).get("kid"))
            if key is None:
                raise Unauthenticated("the token is signed with a key that its issuer does not publish", given=True)
            found: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm_name],
                audience=self._audience,
                issuer=self._issuer,
                leeway=SKEW_SECONDS,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWKClientConnectionError:
            raise Unavailable("the keys of the tokens' issuer cannot be read: try again") from None
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("the token has expired", given=True) from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise Unauthenticated("the token is not valid", given=True) from None
        return found

    def _key(self, identity: str | None) -> Any:
        """Return the key of an id; None if there is none, or the token names none."""
        if not identity:
            return None
        found = self._find(identity, refresh=False)
        if found is not None:
            return found
        with self._lock:
            now = time.monotonic()
            if now - self._refreshed < AGAIN_SECONDS:
                return None
            self._refreshed = now
        return self._find(identity, refresh=True)

    def _find(self, identity: str, *, refresh: bool) -> Any:
        keys = self._client.get_jwk_set(refresh=refresh).keys
        return next((key for key in keys if key.key_id == identity and _verifies(key)), None)


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
