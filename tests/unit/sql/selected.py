"""Rows that SQL returns, as tuples, and tables to merge."""

from __future__ import annotations

from typing import Any

import alluvia

TO_MERGE = (
    "CREATE TABLE t (id BIGINT, n BIGINT, s STRING); CREATE TABLE u (id INT, n INT, x STRING)",
    "INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
    "INSERT INTO u VALUES (2, 200, 'y'), (3, 300, 'z'), (4, 400, 'w')",
)
"""Tables `t` of three rows and `u` of three, two of whose ids are in `t`."""


def rows(lake: alluvia.Lake, query: str = "FROM t ORDER BY ALL", parameters: Any = None) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(query, parameters).to_pylist()]
