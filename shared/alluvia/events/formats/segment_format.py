"""Segment's tracking API, which RudderStack speaks too: calls, alone or in a batch. Pure.

Each call is an event. Its id is its `messageId`. Its time is corrected by the clock that sent it: arrival - (sentAt -
timestamp), or the timestamp itself if no `sentAt` says when the call was sent; both stay in the event. Its name is that
of a `track` call, else the call's type. See Segment's "HTTP Tracking API source" and "Common fields".
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from alluvia.delta.odd_times import UNREADABLE
from alluvia.errors import Invalid
from alluvia.events.formats.body_format import BodyFormat, ClientReply, RequestOutcome, SentBody, json_reply
from alluvia.events.formats.events import Events, parsed, parsed_list
from alluvia.events.ingest.envelope import refused
from alluvia.events.ingest.event_time import odd_time
from alluvia.events.ingest.values import Given
from alluvia.json_values.jsontext import describe, encode, split_object
from alluvia.json_values.time_texts import MAX_US, MIN_US, instant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.events.ingest.values import Limits, Split

CALLS = ("track", "identify", "page", "screen", "group", "alias")
SHORT_PATHS = {name[0]: name for name in (*CALLS, "batch")}
"""Paths to which analytics.js 2, which browsers load, sends calls; not `m`, for metrics about itself."""
PATHS = (*CALLS, "batch", "import", *SHORT_PATHS)
KEYED_BODY_BYTES_MAX = 1 << 20
"""The longest body, decompressed, that may have its write key in it. Segment itself takes 500 KB."""
_WRITE_KEY = b'"writeKey"'
_TIMES = ("originalTimestamp", "timestamp")
_MERGED = ("context", "integrations")
_OF_THE_BATCH = ("batch", "messageId", "originalTimestamp", "timestamp", "type", "writeKey")
"""What says something about a batch itself: RudderStack's has a time of its own, which differs with each attempt."""
_OF_AN_ATTEMPT = ("sentAt", "_metadata")
"""Fields that SDKs set anew each time they send a call: analytics.js counts its tries in `_metadata`."""


def write_key(headers: Mapping[str, str], body: bytes) -> str | None:
    """Return the write key of a request: the user of Basic authentication, or the body's `writeKey`.

    A body is parsed before anything is proved, so one of more than `KEYED_BODY_BYTES_MAX` has no key.
    """
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(credentials.strip(), validate=True).decode().partition(":")[0] or None
        except (binascii.Error, UnicodeDecodeError):
            return None
    value = parsed(body) if len(body) <= KEYED_BODY_BYTES_MAX and _WRITE_KEY in body else None
    if isinstance(value, Invalid):  # of what is a reject, for the source that has the key
        value = {name: parsed(raw) for name, raw in split_object(body) or [] if name == "writeKey"}
    key = value.get("writeKey") if isinstance(value, dict) else None
    return key if isinstance(key, str) and key else None


def read(sent: SentBody, limits: Limits) -> Split:
    """Take the calls of a request. A call that is not one becomes a reject; the others of its batch go on."""
    value = parsed_list(sent.body, "batch", limits)
    if isinstance(value, Invalid):
        return refused(sent.body, str(value))
    if not isinstance(value, dict):
        return refused(sent.body, f"expected a JSON object, got {describe(value)}")
    events = Events(sent, limits)
    if "batch" not in value:
        named = sent.path.rpartition("/")[2]
        named = SHORT_PATHS.get(named, named)
        _add(events, value, named if named in CALLS else None, value.get("sentAt"), sent.arrival_us)
        return events.split()
    if not isinstance(value["batch"], list):
        reason = f"batch: expected an array of calls, got {describe(value['batch'])}"
        return refused(encode(_keyless(value)), reason)
    shared = {name: item for name, item in value.items() if name not in _OF_THE_BATCH}
    for call in events.objects(value["batch"]):
        _add(events, _with(shared, call), None, value.get("sentAt") or call.get("sentAt"), sent.arrival_us)
    return events.split()


def reply(_sent: SentBody, outcome: RequestOutcome) -> ClientReply:
    """Answer as Segment does; `code` and `message` are what the SDKs log."""
    if outcome.status < 300:
        left_out = {"rejected": outcome.rejected, "message": outcome.reason} if outcome.rejected else {}
        return json_reply(200, {"success": True, **left_out})
    return json_reply(outcome.status, {"success": False, "code": str(outcome.status), "message": outcome.reason})


def _with(shared: Mapping[str, object], call: dict[str, object]) -> dict[str, object]:
    """Return a call with what its batch says about all its calls."""
    whole = {**shared, **call}
    for name in _MERGED:
        both = shared.get(name), call.get(name)
        if isinstance(both[0], dict) and isinstance(both[1], dict):
            whole[name] = {**both[0], **both[1]}
    return whole


def _keyless(value: Mapping[str, object]) -> dict[str, object]:
    """Return an object without its write key, which would let in any reader of it."""
    return {name: item for name, item in value.items() if name != "writeKey"}


def _add(events: Events, call: dict[str, object], named: str | None, sent_at: object, arrival_us: int) -> None:
    call = _keyless(call)
    kind = call.setdefault("type", named) if named is not None else call.get("type")
    if kind not in CALLS:
        events.reject(f"type: expected one of {', '.join(CALLS)}", encode(call))
        return
    if kind == "track" and not (isinstance(call.get("event"), str) and call["event"]):
        events.reject("event: a track call needs the event's name, a string", encode(call))
        return
    name = None if kind == "track" else str(kind)
    moment_us = _moment_us(call, sent_at, arrival_us)
    said = next((each for each in _TIMES if call.get(each) is not None), None)
    unread = () if moment_us is not None or said is None else odd_time(UNREADABLE, said, call[said])[1:]
    events.add(call, Given(ts_us=moment_us, event=name, unstable=_OF_AN_ATTEMPT, unread=unread))


def _moment_us(call: Mapping[str, object], sent_at: object, arrival_us: int) -> int | None:
    said = next((moment for name in _TIMES if (moment := instant(call.get(name))) is not None), None)
    if said is None:
        return None
    left = instant(sent_at)
    moment_us = said[0] if left is None else arrival_us - (left[0] - said[0])
    return moment_us if MIN_US <= moment_us <= MAX_US else said[0]


FORMAT = BodyFormat(read, reply=reply)
