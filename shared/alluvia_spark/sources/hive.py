"""What the names of a file's folders say, such as `dt=2024-01-01/hour=3/`, as fields of its events. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import orjson
import pyarrow as pa

from alluvia.events.ingest.jsontext import encode
from alluvia.events.ingest.texts import read_text
from alluvia.events.ingest.timestamps import TIMESTAMP
from alluvia.events.ingest.values import RawEvent

_NULL = "__HIVE_DEFAULT_PARTITION__"


def folder_fields(key: str, schema: pa.Schema) -> dict[str, object]:
    """Return the fields that a file's folders name: what the table's columns take for their texts, else texts."""
    found: dict[str, object] = {}
    for folder in key.split("/")[:-1]:
        name, equals, text = folder.partition("=")
        if equals and name and text != _NULL:
            kind = schema.field(name).type if name in schema.names else pa.string()
            given = unquote(text)
            found[unquote(name)] = given if kind == TIMESTAMP else read_text(kind, given)  # an hour, such as 2026112013
    return found


def added_to_lines(lines: Sequence[bytes], fields: Mapping[str, object]) -> list[bytes]:
    """Return lines of JSON with fields at the end of each object that lacks them. Other lines stay as they are."""
    if not fields:
        return list(lines)
    names, text = [orjson.dumps(name) for name in fields], _members(fields)

    def added(line: bytes) -> bytes:
        if not (line.startswith(b"{") and line.endswith(b"}")):
            return line
        members = text
        if b"\\" in line or any(name in line for name in names):  # it may have one of the fields
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError:
                return line
            members = _members({name: each for name, each in fields.items() if name not in value})
        start = line[:-1].rstrip()
        return b"%b%b%b}" % (start, b"," if members and start != b"{" else b"", members)

    return list(map(added, lines))


def added_to_events(events: Sequence[RawEvent], fields: Mapping[str, object]) -> Sequence[RawEvent]:
    """Return events with the fields that they do not have."""
    if not fields:
        return events
    found = []
    for event in events:
        value = {**event.value, **{name: each for name, each in fields.items() if name not in event.value}}
        found.append(event._replace(value=value, raw=None if event.raw is None else encode(value)))
    return found


def _members(fields: Mapping[str, object]) -> bytes:
    return encode(dict(fields))[1:-1]
