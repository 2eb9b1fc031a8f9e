"""DuckDB connections that can do only what a query needs.

A connection starts open, so that it can get an extension, credentials and views. Then `confine` locks it permanently:
it can read exactly the given files, and cannot change settings, load extensions or see Python's variables.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from alluvia.duck.quoting import quote_text
from alluvia.errors import NotInstalled, Unavailable

if TYPE_CHECKING:
    import duckdb

PLANNER_MEMORY = "256MB"
EXPRESSION_DEPTH_MAX = 250
HTTP_TIMEOUT_SECONDS = 20

_CLOSED = {
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}

_lock = threading.Lock()
_shared: dict[str, duckdb.DuckDBPyConnection] = {}


def connect(options: Mapping[str, str]) -> duckdb.DuckDBPyConnection:
    """Open an empty database in memory, in UTC, with errors as JSON. `options` are DuckDB's, as text."""
    import duckdb  # loaded late: what only plans queries does without

    connection = duckdb.connect(":memory:", config={**_CLOSED, **options})
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    connection.execute("SET GLOBAL errors_as_json = true")
    return connection


def confine(connection: duckdb.DuckDBPyConnection, paths: Sequence[str] = ()) -> None:
    """Shut the connection's database: from now on it opens these files and nothing else."""
    if paths:
        connection.execute(f"SET allowed_paths = [{', '.join(map(quote_text, paths))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def planner() -> duckdb.DuckDBPyConnection:
    """Return a cursor on a database that parses and computes constants, and has no tables, files or network."""
    return _cursor(
        "planner", {"memory_limit": PLANNER_MEMORY}, f"SET GLOBAL max_expression_depth = {EXPRESSION_DEPTH_MAX}"
    )


def evaluator() -> duckdb.DuckDBPyConnection:
    """Return a cursor on a database that computes expressions, and has no tables, files or network.

    What is registered with a cursor, and its transaction, are its own.
    """
    return _cursor("evaluator", {})


def _cursor(name: str, options: Mapping[str, str], *settings: str) -> duckdb.DuckDBPyConnection:
    """Return a cursor on a confined database that all of the process share: opening one takes 9 ms."""
    with _lock:
        if name not in _shared:
            connection = connect({"threads": "1", "temp_directory": "", **options})
            for setting in settings:
                connection.execute(setting)
            confine(connection)
            _shared[name] = connection
        return _shared[name].cursor()


# Loading is refused once a database is shut. The one extension that we load comes from a wheel whose hash the lock file
# pins; DuckDB's check of its signature would read and hash 20 MB for every query.
S3_OPTIONS = {"allow_unsigned_extensions": "true"}


def use_s3(connection: duckdb.DuckDBPyConnection, secret: Mapping[str, str | bool]) -> None:
    """Load httpfs from its wheel and hand it credentials; parameters are those of `CREATE SECRET (TYPE s3, …)`.

    The connection must have been opened with `S3_OPTIONS`.
    """
    connection.execute(f"LOAD {quote_text(str(_httpfs()))}")
    connection.execute(f"SET http_timeout = {HTTP_TIMEOUT_SECONDS}")
    # Every data file is immutable, so what is known of it holds for the whole query.
    connection.execute("SET enable_http_metadata_cache = true")
    connection.execute("CALL enable_logging('HTTP')")  # in memory: requests are counted by it
    import duckdb

    parameters = ", ".join(
        f"{name} {str(value).lower() if isinstance(value, bool) else quote_text(value)}"
        for name, value in secret.items()
        if name.isidentifier()
    )
    try:
        connection.execute(f"CREATE SECRET alluvia (TYPE s3, PROVIDER config, {parameters})")
    except duckdb.Error:
        # DuckDB's message can quote the statement, and so the credentials.
        raise Unavailable("DuckDB rejects the lake's S3 credentials, region or endpoint: check them") from None


def requests_sent(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Return how many requests a connection's database has sent since `use_s3`, by kind, such as get and head."""
    cursor = connection.cursor()  # in a transaction of its own: that of a query may have failed
    kinds = "SELECT lower(request.type::VARCHAR), count(*) FROM duckdb_logs_parsed('HTTP') GROUP BY ALL"
    return dict(cursor.execute(kinds).fetchall())


@cache
def _httpfs() -> Path:
    from importlib.util import find_spec

    import duckdb

    spec = find_spec("duckdb_extension_httpfs")
    folder = next(iter(spec.submodule_search_locations or ()), None) if spec else None
    path = Path(folder or "", "extensions", f"v{duckdb.__version__}", "httpfs.duckdb_extension")
    if not path.is_file():
        package = f"duckdb-extension-httpfs=={duckdb.__version__}"
        raise NotInstalled(f"a query on S3 needs the package {package}: pip install 'alluvia[aws]'")
    return path
