"""DuckDB's own module, `_duckdb`, which has everything that this library uses.

The package `duckdb` around it adds names, and reads the metadata of installed packages, which takes as long as loading
DuckDB. Releases without `_duckdb` are loaded as the package, and so is 2.0, whose package adds methods to connections.
Type checkers see the package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["duckdb"]

if TYPE_CHECKING:
    import duckdb
else:
    try:
        import _duckdb as duckdb

        # Names and methods that the library needs.
        duckdb.connect, duckdb.Error, duckdb.tokenize, duckdb.DuckDBPyConnection.to_arrow_reader  # noqa: B018
    except (ImportError, AttributeError):
        import duckdb
