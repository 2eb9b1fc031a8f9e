"""/v1/webhooks/{source}: requests that a source's sender signs, handshakes, and preflight requests of browsers.

Whatever is wrong with a signature, and also if there is no such source, the answer is the same: it does not reveal
which sources there are. The log says what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import parse_qsl
from weakref import WeakKeyDictionary

import orjson

from alluvia import Lake
from alluvia.errors import Invalid, Unavailable
from alluvia.events.formats.body_format import SentBody, by_name, reading_of
from alluvia.events.formats.segment_format import KEYED_BODY_BYTES_MAX, write_key
from alluvia.events.ingest.envelope import inflated
from alluvia.events.ingest.values import Origin, Split
from alluvia.events.sources.definition import Source
from alluvia.events.sources.kinds.base import Delivery, same
from alluvia.events.sources.kinds.generic import basic
from alluvia.events.sources.kinds.registry import KINDS
from alluvia.events.sources.lake_sources import LOOK_MS, STALE_MS, LakeSources, SourceCache
from alluvia.events.sources.receiving import (
    challenge_of,
    events_of,
    format_of,
    key_of_signed,
    options_of,
    reading_of_source,
    trusted_headers,
)
from alluvia.serverless.http import Request, Response, answer, failure
from alluvia.serverless.log_lines import Logger
from alluvia.serverless.secrets import LOOK_MS as SECRET_LOOK_MS
from alluvia.serverless.secrets import STALE_MS as SECRET_STALE_MS
from alluvia.serverless.secrets import Secrets

from .events import answered, key_of, read_body, settle_body
from .settings import SERVICE, IngestSettings

CHALLENGE_CHARS_MAX = 1024
_SEGMENT = "segment"
_AGES_MS = ((STALE_MS, SECRET_STALE_MS), (LOOK_MS, SECRET_LOOK_MS))
"""How old a source and a secret may be, at first, and where that proves nothing: either may just have been replaced."""
_NOW = ((0, 0),)
_SENDER = "webhook-request-origin"
_SITE = "the page's origin is not one of the source's"

logger = Logger(service=SERVICE, child=True)


class Known(NamedTuple):
    """What a warm process knows of the sources of a lake, and of their secrets."""

    sources: SourceCache
    secrets: Secrets


class _Unproved(Exception):
    """A request that gets the same answer as any other that is not proved. Its text is for the log."""


class _NotSetUp(Exception):
    """A source that cannot be used as it is defined. Its text is for the log."""


_known: WeakKeyDictionary[Lake, Known] = WeakKeyDictionary()


def post_webhook(request: Request, settings: IngestSettings, lake: Lake, name: str) -> Response:
    """Take the events of a source, if its sender sent them."""

    def take() -> Response:
        body = request.body()
        source = _proved(request, name, body, lake)
        return _with_site(_taken(request, source, body, settings, lake), request)

    return _answered(request, name, take)


def take_calls(request: Request, settings: IngestSettings, lake: Lake) -> Response:
    """Take calls of Segment's API, for the source that has their write key."""

    def take() -> Response:
        body = request.body()
        source = _of_write_key(request, body, settings, lake)
        return _with_site(_taken(request, source, body, settings, lake), request)

    done = _answered(request, _SEGMENT, take, faults_show=True)
    told = "success" in orjson.loads(done["body"])
    return done if told else answered(by_name(_SEGMENT), SentBody(request.headers, b"", 0), done)


def allow_calls(request: Request, settings: IngestSettings, lake: Lake) -> Response:  # noqa: ARG001
    """Answer a preflight request, which has no write key, if a source of that kind takes calls from that site."""
    site = request.headers.get("origin", "")
    allowing = [each for each in _segments(_sources(lake, LOOK_MS)) if site and each.allows(site)]
    return _answered(request, _SEGMENT, lambda: _allowed(request, allowing[0].name if allowing else "", lake))


def shake_hands(request: Request, settings: IngestSettings, lake: Lake, name: str) -> Response:  # noqa: ARG001
    """Answer a GET request with which a sender checks an address, if the source has such a handshake.

    The operator of a server hears whether the source is ready. Both it and its secrets are looked at again for that.
    """
    answers = _ready if request.by_operator else _shaken
    return _answered(request, name, lambda: answers(request, name, lake))


def webhook_preflight(request: Request, settings: IngestSettings, lake: Lake, name: str) -> Response:  # noqa: ARG001
    """Answer what a browser asks before it sends (CORS), or a sender of CloudEvents as their web hooks have it."""
    asks = _agreed if _SENDER in request.headers else _allowed
    return _answered(request, name, lambda: asks(request, name, lake))


