"""Alluvia: a serverless lakehouse for event data, on Delta tables and S3 conditional writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alluvia import errors

if TYPE_CHECKING:
    from alluvia.lake import Lake, Table, connect, open_table

__all__ = ["Lake", "Table", "connect", "errors", "open_table"]


def __getattr__(name: str) -> Any:
    """Load the library when it is first used: a process that runs a query needs only a part of it."""
    if name not in __all__:
        msg = f"module 'alluvia' has no attribute {name!r}"
        raise AttributeError(msg)
    from alluvia import lake

    return getattr(lake, name)
