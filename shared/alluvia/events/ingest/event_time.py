"""The time of an event. Pure.

It comes from the request, else from the field that the table's `alluvia.time_field` names, else from the
first valid time in `ts`, `timestamp`, `@timestamp` and `time` (see `time_texts`), else it is the arrival time. A field
among them that should say a time and cannot be read is noted if no other says one, and so is a time in the far future.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.odd_times import FUTURE, FUTURE_US, UNREADABLE
from alluvia.errors import cut
from alluvia.events.ingest.identity import all_at_path, at_path
from alluvia.events.ingest.values import Given, OddTime, all_but
from alluvia.json_values.instants import (
    TIMESTAMP,
    instants,
    moments_array,
    plain_moments,
)
from alluvia.json_values.jsontext import ExactNumber, encode
from alluvia.json_values.time_texts import instant
from alluvia.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

ODD_CHARS_MAX = 60
"""Characters that are shown of a time that is odd."""

TIME_FIELDS = ("ts", "timestamp", "@timestamp", "time")
_PLACES = tuple((name,) for name in TIME_FIELDS)
SECONDS_MIN = 100_000_000  # March 1973: a smaller number called `time` is a duration or a count


@dataclass(frozen=True, slots=True)
class Moments:
    """A timestamp for each event. held: the indexes of the events of which it holds all that a field says, by field.

    odd: the times that are not such as the event says, or in the far future, by the indexes of their events.
    """

    array: pa.Array
    held: Mapping[str, Sequence[int]]
    odd: Mapping[int, OddTime]


_NOTHING_ODD: Mapping[int, OddTime] = {}


def moments(
    events: Sequence[Mapping[str, object]],
    arrivals_us: Sequence[int],
    time_path: tuple[str, ...],
    given: Sequence[Given | None] = (),
) -> Moments:
    """Return the times of events that came at `arrivals_us`. A field that `time_path` leads to is never `held`.

    given: what the request says about them, None for an event of which it says nothing; () if it says nothing at all.
    """
    if any(each is not None and (each.ts_us is not None or each.unread) for each in given):
        own = _some_given(events, arrivals_us, time_path, given)
    else:
        own = _own_moments(events, arrivals_us, time_path)
    return _with_future(own, events, arrivals_us, time_path, given)


def _own_moments(
    events: Sequence[Mapping[str, object]], arrivals_us: Sequence[int], time_path: tuple[str, ...]
) -> Moments:
    if len(events) == 1:
        moment_us, holder, odd = _moment(events[0], arrivals_us[0], time_path)
        held: Mapping[str, Sequence[int]] = {} if holder is None else {holder: (0,)}
        return Moments(moments_array([moment_us]), held, _NOTHING_ODD if odd is None else {0: odd})
    for place in ((time_path,) if time_path else ()) + _PLACES:
        sent = all_at_path(events, place)
        if any(value is not None for value in sent):
            return _filled(events, arrivals_us, time_path, instants(sent), None if place is time_path else place[0])
    return Moments(moments_array(arrivals_us), {}, _NOTHING_ODD)


def column_moments(name: str, column: pa.Array) -> pa.Array:
    """Return the times that the first time field of many events says, with null for those that need a look."""
    if name != "ts" and pa.types.is_integer(column.type):
        counts = pc.and_(pc.greater(column, -SECONDS_MIN), pc.less(column, SECONDS_MIN))
        column = pc.if_else(counts, pa.scalar(None, column.type), column)
    return plain_moments(column)


def past_moments(timestamps: pa.Array, arrival_us: int) -> pa.Array:
    """Return timestamps with null for those in the far future of an arrival."""
    latest_us = arrival_us + FUTURE_US
    moments_us = timestamps.cast(pa.int64())
    highest_us = pc.max(moments_us).as_py()
    if highest_us is None or highest_us <= latest_us:
        return timestamps
    return pc.if_else(pc.less_equal(moments_us, latest_us), timestamps, pa.scalar(None, TIMESTAMP))


def _filled(
    events: Sequence[Mapping[str, object]],
    arrivals_us: Sequence[int],
    time_path: tuple[str, ...],
    plain: pa.Array,
    name: str | None,
) -> Moments:
    """Return the times of events of which some are known to be plain text in the field `name`, the first with any."""
    if not plain.null_count:
        return Moments(plain, {} if name is None else {name: range(len(events))}, _NOTHING_ODD)
    missing = pc.is_null(plain)
    places = pc.indices_nonzero(missing).to_pylist()
    held: defaultdict[str, list[int]] = defaultdict(list)
    if name is not None:
        held[name] += all_but(places, len(events))
    filled_us = []
    odd: dict[int, OddTime] = {}
    for index in places:
        moment_us, holder, fault = _moment(events[index], arrivals_us[index], time_path)
        filled_us.append(moment_us)
        if holder is not None:
            held[holder].append(index)
        if fault is not None:
            odd[index] = fault
    return Moments(pc.replace_with_mask(plain, missing, pa.array(filled_us, TIMESTAMP)), held, odd)


def _some_given(
    events: Sequence[Mapping[str, object]],
    arrivals_us: Sequence[int],
    time_path: tuple[str, ...],
    given: Sequence[Given | None],
) -> Moments:
    """Return the times of events. The request gives some of them, or has text for them that cannot be read."""
    all_us = [None if each is None else each.ts_us for each in given]
    others = [index for index, moment_us in enumerate(all_us) if moment_us is None]
    own = _own_moments([events[index] for index in others], [arrivals_us[index] for index in others], time_path)
    for index, moment_us in zip(others, own.array.cast(pa.int64()).to_pylist(), strict=True):
        all_us[index] = moment_us
    held = {name: [others[at] for at in places] for name, places in own.held.items()}
    odd = {others[at]: fault for at, fault in own.odd.items()}
    odd |= {at: OddTime(UNREADABLE, *each.unread) for at, each in enumerate(given) if each is not None and each.unread}
    return Moments(pa.array(all_us, TIMESTAMP), held, odd)


def _with_future(
    own: Moments,
    events: Sequence[Mapping[str, object]],
    arrivals_us: Sequence[int],
    time_path: tuple[str, ...],
    given: Sequence[Given | None],
) -> Moments:
    """Return the same moments, with those of the far future among the odd ones."""
    if not events or _highest_us(own.array) <= min(arrivals_us) + FUTURE_US:
        return own
    odd = dict(own.odd)
    latest_us = pa.array([arrival_us + FUTURE_US for arrival_us in arrivals_us], pa.int64())
    for at in pc.indices_nonzero(pc.greater(own.array.cast(pa.int64()), latest_us)).to_pylist():
        of_request = given[at] if given else None
        said = _said(events[at], time_path) if of_request is None or of_request.ts_us is None else None
        odd[at] = odd_time(FUTURE, *(said or ("ts", own.array[at].as_py().isoformat())))
    return Moments(own.array, own.held, odd)


def _highest_us(timestamps: pa.Array) -> int:
    """Return the latest of some moments; for a single one without the price of Arrow's computations."""
    latest = timestamps[0] if len(timestamps) == 1 else pc.max(timestamps)
    highest_us: int = latest.value  # type: ignore[attr-defined]  # a cast would load Arrow's computations
    return highest_us


