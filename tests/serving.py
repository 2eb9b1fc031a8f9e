"""`alluvia serve` as a process, over real HTTP."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def serving(lake: Path, *words: str, quiet: bool = False) -> Iterator[tuple[subprocess.Popen[str], int]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "alluvia.cli", "serve", "--lake", str(lake), "--port", "0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if quiet else None,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r":(\d+)$", line.strip())
        assert match, line
        yield process, int(match[1])
    finally:
        process.kill()
        process.wait()
