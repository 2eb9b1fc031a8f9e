"""Alluvia: a serverless lakehouse for event data, on Delta tables and S3 conditional writes."""

from __future__ import annotations

from alluvia.lake import Lake, Table, connect, open_table

__all__ = ["Lake", "Table", "connect", "open_table"]
