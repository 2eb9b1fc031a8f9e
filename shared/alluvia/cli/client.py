"""A small HTTP client for a server on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any

import orjson

from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Return the body, parsed."""
        return orjson.loads(self.body)


class Client:
    """One connection to a local server, kept open."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)

    def post(self, path: str, body: bytes | dict[str, Any], headers: Mapping[str, str] | None = None) -> Reply:
        """Post bytes, or an object as JSON."""
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        kind = {} if isinstance(body, bytes) else {"Content-Type": "application/json"}
        self._connection.request("POST", path, data, {**kind, **(headers or {})})
        answer = self._connection.getresponse()
        return Reply(answer.status, answer.read())
