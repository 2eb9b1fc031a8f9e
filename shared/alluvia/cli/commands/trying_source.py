"""Trying a source: a request as its sender signs it, in its source's format, and a forged one."""

from __future__ import annotations

import base64
import csv
import io
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import orjson

from alluvia.api.lake import Lake
from alluvia.cli.commands.source_servers import needs_of
from alluvia.errors import Invalid, Unavailable
from alluvia.events.formats.body_format import SentBody, contradicts
from alluvia.events.sources.definition import Source
from alluvia.events.sources.kinds.base import Delivery, Sample
from alluvia.events.sources.kinds.registry import KINDS
from alluvia.server.gateway import LocalContext, load_handler
from alluvia.serverless.http import EVENTS_HEADER, OPERATOR_HEADER
from alluvia.serverless.secrets import read_secret
from alluvia.serverless.warm_lake import using

_NAME, _NOTE = "alluvia.test", "a test of this source"


def sample_in(name: str, event_id: str, now_us: int, delimiter: str = "") -> SentBody:
    """Return a request of one event in the format of that name. `delimiter` is that of CSV; "" for a comma."""
    event = {"event_id": event_id, "event": _NAME, "note": _NOTE}
    said: dict[str, object]
    headers: dict[str, str] = {}
    kind = "application/json"
    if name == "csv":
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=delimiter or ",", lineterminator="\n").writerows([event.keys(), event.values()])
        body, kind = text.getvalue().encode(), "text/csv"
    elif name == "form":
        body, kind = urlencode(event).encode(), "application/x-www-form-urlencoded"
    elif name == "cloudevents":
        said = {"specversion": "1.0", "id": event_id, "source": "/alluvia", "type": _NAME, "data": {"note": _NOTE}}
        body, kind = orjson.dumps(said), "application/cloudevents+json"
    elif name == "firehose":
        record = base64.b64encode(orjson.dumps(event)).decode()
        said = {"requestId": event_id, "timestamp": now_us // 1000, "records": [{"data": record}]}
        body, headers = orjson.dumps(said), {"x-amz-firehose-request-id": event_id}
    elif name == "otlp":
        line = {"timeUnixNano": str(now_us * 1000), "eventName": _NAME, "body": {"stringValue": f"{_NOTE}: {event_id}"}}
        body = orjson.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [line]}]}]})
    elif name == "segment":
        body = orjson.dumps({"type": "track", "event": _NAME, "messageId": event_id, "userId": "test"})
    else:
        body = orjson.dumps(event)
    return SentBody({"content-type": kind, **headers}, body, now_us)


_LOCAL = "http://localhost"
_TIMEOUT_SECONDS = 60
_ANSWER_BYTES_MAX = 100_000


class Answered(NamedTuple):
    """An answer; events: what became of the events, as the header of it says, by outcome."""

    status: int
    text: str
    events: Mapping[str, int]

    def reason(self) -> str:
        """Return what an answer says about its first reject, or about itself, if it is of those that do."""
        try:
            told = orjson.loads(self.text)
        except orjson.JSONDecodeError:
            return ""
        errors = told.get("errors") if isinstance(told, dict) else None
        reason = errors[0].get("reason") if errors else _said(told)
        return f" ({reason})" if reason else ""


def _said(told: object) -> object:
    """Return what an answer says in the forms that have a message of their own."""
    return told.get("error") or (told.get("message") if "success" in told else None) if isinstance(told, dict) else None


