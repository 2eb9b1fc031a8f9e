"""Calls whose clients do not send what they are to send."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from threading import Event
from typing import Any

import grpc
import pytest

from alluvia.api.lake import Lake
from alluvia.flight import service
from alluvia.flight.service import SERVICE, Gate, serving
from alluvia.flight.statements import StatementRules
from alluvia.query.limits import QueryLimits
from alluvia.serverless.authorization import Authorization


@pytest.fixture
def channel(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[grpc.Channel]:
    monkeypatch.setattr(service, "_GRACE_SECONDS", 0.0)
    rules = StatementRules(QueryLimits(timeout_seconds=0.05), 1 << 20, False, lambda _: [])
    gate = Gate(lambda: Authorization("open"), nullcontext, lambda _: None)
    with (
        serving(lake, lambda: rules, gate, "127.0.0.1", 0) as port,
        grpc.insecure_channel(f"127.0.0.1:{port}") as found,
    ):
        yield found


def test_a_request_has_to_come_in_time(channel: grpc.Channel, capfd: pytest.CaptureFixture[str]) -> None:
    never = Event()
    for method in ("GetFlightInfo", "GetSchema", "DoGet", "DoAction", "DoPut"):
        call: Any = channel.stream_stream(f"/{SERVICE}/{method}")
        assert call(iter(never.wait, True), timeout=20).code() is grpc.StatusCode.CANCELLED, method
    never.set()
    assert "Traceback" not in capfd.readouterr().err
