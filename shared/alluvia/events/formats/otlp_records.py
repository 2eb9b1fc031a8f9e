"""Log records of OpenTelemetry as JSON objects: named as in its log data model, empty fields left out. Pure.

Ids are in hexadecimal, bytes in base64. A double that JSON cannot write is the text `NaN`, `Infinity` or `-Infinity`,
as in protobuf's JSON. A key that a list of attributes repeats is `key#2` the second time.
"""

from __future__ import annotations

import base64
import math
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs


def record_value(record: LogRecord, shared: dict[str, object]) -> dict[str, object]:
    """Return a log record with what it shares with others."""
    value: dict[str, object] = {
        "time_unix_nano": record.time_unix_nano,
        "observed_time_unix_nano": record.observed_time_unix_nano,
        "severity_number": record.severity_number,
        "severity_text": record.severity_text,
        "attributes": _object(record.attributes),
        "dropped_attributes_count": record.dropped_attributes_count,
        "flags": record.flags,
        "trace_id": record.trace_id.hex(),
        "span_id": record.span_id.hex(),
        "event_name": record.event_name,
    }
    body = _value(record.body)
    return _filled(value) | ({} if body is None else {"body": body}) | shared


def resource_value(logs: ResourceLogs) -> dict[str, object]:
    """Return what the records of a resource share."""
    value: dict[str, object] = {
        "attributes": _object(logs.resource.attributes),
        "dropped_attributes_count": logs.resource.dropped_attributes_count,
        "schema_url": logs.schema_url,
    }
    return _filled({"resource": _filled(value)})


def scope_value(logs: ScopeLogs) -> dict[str, object]:
    """Return what the records of a scope share."""
    value: dict[str, object] = {
        "name": logs.scope.name,
        "version": logs.scope.version,
        "attributes": _object(logs.scope.attributes),
        "dropped_attributes_count": logs.scope.dropped_attributes_count,
        "schema_url": logs.schema_url,
    }
    return _filled({"scope": _filled(value)})


def _filled(value: dict[str, object]) -> dict[str, object]:
    return {name: item for name, item in value.items() if item}


def _object(pairs: Iterable[KeyValue]) -> dict[str, object]:
    found: dict[str, object] = {}
    again: Counter[str] = Counter()
    for pair in pairs:
        name = pair.key
        while name in found:
            again[pair.key] += 1
            name = f"{pair.key}#{again[pair.key] + 1}"
        found[name] = _value(pair.value)
    return found


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    match kind:
        case "string_value" | "bool_value" | "int_value":
            return getattr(value, kind)
        case "double_value":
            return _double(value.double_value)
        case "array_value":
            return [_value(item) for item in value.array_value.values]
        case "kvlist_value":
            return _object(value.kvlist_value.values)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case _:
            return None


def _double(number: float) -> object:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
