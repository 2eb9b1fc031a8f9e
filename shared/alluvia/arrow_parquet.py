"""`pyarrow.parquet` as `pq`, loaded when it is first used.

The module loads Arrow's file systems and OpenSSL, which takes half as long as loading Arrow itself. Planning a query
reads no Parquet if the table's log has no checkpoint. Type checkers see `pyarrow.parquet`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["pq"]

if TYPE_CHECKING:
    from pyarrow import parquet as pq
else:

    class _Parquet:
        def __getattr__(self, name):
            from pyarrow import parquet

            return getattr(parquet, name)

    pq = _Parquet()
