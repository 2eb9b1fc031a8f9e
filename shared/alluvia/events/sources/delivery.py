"""A request to a source, as its sender sent it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request. `headers` are by their names in lower case, `body` is the exact bytes that came.

    url: the address that the sender used, with the query, as far as the request or the source's `url` tells.
    """

    headers: Mapping[str, str]
    body: bytes
    url: str = ""

    def header(self, name: str) -> str | None:
        """Return a header as text that can be stored; None if it is missing or empty."""
        value = self.headers.get(name.lower())
        return value.encode("utf-8", "replace").decode() if value else None
