"""What the command line runs that is not of the library: the functions' handlers, and the demo's events.

A checkout has them at its top, an installed wheel inside the package (`pyproject.toml` maps them there).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from alluvia.extras import needing

Handler = Callable[[dict[str, Any], Any], Any]
FUNCTIONS = ("ingest", "merge", "query", "vacuum", "backfill")
_PACKAGE = Path(__file__).parents[1]
_INSTALLED = (_PACKAGE / "functions").is_dir()
DATA = (_PACKAGE if _INSTALLED else _PACKAGE.parents[1]) / "events" / "data"
COMMAND = "alluvia" if _INSTALLED else ".venv/bin/alluvia"


def load_handler(function: str) -> Handler:
    """Return a function's handler. Raises `NotInstalled` where a package that it needs is missing."""
    package = "alluvia.functions" if _INSTALLED else "functions"
    with needing("aws", f"the {function} function"):
        handler: Handler = importlib.import_module(f"{package}.{function}.handler").handler
    return handler
