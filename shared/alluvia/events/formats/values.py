"""What a format of request bodies is: from a request to events, and from what became of them to the client's answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import NamedTuple

import orjson

from alluvia.events.ingest.envelope import media_type
from alluvia.events.ingest.values import Limits, Split
from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SentBody:
    """A request as formats read it: `headers` by their names in lower case, `body` after decompression.

    options: what the source declares besides the format's name, such as the delimiter of CSV.
    """

    headers: Mapping[str, str]
    body: bytes
    arrival_us: int
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def media_type(self) -> str:
        """Return the type that Content-Type names, without its parameters."""
        return media_type(self.headers.get("content-type"))


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """What became of a request: the status and the JSON that the function answers by itself."""

    status: int
    answer: Mapping[str, object]

    @property
    def rejected(self) -> int:
        """Return how many events became rejects."""
        count = self.answer.get("rejected")
        return count if isinstance(count, int) else 0

    @property
    def reason(self) -> str:
        """Return what went wrong, of the request and of its first reject; "" if nothing did."""
        error, errors = self.answer.get("error"), self.answer.get("errors")
        first = errors[0] if isinstance(errors, list) and errors else {}
        of_event = f"event {first['position']}: {first['reason']}" if first else ""
        return "; ".join(text for text in (error, of_event) if isinstance(text, str) and text)


class ClientReply(NamedTuple):
    """An answer: status, body and media type."""

    status: int
    body: bytes
    media_type: str = "application/json"


def json_reply(status: int, body: Mapping[str, object]) -> ClientReply:
    """Return an answer in JSON."""
    return ClientReply(status, orjson.dumps(body))


def no_key(_sent: SentBody, _found: Split) -> str | None:
    """Leave the identity of events to the events and the Idempotency-Key."""
    return None


@dataclass(frozen=True, slots=True)
class BodyFormat:
    """A format of bodies: how events are read, and how its clients are answered. All of it is pure.

    read: never raises for what a client may send; what is not an event becomes a reject with its bytes.
    key: what stands for an Idempotency-Key where the client sends none, so that a request that it repeats is stored
    once; None where what comes again may be something else. reply: the client's answer; None for a format whose clients
    read nothing but the status. takes_empty: whether a body of no bytes says something.
    """

    read: Callable[[SentBody, Limits], Split]
    key: Callable[[SentBody, Split], str | None] = no_key
    reply: Callable[[SentBody, RequestOutcome], ClientReply] | None = None
    takes_empty: bool = False
