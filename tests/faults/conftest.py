from __future__ import annotations

from tests.light_engines import light as light  # noqa: PLC0414 - a fixture