def odd_time(kind: str, field: str, sent: object) -> OddTime:
    """Return the note about a time that an event sent."""
    text = sent if isinstance(sent, str) else encode(sent).decode(errors="replace")
    return OddTime(kind, field, cut(text, ODD_CHARS_MAX))


def unread_given(field: str, sent: object) -> Given:
    """Return a request's facts about an event with an unreadable time in a field that should have one."""
    return Given(unread=odd_time(UNREADABLE, field, sent)[1:])


def _moment(
    event: Mapping[str, object], arrival_us: int, time_path: tuple[str, ...]
) -> tuple[int, str | None, OddTime | None]:
    """Return an event's time, the field that holds nothing but it, and the time that could not be read."""
    own = own_moment(event, time_path)
    if own is not None and not time_path:
        return *own, None
    return *(own or (arrival_us, None)), _unread(event, time_path, TIME_FIELDS if own is None else ())


def own_moment(event: Mapping[str, object], time_path: tuple[str, ...] = ()) -> tuple[int, str | None] | None:
    """Return the µs that an event's fields say, and the field that holds nothing but them; None if none says a time."""
    if time_path and (moment := instant(at_path(event, time_path))) is not None:
        return moment[0], None
    for name in TIME_FIELDS:
        sent = event.get(name)
        if sent is None or _is_count(name, sent):
            continue
        if (moment := instant(sent)) is not None:
            return moment[0], name if moment[1] else None
    return None


def unread_time(event: Mapping[str, object], time_path: tuple[str, ...] = ()) -> OddTime | None:
    """Return the time of an event's fields that cannot be read where it should be; None if there is none."""
    return _unread(event, time_path, () if own_moment(event, time_path) is not None else TIME_FIELDS)


def _said(event: Mapping[str, object], time_path: tuple[str, ...]) -> tuple[str, object] | None:
    """Return the field that says an event's time, and its value."""
    if time_path and instant(sent := at_path(event, time_path)) is not None:
        return ".".join(time_path), sent
    fields = ((name, event.get(name)) for name in TIME_FIELDS)
    return next((each for each in fields if not _is_count(*each) and instant(each[1]) is not None), None)


def _unread(event: Mapping[str, object], time_path: tuple[str, ...], names: Sequence[str]) -> OddTime | None:
    """Return the first value at `time_path` or at some names that should be a time and cannot be read as one."""
    if time_path and (sent := at_path(event, time_path)) not in (None, "") and instant(sent) is None:
        return odd_time(UNREADABLE, ".".join(time_path), sent)
    for name in names:
        sent = event.get(name)
        plain = isinstance(sent, (str, int, float, ExactNumber)) and not isinstance(sent, bool)
        if sent not in (None, "") and (plain or name == "ts") and not _is_count(name, sent):
            return odd_time(UNREADABLE, name, sent)
    return None


def _is_count(name: str, sent: object) -> bool:
    """Whether a field's number is too small for a time, unless the field is `ts`."""
    return name != "ts" and isinstance(sent, (int, float)) and abs(sent) < SECONDS_MIN
