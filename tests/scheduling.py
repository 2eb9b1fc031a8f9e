"""Which tests one of several test processes takes at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

TESTS = Path(__file__).parent
LONG = ("tests/faults/", "tests/processes/", "tests/property/", "tests/simulation/", "tests/stateful/")
"""Where many tests take seconds each."""
FIRST = ("delta-spark", "spark", "layers")
"""Groups that take minutes, the longest first: begun late, one of them would go on alone."""


class FilesAtOnce(LoadGroupScheduling):  # type: ignore[misc]
    """Files of short tests are taken at once, first those with the most tests; long tests one by one at the end.

    The groups of `FIRST` come before all.

    So what a file sets up is set up once, thousands of tests need no message each, and the processes end together.
    """

    def _split_scope(self, nodeid: str) -> str:
        group: str = super()._split_scope(nodeid)
        return group if group != nodeid or nodeid.startswith(LONG) else nodeid.partition("::")[0]

    def _assign_work_unit(self, node: Any) -> None:
        first = next((group for group in FIRST if group in self.workqueue), None)
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)


def begin_elsewhere(config: pytest.Config) -> None:
    """Have each of several processes that collect all tests begin with other files.

    The first to import a module compiles it and keeps that for the others. In the same order, all would compile all.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or [Path(arg).resolve() for arg in config.args] != [TESTS]:
        return
    files = sorted(map(str, TESTS.rglob("test_*.py")))
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    config.args = [*files[first:], *files[:first]]


def in_order(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort tests by their files, where several processes collect: all must have them in one order."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: str(item.path))
