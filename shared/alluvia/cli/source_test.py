"""Trying a source: a request as its sender signs it, and a forged one."""

from __future__ import annotations

import base64
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from alluvia.cli.bundled import LocalContext, load_handler
from alluvia.errors import Invalid, Unavailable
from alluvia.formats.registry import contradicts
from alluvia.lake import Lake
from alluvia.serverless.secrets import read_secret
from alluvia.serverless.warm_lake import using
from alluvia.sources.definition import Source
from alluvia.sources.delivery import Delivery
from alluvia.sources.kinds.registry import KINDS

_LOCAL = "http://localhost"
_TIMEOUT_SECONDS = 60
_ANSWER_BYTES_MAX = 100_000


def try_source(
    lake: Lake, source: Source, base: str | None, body: bytes | None, content_type: str | None
) -> dict[str, Any]:
    """Post a signed event and a forged one. Returns their statuses (`signed`, `forged`: None where nothing is signed)

    and the answer to the first. Raises Invalid for an address that is none, or a secret that is missing; Unavailable.
    """
    server = (base or _LOCAL).rstrip("/")
    if urlsplit(server).scheme not in ("http", "https"):
        raise Invalid(f"--url {base!r:.100}: write it as http://localhost:8080")
    kind, now_us = KINDS[source.kind], lake.clock.now_us()
    sample = kind.sample(lake.clock.new_id(), now_us)
    headers = {**sample.headers, **({"content-type": content_type} if content_type else {})}
    if body is not None and not content_type and contradicts(source.format, headers.get("content-type", ""), {}):
        del headers["content-type"]  # which is the sample's
    path = f"/v1/webhooks/{source.name}"
    told = source.url or f"https://{urlsplit(server).netloc}{urlsplit(server).path}{path}"
    delivery = Delivery(headers, sample.body if body is None else body, told)

    def post(secret: str) -> tuple[int, str]:
        signed = {**headers, **kind.sign(source, delivery, secret, now_us)}
        if base is None:
            return _in_process(lake, path, delivery.body, signed)
        return _over_http(f"{server}{path}", delivery.body, signed)

    forged = None
    if kind.needs_secret:
        another = base64.b64encode(lake.clock.new_id().encode()).decode()  # good enough for every kind
        forged = post(another)[0]
    status, text = post(read_secret(source.secret) if kind.needs_secret else "")
    return {"source": source.name, "signed": status, "forged": forged, "answer": text}


def _in_process(lake: Lake, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
    event = {
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"host": urlsplit(_LOCAL).netloc, **headers},
        "requestContext": {"http": {"method": "POST", "path": path}, "stage": "$default"},
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
    }
    with using(lake):
        answer = load_handler("ingest")(event, LocalContext("ingest", lake.clock))
    return int(answer["statusCode"]), str(answer["body"])


def _over_http(url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
    request = urllib.request.Request(url, body, dict(headers), method="POST")  # noqa: S310 - the scheme is checked
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
            return answer.status, answer.read(_ANSWER_BYTES_MAX).decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read(_ANSWER_BYTES_MAX).decode(errors="replace")
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise Unavailable(f"{url} does not answer: {reason}") from None