def try_source(
    lake: Lake, source: Source, base: str | None, body: bytes | None, content_type: str | None, *, key: str = ""
) -> tuple[dict[str, Any], str]:
    """Post a signed event and a forged one, and say what is wrong; "" if nothing is.

    The post goes to the server at the address `base`, which tells its operator's `key` why it refuses one; without an
    address, to the function in this process. The facts are their statuses (`signed`, `forged`: None if nothing is
    signed) and the answer to the first. Raises Invalid for an invalid address or a missing secret; Unavailable.
    """
    server = (base or _LOCAL).rstrip("/")
    if urlsplit(server).scheme not in ("http", "https"):
        raise Invalid(f"--url {base!r:.100}: write it as http://localhost:8080")
    kind, now_us = KINDS[source.kind], lake.clock.now_us()
    sample = _sample(source, lake.clock.new_id(), now_us)
    headers = {**sample.headers, **({"content-type": content_type} if content_type else {})}
    if body is not None and not content_type and contradicts(source.format, headers.get("content-type", ""), {}):
        del headers["content-type"]  # which is the sample's
    path = f"/v1/webhooks/{source.name}"
    told = source.url or f"https://{urlsplit(server).netloc}{urlsplit(server).path}{path}"
    delivery = Delivery(headers, sample.body if body is None else body, told)

    def post(secret: str) -> Answered:
        signed = {**headers, **kind.sign(source, delivery, secret, now_us)}
        if key:
            signed[OPERATOR_HEADER] = key
        if base is None:
            return _in_process(lake, path, delivery.body, signed)
        return _over_http(f"{server}{path}", delivery.body, signed)

    secret = read_secret(source.secret) if kind.needs_secret else ""
    forged = None
    if kind.needs_secret:
        another = base64.b64encode(lake.clock.new_id().encode()).decode()  # good enough for every kind
        forged = post(another).status
    signed = post(secret)
    facts = {
        "source": source.name,
        "server": base or "this process",
        "signed": signed.status,
        "forged": forged,
        "answer": signed.text,
    }
    return facts, _fault(source, signed, forged, is_elsewhere=base is not None and not key)


def _fault(source: Source, signed: Answered, forged: int | None, *, is_elsewhere: bool) -> str:
    if signed.status >= 300:
        told = f"the signed request got the status {signed.status}{signed.reason()}"
        if signed.status != 401 or not is_elsewhere:
            return told
        needs = " and ".join(needs_of(source))
        return f"{told}: the server's log says why{f'. The server needs {needs}' if needs else ''}"
    if forged not in (None, 401):
        return f"a forged request got the status {forged}, not 401"
    accepted, rejected = (signed.events.get(name) for name in ("accepted", "rejected"))
    if rejected:
        return f"events were rejected: {rejected}{signed.reason()}; see `alluvia rejects show {source.table}`"
    return "the request brought no event" if accepted == 0 else ""


def _sample(source: Source, event_id: str, now_us: int) -> Sample:
    """Return the sample of the source's kind; its event in the format that the source names, if it names one."""
    sample = KINDS[source.kind].sample(event_id, now_us)
    if source.format in ("", "json"):
        return sample
    written = sample_in(source.format, event_id, now_us, source.delimiter)
    return Sample(written.body, {**sample.headers, **written.headers})


def _in_process(lake: Lake, path: str, body: bytes, headers: Mapping[str, str]) -> Answered:
    event = {
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"host": urlsplit(_LOCAL).netloc, **headers},
        "requestContext": {"http": {"method": "POST", "path": path}, "stage": "$default"},
        "body": base64.b64encode(body).decode(),
        "isBase64Encoded": True,
    }
    with using(lake), redirect_stdout(sys.stderr):  # for what the function logs
        answer = load_handler("ingest")(event, LocalContext("ingest", lake.clock))
    text = base64.b64decode(answer["body"]).decode(errors="replace") if answer["isBase64Encoded"] else answer["body"]
    return Answered(int(answer["statusCode"]), text, _events(answer["headers"].get(EVENTS_HEADER)))


def _events(header: str | None) -> dict[str, int]:
    pairs = (part.partition("=") for part in (header or "").split(", "))
    return {name: int(count) for name, _, count in pairs if count.isascii() and count.isdigit()}


def _over_http(url: str, body: bytes, headers: Mapping[str, str]) -> Answered:
    request = urllib.request.Request(url, body, dict(headers), method="POST")  # noqa: S310 - the scheme is checked
    return ask_server(request)


def ask_server(request: urllib.request.Request) -> Answered:
    """Send a request, and return its answer, whatever its status is. Raises Unavailable without one.

    A request with the key of a server on this machine goes there itself, and to no proxy.
    """
    is_here = request.has_header(OPERATOR_HEADER.capitalize())  # as urllib spells the names of headers
    proxies = [urllib.request.ProxyHandler({})] if is_here else []
    try:
        with urllib.request.build_opener(*proxies).open(request, timeout=_TIMEOUT_SECONDS) as answer:
            text = answer.read(_ANSWER_BYTES_MAX).decode(errors="replace")
            return Answered(answer.status, text, _events(answer.headers.get(EVENTS_HEADER)))
    except urllib.error.HTTPError as error:
        return Answered(error.code, error.read(_ANSWER_BYTES_MAX).decode(errors="replace"), {})
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise Unavailable(f"{request.full_url} does not answer: {reason}") from None
