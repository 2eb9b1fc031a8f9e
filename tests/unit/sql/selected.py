"""Rows that SQL returns, as tuples."""

from __future__ import annotations

from typing import Any

import alluvia


def rows(lake: alluvia.Lake, query: str = "FROM t ORDER BY ALL", parameters: Any = None) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(query, parameters).to_pylist()]
