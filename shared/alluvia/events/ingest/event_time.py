"""The time of an event, from its fields. Pure.

An event's time is what the request gives it, else the field that the table's `alluvia.time_field` names, else the first
of `ts`, `timestamp`, `@timestamp` and `time` that is a valid time (see `timestamps.instant`), else the arrival time.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.events.ingest.identity import all_at_path, at_path
from alluvia.events.ingest.timestamps import TIMESTAMP, instant, instants, moments_array, plain_moments
from alluvia.events.ingest.values import all_but
from alluvia.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TIME_FIELDS = ("ts", "timestamp", "@timestamp", "time")
_PLACES = tuple((name,) for name in TIME_FIELDS)
SECONDS_MIN = 100_000_000  # March 1973: a smaller number called `time` is a duration or a count


@dataclass(frozen=True, slots=True)
class Moments:
    """A timestamp for each event. held: the indexes of the events of which it holds all that a field says, by field."""

    array: pa.Array
    held: Mapping[str, Sequence[int]]


def moments(
    events: Sequence[Mapping[str, object]],
    arrivals_us: Sequence[int],
    time_path: tuple[str, ...],
    given_us: Sequence[int | None] = (),
) -> Moments:
    """Return the times of events that came at `arrivals_us`. A field that `time_path` leads to is never `held`.

    given_us: the times that the request gives them, None for an event without; () if it gives none.
    """
    if given_us:
        return _some_given(events, arrivals_us, time_path, given_us)
    if len(events) == 1:
        moment_us, holder = _moment(events[0], arrivals_us[0], time_path)
        return Moments(moments_array([moment_us]), {} if holder is None else {holder: (0,)})
    for place in ((time_path,) if time_path else ()) + _PLACES:
        sent = all_at_path(events, place)
        if any(value is not None for value in sent):
            return _filled(events, arrivals_us, time_path, instants(sent), None if place is time_path else place[0])
    return Moments(moments_array(arrivals_us), {})


def column_moments(name: str, column: pa.Array) -> pa.Array:
    """Return the times that the first time field of many events says, with null for those that need a look."""
    if name != "ts" and pa.types.is_integer(column.type):
        counts = pc.and_(pc.greater(column, -SECONDS_MIN), pc.less(column, SECONDS_MIN))
        column = pc.if_else(counts, pa.scalar(None, column.type), column)
    return plain_moments(column)


def _filled(
    events: Sequence[Mapping[str, object]],
    arrivals_us: Sequence[int],
    time_path: tuple[str, ...],
    plain: pa.Array,
    name: str | None,
) -> Moments:
    """Return the times of events of which some are known to be plain text in the field `name`, the first with any."""
    if not plain.null_count:
        return Moments(plain, {} if name is None else {name: range(len(events))})
    missing = pc.is_null(plain)
    odd = pc.indices_nonzero(missing).to_pylist()
    held: defaultdict[str, list[int]] = defaultdict(list)
    if name is not None:
        held[name] += all_but(odd, len(events))
    found = []
    for index in odd:
        moment_us, holder = _moment(events[index], arrivals_us[index], time_path)
        found.append(moment_us)
        if holder is not None:
            held[holder].append(index)
    return Moments(pc.replace_with_mask(plain, missing, pa.array(found, TIMESTAMP)), held)


def _some_given(
    events: Sequence[Mapping[str, object]],
    arrivals_us: Sequence[int],
    time_path: tuple[str, ...],
    given_us: Sequence[int | None],
) -> Moments:
    others = [index for index, moment_us in enumerate(given_us) if moment_us is None]
    own = moments([events[index] for index in others], [arrivals_us[index] for index in others], time_path)
    found = list(given_us)
    for index, moment_us in zip(others, own.array.cast(pa.int64()).to_pylist(), strict=True):
        found[index] = moment_us
    return Moments(
        pa.array(found, TIMESTAMP), {name: [others[at] for at in places] for name, places in own.held.items()}
    )


def _moment(event: Mapping[str, object], arrival_us: int, time_path: tuple[str, ...]) -> tuple[int, str | None]:
    return own_moment(event, time_path) or (arrival_us, None)


def own_moment(event: Mapping[str, object], time_path: tuple[str, ...] = ()) -> tuple[int, str | None] | None:
    """Return the µs that an event's fields say, and the field that holds nothing but them; None if none says a time."""
    if time_path and (found := instant(at_path(event, time_path))) is not None:
        return found[0], None
    for name in TIME_FIELDS:
        sent = event.get(name)
        if sent is None or (name != "ts" and isinstance(sent, (int, float)) and abs(sent) < SECONDS_MIN):
            continue
        if (found := instant(sent)) is not None:
            return found[0], name if found[1] else None
    return None
