"""From what a user names to a lake: one that this process opens, or a server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from alluvia.api.lake import Lake, connect
from alluvia.errors import Invalid
from alluvia_ibis.access import LakeAccess
from alluvia_ibis.local import OpenLake
from alluvia_ibis.requests import bearer, nothing, signature

TIMEOUT_SECONDS = 60.0
IAM = "iam"


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
        return _served(place, token, auth, branch, _seconds(timeout_seconds), options)
    if isinstance(place, str) and place.lower().startswith("grpc"):
        raise Invalid("Flight SQL is for ADBC and JDBC: give the address where the server has HTTP (http://…)")
    for name, given in (("token", token), ("auth", auth), ("timeout_seconds", timeout_seconds)):
        if given is not None:
            raise Invalid(f"{name} is an option of servers (http://…), and this lake is opened without one")
    if isinstance(place, Lake):
        if options:
            raise Invalid(f"{next(iter(options))} is an option of alluvia.connect, and this lake is open already")
        lake = place
    else:
        lake = connect(place, **options)
    return OpenLake(lake if branch is None else lake.on_branch(branch))


def _served(
    url: str,
    token: str | None,
    auth: str | None,
    branch: str | None,
    timeout_seconds: float,
    options: Mapping[str, Any],
) -> LakeAccess:
    from alluvia_ibis.served import ServedLake

    parts = urlsplit(url)
    if parts.username is not None or parts.query or parts.fragment:
        raise Invalid("a server's URL is its address alone: pass a token as token=…")
    if auth not in (None, IAM) or (auth is not None and token is not None):
        raise Invalid(f"auth: the only value is {IAM!r}, which signs requests with AWS credentials and takes no token")
    unknown = next((name for name in options if name != "region" or auth is None), None)
    if unknown is not None:
        raise Invalid(
            f"{unknown} is not an option of a server: it takes token, or auth and region; branch; timeout_seconds"
        )
    proof = signature(url, options.get("region")) if auth else nothing if token is None else bearer(token)
    return ServedLake(url, proof, timeout_seconds, branch)


def _seconds(given: float | str | None) -> float:
    try:
        seconds = TIMEOUT_SECONDS if given is None else float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise Invalid("timeout_seconds: give a number above 0")
    return seconds
