"""The lake of a warm process: opened once from the environment, used by every invocation after that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from alluvia.lake import Lake, connect
from alluvia.serverless import settings
from alluvia.serverless.environment import environment

LAKE = "ALLUVIA_LAKE"
ENDPOINT_URL = "ALLUVIA_ENDPOINT_URL"

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
            _lakes[uri, endpoint_url] = connect(uri, endpoint_url=endpoint_url) if endpoint_url else connect(uri)
        return _lakes[uri, endpoint_url]


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
