"""Alluvia on Spark: reading and writing tables, sessions, and the backfill job."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from alluvia.extras import needing
from alluvia_spark.api import batch_txn, delete, read_table, register, update, upsert, write_table

if TYPE_CHECKING:
    from alluvia_spark import backfill, checking, session

__all__ = [
    "backfill",
    "batch_txn",
    "checking",
    "delete",
    "read_table",
    "register",
    "session",
    "update",
    "upsert",
    "write_table",
]

with needing("spark", "alluvia_spark"):
    import_module("pyspark")


def __getattr__(name: str) -> Any:
    """Return a module that is loaded when it is first used."""
    if name in ("backfill", "checking", "session"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
