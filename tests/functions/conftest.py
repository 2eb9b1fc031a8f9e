"""Fixtures of the functions' tests."""

from __future__ import annotations

from tests.samples import lake as lake  # noqa: PLC0414 - a fixture
