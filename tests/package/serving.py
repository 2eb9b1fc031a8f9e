"""The installed command, serving a lake as a process of its own."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import pytest

from tests.package.conftest import Installed


@contextlib.contextmanager
def serving(
    installed: Installed, command: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start a command that serves on a free port; yield its process and the port."""
    process = subprocess.Popen(
        [str(installed.bin / command[0]), *command[1:]],
        cwd=installed.folder,
        env={**installed.environment, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r":(\d+)$", line.strip())
        if match is None:
            process.kill()
            pytest.fail(line + process.communicate()[1])
        yield process, int(match[1])
    finally:
        process.kill()
        process.communicate()
