"""Alluvia: a serverless lakehouse for event data, on Delta tables and S3 conditional writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alluvia import errors
from alluvia.errors import (
    AlluviaError,
    CommitUnknown,
    Conflict,
    Corrupt,
    Invalid,
    NotInstalled,
    TableExists,
    TableNotFound,
    Unavailable,
    Unsupported,
    VersionExpired,
    VersionNotFound,
)
from alluvia.version import __version__

if TYPE_CHECKING:
    from alluvia.api.lake import Lake, Table, connect, open_table
    from alluvia.api.served_lake import ServedLake, connect_server
    from alluvia.delta.snapshot import Snapshot

__all__ = [
    "AlluviaError",
    "CommitUnknown",
    "Conflict",
    "Corrupt",
    "Invalid",
    "Lake",
    "NotInstalled",
    "ServedLake",
    "Snapshot",
    "Table",
    "TableExists",
    "TableNotFound",
    "Unavailable",
    "Unsupported",
    "VersionExpired",
    "VersionNotFound",
    "__version__",
    "connect",
    "connect_server",
    "errors",
    "open_table",
]


def __getattr__(name: str) -> Any:
    """Load the library when it is first used: a process that runs a query needs only a part of it."""
    if name in ("ServedLake", "connect_server"):
        from alluvia.api import served_lake

        return getattr(served_lake, name)
    if name in __all__:
        from alluvia.api import lake
        from alluvia.delta import snapshot

        return getattr(snapshot if name == "Snapshot" else lake, name)
    from alluvia.api.api_hints import MODULE, no_attribute

    raise no_attribute("alluvia", name, MODULE, __all__)


def __dir__() -> list[str]:
    return __all__
