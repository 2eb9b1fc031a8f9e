"""DuckDB as a place to sort, count and join rows that an operation is working on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def scratch_database(
    folder: Path | None = None, *, on_disk: bool = False, settings: Mapping[str, str] | None = None
) -> DuckDBPyConnection:
    """Open an empty database in UTC that installs nothing and sees no variable of Python's.

    It spills into `folder`; without one it does not. `on_disk` keeps its tables there too. `settings` are DuckDB's.
    """
    import duckdb  # loaded late: it would lengthen the cold start of functions that seldom need it

    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
        "temp_directory": "" if folder is None else str(folder / "spill"),
        **(settings or {}),
    }
    connection = duckdb.connect(str(folder / "scratch.duckdb") if folder and on_disk else ":memory:", config=config)
    connection.execute("SET TimeZone = 'UTC'")
    return connection