def _answered(request: Request, name: str, take: Callable[[], Response], *, faults_show: bool = False) -> Response:
    """Answer without a reason that a sender should not learn; the operator of a server learns it.

    Senders of webhooks try again after a 401. The SDKs of Segment drop their events, so theirs get a 500 while some
    source, no matter which, is at fault.
    """
    try:
        return take()
    except _Unproved as error:
        logger.info("refused", extra={"status": 401, "source": name[:64], "reason": str(error)})
        if request.by_operator:
            return failure(401, str(error))
    except _NotSetUp as error:  # a fault of ours, which alarms count, and nothing that strangers should learn
        answered_with = 500 if faults_show else 401
        said = {"status": 500, "answered": answered_with, "source": name[:64], "reason": str(error)}
        logger.error("a source is misconfigured", extra=said)  # noqa: TRY400
        if request.by_operator:
            return failure(answered_with, str(error))
        if faults_show:
            return failure(500, "this source is misconfigured; see the log of the function")
    text = "the signature is missing, wrong or too old, or there is no such source"
    return failure(401, text, **{"WWW-Authenticate": "Signature"})


def _proved(request: Request, name: str, body: bytes, lake: Lake) -> Source:
    """Return the source of a request that its sender has sent."""
    reason = ""
    for source_ms, secret_ms in _NOW if request.by_operator else _AGES_MS:
        source = _find(name, lake, source_ms)
        if source is None:
            reason = "there is no such source"
        else:
            _check_site(source, request)
            reason = _refusal(source, _delivery(request, source, body), lake, secret_ms) or ""
            if not reason:
                return source
    raise _Unproved(reason)


def _of_write_key(request: Request, body: bytes, settings: IngestSettings, lake: Lake) -> Source:
    """Return the source that a write key proves. One that cannot be used now stands in no other's way."""
    if not any(_may_take_calls(_sources(lake, source_ms)) for source_ms, _ in _AGES_MS):
        raise _Unproved("no source takes calls of Segment's API")
    key = _write_key(request, body, settings)
    if key is None:
        raise _Unproved(f"the request has no write key, or it is in a body of more than {KEYED_BODY_BYTES_MAX} bytes")
    proof = Delivery(basic(key), b"")
    fault: Exception | None = None
    for source_ms, secret_ms in _AGES_MS:
        known = _sources(lake, source_ms)
        for source in _segments(known):
            try:
                reason = _refusal(source, proof, lake, secret_ms)
            except (_NotSetUp, Unavailable) as error:
                fault = error
                continue
            if reason is None:
                _check_site(source, request)
                return source
        faults = [*filter(None, [known.fault]), *known.faults.values()]  # the key may be that of one of these
        fault = _NotSetUp(faults[0]) if faults else fault
    raise fault or _Unproved("no source has this write key")


def _write_key(request: Request, body: bytes, settings: IngestSettings) -> str | None:
    """Return the write key of a request, whose body is parsed only if no header has it, and only once."""
    key = write_key(request.headers, b"")
    if key is not None:
        return key
    limits = replace(settings.limits, inflated_bytes=min(settings.limits.inflated_bytes, KEYED_BODY_BYTES_MAX))
    text = inflated(body, request.headers.get("content-encoding"), limits)
    return None if isinstance(text, Split) else write_key(request.headers, text)


def _may_take_calls(known: LakeSources) -> bool:
    """Whether there is a source for calls, or may be one among those at fault."""
    return bool(known.fault or known.faults or _segments(known))


def _segments(known: LakeSources) -> list[Source]:
    return [each for each in known.by_name.values() if each.kind == _SEGMENT]


def _refusal(source: Source, delivery: Delivery, lake: Lake, secret_ms: int) -> str | None:
    """Return why no secret that is valid now proves a request; None if one does."""
    kind, now_us = KINDS[source.kind], lake.clock.now_us()
    if not kind.needs_secret:
        return kind.refusal(source, delivery, "", now_us)
    reason, fault = "", None
    for reference in source.secrets(now_us):
        try:
            refusal = kind.refusal(
                source, delivery, _known_of(lake).secrets.get(reference, age_ms_max=secret_ms), now_us
            )
        except (Invalid, Unavailable) as error:  # the other secret may do
            fault = error
            continue
        if refusal is None:
            return None
        reason = refusal
    if isinstance(fault, Unavailable):
        raise fault
    if fault is not None:
        raise _NotSetUp(str(fault))
    return reason


def _taken(request: Request, source: Source, body: bytes, settings: IngestSettings, lake: Lake) -> Response:
    name = format_of(source, request.headers, body)
    request = replace(request, headers=trusted_headers(source, request.headers, name, body))
    form = by_name(name)
    sent, split = read_body(request, form, settings, lake.clock.now_us(), options_of(source))
    challenge = challenge_of(source, split)
    if challenge is not None:
        return answer(200, {"challenge": challenge})
    delivery = _delivery(request, source, body)
    reading = reading_of_source(source, delivery, reading_of(name, sent, split))
    key = key_of_signed(source, delivery) or key_of(request, form, sent, split)
    origin = Origin(sent.arrival_us, key, reading)
    split = events_of(source, delivery, split, origin)
    done = settle_body(source.table, sent, split, origin, form, settings, lake)
    return _thanked(source, answered(form, sent, done) if form.reply is not None else _kept(done))


