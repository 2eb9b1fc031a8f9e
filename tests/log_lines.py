"""The lines that the functions log, caught as they would be written."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from functions.backfill import handler as backfill
from functions.ingest import events
from functions.ingest import handler as ingest
from functions.merge import handler as merge
from functions.pipeline import handler as pipeline
from functions.query import handler as query
from functions.vacuum import handler as vacuum

HANDLERS = {
    "ingest": ingest,
    "merge": merge,
    "pipeline": pipeline,
    "query": query,
    "vacuum": vacuum,
    "backfill": backfill,
}


class Lines:
    """What has been logged so far."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def parsed(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


@contextmanager
def log_lines() -> Iterator[Lines]:
    """Catch the lines of all functions at the level that the stack sets, INFO."""
    lines = Lines()
    with ExitStack() as stack:
        for logger in (*(module.logger for module in HANDLERS.values()), events.logger):
            level = logger.log_level
            logger.setLevel("INFO")
            stack.callback(logger.setLevel, level)
        for module in HANDLERS.values():
            stack.enter_context(mock.patch.object(module.logger.registered_handler, "stream", lines.stream))
        yield lines


class Context:
    """A Lambda context of a request, whose time runs out as it is asked for: the last number is told ever after."""

    def __init__(self, request_id: str, *remaining_ms: int) -> None:
        self.aws_request_id = request_id
        self._remaining_ms = list(remaining_ms or (900_000,))

    def get_remaining_time_in_millis(self) -> int:
        return self._remaining_ms.pop(0) if len(self._remaining_ms) > 1 else self._remaining_ms[0]
