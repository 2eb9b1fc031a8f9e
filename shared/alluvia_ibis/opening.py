"""From what a user names to a lake: one that this process opens, or a server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from alluvia.errors import Invalid
from alluvia.lake import Lake, connect
from alluvia_ibis.access import LakeAccess
from alluvia_ibis.local import OpenLake

TIMEOUT_SECONDS = 60.0


def opened(
    place: str | os.PathLike[str] | Lake,
    token: str | None,
    timeout_seconds: float | str | None,
    options: Mapping[str, Any],
) -> LakeAccess:
    """Return access to a lake. Makes no request. Raises `Invalid` for options that do not go together."""
    served = isinstance(place, str) and place.lower().startswith(("http://", "https://"))
    if served:
        from alluvia_ibis.served import ServedLake

        if options:
            raise Invalid(f"{next(iter(options))} is not an option of a server: send token and timeout_seconds")
        parts = urlsplit(str(place))
        if parts.username is not None or parts.query or parts.fragment:
            raise Invalid("a server is named by its address alone: give a token by token=…")
        return ServedLake(str(place), token, _seconds(timeout_seconds))
    for name, given in (("token", token), ("timeout_seconds", timeout_seconds)):
        if given is not None:
            raise Invalid(f"{name} is an option of servers (http://…), and this lake is opened without one")
    if isinstance(place, Lake):
        if options:
            raise Invalid(f"{next(iter(options))} is an option of alluvia.connect, and this lake is open already")
        return OpenLake(place)
    return OpenLake(connect(place, **options))


def _seconds(given: float | str | None) -> float:
    try:
        seconds = TIMEOUT_SECONDS if given is None else float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise Invalid("timeout_seconds: give a number above 0")
    return seconds
