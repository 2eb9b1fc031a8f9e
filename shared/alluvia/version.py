"""The version, where the package, the command line and the log's commits take it from."""

from __future__ import annotations

__version__ = "0.1.0"
