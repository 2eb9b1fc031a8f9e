"""Large posts wait for their turn, and small ones do not wait for them."""

from __future__ import annotations

import gzip
import io
import json
import threading
from typing import Any

import pytest

from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.server.gateway import Gateway, ServerRules
from alluvia.server.guards import UPLOADS, Slots, uploads_of

SMALL = b'{"event_id":"a"}'
LARGE = b'{"event_id":"' + b"a" * 70_000 + b'"}'


def post(gateway: Gateway, body: bytes) -> tuple[int, dict[str, Any]]:
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/v1/events/app",
        "HTTP_HOST": "localhost",
        "wsgi.input": io.BytesIO(body),
    }
    statuses: list[str] = []
    [answer] = gateway(environ, lambda status, _: statuses.append(status))
    return int(statuses[0].split()[0]), json.loads(answer)


@pytest.mark.parametrize("large", [LARGE, gzip.compress(SMALL, mtime=0), b"\x28\xb5\x2f\xfd" + SMALL])
def test_a_large_post_takes_a_slot_and_a_small_one_does_not(large: bytes) -> None:
    gateway = Gateway(ManualClock(), ServerRules(large=Slots(1, 0)))
    arrived, opened = threading.Event(), threading.Event()

    def take(event: dict[str, Any], _: Any) -> dict[str, Any]:
        if not arrived.is_set():
            arrived.set()
            assert opened.wait(30)
        return {"statusCode": 200, "headers": {}, "body": "{}"}

    gateway._ingest = take
    first: list[int] = []
    thread = threading.Thread(target=lambda: first.append(post(gateway, large)[0]))
    thread.start()
    assert arrived.wait(30)
    status, answer = post(gateway, large)
    assert (status, "too many large posts are waiting" in answer["error"]) == (503, True)
    assert post(gateway, SMALL)[0] == 200
    opened.set()
    thread.join(30)
    assert first == [200]
    assert post(gateway, large)[0] == 200


def test_a_setting_says_how_many_uploads_are_processed_at_once() -> None:
    assert uploads_of({}) == UPLOADS == Slots(2, 30)
    assert uploads_of({"ALLUVIA_UPLOADS_AT_ONCE": "1"}) == Slots(1, 30)
    for wrong in ("0", "33", "two"):
        with pytest.raises(Invalid, match="ALLUVIA_UPLOADS_AT_ONCE is"):
            uploads_of({"ALLUVIA_UPLOADS_AT_ONCE": wrong})
