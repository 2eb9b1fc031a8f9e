"""A kind of source, and what all kinds use: a delivery, signatures, and samples. Pure."""

from __future__ import annotations

import hashlib
import hmac
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from alluvia.delta.odd_times import UNREADABLE
from alluvia.events.ingest.event_time import odd_time
from alluvia.events.ingest.values import Given
from alluvia.json_values.time_texts import instant
from alluvia.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from alluvia.events.sources.definition import Source


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request. `headers` are by their names in lower case, `body` is the exact bytes that came.

    url: the address that the sender used, with the query, as far as the request or the source's `url` tells.
    """

    headers: Mapping[str, str]
    body: bytes
    url: str = ""

    def header(self, name: str) -> str | None:
        """Return a header as text that can be stored; None if it is missing or empty."""
        value = self.headers.get(name.lower())
        return value.encode("utf-8", "replace").decode() if value else None


MISSING = "a header of the signature is missing or malformed"
STALE = "the timestamp is too old, or too far in the future"
WRONG = "the signature does not match"
SIGNATURES_MAX = 10
"""Signatures of one request that are looked at: a rotation needs two."""
_TIMESTAMP_CHARS_MAX = 12


def mac(secret: bytes, *parts: bytes, algorithm: str = "sha256") -> bytes:
    """Return the HMAC of parts that follow each other."""
    made = hmac.new(secret, digestmod=getattr(hashlib, algorithm))
    for part in parts:
        made.update(part)
    return made.digest()


def to_bytes(text: str) -> bytes:
    """Return a header's bytes, whatever characters it has."""
    return text.encode("utf-8", "surrogatepass")


def same(one: str, other: str) -> bool:
    """Compare two texts in a time that does not depend on where they differ.

    Texts, not what they encode: base64 and hex have several texts for the same bytes, and a sender uses one of them.
    """
    return hmac.compare_digest(to_bytes(one), to_bytes(other))


def any_same(expected: Sequence[str], given: Sequence[str]) -> bool:
    """Whether one of the expected texts is among the first of those given."""
    return any(same(one, other) for one in expected for other in given[:SIGNATURES_MAX])


def is_fresh(timestamp: str, now_us: int, tolerance_seconds: int) -> bool:
    """Whether a timestamp, in seconds since the Unix epoch, is at most so far from now."""
    if not is_timestamp(timestamp):
        return False
    return abs(now_us - int(timestamp) * 1_000_000) <= tolerance_seconds * 1_000_000


def is_timestamp(text: str) -> bool:
    """Whether a text is a number of seconds since the Unix epoch."""
    return text.isascii() and text.isdigit() and len(text) <= _TIMESTAMP_CHARS_MAX


class Thanks(NamedTuple):
    """An answer that a sender expects when its events were taken: media type and body."""

    media_type: str
    body: str


@dataclass(frozen=True, slots=True)
class Sample:
    """A request that a sender could send, before it is signed."""

    body: bytes
    headers: Mapping[str, str]


class Kind(ABC):
    """A kind of source. Without state: everything that differs between sources comes with each call."""

    needs_secret: ClassVar[bool] = True
    identifies_requests: ClassVar[bool] = True
    """Whether the identity that requests of this kind give is that of the request; else it is the event's own."""
    headers: ClassVar[frozenset[str]] = frozenset()
    """The headers, in lower case, that say something about the events of its requests: what `given` reads.

    The proof covers them, as it covers the body. Nothing else of a request says anything about its events, unless the
    definition names a header, or `proves_headers`.
    """
    proves_headers: ClassVar[bool] = False
    """Whether the proof is a credential, whose holder may say all that the request says: also in headers."""
    settings: ClassVar[frozenset[str]] = frozenset()
    """The settings that sources of this kind may have besides those of all."""
    thanks: ClassVar[Thanks | None] = None
    format: ClassVar[str] = ""
    """The format of its bodies, where the definition names none; "" for what each request declares."""

    at_sender: ClassVar[str]
    """The fields to fill in at the sender, for the user who adds a source: its address, and the secret if any."""

    def fault(self, source: Source) -> str | None:
        """Return what is wrong with a definition, beginning with the setting; None if nothing is."""
        return None

    def secret_fault(self, secret: str) -> str | None:
        """Return why no request can be proved by a secret, without showing it; None if one can."""
        return None

    def body_format(self, body: bytes) -> str:
        """Return the format of a body, of a source whose definition names none and whose headers prove nothing."""
        return "json"

    def key(self, delivery: Delivery) -> str | None:
        """Return what stands for the identity of a request whose sender signs none; None where events have their own.

        It is made of what is signed alone, so that no second request with the same signature brings other events.
        """
        return None

    @abstractmethod
    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        """Return why a request is not the sender's, for the log; None if the secret proves that it is.

        Takes whatever bytes and headers come. Raises `Invalid` for a secret that this kind cannot use.
        """

    @abstractmethod
    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        """Return the headers with which a sender that has the secret would send this request now."""

    @abstractmethod
    def sample(self, event_id: str, now_us: int) -> Sample:
        """Return a request of one event, to try a source with."""

    def event(self, value: dict[str, object]) -> dict[str, object]:
        """Return the event of a body's value: itself, unless the sender wraps it up."""
        return value

    def given(self, delivery: Delivery, value: Mapping[str, object]) -> Given:
        """Return what the request says about an event."""
        return Given()

    def challenge(self, value: Mapping[str, object]) -> str | None:
        """Return what a request wants to hear back in place of being stored; None if it is an event."""
        return None


class SignedBody(Kind):
    """A kind whose senders put a signature of the body alone into a header, in lower case here."""

    header: ClassVar[str]

    @abstractmethod
    def signature(self, secret: str, body: bytes) -> str:
        """Return what the header holds for a body."""

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        signature = delivery.headers.get(self.header)
        if not signature:
            return MISSING
        return None if same(self.signature(secret, delivery.body), signature) else WRONG

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        return {self.header: self.signature(secret, delivery.body)}

    def key(self, delivery: Delivery) -> str | None:
        return hashlib.sha256(delivery.body).hexdigest()


def text_of(value: object) -> str | None:
    """Return a text of JSON; None for anything else, and for the empty one."""
    return value if isinstance(value, str) and value else None


def moment_of(value: object) -> int | None:
    """Return the µs of a moment, as `instant` reads it, or of a text with a number of seconds; else None."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        value = int(value)
    moment = instant(value)
    return None if moment is None else moment[0]


class SaidTime(NamedTuple):
    """The time at one place of a request: its µs, and the place with its text if there is one that cannot be read."""

    ts_us: int | None = None
    unread: tuple[str, ...] = ()


def said_time(place: str, value: object) -> SaidTime:
    """Return what a value says that should be a time."""
    moment_us = moment_of(value)
    says = value is not None and value != ""
    return SaidTime(moment_us, odd_time(UNREADABLE, place, value)[1:] if says and moment_us is None else ())
