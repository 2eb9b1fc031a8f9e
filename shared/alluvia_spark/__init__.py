"""Alluvia on Spark: sessions and the backfill job."""

from __future__ import annotations

from importlib import import_module

from alluvia.extras import needing

with needing("spark", "alluvia_spark"):
    import_module("pyspark")
