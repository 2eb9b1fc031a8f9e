"""Times as senders write them, in microseconds since the Unix epoch in UTC, and the time of an event. Pure.

An event's time is what the request gives it, else the field that the table's `alluvia.time_field` names, else the first
of `ts`, `timestamp`, `@timestamp` and `time` that is a valid time (see `instant`), else the arrival time.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.events.ingest.identity import all_at_path, at_path
from alluvia.events.ingest.jsontext import ExactNumber
from alluvia.events.ingest.values import all_but
from alluvia.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRIES = 4
_REFUSED = re.compile(r"Failed to parse string: '(.*)' as a scalar of type", re.DOTALL)
"""Arrow's message about the first text that does not fit. It is only a hint."""


def cast_texts(texts: pa.Array, kind: pa.DataType, fitting: str, other: str | None) -> pa.Array:
    """Return the values that texts say, with that of `other` for those that say none.

    A few that do not fit are found by what Arrow says of each, in a fraction of the time of `fitting`, a regular
    expression that holds for texts that Arrow reads; with more of them, only its texts keep their values.
    """
    for _ in range(_TRIES):
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid as error:
            refused = _REFUSED.search(str(error))
            at = -1 if refused is None else pc.index(texts, pa.scalar(refused[1], texts.type)).as_py()
            if at < 0:
                break
            texts = replaced(texts, [at], other)
    return pc.if_else(pc.match_substring_regex(texts, fitting), texts, pa.scalar(other, texts.type)).cast(kind)


def replaced(texts: pa.Array, places: Sequence[int], other: str | None) -> pa.Array:
    """Return texts with another one at some places, in order. For few, this is several times as fast as `if_else`."""
    spare = pa.array([other], texts.type)
    pieces, start = [], 0
    for place in places:
        pieces += [texts.slice(start, place - start), spare]
        start = place + 1
    return pa.concat_arrays([*pieces, texts.slice(start)])


TIMESTAMP = pa.timestamp("us", "UTC")
MIN_US = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z
MAX_US = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z
_SURE_MIN_US = MIN_US + 86_400_000_000  # Arrow takes the year 0, which ends within that day in UTC, with an offset
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[Tt ](\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d+))?)?)?(Z|z|([+-])(\d\d)(?::?(\d\d))?)?)?",
    re.ASCII,
)
_PLAIN = (
    r"^\d{4}-(?:(?:0[13-9]|1[0-2])-(?:0[1-9]|[12]\d|30)|(?:0[13578]|1[02])-31|02-(?:0[1-9]|1\d|2[0-8]))"
    r"[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:[01]\d|2[0-3]):?[0-5]\d)$"
)
"""Most of the times that Arrow reads, and no others: 29 February is not among them."""
_SCALES_US = ((10**11, 1_000_000), (10**14, 1_000), (10**17, 1))  # below this magnitude, one unit has so many µs


def instant(value: object) -> tuple[int, bool] | None:
    """Return the moment in µs, and whether that is all of it; None if `value` is not a time in the years 1 to 9999.

    Text is ISO 8601 in the extended format, UTC without an offset. A number counts from the epoch in seconds below
    1e11, milliseconds below 1e14, microseconds below 1e17. What is finer than a microsecond is cut off.
    """
    if isinstance(value, str):
        moment = _from_iso(value)
    elif isinstance(value, (int, float, ExactNumber)) and not isinstance(value, bool):
        moment = _from_epoch(value)
    else:
        return None
    return moment if moment is not None and MIN_US <= moment[0] <= MAX_US else None


def naive_instant(value: object) -> tuple[int, bool] | None:
    """Like `instant`, for a wall time: ISO 8601 text without an offset only."""
    match = _ISO.fullmatch(value) if isinstance(value, str) else None
    return instant(value) if match and not match[8] else None


def instants(values: Sequence[object]) -> pa.Array:
    """Return a timestamp for each value that is plain ISO 8601 text with an offset, fast; null for all others."""
    kinds = set(map(type, values))
    texts = values if kinds <= {str, type(None)} else [each if isinstance(each, str) else None for each in values]
    return plain_instants(pa.array(texts, pa.string()))


def plain_instants(texts: pa.Array) -> pa.Array:
    """Return what `instants` gives for texts and nulls in an array."""
    return _within(cast_texts(texts, TIMESTAMP, _PLAIN, None))


