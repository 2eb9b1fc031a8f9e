"""Requests to sources, as their senders sign them, in the forms that the function gets them in."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from alluvia.events.sources.definition import Source
from alluvia.events.sources.kinds.base import Delivery
from alluvia.events.sources.kinds.registry import KINDS
from functions.ingest.handler import handler
from tests.samples import payload

NOW_US = 1_700_000_000_000_000
URL = "https://events.example.com/v1/webhooks/s"
SECRETS = dict.fromkeys(KINDS, "s3cret-Ü") | {
    "standard-webhooks": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "basic": "user:pass:word",
    "open": "",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "hmac": {"header": "X-Signature", "timestamp_header": "X-Timestamp", "prefix": "v1="},
    "token": {"header": "X-Amz-Firehose-Access-Key"},
    "twilio": {"url": URL},
}


def source(kind: str, **settings: Any) -> Source:
    """Return a source of a kind, with the settings that the kind wants."""
    secret = {} if kind == "open" else {"secret": "env:SECRET"}
    return Source.read("s", {"kind": kind, "table": "t", **secret, **SETTINGS.get(kind, {}), **settings})


def signed(
    of: Source, body: bytes | None = None, now_us: int = NOW_US, secret: str | None = None, **headers: str
) -> Delivery:
    """Return a request as the sender of a source sends it; by default, its sample."""
    kind = KINDS[of.kind]
    sample = kind.sample("test-1", now_us)
    given = {**sample.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
    unsigned = Delivery(given, sample.body if body is None else body, of.url or URL)
    return Delivery(
        {**given, **kind.sign(of, unsigned, SECRETS[of.kind] if secret is None else secret, now_us)},
        unsigned.body,
        unsigned.url,
    )


def refusal(of: Source, delivery: Delivery, now_us: int = NOW_US, secret: str | None = None) -> str | None:
    """Return why a source refuses a request."""
    return KINDS[of.kind].refusal(of, delivery, SECRETS[of.kind] if secret is None else secret, now_us)


def identity(kind: str, body: bytes) -> str:
    """Return the identity of the one event of a sample of a kind."""
    if kind == "twilio":
        body = "".join(name + value for name, value in sorted(parse_qsl(body.decode()))).encode()
    if kind in ("github", "shopify", "twilio"):  # which sign no identity: what they sign is one
        return f"{hashlib.sha256(body).hexdigest()}/0"
    return "evt_test-1" if kind == "stripe" else "test-1"


class Answer(NamedTuple):
    """What a sender gets back."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def event_of(
    path: str, body: bytes = b"", headers: Mapping[str, str] | None = None, *, method: str = "POST", query: str = ""
) -> dict[str, Any]:
    """Return a request as API Gateway gives it to the function."""
    event = payload("ingest_api_gateway")
    event["rawPath"] = event["requestContext"]["http"]["path"] = path
    event["requestContext"]["http"]["method"] = method
    event["rawQueryString"] = query
    return event | {
        "headers": {"host": urlsplit(URL).netloc, **(headers or {})},
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
    }


def send(
    body: bytes = b"", headers: Mapping[str, str] | None = None, *, to: str = "s", method: str = "POST", query: str = ""
) -> Answer:
    """Send a request to a source, and return the answer."""
    answer = handler(event_of(f"/v1/webhooks/{to}", body, headers, method=method, query=query), None)
    return Answer(answer["statusCode"], answer["headers"], answer["body"])
