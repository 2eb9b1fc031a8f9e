"""A lake and a database of DuckDB with the same tables, to compare what SQL answers in both."""

from __future__ import annotations

from typing import NamedTuple

import duckdb

import alluvia


class Both(NamedTuple):
    lake: alluvia.Lake
    judge: duckdb.DuckDBPyConnection


def in_both(name: str, *statements: str) -> Both:
    """Return a lake in memory and a database in which these statements have run."""
    both = Both(alluvia.connect(f"memory://{name}"), duckdb.connect())
    for text in statements:
        both.lake.sql(text)
        both.judge.execute(text)
    return both
