"""`pyarrow.parquet` as `pq`, loaded when it is first used.

It loads Arrow's file systems, and with them OpenSSL, which takes half as long as Arrow itself. A query of a table whose
log has no checkpoint reads no Parquet in the process that plans it. Type checkers see `pyarrow.parquet`.
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
