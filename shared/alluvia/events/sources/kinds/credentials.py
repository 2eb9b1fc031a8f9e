"""Senders that send a credential with each request, and those that send none. Pure."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from alluvia.events.sources.kinds.base import Kind, Sample
from alluvia.events.sources.kinds.hmac_header import plain_sample
from alluvia.events.sources.signatures import MISSING, WRONG, same, to_bytes

if TYPE_CHECKING:
    from alluvia.events.sources.definition import Source
    from alluvia.events.sources.delivery import Delivery

_AUTHORIZATION = "authorization"


class _Plain(Kind):
    proves_headers = True

    def sample(self, event_id: str, now_us: int) -> Sample:
        return plain_sample(event_id)


class Basic(_Plain):
    """`Authorization: Basic …` (RFC 7617). The secret is `user:password`."""

    def secret_fault(self, secret: str) -> str | None:
        return None if ":" in secret else "the secret must be user:password, with the colon"

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        return _refusal(delivery, "basic", base64.b64encode(to_bytes(secret)).decode())

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        return {_AUTHORIZATION: f"Basic {base64.b64encode(to_bytes(secret)).decode()}"}


class Bearer(_Plain):
    """`Authorization: Bearer …` (RFC 6750). The secret is the token."""

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        return _refusal(delivery, "bearer", secret)

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        return {_AUTHORIZATION: f"Bearer {secret}"}


class SharedToken(_Plain):
    """A token in a header that the definition names. The secret is the token."""

    settings = frozenset({"header"})

    def fault(self, source: Source) -> str | None:
        return None if source.header else "header: name the header that has the token"

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        token = delivery.headers.get(source.header.lower())
        return MISSING if not token else None if same(secret, token) else WRONG

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        return {source.header.lower(): secret}


class Open(_Plain):
    """No proof at all: whoever knows the address may send events."""

    needs_secret = False

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        return None

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        return {}


def _refusal(delivery: Delivery, scheme: str, wanted: str) -> str | None:
    given, _, credential = delivery.headers.get(_AUTHORIZATION, "").partition(" ")
    if given.lower() != scheme or not credential:
        return MISSING
    return None if same(wanted, credential) else WRONG
