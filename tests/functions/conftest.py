"""Fixtures of the functions' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from alluvia.serverless.settings import environment
from tests.samples import lake as lake  # noqa: PLC0414 - a fixture


@pytest.fixture(scope="package", autouse=True)
def open_to_all() -> Iterator[None]:
    """Let callers do all, as requests of tests come from no authorizer. Tests of authorization say otherwise."""
    with environment({"ALLUVIA_AUTH": "open"}):
        yield
