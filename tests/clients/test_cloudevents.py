"""The CloudEvents SDK's HTTP binding, in its three modes."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.request import Request, urlopen

import pytest
from cloudevents.core.bindings import http
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from tests.clients.conftest import Served


def event(number: int) -> CloudEvent:
    attributes = {
        "id": f"order-{number}", "source": "/shop/é", "type": "order.placed", "subject": "50% “off”",
        "time": datetime(2020, 1, 1, 12, number, tzinfo=UTC), "datacontenttype": "application/json",
    }  # fmt: skip
    return CloudEvent(attributes, {"total": number})


@pytest.mark.parametrize("mode", ["binary", "structured", "batch"])
def test_events_of_the_sdk(served: Served, mode: str) -> None:
    table = f"orders_{served.way}_{mode}"
    events = [event(1), event(2)]
    if mode == "batch":
        body = b"[" + b",".join(_bytes(JSONFormat().write(each)) for each in events) + b"]"
        messages = [({"Content-Type": "application/cloudevents-batch+json"}, body)]
    else:
        write = http.to_binary if mode == "binary" else http.to_structured
        messages = [
            (dict(message.headers), _bytes(message.body)) for message in (write(e, JSONFormat()) for e in events)
        ]
    for headers, body in messages:
        for _ in range(2):
            with urlopen(Request(f"{served.url}/v1/events/{table}", body, headers)) as answer:
                assert answer.status == 200
    for number, row in enumerate(served.rows(table), start=1):
        assert (row["event_id"], row["event"], row["source"]) == (f"order-{number}", "order.placed", "/shop/é")
        assert row["ts"] == datetime(2020, 1, 1, 12, number, tzinfo=UTC)
        assert row["properties"] == {
            "specversion": "1.0", "type": "order.placed", "subject": "50% “off”", "datacontenttype": "application/json",
            "data": {"total": number},
        }  # fmt: skip
    assert len(served.rows(table)) == 2


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