def _kept(done: Response) -> Response:
    """Return an answer of success where rejects are kept: there is nothing that the sender should send again."""
    kept = done["statusCode"] in (400, 413) and "error" not in orjson.loads(done["body"])
    return done | {"statusCode": 200} if kept else done


def _thanked(source: Source, done: Response) -> Response:
    """Return the answer that the sender expects where its events were taken."""
    thanks = KINDS[source.kind].thanks
    if thanks is None or done["statusCode"] >= 300:
        return done
    return done | {
        "statusCode": 200,
        "headers": done["headers"] | {"Content-Type": thanks.media_type},
        "body": thanks.body,
    }


def _ready(request: Request, name: str, lake: Lake) -> Response:  # noqa: ARG001
    source = _find(name, lake, 0)
    if source is None:
        raise _Unproved("there is no such source")
    try:
        for reference in filter(None, (source.secret, source.verify_token)):
            secret = _known_of(lake).secrets.get(reference, age_ms_max=0)
            fault = KINDS[source.kind].secret_fault(secret) if reference == source.secret else None
            if fault is not None:
                raise Invalid(f"{reference} cannot be the secret of a source of kind {source.kind}: {fault}")
    except (Invalid, Unavailable) as error:
        raise _NotSetUp(str(error)) from None
    return answer(200, {"source": name, "table": source.table, "ready": True})


def _shaken(request: Request, name: str, lake: Lake) -> Response:
    source = _find(name, lake, STALE_MS) or _find(name, lake, LOOK_MS)
    if source is None or not source.handshake:
        raise _Unproved("there is no such source, or it has no handshake")
    given = dict(parse_qsl(request.query_string, keep_blank_values=True))
    if source.handshake == "hub":
        try:
            token = _known_of(lake).secrets.get(source.verify_token)
        except Invalid as error:
            raise _NotSetUp(str(error)) from None
        if not same(given.get("hub.verify_token", ""), token):
            raise _Unproved("the handshake's verify token is wrong")
    challenge = given.get("hub.challenge" if source.handshake == "hub" else "challenge", "")
    if not 0 < len(challenge) <= CHALLENGE_CHARS_MAX:
        raise _Unproved("the handshake has no challenge")
    headers = {"Content-Type": "text/plain; charset=utf-8"}
    return {"statusCode": 200, "headers": headers, "body": challenge, "isBase64Encoded": False}


def _allowed(request: Request, name: str, lake: Lake) -> Response:
    source = _find(name, lake, STALE_MS) or _find(name, lake, LOOK_MS)
    if source is None or "origin" not in request.headers:
        raise _Unproved(_SITE)
    _check_site(source, request)
    asked = request.headers.get("access-control-request-headers", "")
    headers = {"Access-Control-Allow-Methods": "POST", "Access-Control-Max-Age": "600"}
    if asked.isascii() and asked.isprintable():
        headers["Access-Control-Allow-Headers"] = asked
    return _with_site({"statusCode": 204, "headers": headers, "body": "", "isBase64Encoded": False}, request)


def _agreed(request: Request, name: str, lake: Lake) -> Response:
    """Let a sender of CloudEvents deliver, at any rate, to a source of theirs: each delivery is verified by itself."""
    source, sender = _find(name, lake, STALE_MS) or _find(name, lake, LOOK_MS), request.headers[_SENDER]
    if source is None or source.format != "cloudevents" or not (sender.isascii() and sender.isprintable()):
        raise _Unproved("there is no such source, or it is not one of CloudEvents")
    headers = {"Allow": "POST", "WebHook-Allowed-Origin": sender, "WebHook-Allowed-Rate": "*"}
    return {"statusCode": 200, "headers": headers, "body": "", "isBase64Encoded": False}


def _check_site(source: Source, request: Request) -> None:
    """Refuse a page of a site that the source does not name: only browsers send an Origin."""
    site = request.headers.get("origin")
    if site is not None and not source.allows(site):
        raise _Unproved(_SITE)


def _with_site(done: Response, request: Request) -> Response:
    """Let the page read the answer."""
    site = request.headers.get("origin")
    if site is None:
        return done
    return done | {"headers": done["headers"] | {"Access-Control-Allow-Origin": site, "Vary": "Origin"}}


def _delivery(request: Request, source: Source, body: bytes) -> Delivery:
    query = request.query_string
    url = source.url or f"https://{request.headers.get('host', '')}{request.event.get('rawPath', '')}"
    return Delivery(request.headers, body, f"{url}?{query}" if query else url)


def _find(name: str, lake: Lake, age_ms_max: int) -> Source | None:
    try:
        return _sources(lake, age_ms_max).find(name)
    except Invalid as error:
        raise _NotSetUp(str(error)) from None


def _sources(lake: Lake, age_ms_max: int) -> LakeSources:
    return _known_of(lake).sources.get(age_ms_max=age_ms_max)


def _known_of(lake: Lake) -> Known:
    known = _known.get(lake)
    if known is None:
        known = _known[lake] = Known(SourceCache(lake.store, lake.clock), Secrets(lake.clock))
    return known
