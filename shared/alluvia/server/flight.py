"""Flight SQL next to HTTP, with the settings, rights and limits of the query function."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from alluvia.api.lake import Lake
from alluvia.extras import needing
from alluvia.server.guards import Admission
from alluvia.serverless.authorization import Authorization
from alluvia.serverless.query_settings import QuerySettings
from alluvia.serverless.query_statements import allowed_statements

if TYPE_CHECKING:
    from alluvia.flight.statements import StatementRules


def serving_flight(
    lake: Lake, admission: Admission, log: Callable[[str], object], host: str, port: int
) -> AbstractContextManager[int]:
    """Serve a lake over Flight SQL until the block ends, and yield the port. Raises `Invalid`, `NotInstalled`."""
    with needing("flight", "Flight SQL"):
        from alluvia.flight.service import Gate, serving

    return serving(lake, _rules, Gate(lambda: Authorization.read(os.environ), admission.slot, log), host, port)


def _rules() -> StatementRules:
    """Return what the query function allows, by its settings as they are now."""
    from alluvia.flight.statements import StatementRules

    settings = QuerySettings.read(os.environ)
    allowed = partial(allowed_statements, writes=settings.allow_writes)
    return StatementRules(settings.limits, settings.result_limit_bytes, settings.allow_writes, allowed)
