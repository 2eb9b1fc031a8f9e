"""What a lake keeps about tokens, none of it secret, and the verification of tokens with it.

```
_alluvia/tokens/keys/<key id>.json         a public key (a JWK, RFC 8037): tokens that it verifies are valid
_alluvia/tokens/issued/<token id>.json     what a token may do, for `alluvia token list`
_alluvia/tokens/revoked/<expiry>-<token id>  a token that is not valid any more; not listed once it would have expired
```

Every object is written once, and only a key is ever deleted.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from threading import Lock
from typing import Any

import orjson

from alluvia.access.claims import SKEW_SECONDS, TokenClaims, check_time, read_claims
from alluvia.access.signing import KEY_ID, encoded, key_id, verified
from alluvia.clock import Clock
from alluvia.errors import Corrupt, Invalid, ObjectNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import Store
from alluvia.store.base import ByteRange

FOLDER = "_alluvia/tokens/"
KEYS, ISSUED, REVOKED = f"{FOLDER}keys/", f"{FOLDER}issued/", f"{FOLDER}revoked/"
ID_CHARS = frozenset("0123456789abcdefghijklmnopqrstuvwxyz-")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that tokens may be signed with: its id, its 32 bytes, and when it was made, in ms since the Unix epoch."""

    id: str
    data: bytes
    created_ms: int


def add_key(store: Store, clock: Clock, public: bytes) -> PublicKey:
    """Let tokens be signed with a key, from half a minute later on everywhere. One request."""
    key = PublicKey(key_id(public), public, clock.now_ms())
    jwk = {
        "kty": "OKP",
        "crv": "Ed25519",
        "x": encoded(public).decode(),
        "kid": key.id,
        "createdMs": key.created_ms,
    }
    store.put_if_absent(_key_of(key.id), orjson.dumps(jwk))
    return key


def remove_key(store: Store, identity: str) -> None:
    """End all tokens that were signed with a key. Raises `Invalid` if there is none of that id."""
    if not KEY_ID.fullmatch(identity) or store.head(_key_of(identity)) is None:
        raise Invalid(f"the lake has no key {identity!r:.50}: `alluvia token list` shows which key signed each token")
    store.delete([_key_of(identity)])


def key_ids(store: Store) -> list[str]:
    """Return the ids of the keys. One LIST."""
    names = (info.key.removeprefix(KEYS).removesuffix(".json") for info in store.list(KEYS))
    return [name for name in names if KEY_ID.fullmatch(name)]


def read_key(store: Store, identity: str) -> PublicKey | None:
    """Return a key by its id; None if it is gone. One GET. Raises `Corrupt`."""
    try:
        jwk = orjson.loads(store.get(_key_of(identity)))
        data = base64.urlsafe_b64decode(f"{jwk['x']}=")
        key = PublicKey(identity, data, int(jwk["createdMs"]))
    except ObjectNotFound:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"{_key_of(identity)} is not a key of this library") from error
    if len(key.data) != 32 or key_id(key.data) != identity:
        raise Corrupt(f"{_key_of(identity)} holds another key than its name says")
    return key


def note_issued(store: Store, clock: Clock, claims: TokenClaims, signed_with: str) -> None:
    """Take down that a token was made, without the token. One request."""
    body = {"key": signed_with, "createdMs": clock.now_ms(), "claims": claims.plain()}
    store.put_if_absent(_issued(claims.id), orjson.dumps(body))


@dataclass(frozen=True, slots=True)
class Issued:
    """A token that was made: the id of the key that signed it, and when, in ms since the Unix epoch."""

    claims: TokenClaims
    key: str
    created_ms: int
    revoked: bool


def issued(store: Store, clock: Clock) -> list[Issued]:
    """Return the tokens that were made with this lake, the newest last. Two LISTs, and one GET for each token."""
    revoked = revoked_ids(store, clock, all_of_them=True)
    keys = [info.key for info in store.list(ISSUED)]
    tokens = [
        _read_issued(key, data, revoked) for key, data in zip(keys, store.get_many(map(ByteRange, keys)), strict=True)
    ]
    return sorted(tokens, key=lambda each: (each.created_ms, each.claims.id))


