"""Events of a request one by one: what each becomes, within the limits. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from alluvia.arrow_compute import pc
from alluvia.errors import Invalid
from alluvia.events.ingest.columnar_batch import ColumnarBatch, EventParts
from alluvia.events.ingest.envelope import NDJSON_TYPES, refused
from alluvia.events.ingest.event_time import SECONDS_MIN, TIME_FIELDS, column_moments, own_moment
from alluvia.events.ingest.values import TOO_MANY_BYTES, TOO_MANY_EVENTS, Given, Limits, RawEvent, Reject, Split
from alluvia.json_values.convert import number_of
from alluvia.json_values.jsontext import decode, decode_all, describe, encode, split_array, split_object
from alluvia.json_values.time_texts import instant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from alluvia.events.formats.body_format import SentBody

_Item = TypeVar("_Item")
_KEPT_FOR_SENT = 4
"""How many times the limit of a body its events may have in all: each repeats what the request says of all."""


class Broken(NamedTuple):
    """The text of an element that is not valid JSON, in a list of others that are."""

    reason: str
    raw: bytes


class Events:
    """Collects the events of one request, in its order."""

    def __init__(self, sent: SentBody, limits: Limits) -> None:
        self._sent = sent
        self._limits = limits
        self._events: list[RawEvent] = []
        self._rejects: list[Reject] = []
        self._left_bytes = _KEPT_FOR_SENT * limits.inflated_bytes
        self._excess = ""

    def __len__(self) -> int:
        return len(self._events) + len(self._rejects)

    @property
    def full(self) -> bool:
        """Whether the body is over a limit by now: then all of it is refused, and no more need be read."""
        if len(self) > self._limits.events:
            self._excess = f"{self._limits.events} events"
        elif self._left_bytes < 0:
            self._excess = f"{_KEPT_FOR_SENT * self._limits.inflated_bytes} bytes of events"
        return bool(self._excess)

    def within(self, items: Sequence[_Item]) -> Iterator[_Item]:
        """Yield what may be or hold events: none of more than the limit, and none once the body is over one."""
        if len(items) > self._limits.events:
            self._excess = f"{self._limits.events} events"
        for item in items:
            if self.full:
                return
            yield item

    def objects(self, items: Sequence[object]) -> Iterator[dict[str, object]]:
        """Yield the objects among what may be events, as `within`; anything else becomes a reject."""
        for item in self.within(items):
            if isinstance(item, dict):
                yield item
            elif isinstance(item, Broken):
                self.reject(item.reason, item.raw)
            else:
                self.reject(f"expected a JSON object, got {describe(item)}", encode(item))

    def add(self, value: dict[str, object], given: Given | None = None) -> None:
        """Take an event, unless it is too large."""
        event, raw = RawEvent(len(self), value, None, None, None, given), encode(value)
        self._left_bytes -= len(raw)
        if len(raw) > self._limits.event_bytes:
            reason = TOO_MANY_BYTES.format(what="event", size=len(raw), limit=self._limits.event_bytes)
            self._rejects.append(Reject(len(self), reason, raw, event=event))
        else:
            self._events.append(event)

    def reject(self, reason: str, raw: bytes) -> None:
        """Refuse what is not an event, and keep its bytes."""
        self._left_bytes -= len(raw)
        self._rejects.append(Reject(len(self), reason, raw))

    def extend(self, split: Split, added_bytes: int = 0) -> None:
        """Take what a part of the body was found to hold. added_bytes: of what was added to its events."""
        at = len(self)
        self._left_bytes -= added_bytes
        self._events += [event._replace(position=at + event.position) for event in split.events]
        self._rejects += [replace(reject, position=at + reject.position) for reject in split.rejects]

    def split(self) -> Split:
        """Return the events and the rejects; one reject for a body of too many."""
        if self.full:
            return refused(self._sent.body, TOO_MANY_EVENTS.format(self._excess), too_large=True)
        return Split(self._events, self._rejects)


def text_given(value: Mapping[str, object]) -> Given:
    """Return what is known of an event whose fields are text: that, and a time that only its number says."""
    for name in TIME_FIELDS:
        sent = value.get(name)
        if not isinstance(sent, str):
            continue
        if instant(sent) is not None:
            return Given(text=True)
        number = number_of(sent)
        moment = instant(number)
        duration = name != "ts" and isinstance(number, (int, float)) and abs(number) < SECONDS_MIN
        if moment is not None and not duration:
            return Given(ts_us=moment[0], text=True)
    return Given(text=True)


def parsed(body: bytes) -> object:
    """Return the JSON value of a body; the Invalid that says why not is returned, not raised."""
    try:
        return decode(body)
    except Invalid as error:
        return error


def parsed_list(body: bytes, name: str, limits: Limits) -> object:
    """Return the JSON value of a body that is an array, or an object with an array of that name; else the Invalid.

    Where not all of it is valid, each element of the array is looked at by itself: those that are not valid are
    `Broken`, so that they take no others along.
    """
    value = parsed(body)
    if not isinstance(value, Invalid):
        return value
    elements = split_array(body, limits.events + 1)
    if elements is not None:
        return _judged(elements)
    members = split_object(body) or []
    elements = next((split_array(raw, limits.events + 1) for key, raw in members if key == name), None)
    if elements is None:
        return value
    texts = [json.dumps(key).encode() + b":" + (b"[]" if key == name else raw) for key, raw in members]
    rest = parsed(b"{%b}" % b",".join(texts))
    return {**rest, name: _judged(elements)} if isinstance(rest, dict) else value


def _judged(raws: Sequence[bytes]) -> list[object]:
    values = zip(raws, decode_all(raws), strict=True)
    return [Broken(str(value), raw) if isinstance(value, Invalid) else value for raw, value in values]


def body_key(sent: SentBody, split: Split) -> str | None:
    """Return a key of the body's content, for clients that repeat a request byte for byte.

    None if an event has no time of its own, as an equal body may be one of other events then, and not a retry.
    """
    if not sent.body or not _have_times(split.events):
        return None
    return f"body-{hashlib.sha256(sent.body).hexdigest()[:32]}"


def content_key(pieces: Iterable[bytes]) -> str:
    """Return the key of the text of a file, of up to the 4 MiB that `files.event_files` commits at once.

    Posted or ingested, in a request or from a disk, a file has the same key, so its rows without ids have the same ids.
    """
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def lines_key(sent: SentBody, split: Split) -> str | None:
    """Return the key of a body that is a file of events; None for any other.

    A file has several events, or NDJSON as its type, and a time in at least one event: later events would have another
    time there. Without any time, equal events may both have happened, and a single event is not a file.
    """
    several = len(split.events) + len(split.rejects) > 1
    if not (several or sent.media_type in NDJSON_TYPES) or not (not split.events or _have_times(split.events, any)):
        return None
    return content_key([sent.body])


def _have_times(events: Sequence[RawEvent], of: Callable[[Iterable[bool]], bool] = all) -> bool:
    """Whether all or any of some events have a time of their own; of columns, by the columns where these tell."""
    if isinstance(events, EventParts):
        return of(_have_times(part, of) for part in events.parts)
    if isinstance(events, ColumnarBatch):
        columns = events.columns.columns
        name = next((name for name in TIME_FIELDS if (name,) in columns), None)
        if name is not None:
            times = column_moments(name, columns[name,])
            unsure = pc.indices_nonzero(pc.is_null(times)).to_pylist()
            known = of is any and len(unsure) < len(times)
            return known or of(map(_has_time, events.odd_and(unsure).values()))
    return of(map(_has_time, events))


def _has_time(event: RawEvent) -> bool:
    given = event.given is not None and event.given.ts_us is not None
    return given or own_moment(event.value) is not None
