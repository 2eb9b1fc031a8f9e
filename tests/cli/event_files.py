"""Files of events in every form."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

EVENTS = [{"event_id": f"e{at}", "event": f"line\n{at}" if at % 3 else "plain", "n": at} for at in range(40)]


def ndjson(events: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


def csv(events: list[dict[str, Any]]) -> bytes:
    rows = [f'{event["event_id"]},"{event["event"]}",{event["n"]}' for event in events]
    return "\n".join(["event_id,event,n", *rows]).encode()


def semicolons(events: list[dict[str, Any]]) -> bytes:
    """Return CSV as spreadsheets write it where the comma is in numbers."""
    rows = [f'{event["event_id"]};"{event["event"]}";{event["n"]}' for event in events]
    return "\r\n".join(['"event_id";event;n', *rows]).encode()


def parquet(events: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(events), sink)
    return sink.getvalue()


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


FORMS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    "lines.ndjson": ndjson,
    "lines.ndjson.gz": lambda events: gzip.compress(ndjson(events)),
    "lines.zst": lambda events: zstd(ndjson(events)),
    "array.json": lambda events: json.dumps(events, indent=1).encode(),
    "line.json": lambda events: json.dumps(events).encode(),
    "table.csv": csv,
    "spreadsheet.csv": lambda events: b"\xef\xbb\xbf\r\n" + semicolons(events),
    "bars.csv": lambda events: semicolons(events).replace(b";", b"|"),
    "table.csv.gz": lambda events: gzip.compress(csv(events)),
    "table.parquet": parquet,
}
