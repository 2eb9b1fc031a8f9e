"""The sample events under `events/`, and a lake that takes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import alluvia

EVENTS = Path(__file__).parents[1] / "events"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    """The lake that the functions work on, with the tables of the samples. A module may have a `lake` of its own."""
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path))
    lake = alluvia.connect(str(tmp_path))
    for name in ("access_log", "github_webhooks"):
        lake.create_events(name)
    return lake


def payload(name: str) -> dict[str, Any]:
    """Return a sample."""
    return dict(json.loads((EVENTS / f"{name}.json").read_text()))


def post(body: str, table: str = "access_log", **headers: str) -> dict[str, Any]:
    """Return a request with events for a table."""
    event = payload("ingest_api_gateway") | {"body": body, "rawPath": f"/v1/events/{table}", "isBase64Encoded": False}
    event["requestContext"]["http"]["path"] = event["rawPath"]
    return event | {"headers": {name.replace("_", "-"): value for name, value in headers.items()}}
