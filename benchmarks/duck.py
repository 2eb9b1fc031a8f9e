"""DuckDB with its extensions for Delta and S3, of the last version with wheels of them, in a process of its own."""

from __future__ import annotations

from typing import Any

from tests.peer_duckdb import Peer


def connect(options: dict[str, Any], *extensions: str) -> Peer:
    """Return a new database that can read from the S3 server with these options."""
    return Peer(*extensions, options=options)
