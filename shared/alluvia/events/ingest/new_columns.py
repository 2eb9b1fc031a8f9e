"""Which sampled events have the fields of columns that were just added, and which values the columns do not take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from alluvia.delta.schema.types import type_name
from alluvia.events.ingest.suggest import SAMPLE, newest_events
from alluvia.json_values.convert import column
from alluvia.json_values.jsontext import decode_all, encode
from alluvia.operations.catalog.catalog import WritableCatalog

_CHARS_MAX = 60
_DEPTH_MAX = 4
_PLACES_MAX = 3


def remarks(catalog: WritableCatalog, name: str, columns: Sequence[str]) -> list[str]:
    """Return a sentence for each column that no sampled event has, or that does not take some of the values.

    Reads at most 64 of the newest files, as `suggest` does.
    """
    table = catalog.handle(name)
    schema = table.newest().schema
    events = [each for each in decode_all([one.text for one in newest_events(table, SAMPLE)]) if isinstance(each, dict)]
    said = [_remark(schema.field(each), events) for each in columns] if events else []
    return [each for each in said if each]


def _remark(field: pa.Field, events: Sequence[Mapping[str, object]]) -> str:
    values = [event[field.name] for event in events if event.get(field.name) is not None]
    if not values:
        return _absent(field.name, events)
    misfits = sorted(column(field, values)[1])
    if not misfits:
        return ""
    example = encode(values[misfits[0]]).decode(errors="replace")
    shown = example if len(example) <= _CHARS_MAX else f"{example[: _CHARS_MAX - 1]}…"
    return (
        f"{field.name}: {len(misfits):,} of {len(values):,} values in {len(events):,} sampled events do not fit "
        f"{type_name(field.type)}, such as {shown}: they stay in properties, and the column is null there; new events "
        "with such values become rejects"
    )


def _absent(name: str, events: Sequence[Mapping[str, object]]) -> str:
    found: dict[str, int] = {}
    for event in events:
        for path in set(_paths(event, name.split("."))):
            found[path] = found.get(path, 0) + 1
    said = f"{name}: none of {len(events):,} sampled events has a field of this name"
    if not found:
        return said
    places = sorted(found, key=lambda path: (-found[path], path))[:_PLACES_MAX]
    first, *rest = places[0].split(".")
    read = "".join(f"->'{each}'" for each in (first, *rest)[:-1])
    return (
        f"{said} at its top, and a column takes no other; there is {', '.join(places)}: query it as "
        f"(properties{read}->>'{places[0].rpartition('.')[2]}'), or add a struct column {first}"
    )


def _paths(value: Mapping[str, object], wanted: Sequence[str], path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the places of fields in objects whose last names are those wanted."""
    for key, inner in value.items():
        here = (*path, key)
        if path and inner is not None and list(here[-len(wanted) :]) == list(wanted):
            yield ".".join(here)
        if isinstance(inner, dict) and len(here) < _DEPTH_MAX:
            yield from _paths(inner, wanted, here)
