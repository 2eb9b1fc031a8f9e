"""The values that ingestion passes along: schema of event tables, limits, raw events, rejects, outcomes, and rows."""

from __future__ import annotations

import sys
from dataclasses import field
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from alluvia.delta.properties import ARRIVAL, KEEP
from alluvia.delta.schema.names import fold
from alluvia.delta.schema.types import type_name
from alluvia.errors import Invalid, cut
from alluvia.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from alluvia.delta.file_schema_adapter import FileForm
    from alluvia.delta.snapshot import Snapshot

_TIME = pa.timestamp("us", tz="UTC")
_START = (
    pa.field("event_id", pa.string(), nullable=False),
    pa.field("ts", _TIME, nullable=False),
    pa.field("event", pa.string()),
    pa.field("source", pa.string()),
)
_END = (pa.field("properties", pa.string()), pa.field("received_at", _TIME, nullable=False))
EVENTS_PARTITIONED = ("day(ts)",)
EVENTS_SORTED = ("event", "ts")


def event_schema(columns: pa.Schema | None = None) -> pa.Schema:
    """Return the columns of an event table with declared ones. Raises `Invalid` for one that it has in any case."""
    own = {each.name: each for each in (*_START, *_END)}
    for declared in columns or ():
        if (known := own.get(fold(declared.name))) is not None:
            raise Invalid(
                f"column {declared.name}: every table for events has it, as {type_name(known.type)}: leave it out, or "
                "create a table that is not for events (--plain, or create_table)"
            )
    return pa.schema([*_START, *(columns or ()), *_END])


def identifies_events(schema: pa.Schema) -> bool:
    """Whether a table has the one column that events cannot become rows without."""
    return "event_id" in schema.names and schema.field("event_id").type == pa.string()


