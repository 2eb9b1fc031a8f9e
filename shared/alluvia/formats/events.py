"""Events of a request one by one: what each becomes, within the limits. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from alluvia.errors import Invalid
from alluvia.ingest.envelope import refused
from alluvia.ingest.jsontext import decode, encode
from alluvia.ingest.moments import SECONDS_MIN, TIME_FIELDS
from alluvia.ingest.texts import number_of
from alluvia.ingest.timestamps import instant
from alluvia.ingest.values import TOO_MANY_BYTES, Given, Limits, RawEvent, Reject, Split

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.formats.values import SentBody


class Events:
    """Collects the events of one request, in its order."""

    def __init__(self, sent: SentBody, limits: Limits) -> None:
        self._sent = sent
        self._limits = limits
        self._events: list[RawEvent] = []
        self._rejects: list[Reject] = []

    def __len__(self) -> int:
        return len(self._events) + len(self._rejects)

    def add(self, value: dict[str, object], given: Given | None = None) -> None:
        """Take an event, unless it is too large."""
        event, raw = RawEvent(len(self), value, None, None, None, given), encode(value)
        if len(raw) > self._limits.event_bytes:
            reason = TOO_MANY_BYTES.format(what="event", size=len(raw), limit=self._limits.event_bytes)
            self._rejects.append(Reject(len(self), reason, raw, event=event))
        else:
            self._events.append(event)

    def reject(self, reason: str, raw: bytes) -> None:
        """Refuse what is not an event, and keep its bytes."""
        self._rejects.append(Reject(len(self), reason, raw))

    def extend(self, found: Split) -> None:
        """Take what a part of the body was found to hold."""
        at = len(self)
        self._events += [event._replace(position=at + event.position) for event in found.events]
        self._rejects += [replace(reject, position=at + reject.position) for reject in found.rejects]

    def split(self) -> Split:
        """Return the events and the rejects; one reject for a body of too many."""
        if len(self) > self._limits.events:
            reason = f"the body holds more than the limit of {self._limits.events} events"
            return refused(self._sent.body, reason, too_large=True)
        return Split(self._events, self._rejects)


def text_given(value: Mapping[str, object]) -> Given:
    """Return what is known of an event whose fields are text: that, and a time that it writes as a number."""
    for name in TIME_FIELDS:
        sent = value.get(name)
        if not isinstance(sent, str):
            continue
        number = number_of(sent)
        moment = instant(sent if number is None else number)
        duration = name != "ts" and isinstance(number, (int, float)) and abs(number) < SECONDS_MIN
        if moment is not None and not duration:
            return Given(ts_us=None if number is None else moment[0], text=True)
    return Given(text=True)


def parsed(body: bytes) -> object:
    """Return the JSON value of a body; the Invalid that says why not is returned, not raised."""
    try:
        return decode(body)
    except Invalid as error:
        return error


def body_key(sent: SentBody) -> str | None:
    """Return a key of the body's content, for clients that repeat a request byte for byte."""
    return f"body-{hashlib.sha256(sent.body).hexdigest()[:32]}" if sent.body else None
