"""What the command line runs besides the library: the functions' handlers, in a Lambda context, and the demo's events.

A checkout has them at its top, an installed wheel inside the package (`pyproject.toml` maps them there).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alluvia.clock import Clock
from alluvia.extras import needing

if TYPE_CHECKING:
    from alluvia.serverless.routes import Route

Handler = Callable[[dict[str, Any], Any], Any]
FUNCTIONS = ("ingest", "merge", "query", "vacuum", "backfill")
_PACKAGE = Path(__file__).parents[1]
_INSTALLED = (_PACKAGE / "functions").is_dir()
_FUNCTIONS = "alluvia.functions" if _INSTALLED else "functions"
DATA = (_PACKAGE if _INSTALLED else _PACKAGE.parents[1]) / "events" / "data"
COMMAND = "alluvia" if _INSTALLED else ".venv/bin/alluvia"
TIME_LIMIT_MS = 15 * 60 * 1000


def load_module(function: str, module: str) -> Any:
    """Return one of a function's modules. Raises `NotInstalled` where a package that it needs is missing."""
    with needing("aws", f"the {function} function"):
        return importlib.import_module(f"{_FUNCTIONS}.{function}.{module}")


def load_handler(function: str) -> Handler:
    """Return a function's handler. Raises `NotInstalled` as `load_module` does."""
    handler: Handler = load_module(function, "handler").handler
    return handler


def load_routes(function: str) -> Sequence[Route[Any]]:
    """Return the routes of a function that takes requests. Raises `NotInstalled` as `load_module` does."""
    routes: Sequence[Route[Any]] = load_module(function, "routes").ROUTES
    return routes


class LocalContext:
    """The attributes of a Lambda context that handlers and loggers use."""

    memory_limit_in_mb = "0"
    function_version = "$LATEST"
    log_group_name = ""
    log_stream_name = ""

    def __init__(self, function_name: str, clock: Clock) -> None:
        self.function_name = function_name
        self.invoked_function_arn = f"arn:aws:lambda:local:0:function:{function_name}"
        self.aws_request_id = clock.new_id()
        self._clock = clock
        self._started_ms = clock.now_ms()

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until a Lambda would be stopped."""
        return max(0, self._started_ms + TIME_LIMIT_MS - self._clock.now_ms())
