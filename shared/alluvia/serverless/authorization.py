"""Authenticate callers and determine their rights, for the functions and the local server.

`ALLUVIA_AUTH` is `iam` (the default: AWS has verified the caller, as the request's context must show; such a caller may
do everything), `tokens` (each request needs a token of the lake, RFC 6750), `jwt` (API Gateway has verified the token
of an identity provider; without API Gateway, the function verifies it if the settings name the provider's keys) or
`open` (no authentication; anyone may do everything).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from alluvia.access.claims import NAME, ClaimsMapping, filled
from alluvia.access.rights import Rights
from alluvia.api.lake import Lake
from alluvia.delta.schema.names import fold
from alluvia.errors import Forbidden, Invalid, StoreRefused
from alluvia.lazy_dataclasses import dataclass
from alluvia.serverless.http import Request, TooManyRequests, Unauthenticated
from alluvia.serverless.settings import choice, text

CALLERS_MAX = 10_000
"""Callers that are counted: those that have not been here for longest are forgotten."""
_MINUTE_MS = 60_000


class RequestRates:
    """Lets each caller make a number of requests at once, and as many again with each minute. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wait_ms(self, caller: str, per_minute: int, now_ms: int) -> int:
        """Count a request. Returns 0 if it may be made, else after how many ms the next one may."""
        with self._lock:
            left, before_ms = self._left.pop(caller, (float(per_minute), now_ms))
            left = min(float(per_minute), left + max(0, now_ms - before_ms) * per_minute / _MINUTE_MS)
            allowed = left >= 1
            self._left[caller] = (left - allowed, now_ms)
            if len(self._left) > CALLERS_MAX:
                self._left.popitem(last=False)
        return 0 if allowed else max(1, round((1 - left) * _MINUTE_MS / max(per_minute, 1)))


AUTH = "ALLUVIA_AUTH"
JWT_WHERE = "ALLUVIA_JWT_WHERE"
IAM, OPEN = "iam", "open"
MODES = (IAM, "tokens", "jwt", OPEN)
SIGN = "AWS4-HMAC-SHA256"
"""What a request must be signed with, for AWS to say who sends it."""

_lock = Lock()
_verifiers: WeakKeyDictionary[Lake, Any] = WeakKeyDictionary()
_rates = RequestRates()


@dataclass(frozen=True, slots=True)
class Authorization:
    """How callers are told apart: a mode and, of the mode `jwt`, the issuer and what its claims mean."""

    mode: str = IAM
    issuer: str = ""
    audience: str = ""
    jwks_url: str | None = None
    mapping: ClaimsMapping = field(default_factory=ClaimsMapping)

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Authorization:
        """Read the settings. Raises `Invalid`, naming the variable, if one is missing or unusable."""
        mode = choice(environment, AUTH, MODES)
        if mode != "jwt":
            return cls(mode)
        why = f"{AUTH} is jwt, so say whose tokens are valid, and for whom they must be"
        hidden = (environment.get("ALLUVIA_JWT_HIDE") or "").split()
        return cls(
            mode,
            text(environment, "ALLUVIA_JWT_ISSUER", why),
            text(environment, "ALLUVIA_JWT_AUDIENCE", why),
            environment.get("ALLUVIA_JWT_JWKS_URL") or None,
            ClaimsMapping(
                environment.get("ALLUVIA_JWT_SCOPES") or "scope",
                environment.get(JWT_WHERE) or None,
                frozenset(map(fold, hidden)),
                environment.get("ALLUVIA_JWT_SCOPE_PREFIX") or "",
            ),
        )

    def rights(self, request: Request, lake: Lake) -> Rights | None:
        """Return what the sender of a request may do; None: all.

        Raises `Unauthenticated`, `TooManyRequests`, `Forbidden`, and `Unavailable` where that cannot be found out now.
        """
        if self.mode == OPEN:
            return None
        if self.mode == IAM:
            _check_signed(request)
            return None
        rights = _of_token(bearer(request), lake) if self.mode == "tokens" else self._of_claims(request)
        return _counted(rights, lake, "token")

    def _of_claims(self, request: Request) -> Rights:
        claims = _verified_claims(request)
        if claims is None:
            token = bearer(request)
            if self.jwks_url is None:
                raise Unauthenticated("this token has not been verified", given=True)
            from alluvia.serverless.issuers import issuer  # loads PyJWT, which is in no layer

            claims = issuer(self.issuer, self.audience, self.jwks_url).claims(token)
        elif claims.get("iss") != self.issuer:  # the authorizer in front is another than the settings name
            raise Unauthenticated("the token's issuer is not ALLUVIA_JWT_ISSUER", given=True)
        return self.mapping.rights(claims)


