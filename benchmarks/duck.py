"""DuckDB connections of the benchmarks: with its extensions from their wheels, and the S3 server's credentials."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb


def connect(options: dict[str, Any], *extensions: str) -> duckdb.DuckDBPyConnection:
    """Return a new database that can read from the S3 server with these options."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    load(connection, "httpfs", *extensions)
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{options['access_key_id']}', SECRET '{options['secret_access_key']}', "
        f"REGION '{options['region']}', ENDPOINT '{options['endpoint_url'].removeprefix('http://')}', "
        "URL_STYLE 'path', USE_SSL false)"
    )
    return connection


def load(connection: duckdb.DuckDBPyConnection, *extensions: str) -> None:
    """Load extensions from their wheels; the connection must allow unsigned ones, as ours does."""
    for name in extensions:
        package = find_spec(f"duckdb_extension_{name}")
        assert package is not None
        assert package.submodule_search_locations is not None
        (path,) = Path(package.submodule_search_locations[0]).glob(f"extensions/*/{name}.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
