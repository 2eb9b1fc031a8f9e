"""The lake of a warm process: opened once from the environment, used by every invocation after that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from alluvia.errors import Invalid
from alluvia.lake import Lake, connect

LAKE = "ALLUVIA_LAKE"
ENDPOINT_URL = "ALLUVIA_ENDPOINT_URL"

_lock = Lock()
_lakes: dict[tuple[str, str], Lake] = {}
_replacement: list[Lake] = []


def lake() -> Lake:
    """Return the lake that ALLUVIA_LAKE names (with ALLUVIA_ENDPOINT_URL, at another S3). Raises `Invalid`."""
    if _replacement:
        return _replacement[-1]
    uri, endpoint_url = os.environ.get(LAKE, ""), os.environ.get(ENDPOINT_URL, "")
    if not uri:
        msg = f"{LAKE} is not set: it names the lake, for example s3://bucket/prefix"
        raise Invalid(msg)
    with _lock:
        if (uri, endpoint_url) not in _lakes:
            options = {"endpoint_url": endpoint_url} if endpoint_url else {}
            _lakes[uri, endpoint_url] = connect(uri, **options)
        return _lakes[uri, endpoint_url]


@contextmanager
def using(replacement: Lake) -> Iterator[Lake]:
    """Have every handler of this process use a lake, whatever the environment says."""
    _replacement.append(replacement)
    try:
        yield replacement
    finally:
        _replacement.remove(replacement)
