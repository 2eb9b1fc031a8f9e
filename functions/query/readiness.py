"""Whether the lake's storage answers."""

from __future__ import annotations

from alluvia import Lake
from alluvia.errors import AlluviaError
from alluvia.serverless.http import Response

from .answering import Caller, facts, logger

PROBE = "_alluvia/ready"
PROBE_BYTES = 64 << 10
"""A full disk often has room for a few bytes more."""
KEPT_MS = 30_000
"""Load balancers ask every few seconds: one PUT in this time is enough, as long as it works."""
_written_ms: dict[str, int] = {}
"""When the probe of each lake was last written, by its URI."""


def say_ready(caller: Caller) -> Response:
    """Answer whether the lake's storage answers. Anyone may ask, so what is wrong is only in the log."""
    try:
        next(iter(caller.lake.store.list_folders("")), None)
        if caller.settings.ready_writes:
            _check_writable(caller.lake)
    except AlluviaError:
        logger.exception("not ready", extra={"status": 503})
        return facts({"status": "the lake's storage does not respond, or does not accept writes"}, 503)
    return facts({"status": "ok"})


def _check_writable(lake: Lake) -> None:
    """Write an object, unless that has worked a moment ago. Raises what a store raises."""
    now_ms = lake.clock.now_ms()
    if 0 <= now_ms - _written_ms.get(lake.uri, -KEPT_MS) < KEPT_MS:
        return
    lake.store.put(PROBE, bytes(PROBE_BYTES))
    _written_ms[lake.uri] = now_ms
