"""From events to the rows of a table: every event becomes one row, or one reject that names the fields. Pure.

Values are taken column by column, as a request may bring a hundred thousand events.

- `event_id`: see `identity`; else `<Idempotency-Key>/<position>`; else generated.
- `ts`: see `timestamps.instant`; the arrival if it is absent or cannot be read. Text or a number that the column does
  not give back whole (unreadable, or finer than a microsecond) is kept in `properties.ts` too.
- `received_at`: the arrival. An event's own field of that name is a field without a column.
- Other columns: see `convert`.
- Fields without a column: see `properties`; if the table has no such column, the event is rejected.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.ingest.convert import column
from alluvia.ingest.identity import ID_FIELDS, ID_LIMIT_CHARS, fallback_id, own_id, own_id_or_none, reject_id
from alluvia.ingest.jsontext import encode
from alluvia.ingest.properties import texts
from alluvia.ingest.timestamps import instant, instants
from alluvia.ingest.values import Origin, RawEvent, Reject, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def to_rows(
    events: Sequence[RawEvent],
    schema: pa.Schema,
    *,
    arrival_us: int,
    idempotency_key: str | None,
    new_id: Callable[[], str],
    refused: Mapping[int, str] | None = None,
) -> Rows:
    """Return the events as rows of `schema`, in their order, and the rejects.

    refused: why the table has refused events before, by their index. arrival_us and idempotency_key are those of the
    request, for events without an origin of their own. Raises Invalid if the table has no `event_id` of type string,
    Unsupported for a column that JSON cannot fill.
    """
    if "event_id" not in schema.names or schema.field("event_id").type != pa.string():
        raise Invalid(
            "the table has no column event_id of type string, which ingestion needs: create it as an event table"
        )
    request = Origin(arrival_us, idempotency_key)
    batch = _Batch(events, schema, [event.origin or request for event in events])
    for index, reason in (refused or {}).items():
        batch.reasons[index].append(reason)
    arrays = {"event_id": batch.ids(new_id)}
    for field in schema:
        if field.name not in ("event_id", "ts", "received_at", "properties"):
            arrays[field.name] = batch.declared(field)
    for name, fill in (("ts", batch.moments), ("received_at", batch.arrivals), ("properties", batch.properties)):
        if name in schema.names:
            arrays[name] = fill(schema.field(name))
    if not batch.keeps_leftovers:
        batch.refuse_leftovers()
    return batch.rows(arrays)


class _Batch:
    """Events on their way to rows: `rest` holds the fields of each that no column has taken yet."""

    def __init__(self, events: Sequence[RawEvent], schema: pa.Schema, origins: list[Origin]) -> None:
        self.events = events
        self.schema = schema
        self.origins = origins
        self.rest = [event.value.copy() for event in events]
        self.reasons: defaultdict[int, list[str]] = defaultdict(list)
        self.keeps_leftovers = "properties" in schema.names and schema.field("properties").type == pa.string()

    def ids(self, new_id: Callable[[], str]) -> pa.Array:
        for name in ID_FIELDS:
            found = [fields.get(name) for fields in self.rest]
            kinds = set(map(type, found))
            if name == "event_id" and type(None) in kinds:
                self._drop_nulls(name)
            if kinds == {str} and all(found) and max(map(len, found)) <= ID_LIMIT_CHARS:  # type: ignore[arg-type]
                self._take_id(name, range(len(found)))
                return pa.array(found, pa.string())
            if kinds != {type(None)}:
                break
        return pa.array([self._id(index, event, new_id) for index, event in enumerate(self.events)], pa.string())

    def _id(self, index: int, event: RawEvent, new_id: Callable[[], str]) -> str | None:
        try:
            name, text = own_id(event.value)
        except Invalid as error:
            self.reasons[index].append(str(error))
            return None
        if name is not None:
            self._take_id(name, (index,))
            return text
        key = self.origins[index].idempotency_key
        return event.fallback_id or (fallback_id(key, event.position) if key else new_id())

    def _drop_nulls(self, name: str) -> None:
        for fields in self.rest:
            if fields.get(name, "") is None:
                del fields[name]

    def _take_id(self, name: str, indexes: Sequence[int]) -> None:
        if name == "event_id" or name not in self.schema.names:
            for index in indexes:
                del self.rest[index][name]

    def declared(self, field: pa.Field) -> pa.Array:
        array, reasons = column(field, [fields.pop(field.name, None) for fields in self.rest])
        for index, reason in reasons.items():
            self.reasons[index].append(reason)
        return array

    def moments(self, field: pa.Field) -> pa.Array:
        if not pa.types.is_timestamp(field.type):
            return self.declared(field)
        sent = [fields.pop(field.name, None) for fields in self.rest]
        plain = instants(sent)
        if plain is not None:
            return plain if plain.type == field.type else plain.cast(pa.int64()).cast(field.type)
        return pa.array([self._moment(index, value) for index, value in enumerate(sent)], field.type)

    def _moment(self, index: int, value: object) -> int:
        arrival_us = self.origins[index].arrival_us
        if value is None:
            return arrival_us
        found = instant(value)
        if found is None or not found[1]:
            self.rest[index]["ts"] = value
        return arrival_us if found is None else found[0]

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

    def rows(self, arrays: dict[str, pa.Array]) -> Rows:
        table = pa.Table.from_arrays([arrays[name] for name in self.schema.names], schema=self.schema)
        if not self.reasons:
            return Rows(table, [], [])
        refused = sorted(self.reasons)
        fits = pa.array([index not in self.reasons for index in range(len(self.events))], pa.bool_())
        return Rows(table.filter(fits), [self._reject(index) for index in refused], refused)

    def _reject(self, index: int) -> Reject:
        event = self.events[index]
        raw = encode(event.value) if event.raw is None else event.raw
        event_id = own_id_or_none(event.value) or reject_id(self.origins[index].idempotency_key, event.position, raw)
        return Reject(event.position, "; ".join(self.reasons[index]), raw, event_id)
