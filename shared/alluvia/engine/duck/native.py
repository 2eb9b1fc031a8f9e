"""DuckDB's own module, `_duckdb`, which has all that the library uses of it.

The package around it adds names, and looks its version up in the metadata of installed packages: that takes as long as
loading DuckDB. Releases without such a module have only the package. Type checkers see that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["duckdb"]

if TYPE_CHECKING:
    import duckdb
else:
    try:
        import _duckdb as duckdb

        duckdb.connect, duckdb.Error, duckdb.tokenize  # noqa: B018 - which the library needs of it
    except (ImportError, AttributeError):
        import duckdb
