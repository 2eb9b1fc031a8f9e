"""Tokens: what verifies, and that nothing else does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import string
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from alluvia.access import registry
from alluvia.access.claims import SKEW_SECONDS, TokenClaims, read_claims
from alluvia.access.issuing import issue
from alluvia.access.registry import STALE_MS_MAX, UNKNOWN_KEY_MS_MIN, TokenVerifier
from alluvia.access.rights import Grant, Rights
from alluvia.access.signing import TOKEN_CHARS_MAX, key_id, sign, verified
from alluvia.clock import ManualClock
from alluvia.errors import Corrupt, Invalid, Unavailable
from alluvia.store import Store
from alluvia.store.memory import MemoryStore
from alluvia.store.wrapper import Wrapper

RIGHTS = Rights(
    (
        Grant(frozenset({"append"}), ("clicks",)),
        Grant(frozenset({"read"}), ("daily_*", "clicks/_rejects"), "tenant = 'a'", frozenset({"email"})),
        Grant(frozenset({"query"}), (), "tenant = 'a'", frozenset(), ("top_*", "paths@3")),
    ),
    "a site",
    requests_per_minute=60,
    query_bytes=10**9,
)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
KEY_ID = key_id(PUBLIC)


@pytest.fixture
def store(clock: ManualClock) -> Store:
    store = MemoryStore("memory://tokens", clock)
    registry.add_key(store, clock, PUBLIC)
    return store


def issued(
    store: Store, clock: ManualClock, rights: Rights = RIGHTS, lifetime_s: int = 3600
) -> tuple[str, TokenClaims]:
    return issue(store, clock, KEY, rights, rights.subject, lifetime_s)


def known(identity: str) -> bytes | None:
    return PUBLIC if identity == KEY_ID else None


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def test_a_token_says_what_was_put_into_it(store: Store, clock: ManualClock) -> None:
    token, claims = issued(store, clock)
    found = TokenVerifier(store, clock).verify(token)
    assert found == TokenClaims(claims.id, "a site", claims.issued_s, claims.issued_s + 3600, found.rights)
    assert found.rights.grants == RIGHTS.grants
    assert (found.rights.subject, found.rights.key) == ("a site", claims.id)
    assert found.rights.expires_s == claims.expires_s
    assert (found.rights.requests_per_minute, found.rights.query_bytes) == (60, 10**9)
    assert len(token) < 850


def test_it_is_a_jwt_as_others_know_it(store: Store, clock: ManualClock) -> None:
    token, claims = issued(store, clock)
    theirs = jwt.decode(token, KEY.public_key(), algorithms=["EdDSA"], options={"verify_exp": False})
    assert theirs == claims.plain()
    ours = jwt.encode(claims.plain(), KEY, algorithm="EdDSA", headers={"kid": KEY_ID})
    assert TokenVerifier(store, clock).verify(ours) == read_claims(claims.plain())


def test_every_change_of_a_bit_is_refused(store: Store, clock: ManualClock) -> None:
    token, _ = issued(store, clock, Rights((Grant(frozenset({"read"}), ("t",)),)))
    data = token.encode()
    changed = 0
    for at in range(len(data)):
        for bit in range(8):
            other = bytearray(data)
            other[at] ^= 1 << bit
            with pytest.raises(Invalid):
                verified(other.decode("latin-1"), known)
            changed += 1
    assert changed == 8 * len(token)
    assert verified(token, known)["iss"] == "alluvia"


def test_no_other_text_stands_for_the_same_token(store: Store, clock: ManualClock) -> None:
    """The last character of a signature has four bits that mean nothing: only one of its forms is taken."""
    token, _ = issued(store, clock)
    alphabet = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    others = [token[:-1] + each for each in alphabet if each != token[-1]]
    others += [f"{token}=", f"{token}==", f" {token}", f"{token}\n", f"{token}.", token.replace(".", "..", 1)]
    for other in others:
        with pytest.raises(Invalid):
            verified(other, known)


PUBLIC_PEM = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize(
    ("header", "signature"),
    [
        ({"alg": "none", "kid": KEY_ID, "typ": "JWT"}, lambda _: b""),
        ({"alg": "None", "kid": KEY_ID, "typ": "JWT"}, lambda _: b""),
        ({"alg": "", "kid": KEY_ID, "typ": "JWT"}, lambda _: b""),
        ({"kid": KEY_ID, "typ": "JWT"}, KEY.sign),
        ({"alg": "HS256", "kid": KEY_ID, "typ": "JWT"}, lambda text: hmac.digest(PUBLIC, text, "sha256")),
        ({"alg": "HS256", "kid": KEY_ID, "typ": "JWT"}, lambda text: hmac.digest(PUBLIC_PEM, text, "sha256")),
        ({"alg": "RS256", "kid": KEY_ID, "typ": "JWT"}, KEY.sign),
        ({"alg": ["EdDSA"], "kid": KEY_ID, "typ": "JWT"}, KEY.sign),
        ({"alg": "EdDSA", "kid": KEY_ID, "typ": "JWT"}, lambda _: b""),
        ({"alg": "EdDSA", "kid": KEY_ID, "typ": "JWT"}, lambda text: KEY.sign(text)[:63]),
        ({"alg": "EdDSA", "kid": KEY_ID, "typ": "JWT"}, lambda text: KEY.sign(text) + b"\0"),
        ({"alg": "EdDSA", "kid": KEY_ID, "typ": "JWT"}, Ed25519PrivateKey.generate().sign),
        ({"alg": "EdDSA", "kid": "0" * 16, "typ": "JWT"}, KEY.sign),
        ({"alg": "EdDSA", "kid": "../../secret", "typ": "JWT"}, KEY.sign),
        ({"alg": "EdDSA", "kid": None, "typ": "JWT"}, KEY.sign),
        ({"alg": "EdDSA", "typ": "JWT"}, KEY.sign),
        ({"alg": "EdDSA", "kid": KEY_ID, "typ": "JWT", "jwk": {"kty": "OKP"}}, KEY.sign),
        ({"alg": "EdDSA", "kid": KEY_ID, "typ": "JWT", "crit": ["exp"]}, KEY.sign),
        (["EdDSA"], KEY.sign),
        (b"\xff", KEY.sign),
    ],
)
def test_only_one_algorithm_and_one_header_verify(header: Any, signature: Callable[[bytes], bytes]) -> None:
    claims = TokenClaims("an-id", "", 1_700_000_000, 1_700_003_600, RIGHTS).plain()
    assert verified(sign(claims, KEY), known) == claims
    signed = f"{part(header)}.{part(claims)}"
    with pytest.raises(Invalid, match="the token is not valid"):
        verified(f"{signed}.{part(signature(signed.encode()))}", known)


@pytest.mark.parametrize("token", ["", ".", "..", "a.b", "a.b.c", "a.b.c.d", "é.é.é", "." * 9000, "\0", "A" * 100_000])
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(Invalid):
        verified(token, known)


@pytest.mark.parametrize(
    "change",
    [
        {"iss": "other"}, {"iss": None}, {"jti": 7}, {"exp": "1700003600"}, {"exp": 1e300}, {"exp": None},
        {"exp": True}, {"exp": -1}, {"nbf": 0}, {"alluvia": None}, {"alluvia": []}, {"alluvia": {"grants": {}}},
        {"sub": "x" * 201},
        {"alluvia": {"grants": [], "shield": True}},
        {"alluvia": {"grants": [{"allow": ["read"], "tables": ["*"], "x": 1}]}},
        {"alluvia": {"grants": [{"allow": ["fly"], "tables": ["*"]}]}},
        {"alluvia": {"grants": [{"allow": ["read"], "tables": ["A"]}]}},
        {"alluvia": {"grants": [{"allow": ["read"], "tables": ["../x"]}]}},
        {"alluvia": {"grants": [{"allow": ["read"], "tables": "t"}]}},
        {"alluvia": {"grants": [{"allow": ["read"], "tables": ["t"], "where": 1}]}},
        {"alluvia": {"grants": [{"allow": ["append"], "tables": ["t"], "where": "true"}]}},
        {"alluvia": {"grants": [{"allow": ["read"], "tables": ["t"]}] * 101}},
        {"alluvia": {"grants": [], "query_bytes": "1"}},
    ],
)  # fmt: skip
def test_signed_claims_that_this_library_does_not_write_are_refused(
    store: Store, clock: ManualClock, change: dict[str, Any]
) -> None:
    claims = TokenClaims("an-id", "", clock.now_ms() // 1000, clock.now_ms() // 1000 + 60, RIGHTS).plain()
    assert TokenVerifier(store, clock).verify(sign(claims, KEY)).id == "an-id"
    with pytest.raises(Invalid):
        TokenVerifier(store, clock).verify(sign({**claims, **change}, KEY))


def test_a_token_lives_exactly_as_long_as_it_says_and_its_maker_may_be_a_minute_ahead(
    store: Store, clock: ManualClock
) -> None:
    token, _ = issued(store, clock, lifetime_s=600)
    behind = ManualClock(clock.now_us() - (SKEW_SECONDS - 1) * 1_000_000)
    far_behind = ManualClock(clock.now_us() - (SKEW_SECONDS + 1) * 1_000_000)
    assert TokenVerifier(store, behind).verify(token)
    with pytest.raises(Invalid, match="not valid yet"):
        TokenVerifier(store, far_behind).verify(token)
    clock.advance(600)
    assert TokenVerifier(store, clock).verify(token)
    clock.advance(1)
    with pytest.raises(Invalid, match="expired"):
        TokenVerifier(store, clock).verify(token)


@pytest.mark.parametrize("lifetime_s", [0, -1, 11 * 366 * 86400])
def test_lifetimes_have_a_limit(store: Store, clock: ManualClock, lifetime_s: int) -> None:
    with pytest.raises(Invalid, match="expires"):
        issued(store, clock, lifetime_s=lifetime_s)


def test_a_revoked_token_is_refused_within_half_a_minute(store: Store, clock: ManualClock) -> None:
    token, claims = issued(store, clock)
    other, _ = issued(store, clock)
    warm = TokenVerifier(store, clock)
    assert warm.verify(token)
    registry.revoke(store, clock, claims)
    with pytest.raises(Invalid, match="revoked"):
        TokenVerifier(store, clock).verify(token)
    clock.advance(STALE_MS_MAX / 1000)
    with pytest.raises(Invalid, match="revoked"):
        warm.verify(token)
    assert warm.verify(other)
    assert [each.revoked for each in registry.issued(store, clock) if each.claims.id == claims.id] == [True]


def test_tokens_are_listed_in_the_order_in_which_they_were_made(store: Store) -> None:
    class Downwards(ManualClock):
        """Ids that sort against the time, as random ids may."""

        def new_id(self) -> str:
            return f"id-{1_000_000_000_000_000_000 - self.now_us():019}"

    clock = Downwards()
    made = []
    for _ in range(3):
        made.append(issued(store, clock)[1].id)
        clock.advance(0.002)
    assert [each.claims.id for each in registry.issued(store, clock)] == made
    assert made == sorted(made, reverse=True)


def test_revocations_are_read_for_as_long_as_the_token_would_have_lived(store: Store, clock: ManualClock) -> None:
    token, claims = issued(store, clock, lifetime_s=100)
    registry.revoke(store, clock, claims)
    clock.advance(100)
    with pytest.raises(Invalid, match="revoked"):
        TokenVerifier(store, clock).verify(token)
    clock.advance(SKEW_SECONDS + 2)
    assert registry.revoked_ids(store, clock) == frozenset()
    with pytest.raises(Invalid, match="expired"):
        TokenVerifier(store, clock).verify(token)


def test_keys_rotate_and_a_retired_one_ends_its_tokens(store: Store, clock: ManualClock) -> None:
    warm = TokenVerifier(store, clock)
    old, _ = issued(store, clock)
    assert warm.verify(old)
    newer = Ed25519PrivateKey.generate()
    registry.add_key(store, clock, newer.public_key().public_bytes_raw())
    new, _ = issue(store, clock, newer, RIGHTS, "", 3600)
    with pytest.raises(Invalid):  # a moment ago there was no such key
        warm.verify(new)
    clock.advance(UNKNOWN_KEY_MS_MIN / 1000)
    assert warm.verify(new)
    assert warm.verify(old)
    registry.remove_key(store, KEY_ID)
    clock.advance(STALE_MS_MAX / 1000)
    with pytest.raises(Invalid):
        warm.verify(old)
    assert warm.verify(new)


class Watched(Wrapper):
    """Counts requests, and fails them on demand."""

    requests = 0
    down = False

    def list(self, prefix: str, start_after: str | None = None) -> Any:
        self.requests += 1
        if self.down:
            raise Unavailable("the store is down")
        return super().list(prefix, start_after)

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        self.requests += 1
        return super().get(key, start, end)


def test_verifying_costs_three_requests_and_then_two_every_half_minute(store: Store, clock: ManualClock) -> None:
    token, _ = issued(store, clock)
    watched = Watched(store)
    verifier = TokenVerifier(watched, clock)
    for _ in range(10):
        verifier.verify(token)
    assert watched.requests == 3
    clock.advance(STALE_MS_MAX / 1000)
    for _ in range(10):
        verifier.verify(token)
    assert watched.requests == 5


def test_invented_keys_cause_no_flood_of_requests(store: Store, clock: ManualClock) -> None:
    watched = Watched(store)
    verifier = TokenVerifier(watched, clock)
    claims = part(TokenClaims("an-id", "", 0, 0, RIGHTS).plain())
    for number in range(100):
        header = part({"alg": "EdDSA", "kid": f"{number:016x}", "typ": "JWT"})
        with pytest.raises(Invalid):
            verifier.verify(f"{header}.{claims}.{part(bytes(64))}")
    assert watched.requests == 3


def test_without_the_list_of_revocations_nobody_gets_in(store: Store, clock: ManualClock) -> None:
    token, _ = issued(store, clock)
    watched = Watched(store)
    verifier = TokenVerifier(watched, clock)
    assert verifier.verify(token)
    watched.down = True
    assert verifier.verify(token)  # what was read is half a minute old at most
    clock.advance(STALE_MS_MAX / 1000)
    with pytest.raises(Unavailable):
        verifier.verify(token)


def test_a_key_under_a_wrong_name_is_not_used(store: Store, clock: ManualClock) -> None:
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    jwk = store.get(f"{registry.KEYS}{KEY_ID}.json")
    store.put(f"{registry.KEYS}{key_id(other)}.json", jwk)
    with pytest.raises(Corrupt, match="holds another key"):
        registry.read_key(store, key_id(other))


def test_a_token_that_no_header_could_hold_is_not_made(store: Store, clock: ManualClock) -> None:
    many = Rights(tuple(Grant(frozenset({"read"}), (f"table_with_a_long_name_{n}",)) for n in range(100)))
    with pytest.raises(Invalid, match=str(TOKEN_CHARS_MAX)):
        issued(store, clock, many)
    assert registry.issued(store, clock) == []


def test_the_id_of_a_key_is_its_hash() -> None:
    assert hashlib.sha256(PUBLIC).hexdigest().startswith(KEY_ID)
