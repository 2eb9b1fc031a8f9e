"""Rows that SQL returns, as tuples, tables to merge, and tables in schemas."""

from __future__ import annotations

from itertools import count
from typing import Any

import alluvia

TO_MERGE = (
    "CREATE TABLE t (id BIGINT, n BIGINT, s STRING); CREATE TABLE u (id INT, n INT, x STRING)",
    "INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
    "INSERT INTO u VALUES (2, 200, 'y'), (3, 300, 'z'), (4, 400, 'w')",
)
"""Tables `t` of three rows and `u` of three, two of whose ids are in `t`."""
WITH_SCHEMAS = (
    "CREATE SCHEMA bronze",
    "CREATE SCHEMA silver",
    "CREATE TABLE bronze.events (id BIGINT, name STRING, s STRUCT(a INT))",
    "CREATE TABLE silver.events (id BIGINT, name STRING)",
    "CREATE TABLE events (id BIGINT)",
    "INSERT INTO bronze.events VALUES (1, 'a', {'a': 5}), (2, 'b', {'a': 6})",
    "INSERT INTO silver.events VALUES (1, 'x'), (3, 'z')",
    "INSERT INTO events VALUES (2)",
)
_NUMBERS = count()


def rows(lake: alluvia.Lake, query: str = "FROM t ORDER BY ALL", parameters: Any = None) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.sql(query, parameters).to_pylist()]


def lake_with_schemas() -> alluvia.Lake:
    """Return a lake with a table `events` in each of three schemas."""
    lake = alluvia.connect(f"memory://schemas {next(_NUMBERS)}")
    for text in WITH_SCHEMAS:
        lake.sql(text)
    return lake
