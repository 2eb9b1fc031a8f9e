"""The options of a profile, and the lake that they name."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from dbt.adapters.contracts.connection import Credentials
from dbt_common.exceptions import DbtRuntimeError

import alluvia
from alluvia.api.served_lake import ServedLake, connect_server
from alluvia.errors import AlluviaError
from alluvia.table_names import DATABASE, SCHEMA

AnyLake = alluvia.Lake | ServedLake
_SERVER_ONLY = ("token", "auth")


@dataclass
class AlluviaCredentials(Credentials):
    """An output of a profile: `path` for a lake that this process opens, or `url` for a server."""

    database: str = DATABASE
    schema: str = SCHEMA
    path: str | None = None
    url: str | None = None
    token: str | None = None
    auth: str | None = None
    region: str | None = None
    branch: str | None = None
    timeout_seconds: float | None = None
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._opening = Lock()
        self._lake: AnyLake | None = None
        if self.database != DATABASE:
            raise DbtRuntimeError(f"database: a lake has one database, {DATABASE!r}: leave the option out")
        if (self.path is None) == (self.url is None):
            raise DbtRuntimeError(
                "name the lake by path (a directory, or s3://bucket/prefix) or by url (a server's): one of the two"
            )
        if self.url is not None and not self.url.lower().startswith(("http://", "https://")):
            raise DbtRuntimeError(f"url: expected http://… or https://…, got {self.url!r}: a lake's place is its path")
        if self.path is not None:
            if self.path.lower().startswith(("http://", "https://")):
                raise DbtRuntimeError("path: this is the address of a server: give it as url")
            given = next((name for name in _SERVER_ONLY if getattr(self, name) is not None), None)
            if given is not None:
                raise DbtRuntimeError(f"{given} is an option of servers (url), and path opens the lake without one")
        elif self.options:
            raise DbtRuntimeError("options are those of the lake's store: a server (url) takes none")

    @property
    def type(self) -> str:
        return "alluvia"

    @property
    def unique_field(self) -> str:
        return self.url or self.path or ""

    def _connection_keys(self) -> tuple[str, ...]:
        return ("path", "url", "auth", "region", "branch", "database", "schema", "timeout_seconds")

    def lake(self) -> AnyLake:
        """Return the lake, which all connections share. Thread-safe. Raises `DbtRuntimeError` for wrong options."""
        with self._opening:
            if self._lake is None:
                try:
                    self._lake = self._opened()
                except AlluviaError as error:
                    raise DbtRuntimeError(str(error)) from error
            return self._lake

    def _opened(self) -> AnyLake:
        if self.url is not None:
            region: dict[str, Any] = {} if self.region is None else {"region": self.region}
            return connect_server(
                self.url,
                token=self.token or None,
                auth=self.auth,
                branch=self.branch,
                timeout_seconds=self.timeout_seconds,
                **region,
            )
        options: dict[str, Any] = {**self.options, **({} if self.region is None else {"region": self.region})}
        lake = alluvia.connect(self.path or "", **options)
        return lake if self.branch is None else lake.on_branch(self.branch)
