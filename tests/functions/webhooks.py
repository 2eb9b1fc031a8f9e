"""A lake with sources of webhooks, and what their senders post."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

import alluvia
from alluvia.clock import ManualClock
from alluvia.events.sources.definition import Source
from alluvia.events.sources.lake_sources import change_sources
from alluvia.serverless import secrets, sqs_sender, warm_lake
from tests.webhooks import NOW_US, SECRETS, SETTINGS, Answer, send, signed

REFUSED = {"error": "the signature is missing, wrong or too old, or there is no such source"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_US)


@pytest.fixture
def lake(tmp_path: Path, clock: ManualClock) -> Iterator[alluvia.Lake]:
    with warm_lake.using(alluvia.connect(str(tmp_path), clock=clock)) as lake:
        yield lake


def define(lake: alluvia.Lake, kind: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Source:
    """Give the lake a source s of a kind, with its secret in SECRET."""
    monkeypatch.setenv("SECRET", SECRETS[kind])
    secret = {} if kind == "open" else {"secret": "env:SECRET"}
    made = Source.read("s", {"kind": kind, "table": "t", **secret, **SETTINGS.get(kind, {}), **more})
    change_sources(lake.store, lambda sources: sources.update(s=made))
    return made


def rows(lake: alluvia.Lake, table: str = "t") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.table(table).scan().read_all().sort_by("event_id").to_pylist()
    return found


def post(of: Source, clock: ManualClock, body: bytes | None = None, **headers: str) -> Answer:
    delivery = signed(of, body, clock.now_us(), **headers)
    return send(delivery.body, delivery.headers)


@contextmanager
def in_aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have an account of AWS that moto plays, with clients that know it alone."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    for client in (secrets._secrets_manager, secrets._ssm, sqs_sender.sqs):
        client.cache_clear()
    with mock_aws():
        yield
    for client in (secrets._secrets_manager, secrets._ssm, sqs_sender.sqs):
        client.cache_clear()
