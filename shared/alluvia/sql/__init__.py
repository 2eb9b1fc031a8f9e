"""SQL over a lake: one SELECT, run by DuckDB over our own snapshots, confined to the files that it needs."""

from __future__ import annotations

from alluvia.sql.condition import Condition, condition
from alluvia.sql.engine import Limits, Result, run
from alluvia.sql.failures import QueryTooCostly
from alluvia.sql.scans import TableScan

__all__ = ["Condition", "Limits", "QueryTooCostly", "Result", "TableScan", "condition", "run"]
