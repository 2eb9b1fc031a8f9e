"""Tokens as text: JWTs (RFC 7519) signed with Ed25519 (RFC 8037), and nothing else that a JWT could be. Pure.

The header's algorithm is compared with the one that there is; it never chooses how a token is verified. Only
`cryptography`'s module for Ed25519 is loaded: a general library for JWTs takes ten times as long to import (decision
0027).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from alluvia.errors import Invalid
from alluvia.extras import needing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ALGORITHM = "EdDSA"
TOKEN_CHARS_MAX = 8000
"""API Gateway takes 10,240 bytes of headers in all."""
KEY_ID = re.compile(r"[0-9a-f]{16}")
_WRONG = "the token is not valid"


def key_id(public: bytes) -> str:
    """Return the id of a public key (32 bytes): the beginning of its SHA-256."""
    return hashlib.sha256(public).hexdigest()[:16]


def sign(claims: dict[str, Any], key: Ed25519PrivateKey) -> str:
    """Return a token. Raises `Invalid` for claims that do not fit the headers of a request."""
    header = {"alg": ALGORITHM, "kid": key_id(key.public_key().public_bytes_raw()), "typ": "JWT"}
    signed = b".".join(map(encoded, (orjson.dumps(header), orjson.dumps(claims))))
    token = b".".join((signed, encoded(key.sign(signed)))).decode()
    if len(token) > TOKEN_CHARS_MAX:
        raise Invalid(f"the token would have more than {TOKEN_CHARS_MAX} characters: grant less, or by patterns")
    return token


def verified(token: str, public_key: Callable[[str], bytes | None]) -> Any:
    """Return the claims of a token that was signed by a known key; `public_key` gives the 32 bytes of one by its id.

    Raises `Invalid`, which says no more than that the token is not valid.
    """
    with needing("aws", "verifying tokens"):
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signed, _, signature = token.rpartition(".")
    header, dot, claims = signed.partition(".")
    if len(token) > TOKEN_CHARS_MAX or not dot or not token.isascii():
        raise Invalid(_WRONG)
    said = _json(header)
    if not isinstance(said, dict) or said.keys() != {"alg", "kid", "typ"} or said["alg"] != ALGORITHM:
        raise Invalid(_WRONG)
    known = public_key(said["kid"]) if isinstance(said["kid"], str) and KEY_ID.fullmatch(said["kid"]) else None
    if known is None:
        raise Invalid(_WRONG)
    try:
        Ed25519PublicKey.from_public_bytes(known).verify(_bytes(signature), signed.encode())
    except InvalidSignature:
        raise Invalid(_WRONG) from None
    return _json(claims)


def encoded(data: bytes) -> bytes:
    """Return bytes in base64url without padding (RFC 7515, section 2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def unverified_claims(token: str) -> Any:
    """Return the claims of a token without a check of its signature: only to show its owner what it says."""
    parts = token.split(".")
    if len(parts) != 3 or not token.isascii():
        raise Invalid("this is not a token: it must have three parts with dots between")
    return _json(parts[1])


def _json(text: str) -> Any:
    try:
        return orjson.loads(_bytes(text))
    except orjson.JSONDecodeError:
        raise Invalid(_WRONG) from None


def _bytes(text: str) -> bytes:
    """Decode base64url in its one canonical form, so that no other text stands for the same token."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise Invalid(_WRONG) from None
    if encoded(data).decode() != text:
        raise Invalid(_WRONG)
    return data
