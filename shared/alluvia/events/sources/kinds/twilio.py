"""Twilio's webhooks. Pure.

Source: "Webhooks security" of Twilio's documentation, and its library's RequestValidator. What is signed is the address
that Twilio was told, which proxies hide, and the parameters of a form, in the order of their names; of other bodies, a
hash in the address. Twilio signs no time, nor the idempotency token in a header: the parameters are the identity, which
attempts repeat.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from alluvia.events.ingest.values import Given
from alluvia.events.sources.kinds.base import Kind, Sample, Thanks, moment_of, text_of
from alluvia.events.sources.kinds.forms import json_or_form
from alluvia.events.sources.signatures import MISSING, WRONG, any_same, mac, same, to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.events.sources.definition import Source
    from alluvia.events.sources.delivery import Delivery

_SIGNATURE, _ALGORITHM = "x-twilio-signature", "x-twilio-webhooks-signature-settings"
_ALGORITHMS = {"HMAC_SHA1": "sha1", "HMAC_SHA256": "sha256"}
_NAMES = ("EventType", "StatusCallbackEvent", "MessageStatus", "SmsStatus", "CallStatus")
_PARAMETERS_MAX = 10_000
_PORTS = {"https": 443, "http": 80}


class Twilio(Kind):
    """`X-Twilio-Signature` over the address and the parameters. The answer is TwiML that says nothing."""

    settings = frozenset({"url"})
    thanks = Thanks("text/xml", "<Response/>")

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        signature = delivery.headers.get(_SIGNATURE)
        algorithm = _algorithm(delivery)
        parameters = _parameters(delivery)
        if not signature or algorithm is None or parameters is None:
            return MISSING
        expected = [_signature(secret, address, parameters, algorithm) for address in _addresses(delivery.url)]
        return None if any_same(expected, [signature]) else WRONG

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        return {_SIGNATURE: _signature(secret, delivery.url, _parameters(delivery) or b"", "sha1")}

    def sample(self, event_id: str, now_us: int) -> Sample:
        form = {"MessageSid": f"SM{event_id}", "MessageStatus": "delivered", "Note": "a test of this source"}
        headers = {"content-type": "application/x-www-form-urlencoded", "i-twilio-idempotency-token": event_id}
        return Sample(urlencode(form).encode(), headers)

    def given(self, delivery: Delivery, value: Mapping[str, object]) -> Given:
        name = next((name for name in _NAMES if text_of(value.get(name))), None)
        return Given(None, moment_of(value.get("Timestamp")), None if name is None else str(value[name]))

    def body_format(self, body: bytes) -> str:
        return json_or_form(body)

    def key(self, delivery: Delivery) -> str | None:
        """Return a hash of the parameters in the order in which they are signed, whichever they came in."""
        pairs = _pairs(delivery.body) if json_or_form(delivery.body) == "form" else None
        signed = delivery.body if pairs is None else _signed(pairs)
        return hashlib.sha256(signed).hexdigest()


def _algorithm(delivery: Delivery) -> str | None:
    """Return the hash function that the request names, by default SHA-1; None for one that Twilio has not."""
    for part in delivery.headers.get(_ALGORITHM, "").split(","):
        name, _, value = part.partition("=")
        if name.strip() == "algorithm":
            return _ALGORITHMS.get(value.strip().upper())
    return "sha1"


def _parameters(delivery: Delivery) -> bytes | None:
    """Return the names and values that are signed; None for a body that is not a form, or not what its hash says."""
    try:
        query = parse_qs(urlsplit(delivery.url).query, max_num_fields=_PARAMETERS_MAX)
        if "bodySHA256" in query:
            return b"" if same(hashlib.sha256(delivery.body).hexdigest(), query["bodySHA256"][0]) else None
    except ValueError:  # of addresses, and too many fields
        return None
    pairs = _pairs(delivery.body)
    return None if pairs is None else _signed(pairs)


def _pairs(body: bytes) -> list[tuple[str, str]] | None:
    """Return the names and values of a form; None if the text is not a form."""
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS_MAX)
    except ValueError:  # of UTF-8, and too many fields
        return None


def _signed(pairs: list[tuple[str, str]]) -> bytes:
    return b"".join(to_bytes(name + value) for name, value in sorted(set(pairs)))


def _addresses(url: str) -> list[str]:
    """Return the address without and with its port: Twilio signs either."""
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.netloc.rpartition(":")[0]
    except ValueError:
        return [url]
    if port is not None:
        return [url, parts._replace(netloc=host).geturl()]
    return [url, parts._replace(netloc=f"{parts.netloc}:{_PORTS.get(parts.scheme, 443)}").geturl()]


def _signature(secret: str, url: str, parameters: bytes, algorithm: str) -> str:
    return base64.b64encode(mac(to_bytes(secret), to_bytes(url), parameters, algorithm=algorithm)).decode()
