"""One event in each format, to try a source with. Pure."""

from __future__ import annotations

import base64
import csv
import io
from urllib.parse import urlencode

import orjson

from alluvia.events.formats.values import SentBody

_NAME, _NOTE = "alluvia.test", "a test of this source"


def sample_in(name: str, event_id: str, now_us: int, delimiter: str = "") -> SentBody:
    """Return a request of one event in the format of that name. `delimiter` is that of CSV; "" for a comma."""
    event = {"event_id": event_id, "event": _NAME, "note": _NOTE}
    said: dict[str, object]
    headers: dict[str, str] = {}
    kind = "application/json"
    if name == "csv":
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=delimiter or ",", lineterminator="\n").writerows([event.keys(), event.values()])
        body, kind = text.getvalue().encode(), "text/csv"
    elif name == "form":
        body, kind = urlencode(event).encode(), "application/x-www-form-urlencoded"
    elif name == "cloudevents":
        said = {"specversion": "1.0", "id": event_id, "source": "/alluvia", "type": _NAME, "data": {"note": _NOTE}}
        body, kind = orjson.dumps(said), "application/cloudevents+json"
    elif name == "firehose":
        record = base64.b64encode(orjson.dumps(event)).decode()
        said = {"requestId": event_id, "timestamp": now_us // 1000, "records": [{"data": record}]}
        body, headers = orjson.dumps(said), {"x-amz-firehose-request-id": event_id}
    elif name == "otlp":
        line = {"timeUnixNano": str(now_us * 1000), "eventName": _NAME, "body": {"stringValue": f"{_NOTE}: {event_id}"}}
        body = orjson.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [line]}]}]})
    elif name == "segment":
        body = orjson.dumps({"type": "track", "event": _NAME, "messageId": event_id, "userId": "test"})
    else:
        body = orjson.dumps(event)
    return SentBody({"content-type": kind, **headers}, body, now_us)
