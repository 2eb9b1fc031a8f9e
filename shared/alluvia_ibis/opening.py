"""From what a user names to a lake: one that this process opens, or a server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from alluvia.api.lake import Lake, connect
from alluvia.errors import Invalid
from alluvia_ibis.access import LakeAccess
from alluvia_ibis.local import OpenLake


def opened(
    place: str | os.PathLike[str] | Lake,
    token: str | None,
    auth: str | None,
    branch: str | None,
    timeout_seconds: float | str | None,
    options: Mapping[str, Any],
) -> LakeAccess:
    """Return access to a lake, or to a branch of it. Raises `Invalid` for options that do not go together."""
    if isinstance(place, str) and place.lower().startswith(("http://", "https://")):
        from alluvia.api.served_lake import connect_server
        from alluvia_ibis.served import ServedAccess

        lake = connect_server(place, token=token, auth=auth, branch=branch, timeout_seconds=timeout_seconds, **options)
        return ServedAccess(lake)
    if isinstance(place, str) and place.lower().startswith("grpc"):
        raise Invalid("Flight SQL is for ADBC and JDBC: give the address where the server has HTTP (http://…)")
    for name, given in (("token", token), ("auth", auth), ("timeout_seconds", timeout_seconds)):
        if given is not None:
            raise Invalid(f"{name} is an option of servers (http://…), and this lake is opened without one")
    if isinstance(place, Lake):
        if options:
            raise Invalid(f"{next(iter(options))} is an option of alluvia.connect, and this lake is open already")
        opened_lake = place
    else:
        opened_lake = connect(place, **options)
    return OpenLake(opened_lake if branch is None else opened_lake.on_branch(branch))
