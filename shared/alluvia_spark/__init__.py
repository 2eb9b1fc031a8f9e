"""Alluvia on Spark: reading and writing tables, sessions, and the backfill job."""

from __future__ import annotations

from importlib import import_module

from alluvia.extras import needing
from alluvia_spark.api import delete, read_table, register, update, upsert

__all__ = ["delete", "read_table", "register", "update", "upsert"]

with needing("spark", "alluvia_spark"):
    import_module("pyspark")
