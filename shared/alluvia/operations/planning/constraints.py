"""CHECK constraints on rows that are to be written. Only a table that has one loads what checks them, and DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from alluvia.engine.conditions.constraints import ConstraintCheck


def row_check(constraints: Mapping[str, str], schema: pa.Schema) -> ConstraintCheck | None:
    """Return the check of constraints on rows of a schema; None without one.

    Raises `Unsupported`, naming a constraint that cannot be checked here.
    """
    if not constraints:
        return None
    from alluvia.engine.conditions.constraints import ConstraintCheck

    return ConstraintCheck(constraints, schema)