def plain_moments(values: pa.Array) -> pa.Array:
    """Return what `instant` gives for texts or integers in an array, with null for those that need a look."""
    if pa.types.is_string(values.type):
        return plain_instants(values)
    if not pa.types.is_int64(values.type):
        return pa.nulls(len(values), TIMESTAMP)
    moments_us: pa.Array = pa.nulls(len(values), pa.int64())
    for limit, scale_us in reversed(_SCALES_US):
        known = pc.and_(pc.greater(values, -limit), pc.less(values, limit))
        moments_us = pc.if_else(known, pc.multiply(values, scale_us), moments_us)
    return _within(moments_us.cast(TIMESTAMP))


def _within(timestamps: pa.Array) -> pa.Array:
    """Return timestamps with null for those before the year 1 and after 9999, and for some that need a look."""
    moments_us = timestamps.cast(pa.int64())
    bounds = pc.min_max(moments_us).as_py()
    if bounds["min"] is None or (bounds["min"] >= _SURE_MIN_US and bounds["max"] <= MAX_US):
        return timestamps
    known = pc.and_(pc.greater_equal(moments_us, _SURE_MIN_US), pc.less_equal(moments_us, MAX_US))
    return pc.if_else(known, timestamps, pa.scalar(None, TIMESTAMP))


def moments_array(moments_us: Sequence[int]) -> pa.Array:
    """Return timestamps of numbers of µs, none of them null, several times as fast as `pa.array`."""
    values = memoryview(array("q", moments_us))
    return pa.Array.from_buffers(TIMESTAMP, len(moments_us), [None, pa.py_buffer(values)], 0)


def _from_iso(text: str) -> tuple[int, bool] | None:
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, _, sign, offset_hour, offset_minute = match.groups()
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    offset_hours, offset_minutes = int(offset_hour or 0), int(offset_minute or 0)
    if hours > 23 or offset_hours > 23 or max(minutes, seconds, offset_minutes) > 59:
        return None
    try:
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH_DAY
    except ValueError:
        return None
    offset_s = (offset_hours * 60 + offset_minutes) * (-60 if sign == "-" else 60)
    moment_s = days * 86_400 + hours * 3600 + minutes * 60 + seconds - offset_s
    digits = fraction or ""
    return moment_s * 1_000_000 + int(digits[:6].ljust(6, "0")), not digits[6:].strip("0")


def _from_epoch(value: float | ExactNumber) -> tuple[int, bool] | None:
    if isinstance(value, ExactNumber):
        return _from_digits(value.text)
    scale_us = next((scale for limit, scale in _SCALES_US if abs(value) < limit), None)
    if scale_us is None:
        return None
    if isinstance(value, int):
        return value * scale_us, True
    moment_us = round(value * scale_us)
    return moment_us, moment_us / scale_us == value


def _from_digits(text: str) -> tuple[int, bool] | None:
    if len(text) > 100 or "e" in text.lower():  # no clock writes that
        return None
    exact = Fraction(text)
    scale_us = next((scale for limit, scale in _SCALES_US if abs(exact) < limit), None)
    if scale_us is None:
        return None
    moment = exact * scale_us
    return moment.__floor__(), moment.denominator == 1


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
    filled_us = []
    for index in odd:
        moment_us, holder = _moment(events[index], arrivals_us[index], time_path)
        filled_us.append(moment_us)
        if holder is not None:
            held[holder].append(index)
    return Moments(pc.replace_with_mask(plain, missing, pa.array(filled_us, TIMESTAMP)), held)


def _some_given(
    events: Sequence[Mapping[str, object]],
    arrivals_us: Sequence[int],
    time_path: tuple[str, ...],
    given_us: Sequence[int | None],
) -> Moments:
    others = [index for index, moment_us in enumerate(given_us) if moment_us is None]
    own = moments([events[index] for index in others], [arrivals_us[index] for index in others], time_path)
    all_us = list(given_us)
    for index, moment_us in zip(others, own.array.cast(pa.int64()).to_pylist(), strict=True):
        all_us[index] = moment_us
    return Moments(
        pa.array(all_us, TIMESTAMP), {name: [others[at] for at in places] for name, places in own.held.items()}
    )


def _moment(event: Mapping[str, object], arrival_us: int, time_path: tuple[str, ...]) -> tuple[int, str | None]:
    return own_moment(event, time_path) or (arrival_us, None)


def own_moment(event: Mapping[str, object], time_path: tuple[str, ...] = ()) -> tuple[int, str | None] | None:
    """Return the µs that an event's fields say, and the field that holds nothing but them; None if none says a time."""
    if time_path and (moment := instant(at_path(event, time_path))) is not None:
        return moment[0], None
    for name in TIME_FIELDS:
        sent = event.get(name)
        if sent is None or (name != "ts" and isinstance(sent, (int, float)) and abs(sent) < SECONDS_MIN):
            continue
        if (moment := instant(sent)) is not None:
            return moment[0], name if moment[1] else None
    return None
