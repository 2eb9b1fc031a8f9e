"""Bodies in whatever format: read, settled in a table, and answered as their clients expect."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import orjson

from alluvia import Lake
from alluvia.errors import AlluviaError, CommitUnknown, Conflict, Invalid, TableNotFound, Unavailable, Unsupported
from alluvia.events.formats.reading import reading_of
from alluvia.events.formats.registry import by_name
from alluvia.events.formats.values import BodyFormat, RequestOutcome, SentBody
from alluvia.events.ingest.envelope import BOM, inflated
from alluvia.events.ingest.values import Origin, Split
from alluvia.serverless.http import Request, Response, TooManyRequests, Unauthenticated, refusal
from alluvia.serverless.log_lines import Logger

from .settings import SERVICE, IngestSettings
from .settling import settle

KEY_LIMIT_CHARS = 255
REFUSED = (Invalid, Unsupported, TableNotFound, Unavailable, CommitUnknown, Conflict, Unauthenticated, TooManyRequests)
"""The errors that are answered with a status: see `refused`."""

logger = Logger(service=SERVICE, child=True)


def take_body(
    request: Request,
    table: str,
    name: str,
    settings: IngestSettings,
    lake: Lake,
    options: Mapping[str, str] | None = None,
) -> Response:
    """Take the events of a body in the format of that name, and answer what became of them."""
    form = by_name(name)
    sent, found = read_body(request, form, settings, lake.clock.now_us(), options)
    origin = Origin(sent.arrival_us, key_of(request, form, sent, found), reading_of(name, sent, found))
    return answered(form, sent, settle_body(table, sent, found, origin, form, settings, lake))


def key_of(request: Request, form: BodyFormat, sent: SentBody, found: Split) -> str | None:
    """Return the Idempotency-Key of a request, or what its format has in place of one."""
    return request.headers.get("idempotency-key") or form.key(sent, found)


def read_body(
    request: Request,
    form: BodyFormat,
    settings: IngestSettings,
    arrival_us: int,
    options: Mapping[str, str] | None = None,
) -> tuple[SentBody, Split]:
    """Return a request as its format reads it, and its events. Raises Invalid for base64 that is none."""
    body = request.body()
    text = inflated(body, request.headers.get("content-encoding"), settings.limits)
    plain = body if isinstance(text, Split) else text
    sent = SentBody(request.headers, plain, arrival_us, request.path, options or {})
    return sent, text if isinstance(text, Split) else form.read(sent, settings.limits)


def answered(form: BodyFormat, sent: SentBody, response: Response) -> Response:
    """Return an answer in the format's own words, if it has any."""
    if form.reply is None:
        return response
    reply = form.reply(sent, RequestOutcome(response["statusCode"], orjson.loads(response["body"])))
    plain = reply.media_type == "application/json"
    return response | {
        "statusCode": reply.status,
        "headers": response["headers"] | {"Content-Type": reply.media_type},
        "body": (reply.body if plain else base64.b64encode(reply.body)).decode(),
        "isBase64Encoded": not plain,
    }


def refused(error: AlluviaError) -> Response:
    """Return the answer of an error."""
    return refusal(error, logger, {Unsupported: 400})


def settle_body(
    table: str, sent: SentBody, found: Split, origin: Origin, form: BodyFormat, settings: IngestSettings, lake: Lake
) -> Response:
    """Commit or queue the events of a body, and answer what became of them, errors included."""
    try:
        if origin.idempotency_key is not None and len(origin.idempotency_key) > KEY_LIMIT_CHARS:
            raise Invalid(f"Idempotency-Key: longer than {KEY_LIMIT_CHARS} characters")
        if not form.takes_empty and not found.events and not found.rejects and not sent.body.removeprefix(BOM).strip():
            raise Invalid("the body is empty: send a JSON object, an array of them, or one per line")
        return settle(table, found, origin, settings, lake)
    except REFUSED as error:
        return refused(error)
