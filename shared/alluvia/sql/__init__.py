"""SQL over a lake: one SELECT, run by DuckDB over our own snapshots, confined to the files that it needs."""

from __future__ import annotations

from alluvia.sql.assignments import Assignments, assignments
from alluvia.sql.condition import Condition, condition
from alluvia.sql.constraints import row_check
from alluvia.sql.engine import Limits, Result, run
from alluvia.sql.failures import QueryTooCostly
from alluvia.sql.pairs import PairCondition, pair_condition
from alluvia.sql.scans import TableScan

__all__ = [
    "Assignments",
    "Condition",
    "Limits",
    "PairCondition",
    "QueryTooCostly",
    "Result",
    "TableScan",
    "assignments",
    "condition",
    "pair_condition",
    "row_check",
    "run",
]
