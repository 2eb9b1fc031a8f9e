"""The columns of events: each event fills one place of every column, or has reasons why it cannot be a row. Pure.

Values are converted column by column, because a request may contain a hundred thousand events.

- `event_id`, `ts`, `event`, `source`: what the request gives the event (`Given`) comes first.
- `event_id`: see `identity.own_id`; else `<Idempotency-Key>/<position>`; else generated.
- `ts`: see `event_time`.
- `received_at`: the arrival time. An event's own field with that name counts as a field without a column.
- Other columns: the event's own field, else one of the object that it sends as `properties`. See `convert`.
- Fields without a column: the JSON text in `properties` (`properties_text`); if the table has no such column, the event
  is rejected.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.odd_times import FUTURE, UNREADABLE
from alluvia.delta.promoted_spellings import spelled_otherwise
from alluvia.delta.properties import ARRIVAL, REJECT
from alluvia.errors import Invalid
from alluvia.events.ingest.event_time import moments
from alluvia.events.ingest.identity import (
    ID_FIELDS,
    ID_LIMIT_CHARS,
    all_at_path,
    contents_of,
    fallback_id,
    given_id,
    is_plain_id,
    own_id,
)
from alluvia.events.ingest.pointed_numbers import doubt_of
from alluvia.events.ingest.properties_text import texts
from alluvia.events.ingest.rejects import reject_of
from alluvia.events.ingest.values import (
    EventRows,
    Fields,
    OddTime,
    Origin,
    RawEvent,
    all_but,
)
from alluvia.json_values.convert import column, of_json, read_text
from alluvia.json_values.instants import moments_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_BUILT_IN = {"event_id", "ts", "event", "source", "properties", "received_at"}
_ID_PLACES = tuple((name,) for name in ID_FIELDS)
_ODD = {UNREADABLE: "cannot be read as a time", FUTURE: "is more than a day after the event's arrival"}


class Conversion:
    """Events on their way to rows: `rest` holds the fields of each that no column has taken yet."""

    def __init__(self, events: Sequence[RawEvent], schema: pa.Schema, origins: list[Origin], fields: Fields) -> None:
        self.events = events
        self.fields = fields
        self.schema = schema
        self.names = schema.names
        self.origins = origins
        self.values = [event.value for event in events]
        self.rest = [value.copy() for value in self.values]
        self.given = [(index, event.given) for index, event in enumerate(events) if event.given is not None]
        self.reasons: defaultdict[int, list[str]] = defaultdict(list)
        self.odd_times: Mapping[int, OddTime] = {}
        self.keeps_leftovers = "properties" in self.names and schema.field("properties").type == pa.string()
        self.sent_objects: list[tuple[int, dict[str, object]]] = []
        if self.keeps_leftovers and not _BUILT_IN.issuperset(self.names):
            self.sent_objects = self._copied_objects()

    def arrays(self, new_id: Callable[[], str]) -> dict[str, pa.Array]:
        """Return the columns by name."""
        arrays = {"event_id": self.ids(new_id)}
        if self.given:
            self.keep_names()
        for field in self.schema:
            if field.name not in ("event_id", "ts", "received_at", "properties"):
                arrays[field.name] = self.declared(field)
        for name, fill in (("ts", self.moments), ("received_at", self.arrivals), ("properties", self.properties)):
            if name in self.names:
                arrays[name] = fill(self.schema.field(name))
        return arrays

    def ids(self, new_id: Callable[[], str]) -> pa.Array:
        place, ids, others = self._plain_ids()
        for index in others:
            ids[index] = self._id(index, new_id)
        self._drop_null("event_id", others if place == "event_id" else range(len(ids)))
        return pa.array(ids, pa.string())

    def _plain_ids(self) -> tuple[str | None, list[object], Sequence[int]]:
        """Return the ids that stand as text in the first place where any event has one, and whose do not.

        With them the name of that place, if it holds nothing else.
        """
        path = self.fields.id_path
        for place in ((path,) if path else ()) + _ID_PLACES:
            ids = all_at_path(self.values, place)
            kinds = set(map(type, ids))
            if kinds == {type(None)}:
                continue
            others: Sequence[int] = ()
            if kinds != {str} or not all(ids) or max(map(len, ids)) > ID_LIMIT_CHARS:  # type: ignore[arg-type]
                others = [at for at, text in enumerate(ids) if not is_plain_id(text)]
            if self.given:
                others = sorted({*others, *(index for index, _ in self.given)})
            if place is path:
                return None, ids, others
            self._take(place[0], all_but(others, len(ids)))
            return place[0], ids, others
        return None, [None] * len(self.values), range(len(self.values))

    def _id(self, index: int, new_id: Callable[[], str]) -> str | None:
        event = self.events[index]
        try:
            text = given_id(event.given)
            if text is not None:
                if event.value.get("event_id") == text:
                    self._take("event_id", (index,))
                return text
            name, text = own_id(event.value, self.fields.id_path)
        except Invalid as error:
            self.reasons[index].append(str(error))
            return None
        if name is not None:
            self._take(name, (index,))
        if text is not None:
            return text
        key = self.origins[index].idempotency_key
        return event.fallback_id or (fallback_id(key, event.position) if key else new_id())

    def _drop_null(self, name: str, indexes: Iterable[int]) -> None:
        """Drop a field that says nothing where it is null, or an empty text of events that are text, from leftovers."""
        for index in indexes:
            if self.rest[index].get(name, "") is None:
                del self.rest[index][name]
        for index, given in self.given:
            if given.text and self.rest[index].get(name) == "":
                del self.rest[index][name]

    def _take(self, name: str, indexes: Sequence[int]) -> None:
        """Take a field that one column holds completely, unless a column of its own name must be filled as well."""
        if name in ("event_id", "ts") or name not in self.names:
            for index in indexes:
                del self.rest[index][name]

    def keep_names(self) -> None:
        """Keep the names that the request gives events and the table has no columns for, where it has `properties`."""
        for name in ("event", "source"):
            if name not in self.schema.names and self.keeps_leftovers:
                for index, given in self.given:
                    if getattr(given, name):
                        self.rest[index].setdefault(name, getattr(given, name))

    def _copied_objects(self) -> list[tuple[int, dict[str, object]]]:
        """Return the objects sent as `properties`, from which columns may take fields, and the places of the events."""
        copies = []
        for index, fields in enumerate(self.rest):
            if type(sent := fields.get("properties")) is dict:
                fields["properties"] = own = sent.copy()
                copies.append((index, own))
        return copies

    def declared(self, field: pa.Field) -> pa.Array:
        values = self._given_names(field.name) or [fields.pop(field.name, None) for fields in self.rest]
        if field.name not in _BUILT_IN:
            for index, sent in self.sent_objects:
                if values[index] is None and field.name in sent:
                    values[index] = sent.pop(field.name)
        doubts = {
            index: doubt
            for index, given in self.given
            if given.pointed and (doubt := doubt_of(field.type, field.name, given, values[index]))
        }
        texts = {index for index, given in self.given if given.text}
        for index in texts:
            values[index] = read_text(field.type, values[index])
        array, reasons = column(field, values)
        if self.keeps_leftovers and field.name in self.fields.promoted:
            self._keep_spellings(field.name, values, array)
        for index, reason in sorted((reasons | doubts).items()):
            self.reasons[index].append(reason if index in texts else of_json(reason, rejects=True))
        return array

    def _keep_spellings(self, name: str, sent: Sequence[object], array: pa.Array) -> None:
        """Keep the values of a promoted field in `properties` as well where the column writes them in another way."""
        for index in spelled_otherwise(sent, array):
            fields, inner = self.rest[index], self.rest[index].get("properties")
            if self.values[index].get(name) is None:
                fields = inner if isinstance(inner, dict) else fields
            elif isinstance(inner, dict) and name in inner:  # which stays there as another value
                continue
            fields[name] = sent[index]

    def _given_names(self, name: str) -> list[object]:
        """Return a column in which the request's texts come first, and what those events say stays data.

        Empty where the request says nothing about it.
        """
        given = {at: getattr(given, name) for at, given in self.given} if name in ("event", "source") else {}
        names: list[object] = []
        for at, fields in enumerate(self.rest if any(given.values()) else ()):
            said = given.get(at)
            names.append(said or fields.get(name))
            if fields.get(name) in (None, names[-1]):
                fields.pop(name, None)
        return names

    def moments(self, field: pa.Field) -> pa.Array:
        if not pa.types.is_timestamp(field.type):
            return self.declared(field)
        arrivals_us = [origin.arrival_us for origin in self.origins]
        given = [each.given for each in self.events] if self.given else ()
        own = moments(self.values, arrivals_us, self.fields.time_path, given)
        array, moved = own.array, self._judge_times(own.odd)
        if moved:
            mask = pa.array([at in moved for at in range(len(array))])
            array = pc.replace_with_mask(array, mask, moments_array([arrivals_us[at] for at in sorted(moved)]))
        for name, indexes in own.held.items():
            self._take(name, [at for at in indexes if at not in moved] if moved else indexes)
        if moved or len(own.held.get("ts", ())) < len(self.events):
            self._drop_null("ts", range(len(self.events)))
        return _in_type(array, field.type)

    def _judge_times(self, odd_times: Mapping[int, OddTime]) -> set[int]:
        """Refuse the events that the table's properties do not take with their times.

        Returns those that get their arrival in the place of a time that was read.
        """
        self.odd_times = odd_times
        moved = set()
        for at, odd in odd_times.items():
            policy = self.fields.future_time if odd.kind == FUTURE else self.fields.unreadable_time
            if policy == REJECT:
                self.reasons[at].append(f"{odd.field}: {odd.text!r} {_ODD[odd.kind]}")
            elif policy == ARRIVAL and odd.kind == FUTURE:
                moved.add(at)
        return moved

    def arrivals(self, field: pa.Field) -> pa.Array:
        if not pa.types.is_timestamp(field.type):
            return self.declared(field)
        return _in_type(moments_array([origin.arrival_us for origin in self.origins]), field.type)

    def properties(self, field: pa.Field) -> pa.Array:
        if not self.keeps_leftovers:
            return self.declared(field)
        sent = [fields.pop(field.name, None) for fields in self.rest]
        array = pa.array(texts(sent, self.rest), pa.string())
        if not field.nullable and array.null_count:
            for index, text in enumerate(array):
                if not text.is_valid:
                    self.reasons[index].append(f"{field.name}: required, but missing or null")
        return array

    def refuse_leftovers(self) -> None:
        for index, fields in enumerate(self.rest):
            for name in fields:
                fault = "no moment that the column can hold" if name == "ts" else "the table has no such column"
                self.reasons[index].append(f"{name}: {fault}, nor a column properties that would keep it")

    def rows(self, arrays: dict[str, pa.Array]) -> EventRows:
        table = pa.Table.from_arrays([arrays[name] for name in self.schema.names], schema=self.schema)
        everything = range(len(self.events))
        if not self.reasons:
            return EventRows(table, [], [], everything, contents_of(self.events), self.odd_times)
        refused = sorted(self.reasons)
        taken = [index for index in everything if index not in self.reasons]
        rejects = [
            reject_of(self.events[index], "; ".join(self.reasons[index]), self.origins[index], self.fields)
            for index in refused
        ]
        contents = contents_of([self.events[index] for index in taken])
        odd_times = {row: self.odd_times[index] for row, index in enumerate(taken) if index in self.odd_times}
        return EventRows(table.take(pa.array(taken, pa.int64())), rejects, refused, taken, contents, odd_times)


def _in_type(moments: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return moments in µs in the type of a column of times."""
    return moments if moments.type == kind else moments.cast(pa.int64()).cast(kind)
