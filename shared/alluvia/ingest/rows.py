"""From events to the rows of a table: every event becomes one row, or one reject that names the fields. Pure.

Values are converted column by column, because a request may contain a hundred thousand events.

- `event_id`, `ts`, `event`, `source`: what the request gives the event (`Given`) comes first.
- `event_id`: see `identity.own_id`; else `<Idempotency-Key>/<position>`; else generated.
- `ts`: see `moments`.
- `received_at`: the arrival time. An event's own field with that name counts as a field without a column.
- Other columns: see `convert`.
- Fields without a column: see `properties`; if the table has no such column, the event is rejected.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.ingest.convert import column
from alluvia.ingest.identity import ID_FIELDS, ID_LIMIT_CHARS, at_path, fallback_id, given_id, own_id
from alluvia.ingest.moments import moments
from alluvia.ingest.properties import texts
from alluvia.ingest.rejects import reject_of
from alluvia.ingest.values import NO_FIELDS, EventRows, Fields, Origin, RawEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def to_rows(
    events: Sequence[RawEvent],
    schema: pa.Schema,
    *,
    arrival_us: int,
    idempotency_key: str | None,
    new_id: Callable[[], str],
    fields: Fields = NO_FIELDS,
    refused: Mapping[int, str] | None = None,
) -> EventRows:
    """Return the events as rows of `schema`, in their order, and the rejects.

    fields: those that the table's properties name. refused: why the table has refused events before, by their index.
    arrival_us and idempotency_key are those of the request, for events without an origin of their own. Raises Invalid
    if the table has no `event_id` of type string, Unsupported for a column that JSON cannot fill.
    """
    if "event_id" not in schema.names or schema.field("event_id").type != pa.string():
        raise Invalid(
            "the table has no column event_id of type string, which ingestion needs: create it as an event table"
        )
    request = Origin(arrival_us, idempotency_key)
    batch = _Conversion(events, schema, [event.origin or request for event in events], fields)
    for index, reason in (refused or {}).items():
        batch.reasons[index].append(reason)
    arrays = batch.arrays(new_id)
    if not batch.keeps_leftovers:
        batch.refuse_leftovers()
    return batch.rows(arrays)


def as_far_as_possible(events: Sequence[RawEvent], schema: pa.Schema, fields: Fields = NO_FIELDS) -> pa.Table:
    """Return the events as rows of `schema`, in their order, with null for each value that does not fit.

    Events without an id or a time of their own get none that means anything.
    """
    batch = _Conversion(events, schema, [Origin(0)] * len(events), fields)
    arrays = batch.arrays(lambda: "")
    nullable = pa.schema([field.with_nullable(True) for field in schema])
    return pa.Table.from_arrays([arrays[name] for name in schema.names], schema=nullable)


class _Conversion:
    """Events on their way to rows: `rest` holds the fields of each that no column has taken yet."""

    def __init__(self, events: Sequence[RawEvent], schema: pa.Schema, origins: list[Origin], fields: Fields) -> None:
        self.events = events
        self.fields = fields
        self.schema = schema
        self.origins = origins
        self.rest = [event.value.copy() for event in events]
        self.given = [(index, event.given) for index, event in enumerate(events) if event.given is not None]
        self.reasons: defaultdict[int, list[str]] = defaultdict(list)
        self.keeps_leftovers = "properties" in schema.names and schema.field("properties").type == pa.string()

    def arrays(self, new_id: Callable[[], str]) -> dict[str, pa.Array]:
        """Return the columns by name."""
        found = {"event_id": self.ids(new_id)}
        if self.given:
            self.keep_names()
        for field in self.schema:
            if field.name not in ("event_id", "ts", "received_at", "properties"):
                found[field.name] = self.declared(field)
        for name, fill in (("ts", self.moments), ("received_at", self.arrivals), ("properties", self.properties)):
            if name in self.schema.names:
                found[name] = fill(self.schema.field(name))
        return found

    def ids(self, new_id: Callable[[], str]) -> pa.Array:
        ids = (None if self.given else self._plain_ids()) or [
            self._id(index, event, new_id) for index, event in enumerate(self.events)
        ]
        for fields in self.rest:
            if fields.get("event_id", "") is None:
                del fields["event_id"]
        return pa.array(ids, pa.string())

    def _plain_ids(self) -> list[object] | None:
        """Return the ids if all events have theirs in one place, as text."""
        path = self.fields.id_path
        for place in [path] if path else [(name,) for name in ID_FIELDS]:
            found = [at_path(event.value, place) for event in self.events]
            kinds = set(map(type, found))
            if kinds == {str} and all(found) and max(map(len, found)) <= ID_LIMIT_CHARS:  # type: ignore[arg-type]
                if not path:
                    self._take(place[0], range(len(found)))
                return found
            if kinds != {type(None)}:
                break
        return None

    def _id(self, index: int, event: RawEvent, new_id: Callable[[], str]) -> str | None:
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

    def _take(self, name: str, indexes: Sequence[int]) -> None:
        """Take a field that one column holds completely, unless a column of its own name must be filled as well."""
        if name in ("event_id", "ts") or name not in self.schema.names:
            for index in indexes:
                del self.rest[index][name]

    def keep_names(self) -> None:
        """Keep the names that the request gives events and the table has no columns for, where it has `properties`."""
        for name in ("event", "source"):
            if name not in self.schema.names and self.keeps_leftovers:
                for index, given in self.given:
                    if getattr(given, name):
                        self.rest[index].setdefault(name, getattr(given, name))

    def declared(self, field: pa.Field) -> pa.Array:
        array, reasons = column(field, self._given_names(field.name) or [f.pop(field.name, None) for f in self.rest])
        for index, reason in reasons.items():
            self.reasons[index].append(reason)
        return array

    def _given_names(self, name: str) -> list[object]:
        """Return a column in which the request's texts come first, and what those events say stays data.

        Empty where the request says nothing about it.
        """
        given = {at: getattr(given, name) for at, given in self.given} if name in ("event", "source") else {}
        found: list[object] = []
        for at, fields in enumerate(self.rest if any(given.values()) else ()):
            said = given.get(at)
            found.append(said or fields.get(name))
            if fields.get(name) in (None, found[-1]):
                fields.pop(name, None)
        return found

    def moments(self, field: pa.Field) -> pa.Array:
        if not pa.types.is_timestamp(field.type):
            return self.declared(field)
        arrivals_us = [origin.arrival_us for origin in self.origins]
        given_us = [each.given.ts_us if each.given else None for each in self.events] if self.given else ()
        found = moments([event.value for event in self.events], arrivals_us, self.fields.time_path, given_us)
        for name, indexes in found.held.items():
            self._take(name, indexes)
        for fields in self.rest:
            if fields.get("ts", "") is None:
                del fields["ts"]
        return found.array if found.array.type == field.type else found.array.cast(pa.int64()).cast(field.type)

    def arrivals(self, field: pa.Field) -> pa.Array:
        if not pa.types.is_timestamp(field.type):
            return self.declared(field)
        return pa.array([origin.arrival_us for origin in self.origins], field.type)

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
            return EventRows(table, [], [], everything)
        refused = sorted(self.reasons)
        taken = [index for index in everything if index not in self.reasons]
        rejects = [
            reject_of(self.events[index], "; ".join(self.reasons[index]), self.origins[index], self.fields)
            for index in refused
        ]
        return EventRows(table.take(pa.array(taken, pa.int64())), rejects, refused, taken)
