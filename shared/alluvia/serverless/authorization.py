"""Who sends a request, and what it may do: the one place where the functions, and the local server, ask.

`ALLUVIA_AUTH` says who has looked at the caller. `iam`: AWS, or nobody (a local server); whoever gets here may do all.
`tokens`: nobody yet, so the request must bear a token of the lake (RFC 6750).
"""

from __future__ import annotations

import os
from threading import Lock
from weakref import WeakKeyDictionary

from alluvia.access.rate import RequestRates
from alluvia.access.rights import Rights
from alluvia.errors import Invalid
from alluvia.lake import Lake
from alluvia.serverless.http import Request, TooManyRequests, Unauthenticated
from alluvia.serverless.settings import choice

AUTH = "ALLUVIA_AUTH"
MODES = ("iam", "tokens")

_lock = Lock()
_verifiers: WeakKeyDictionary[Lake, object] = WeakKeyDictionary()
_rates = RequestRates()


def authorize(request: Request, lake: Lake) -> Rights | None:
    """Return what the sender of a request may do; None: all.

    Raises `Unauthenticated`, `TooManyRequests`, and `Unavailable` where that cannot be found out now.
    """
    if choice(os.environ, AUTH, MODES) == "iam":
        return None
    rights = _of_token(bearer(request), lake)
    if rights.requests_per_minute is not None:
        wait_ms = _rates.wait_ms(rights.key, rights.requests_per_minute, lake.clock.now_ms())
        if wait_ms:
            raise TooManyRequests(
                f"this token allows {rights.requests_per_minute} requests a minute: send this one again later",
                -(-wait_ms // 1000),
            )
    return rights


def bearer(request: Request) -> str:
    """Return the token that a request bears. Raises `Unauthenticated`."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if not scheme:
        raise Unauthenticated("this request needs a token: send Authorization: Bearer <token>", given=False)
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("Authorization: send Bearer <token>", given=True)
    return token.strip()


def _of_token(token: str, lake: Lake) -> Rights:
    from alluvia.access.verifying import TokenVerifier  # loads cryptography

    with _lock:
        verifier = _verifiers.setdefault(lake, TokenVerifier(lake.store, lake.clock))
    assert isinstance(verifier, TokenVerifier)  # noqa: S101 - narrows the type
    try:
        return verifier.verify(token).rights
    except Invalid as error:
        raise Unauthenticated(str(error), given=True) from None
