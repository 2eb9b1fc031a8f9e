"""Verify tokens with what a lake keeps about them, of which a process keeps a copy for half a minute."""

from __future__ import annotations

from threading import Lock

from alluvia.access import registry
from alluvia.access.claims import TokenClaims, check_time, read_claims
from alluvia.access.signing import verified
from alluvia.clock import Clock
from alluvia.errors import Invalid
from alluvia.store import Store

STALE_MS_MAX = 30_000
"""A revocation, or the removal of a key, holds everywhere after so long."""
UNKNOWN_KEY_MS_MIN = 5_000
"""A key that is not known is looked for no more often than this, whoever invents ids of keys."""


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
            listed = registry.key_ids(self._store)
            keys = {each: self._keys[each] for each in listed if each in self._keys}
            new = [registry.read_key(self._store, each) for each in listed if each not in keys]
            self._revoked = registry.revoked_ids(self._store, self._clock)
            self._keys = keys | {key.id: key.data for key in new if key is not None}
            self._read_ms = now_ms
