"""What tests of conversions share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from alluvia.api.lake import Table

Write = Callable[..., None]


def xs(table: Table, **options: Any) -> list[int]:
    return sorted(table.scan(["x"], **options).read_all()["x"].to_pylist())


def statistics(table: Table, path: str) -> dict[str, Any]:
    stats: dict[str, Any] = orjson.loads(next(f.stats for f in table.snapshot().files if f.path == path) or "")
    return stats