REASON_CHARS_MAX = 200
TOO_MANY_BYTES = "the {what} has {size} bytes, more than the limit of {limit}"
TOO_MANY_EVENTS = "the body holds more than the limit of {}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Most bytes of a body as sent, of a body after decompression, and of one event's JSON text; most events of a body.

    Parsed JSON may take 25 times its bytes of memory, and an event half a kilobyte however small it is.
    """

    body_bytes: int = 10 * 1024 * 1024
    inflated_bytes: int = 16 * 1024 * 1024
    event_bytes: int = 1_000_000
    events: int = sys.maxsize


UNLIMITED = Limits(body_bytes=1 << 62, inflated_bytes=1 << 62, event_bytes=1 << 62)
"""For files, which are read part by part."""


@dataclass(frozen=True, slots=True)
class BodyReading:
    """How a request was read: what a replay of its rejects needs, so that they become what they would have become.

    format: of its body. source: the name of the source that it came from; "" for none. several: whether it brought
    more than one event. whole: whether its one reject is the body. headers: those that this format and this source read
    for the events, by their names in lower case; None for one that the request did not have. No credentials.
    """

    format: str = "json"
    source: str = ""
    several: bool = False
    whole: bool = False
    headers: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Origin:
    """The facts that an event inherits from its request: when it came, and the request's Idempotency-Key.

    reading: how the request was read; None for JSON of no source.
    """

    arrival_us: int
    idempotency_key: str | None = None
    reading: BodyReading | None = None


@dataclass(frozen=True, slots=True)
class Fields:
    """The paths of the fields that a table's properties name: of an event's identity and of its time; () for none.

    unreadable_time, future_time: the policies for events with such times. promoted: the columns that fields became
    which `properties` shows as well (`delta.promoted_fields`).
    """

    id_path: tuple[str, ...] = ()
    time_path: tuple[str, ...] = ()
    unreadable_time: str = ARRIVAL
    future_time: str = KEEP
    promoted: frozenset[str] = frozenset()

    @classmethod
    def of(cls, table: Snapshot | FileForm) -> Fields:
        """Return those of a table."""
        settings = table.settings
        promoted = frozenset(field.column for field in table.promoted if field.column == field.key)
        return cls(settings.id_field, settings.time_field, settings.unreadable_time, settings.future_time, promoted)


NO_FIELDS = Fields()


@dataclass(frozen=True, slots=True)
class Given:
    """A request's facts about one event outside the event's JSON, such as in headers; None or "" for nothing.

    Each value comes before what the event itself says; a field of the event that says otherwise stays data. ts_us: µs
    since the Unix epoch, in the years 1 to 9999. unstable: top-level fields of the event that differ between two
    deliveries of it, so they do not count as its content. text: its fields are text, as those of CSV are, and typed
    columns read what the text says. of_format: what the body's format alone said, where a source said more; None if
    that was nothing. unread: the field that should have its time, and the text there, if it cannot be read; else ().
    pointed: the fields of text in which it is open whether points group digits.
    """

    event_id: str | None = None
    ts_us: int | None = None
    event: str | None = None
    source: str | None = None
    unstable: tuple[str, ...] = ()
    text: bool = False
    of_format: Given | None = None
    unread: tuple[str, ...] = ()
    pointed: tuple[str, ...] = ()


class OddTime(NamedTuple):
    """A time that an event sent and that cannot be read, or is in the far future: its field and its text, cut."""

    kind: str
    field: str
    text: str


class OddTimes(NamedTuple):
    """How many events have an odd time of one kind, and the field and the text of the first of them."""

    events: int
    field: str
    value: str

    def plus(self, other: OddTimes | None) -> OddTimes:
        """Return the sum of this and of later ones."""
        return self if other is None else self._replace(events=self.events + other.events)


def counted(odd_times: Iterable[OddTime]) -> dict[str, OddTimes]:
    """Return the times by kind."""
    by_kind: dict[str, OddTimes] = {}
    for kind, name, text in odd_times:
        one = OddTimes(1, name, text)
        by_kind[kind] = by_kind[kind].plus(one) if kind in by_kind else one
    return by_kind


def summed(one: Mapping[str, OddTimes], other: Mapping[str, OddTimes]) -> dict[str, OddTimes]:
    """Return the sums of two counts."""
    return {**other, **{kind: times.plus(other.get(kind)) for kind, times in one.items()}}


def odd_times_said(by_kind: Mapping[str, OddTimes]) -> dict[str, dict[str, object]]:
    """Return the entries of an answer, such as `unreadable_times`; none for a kind without times."""
    return {f"{kind}_times": times._asdict() for kind, times in by_kind.items()}


class RawEvent(NamedTuple):
    """One JSON object as sent. A tuple, not a dataclass: requests make these by the hundred thousand.

    position: its place among the events of its request, from 0.
    value: the parsed object; numbers that Python would change are `ExactNumber`.
    raw: its bytes as sent; None means that `encode(value)` gives them back.
    origin: set if it differs from the current request, for events from a queue.
    fallback_id: the id that it was given before it was queued, for an event without one.
    given: what the request says about it.
    """

    position: int
    value: dict[str, object]
    raw: bytes | None = None
    origin: Origin | None = None
    fallback_id: str | None = None
    given: Given | None = None


def raw_events(positions: Iterable[int], values: Iterable[object], raws: Iterable[bytes | None]) -> list[RawEvent]:
    """Return events of objects as sent, in a third of the time that it takes to call `RawEvent` for each."""
    nothing = repeat(None)
    fields = zip(positions, values, raws, nothing, nothing, nothing, strict=False)
    return list(map(partial(tuple.__new__, RawEvent), fields))


@dataclass(frozen=True, slots=True)
class Reject:
    """What could not become a row. `event_id` is its identity in the rejects table; None until it is known.

    A reason may echo the sender's bytes, so it is always cut to `REASON_CHARS_MAX` characters. given: what the
    request says about the event, as JSON text (`rejects.given_text`); "" if nothing, None if `raw` was not an event.
    event: what was parsed, where it is too large for an event.
    """

    position: int
    reason: str
    raw: bytes
    event_id: str | None = None
    given: str | None = None
    event: RawEvent | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", cut(self.reason, REASON_CHARS_MAX))


REJECTS_MAX = 100
"""Rejects that an answer names, and that the outcome of several parts keeps."""


@dataclass(frozen=True, slots=True)
class IngestOutcome:
    """The outcome of events: accepted + rejected = sent, accepted = stored + duplicates. Those of parts can be added.

    stored: rows that were added. duplicates: events that the table holds since before, or that came twice.
    conflicting: those of the rejected whose id the table knows with other content. version: one that holds all that is
    accepted; None if nothing is. rejects: in the order of the request; of a sum, the first `REJECTS_MAX`. kept: False
    where there is no table, so that the rejects went nowhere. odd_times: by kind, those of events that were accepted.
    """

    stored: int = 0
    duplicates: int = 0
    rejected: int = 0
    conflicting: int = 0
    version: int | None = None
    rejects: list[Reject] = field(default_factory=list)
    kept: bool = True
    odd_times: Mapping[str, OddTimes] = field(default_factory=dict)

    @property
    def accepted(self) -> int:
        """Return how many events need not be sent again, as rows hold them."""
        return self.stored + self.duplicates

    def counts(self) -> dict[str, int | None]:
        """Return the numbers as an answer to the sender has them."""
        return {
            "accepted": self.accepted,
            "stored": self.stored,
            "duplicates": self.duplicates,
            "rejected": self.rejected,
            "conflicting": self.conflicting,
            "version": self.version,
            **{f"{kind}_times": times.events for kind, times in self.odd_times.items()},
        }

    def said(self) -> dict[str, object]:
        """Return the same with a sample of each kind of odd times."""
        return {**self.counts(), **odd_times_said(self.odd_times)}

    def __add__(self, later: IngestOutcome) -> IngestOutcome:
        return IngestOutcome(
            self.stored + later.stored,
            self.duplicates + later.duplicates,
            self.rejected + later.rejected,
            self.conflicting + later.conflicting,
            max((each.version for each in (self, later) if each.version is not None), default=None),
            [*self.rejects, *later.rejects][:REJECTS_MAX],
            self.kept and later.kept,
            summed(self.odd_times, later.odd_times),
        )


@dataclass(frozen=True, slots=True)
class Split:
    """A request body taken apart.

    too_large: a size limit refused the whole body. unsupported: it is of a kind that is never read.
    """

    events: Sequence[RawEvent]
    rejects: list[Reject]
    too_large: bool = False
    unsupported: bool = False


@dataclass(frozen=True, slots=True)
class EventRows:
    """Events as rows of a table, columns in the schema's order, and those that did not fit.

    refused: for each reject, the index of its event among those given. taken: the same for each row, contents: the
    short hash of its event's content. odd_times: by the numbers of rows.
    """

    table: pa.Table
    rejects: list[Reject]
    refused: Sequence[int]
    taken: Sequence[int]
    contents: Sequence[bytes] = ()
    odd_times: Mapping[int, OddTime] = field(default_factory=dict)


def all_but(indexes: Collection[int], count: int) -> Sequence[int]:
    """Return the numbers below `count` that are not among `indexes`, in order."""
    if not indexes:
        return range(count)
    others: list[int] = []
    start = 0
    for index in sorted(indexes):
        others += range(start, index)
        start = index + 1
    others += range(start, count)
    return others