@cache
def check_row_filter(template: str) -> None:
    """Raise `Invalid`, naming the variable, unless a row filter is a condition once claims are in it. Loads DuckDB."""
    from alluvia.engine.conditions.sql_condition import read_expression

    try:
        read_expression(filled(template, dict.fromkeys(NAME.findall(template), "")))
    except Invalid as error:
        raise Invalid(f"{JWT_WHERE}: {template!r:.200} is not a row filter: {error}") from None


def bearer(request: Request) -> str:
    """Return the token that a request bears. Raises `Unauthenticated`."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if not scheme:
        raise Unauthenticated("this request needs a token: send Authorization: Bearer <token>", given=False)
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("Authorization: send Bearer <token>", given=True)
    return token.strip()


def rights_of_link(token: str, lake: Lake) -> Rights:
    """Return the rights of the token in a link's address. It works with every kind of `auth`.

    Raises `Forbidden` for one that is not valid now, or is not a link's: other tokens are secrets, which no address
    may hold. Raises `TooManyRequests`, and `Unavailable`.
    """
    try:
        rights = _verified(token, lake).as_link()
    except StoreRefused:
        raise
    except Invalid as error:
        raise Forbidden(str(error).replace("the token", "this link")) from None
    if rights is None:
        raise Forbidden("this is a token, and not one of a link: send it in a header: Authorization: Bearer <token>")
    return _counted(rights, lake, "link")


def _of_token(token: str, lake: Lake) -> Rights:
    try:
        rights = _verified(token, lake)
    except StoreRefused:
        raise
    except Invalid as error:
        raise Unauthenticated(str(error), given=True) from None
    if rights.as_link() is not None:
        raise Unauthenticated("this is the token of a link, which is good in its address alone", given=True)
    return rights


def _verified(token: str, lake: Lake) -> Rights:
    from alluvia.access.registry import TokenVerifier  # loads cryptography

    with _lock:
        verifier = _verifiers.get(lake)
        if verifier is None:
            verifier = _verifiers[lake] = TokenVerifier(lake.store, lake.clock)
    rights: Rights = verifier.verify(token).rights
    return rights


def _counted(rights: Rights, lake: Lake, what: str) -> Rights:
    """Return rights whose bearer may make another request. Raises `TooManyRequests`."""
    if rights.requests_per_minute is not None:
        wait_ms = _rates.wait_ms(rights.key, rights.requests_per_minute, lake.clock.now_ms())
        if wait_ms:
            allowed = f"this {what} allows {rights.requests_per_minute} requests a minute"
            raise TooManyRequests(f"{allowed}: send this one again later", -(-wait_ms // 1000))
    return rights


def _check_signed(request: Request) -> None:
    """Raise `Unauthenticated` unless AWS has verified the signature of a request; a caller cannot write that there.

    API Gateway and function URLs whose authorization is IAM say so (`requestContext.authorizer.iam`); an API without
    an authorizer, and a function URL whose authorization is NONE, do not.
    """
    identity = _in_context(request, "authorizer", "iam")
    if not isinstance(identity, Mapping) or not any(_is_text(identity.get(name)) for name in ("userArn", "accessKey")):
        reason = (
            f"{AUTH} is {IAM}, but no authorizer has verified this request: sign it with AWS credentials and send it "
            f"to a route or function URL with IAM authorization, or set {AUTH} to tokens or jwt"
        )
        raise Unauthenticated(reason, given=False, challenge=SIGN)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _verified_claims(request: Request) -> Mapping[str, Any] | None:
    """Return the claims that API Gateway's JWT authorizer has verified; a caller cannot write them there."""
    claims = _in_context(request, "authorizer", "jwt", "claims")
    return claims if isinstance(claims, Mapping) else None


def _in_context(request: Request, *names: str) -> object:
    value: Any = request.event["requestContext"]
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