def find_issued(store: Store, clock: Clock, token_id: str) -> Issued:
    """Return a token that was made, by its id. Raises `Invalid` if there is none."""
    data = None
    if token_id and set(token_id) <= ID_CHARS:
        with suppress(ObjectNotFound):
            data = store.get(_issued(token_id))
    if data is None:
        raise Invalid(f"the lake knows no token {token_id!r:.60}: `alluvia token list` shows their ids")
    return _read_issued(_issued(token_id), data, revoked_ids(store, clock, all_of_them=True))


def revoke(store: Store, clock: Clock, claims: TokenClaims) -> None:
    """End a token before its time. One request."""
    store.put_if_absent(_revoked(claims.id, claims.expires_s), orjson.dumps({"revokedMs": clock.now_ms()}))


def revoked_ids(store: Store, clock: Clock, *, all_of_them: bool = False) -> frozenset[str]:
    """Return the ids of the tokens that were revoked and have not expired, or `all_of_them`. One LIST."""
    since = None if all_of_them else f"{REVOKED}{clock.now_ms() // 1000 - SKEW_SECONDS - 1:012}"
    names = (info.key.removeprefix(REVOKED) for info in store.list(REVOKED, since))
    return frozenset(name.partition("-")[2] for name in names)


def is_revoked(store: Store, token_id: str, expires_s: int) -> bool:
    """Whether a token was revoked, also one that has expired. One request."""
    return store.head(_revoked(token_id, expires_s)) is not None


def _read_issued(key: str, data: bytes, revoked: frozenset[str]) -> Issued:
    try:
        body: dict[str, Any] = orjson.loads(data)
        claims = read_claims(body["claims"])
        return Issued(claims, str(body["key"]), int(body["createdMs"]), claims.id in revoked)
    except (ValueError, KeyError, TypeError, Invalid) as error:
        raise Corrupt(f"{key} does not describe a token of this library: {error}") from error


def _key_of(identity: str) -> str:
    return f"{KEYS}{identity}.json"


def _issued(token_id: str) -> str:
    return f"{ISSUED}{token_id}.json"


def _revoked(token_id: str, expires_s: int) -> str:
    return f"{REVOKED}{expires_s:012}-{token_id}"


STALE_MS_MAX = 30_000
"""A revocation, or the removal of a key, holds everywhere after so long."""
UNKNOWN_KEY_MS_MIN = 5_000
"""An unknown key is looked for no more often than this, however many ids of keys callers invent."""


class TokenVerifier:
    """Verifies the tokens of one lake. Two LISTs every 30 seconds, and a GET for each key. Thread-safe."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._lock = Lock()
        self._read_ms: int | None = None
        self._keys: dict[str, bytes] = {}
        self._revoked: frozenset[str] = frozenset()

    def verify(self, token: str) -> TokenClaims:
        """Return what a token says. Raises `Invalid` for one that is not valid now, and `Unavailable`."""
        claims = read_claims(verified(token, self._key))
        check_time(claims, self._clock.now_ms() / 1000)
        self._refresh(STALE_MS_MAX)
        if claims.id in self._revoked:
            raise Invalid("the token has been revoked")
        return claims

    def _key(self, identity: str) -> bytes | None:
        self._refresh(STALE_MS_MAX)
        if identity not in self._keys:
            self._refresh(UNKNOWN_KEY_MS_MIN)
        return self._keys.get(identity)

    def _refresh(self, age_ms_max: int) -> None:
        """Read what the lake keeps, unless that was done just now. A failure is the caller's: nothing stale is used."""
        with self._lock:
            now_ms = self._clock.now_ms()
            if self._read_ms is not None and 0 <= now_ms - self._read_ms < age_ms_max:
                return
            listed = key_ids(self._store)
            keys = {each: self._keys[each] for each in listed if each in self._keys}
            new = [read_key(self._store, each) for each in listed if each not in keys]
            self._revoked = revoked_ids(self._store, self._clock)
            self._keys = keys | {key.id: key.data for key in new if key is not None}
            self._read_ms = now_ms
