"""The lake of a warm process: opened once from the environment, used by every invocation after that."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any

from alluvia.api.lake import Lake, connect
from alluvia.errors import Invalid
from alluvia.serverless import settings
from alluvia.serverless.http import BRANCH_HEADER, Request
from alluvia.serverless.routes.route import Route
from alluvia.serverless.settings import environment

LAKE = "ALLUVIA_LAKE"
ENDPOINT_URL = "ALLUVIA_ENDPOINT_URL"
OUTSIDE = "ALLUVIA_OUTSIDE"

_LOCAL = {"ALLUVIA_MODE": "direct", "ALLUVIA_CREATE_TABLES": "true", "POWERTOOLS_LOG_LEVEL": "WARNING"}

_lock = Lock()
_lakes: dict[tuple[str, str], Lake] = {}
_replacement: list[Lake] = []


def lake() -> Lake:
    """Return the lake that ALLUVIA_LAKE names (with ALLUVIA_ENDPOINT_URL, at another S3). Raises `Invalid`."""
    if _replacement:
        return _replacement[-1]
    uri = settings.text(os.environ, LAKE, "it names the lake, for example s3://bucket/prefix")
    endpoint_url = os.environ.get(ENDPOINT_URL, "")
    with _lock:
        if (uri, endpoint_url) not in _lakes:
            given: dict[str, Any] = {"endpoint_url": endpoint_url} if endpoint_url else {}
            _lakes[uri, endpoint_url] = connect(uri, outside=outside_of(os.environ), **given)
        return _lakes[uri, endpoint_url]


def outside_of(environment: Mapping[str, str]) -> list[str]:
    """Return the places, in ALLUVIA_OUTSIDE with commas between, below which attached tables may be: none by default.

    Who may create tables over HTTP could else have the process read whatever it can.
    """
    return [place for each in environment.get(OUTSIDE, "").split(",") if (place := each.strip())]


def asked_for(lake: Lake, request: Request, route: Route) -> Lake:
    """Return the lake, or the branch of it that a request names in its header. Raises `Invalid`.

    Callers have the same rights on a branch as on the lake. Not every route takes a branch.
    """
    name = request.headers.get(BRANCH_HEADER.lower())
    if name is None or (route.public and request.method != "POST"):
        return lake
    if not route.on_branch:
        raise Invalid(f"{BRANCH_HEADER}: this path takes no branch: leave the header out")
    return lake.on_branch(name)


def prepare() -> None:
    """Make the lake and its client while a Lambda function initialises, with more CPU than later; without a request."""
    if "AWS_LAMBDA_FUNCTION_NAME" in os.environ and os.environ.get(LAKE):
        lake()


@contextmanager
def using(replacement: Lake) -> Iterator[Lake]:
    """Have every handler of this process use a lake, with the settings of a local one where none are set.

    Locally, events are committed at once, a post may create its table, and only warnings are logged.
    """
    missing = {name: value for name, value in _LOCAL.items() if name not in os.environ}
    with environment(missing):
        _replacement.append(replacement)
        try:
            yield replacement
        finally:
            _replacement.remove(replacement)
